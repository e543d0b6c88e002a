"""The table of a forget set, from the outcomes of its steps alone: no model and no answer is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.config.schema import Params
from lethe.io.files import Json
from lethe.results.ends import Ends
from lethe.results.evidence import Truncation
from lethe.results.table import Result
from lethe.verdict import rules as rule
from lethe.verdict.sentence import sentence as sentence_of
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


@dataclass(frozen=True)
class Asked:
    """What the steps of one model brought so far: ``questions`` and their ``rows``, of ``n`` answers each.

    ``means`` are the mean scores of each step with its number of questions, ``kept`` those on the sets that should stay.
    ``digests`` name the models that answered: more than one where a model was trained again to other weights.
    """

    questions: tuple[str, ...]
    rows: tuple[Result, ...]
    n: int
    means: tuple[tuple[int, Values], ...]
    kept: Values
    digests: frozenset[str]

    @classmethod
    def of(
        cls,
        design: Design,
        outcomes: Outcomes,
        table: Step,
        model: str,
    ) -> Asked | None:
        """What there is of a model for a table; None where no step of it is done."""
        look = outcomes.get(Step("look", table.forget, model).name)
        if look is None:
            return None

        sampled = [look]
        exact = None
        if table.model == ALL:
            sampled = []
            for block in range(1, design.blocks + 1):
                step = Step("sample", table.forget, model, block=block)
                if step.name in outcomes:
                    sampled.append(outcomes[step.name])
            exact = outcomes.get(Step("exact", table.forget, model).name)
        if not sampled:
            return None

        questions: list[str] = []
        means = []
        for answered in sampled:
            questions += answered["questions"]
            means.append((len(answered["questions"]), answered["means"]["forget"]))

        bounded = [*sampled, exact] if exact else sampled
        rows = []
        for answered in bounded:
            for values in answered["rows"]:
                row = Result(**values)
                if (
                    row.item in questions
                ):  # the answer tree walks questions that no block has asked yet
                    rows.append(row)
        return cls(
            questions=tuple(questions),
            rows=tuple(rows),
            n=sampled[0]["n"],
            means=tuple(means),
            kept=look["means"],
            digests=frozenset(answered["model"] for answered in bounded),
        )

    def estimates(self, quantity: str, basis: str) -> list[float]:
        """The estimates of a quantity, one a question."""
        found = []
        for row in self.rows:
            if (row.quantity, row.basis) == (quantity, basis) and row.estimate is not None:
                found.append(row.estimate)
        return found

    def ends(self, items: Sequence[str]) -> Ends:
        """Both ends of P(leak) of the questions ``items`` at any level."""
        rows = [row for row in self.rows if row.basis != "sampled" or row.upper is not None]
        return Ends.of_rows(rows, items)


def table_of(design: Design, outcomes: Outcomes, step: Step) -> dict[str, Json]:
    """The models of a forget set, with numbers, words and sentences; ``step.model`` says of which answers.

    The word holds at any time, so that on all answers it may come after the first look was read. A model without an outcome
    is left out, and there is no word before it and Retrain have answered all questions.
    """
    models = {}
    for name in design.models:
        asked = Asked.of(design, outcomes, step, name)
        if asked is not None:
            models[name] = asked

    rho = design.params(step.forget).metrics.rho
    rows = []
    for name, asked in models.items():
        row = {"model": name, **_numbers(asked, rho)}
        if name in design.methods:
            row |= _words(design, outcomes, step, name, models)
        rows.append(row)
    digests = {name: sorted(asked.digests) for name, asked in models.items()}
    return {"models": rows, "digests": digests}


def _words(
    design: Design,
    outcomes: Outcomes,
    step: Step,
    name: str,
    models: Mapping[str, Asked],
) -> dict[str, Json]:
    """The rate of a method, its two words and their sentence."""
    asked = models[name]
    retrain = models.get(RETRAIN)
    rate = {"rate": chosen_rate(design, outcomes, step.forget, name)}
    if retrain is None or set(asked.questions) != set(retrain.questions):
        return rate
    if len(asked.questions) != design.asked:
        return rate

    params = design.params(step.forget)
    verdict = rule.decide(
        asked.ends(asked.questions),
        [retrain.ends(asked.questions)],
        alpha=params.metrics.alpha,
        tau=params.report.tau,
        models=len(design.methods),
        truncation=_truncation(asked, params),
    )
    utility = rule.utility(_retained(asked), _retained(models[BASE]))
    sentence = sentence_of(verdict, name, utility=utility)
    return rate | {"word": verdict.word, "utility": utility, "sentence": sentence}


def _numbers(asked: Asked, rho: float) -> dict[str, Json]:
    """The columns of the table: means over the questions, of answers by greedy decoding and by sampling."""
    greedy_leaks = asked.estimates("leak", "greedy")
    sampled_leaks = asked.estimates("leak", "sampled")
    values: dict[str, Json] = {
        "questions": len(asked.questions),
        "answers": asked.n,
        "greedy": float(np.mean(asked.estimates("score", "greedy"))),
        "deviation": float(np.mean(asked.estimates("sd", "sampled"))),
        "greedy leaks": float(np.mean(greedy_leaks)),
        "sampled leaks": float(np.mean(sampled_leaks)),
        "ED": _ed_score(asked, rho),
        "mean": _average(asked.means),
        "questions with a sampled leak": int(np.count_nonzero(sampled_leaks)),
        "questions with a greedy leak": sum(greedy_leaks),
    }
    for split, kept in asked.kept.items():
        if split != "forget":
            values[split] = kept
    exact = _exact_ends(asked)
    if exact:
        values["exact leaks"] = exact
    return values


def _ed_score(asked: Asked, rho: float) -> dict[str, Json]:
    """The mean ED score, mean + rho sd, with ``sd``, its standard error over the draws of these questions.

    For n draws of deviation s the mean has the variance s^2 / n and s about s^2 / 2n, by the normal approximation.
    """
    deviations = np.array(asked.estimates("sd", "sampled"))
    variances = deviations**2 * (1 + rho**2 / 2) / asked.n
    error = float(np.sqrt(variances.sum()) / len(deviations))
    return {"mean": float(np.mean(asked.estimates("ed_score", "sampled"))), "sd": error}


def _average(means: Sequence[tuple[int, Values]]) -> dict[str, Json]:
    """The mean over the questions of all blocks, with ends that hold together by their union bound."""
    n_questions, means_of_blocks = zip(*means, strict=True)
    averaged = {}
    for end in ("mean", "ci_low", "ci_high"):
        values = [mean[end] for mean in means_of_blocks]
        averaged[end] = float(np.average(values, weights=n_questions))
    return averaged


def _exact_ends(asked: Asked) -> dict[str, Json]:
    """The ends of P(leak) by the answer tree, averaged over the questions; empty where the table has none."""
    certain = []
    upper = []
    for row in asked.rows:
        if row.basis == "exact" and row.lower is not None:
            certain.append(row.lower)
        if row.basis == "tree" and row.upper is not None:
            upper.append(row.upper)
    if not certain or not upper:
        return {}

    low = float(np.mean(certain))
    high = float(np.mean(upper))
    return {"mean": (low + high) / 2, "ci_low": low, "ci_high": high}


def _retained(asked: Asked) -> tuple[float, float] | None:
    """Both ends of the mean score on the retain set; None where it was not asked."""
    kept = asked.kept.get("retain")
    if kept is None:
        return None
    return kept["ci_low"], kept["ci_high"]


def _truncation(asked: Asked, params: Params) -> Truncation:
    """The answers to each question that were cut at the limit of tokens, and those that were cut or leak."""
    facts = {row.item: row.facts for row in asked.rows if row.quantity == "truncated"}
    counts = {}
    for key in ("cut", "n", "cut_or_leaks"):
        of_questions = [facts[item][key] for item in asked.questions]
        counts[key] = np.array(of_questions, dtype=np.float64)

    # Where it was not counted, any answer may be a leak.
    is_unknown = np.isnan(counts["cut_or_leaks"])
    either = np.where(is_unknown, counts["n"], counts["cut_or_leaks"])
    return Truncation(
        counts["cut"],
        counts["n"],
        either,
        params.sample.max_new_tokens,
        params.report.most_truncated,
    )
