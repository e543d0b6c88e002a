"""The table of a forget set, from the outcomes of its steps alone: no model and no answer is needed."""

from collections.abc import Mapping, Sequence

import numpy as np

from lethe.config.schema import Params
from lethe.io.files import Json
from lethe.results.ends import Ends
from lethe.results.evidence import Truncation
from lethe.results.table import Result
from lethe.verdict import rules as rule
from lethe.verdict.rules import Verdict
from studies.tofu_table.design import (
    BASE,
    RETRAIN,
    Design,
    Outcomes,
    Step,
    chosen_rate,
)

Values = Mapping[str, Json]
LOOK, ALL = "look", "all"  # which answers a table is of


def table_of(design: Design, outcomes: Outcomes, step: Step) -> dict[str, Json]:
    """The models of a forget set, with numbers, words and sentences; ``step.model`` says of which answers.

    The word on all answers comes after the first look was read, so it takes the smaller level of a second look.
    """
    models = {}
    for name in design.models:
        models[name] = _asked(design, outcomes, step, name)
    params = design.params(step.forget)
    look = 1 if step.model == LOOK else 2
    rows = []
    for name, asked in models.items():
        row = {"model": name, **_numbers(asked)}
        if name in design.methods:
            row["rate"] = chosen_rate(design, outcomes, step.forget, name)
            verdict = _verdict(asked, models[RETRAIN], params, len(design.methods), look)
            utility = rule.utility(_retained(asked), _retained(models[BASE]))
            row |= {"word": verdict.word, "utility": utility}
            row["sentence"] = rule.sentence(verdict, name, utility=utility)
        rows.append(row)
    digests = {name: sorted(asked["digests"]) for name, asked in models.items()}
    return {"models": rows, "digests": digests}


def _asked(design: Design, outcomes: Outcomes, step: Step, model: str) -> dict[str, Json]:
    """What the steps of one model brought: its questions and rows in one list each, and its means."""
    look = outcomes[Step("look", step.forget, model).name]
    parts = [look]
    exact: list[Values] = []
    if step.model == ALL:
        parts = []
        for block in range(1, design.blocks + 1):
            parts.append(outcomes[Step("sample", step.forget, model, block=block).name])
        exact = [outcomes[Step("exact", step.forget, model).name]]
    rows = []
    for part in (*parts, *exact):
        rows += [Result(**row) for row in part["rows"]]
    return {
        "questions": [name for part in parts for name in part["questions"]],
        "rows": rows,
        "n": parts[0]["n"],
        "means": [(len(part["questions"]), part["means"]["forget"]) for part in parts],
        "kept": look["means"],
        "digests": {part["model"] for part in (*parts, *exact)},
    }


def _numbers(asked: Values) -> dict[str, Json]:
    """The columns of the table: means over the questions, of answers by greedy decoding and by sampling."""
    values: dict[str, Json] = {"questions": len(asked["questions"]), "answers": asked["n"]}
    columns = {
        "greedy": ("score", "greedy"),
        "ED": ("ed_score", "sampled"),
        "deviation": ("sd", "sampled"),
        "greedy leaks": ("leak", "greedy"),
        "sampled leaks": ("leak", "sampled"),
    }
    for name, (quantity, basis) in columns.items():
        values[name] = float(np.mean(_estimates(asked["rows"], quantity, basis)))
    values["mean"] = _average(asked["means"])
    leaks = _estimates(asked["rows"], "leak", "sampled")
    values["questions with a sampled leak"] = sum(leak > 0 for leak in leaks)
    values["questions with a greedy leak"] = sum(_estimates(asked["rows"], "leak", "greedy"))
    for split, kept in asked["kept"].items():
        if split != "forget":
            values[split] = kept
    exact = _exact_ends(asked)
    return values | ({"exact leaks": exact} if exact else {})


def _estimates(rows: Sequence[Result], quantity: str, basis: str) -> list[float]:
    found = []
    for row in rows:
        if (row.quantity, row.basis) == (quantity, basis) and row.estimate is not None:
            found.append(row.estimate)
    return found


def _average(means: Sequence[tuple[int, Values]]) -> dict[str, Json]:
    """The mean over the questions of all blocks, with ends that hold together by their union bound."""
    weights = [count for count, _ in means]
    averaged = {}
    for end in ("mean", "ci_low", "ci_high"):
        averaged[end] = float(np.average([mean[end] for _, mean in means], weights=weights))
    return averaged


def _exact_ends(asked: Values) -> dict[str, Json]:
    """The ends of P(leak) by the answer tree, averaged over the questions; empty where the table has none."""
    trees = [row for row in asked["rows"] if row.basis in ("exact", "tree")]
    if not trees:
        return {}
    certain = [row.lower for row in trees if row.basis == "exact" and row.lower is not None]
    upper = [row.upper for row in trees if row.basis == "tree" and row.upper is not None]
    low, high = float(np.mean(certain)), float(np.mean(upper))
    return {"mean": (low + high) / 2, "ci_low": low, "ci_high": high}


def _retained(asked: Values) -> tuple[float, float] | None:
    kept = asked["kept"].get("retain")
    return None if kept is None else (kept["ci_low"], kept["ci_high"])


def _verdict(asked: Values, retrain: Values, params: Params, models: int, look: int) -> Verdict:
    ends = _ends(asked, asked["questions"])
    return rule.decide(
        ends,
        [_ends(retrain, asked["questions"])],
        alpha=params.metrics.alpha,
        tau=params.report.tau,
        models=models,
        look=look,
        truncation=_truncation(asked, params),
    )


def _ends(asked: Values, items: Sequence[str]) -> Ends:
    rows = [row for row in asked["rows"] if row.basis != "sampled" or row.upper is not None]
    return Ends.of_rows(rows, items)


def _truncation(asked: Values, params: Params) -> Truncation:
    facts = {row.item: row.facts for row in asked["rows"] if row.quantity == "truncated"}
    counts = {}
    for key in ("cut", "n", "cut_or_leaks"):
        of_questions = [facts[item][key] for item in asked["questions"]]
        counts[key] = np.array(of_questions, dtype=np.float64)
    either = np.where(np.isnan(counts["cut_or_leaks"]), counts["n"], counts["cut_or_leaks"])
    limit = params.sample.max_new_tokens
    return Truncation(counts["cut"], counts["n"], either, limit, params.report.most_truncated)
