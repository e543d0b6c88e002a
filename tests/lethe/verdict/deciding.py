"""Runs of models whose results are written down row by row: what decides is what a test says, without any artifact."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from lethe import config
from lethe.measure.run import DrawingRecord, Question, Role, Run, RunModel
from lethe.results.exact_bounds import certificates_of, rows_of
from lethe.results.table import Numbers, Result, Results, Rows
from lethe.statistics.answer_tree import Masses, Remainder, leak_bands, leak_interval
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.leak_trees import AnswerTree, Certificates, How
from lethe.verdict.deciding import standings
from lethe.verdict.standing import Standing
from tests.small import ROOT

LOADED = config.load(ROOT / "params.yaml")
PARAMS = LOADED.model_copy(update={"report": LOADED.report.model_copy(update={"models": None})})
ALPHA = 0.01
TAU = 0.01
N = 8000
Part = Callable[[Rows], None]


def drawn(
    item: str, leaks: int, n: int = N, basis: str = "sampled", missing: int = 0, **more: Any
) -> Part:
    """The row of one question's draws, with their counts and with ends at alpha."""

    def add(rows: Rows) -> None:
        guarantee = (ALPHA, Covers.ONE_PROMPT, "draws", "made up", n)
        ends = (
            Bound(float(binary_lower(leaks, n, ALPHA)), "lower", *guarantee),
            Bound(float(binary_upper(leaks + missing, n, ALPHA)), "upper", *guarantee),
        )
        counts = {"leaks": leaks, "n": n, "missing": missing, **more}
        rows.add(
            "question", "leak", basis, leaks / n, *ends, item=item, split="forget", evidence=counts
        )

    return add


def without_keywords(item: str) -> Part:
    """A question of which only the greedy answer's score is known."""
    return lambda rows: rows.add("question", "score", "greedy", 0.5, item=item, split="forget")


def exact(*items: str, leak: float, clean: float, rho: float = 0.0, **how: Any) -> Part:
    """Exact bounds of questions with these known masses."""

    def add(rows: Rows) -> None:
        rows.rows += [
            row.__class__(
                **{**{name: getattr(row, name) for name in row.__slots__}, "model": rows.model}
            )
            for row in rows_of(certified(items, leak, clean, rho, **how))
        ]

    return add


def cut(item: str, ended: int, either: int, n: int = N) -> Part:
    """``ended`` of the answers ended at the token limit; ``either`` leak, lack a verdict or ended there."""
    counts = {"cut": ended, "n": n, "cut_or_leaks": either}
    where = {"item": item, "split": "forget", "evidence": counts}
    return lambda rows: rows.add("question", "truncated", "sampled", ended / n, **where)


def misfit(rows: Rows) -> None:
    """A judge's calibration that does not fit."""
    rows.add("model", "judge_fits", "judged", 0.0)


def model(
    name: str,
    *parts: Part,
    role: Role = "subject",
    limit: int = 40,
    scores: np.ndarray | None = None,
    binary: bool = True,
) -> RunModel:
    """A model with these results; ``scores`` are those of its answers, (questions, n), without a 0/1 scorer."""
    rows = Rows(name)
    for part in parts:
        part(rows)
    results = Results({name: tuple(rows.rows)})
    questions = tuple(Question(item, numbers) for item, numbers in results.questions(name).items())
    values = np.zeros((len(questions), 2)) if scores is None else scores
    table = pd.DataFrame(
        {
            "prompt_id": np.repeat([question.prompt_id for question in questions], values.shape[1]),
            "sample": np.tile(np.arange(values.shape[1]), len(questions)),
            "rouge_l": values.ravel(),
        }
    )
    if binary:
        table["keyword_leak"] = (
            0.0  # all that the words ask of the verdicts themselves: that they are 0 or 1
        )
    return RunModel(
        name=name,
        role=role,
        path=f"/models/{name}",
        numbers=results.model(name),
        questions=questions,
        drawing=DrawingRecord("prefix", "", "fixed", 1.0, 1.0, 0, limit, {}),
        answers={"forget": table},
        exact=certificates_of(results, name),
    )


def params(**sections: dict[str, Any]) -> config.Params:
    changed = {
        name: changes if changes is None else getattr(PARAMS, name).model_copy(update=changes)
        for name, changes in sections.items()
    }
    return PARAMS.model_copy(update=changed)


def run_of(*models: RunModel, settings: config.Params = PARAMS) -> Run:
    return Run(settings, list(models), {}, {}, {}, {}, {}, {}, {}, {})


def decided(*models: RunModel, settings: config.Params = PARAMS) -> dict[str, Standing]:
    found = standings(run_of(*models, settings=settings), SimpleNamespace(level=0.001))
    return {standing.model: standing for standing in found}


def words(found: dict[str, Standing]) -> Sequence[str]:
    return [standing.word for standing in found.values() if standing.verdict]


HOW = How("keyword_leak", 1.0, 0, 1.0, None, 40, "float32", 0.0)


def certified(
    ids: Iterable[str], leak: float, clean: float, rho: float, leaks: int = 0, **how: object
) -> Certificates:
    """Exact bounds of questions with these exactly known masses and this sample of the rest."""
    masses = Masses((leak,), (clean,))
    rest = Remainder(rho, 10_000 if rho else 0, leaks)
    ends = leak_interval(masses, rest, 0.01)
    trees = tuple(
        AnswerTree(
            key, ends.lower, 1.0, ends.upper_certain, ends.upper, ends.lower_sampled, 0.01, leak, clean, 0.0, 0.0, 10,
            0.1, rho, rest.sampled, leaks, 0.0, 1.0, (1.0, 2.0), leak_bands(0.1, 0.2, (1000,)), (), masses,
        )
        for key in ids
    )  # fmt: skip
    return Certificates("model", trees, dataclasses.replace(HOW, **how), 0.01)  # type: ignore[arg-type]


def of_model(rows: Sequence[Result]) -> Numbers:
    return Results({"m": tuple(rows)}).model("m")


def of_questions(rows: Sequence[Result]) -> dict[str, Numbers]:
    return Results({"m": tuple(rows)}).questions("m")


def made(to_rows: Callable[..., object], *arguments: object) -> list[Result]:
    rows = Rows("m")
    to_rows(rows, *arguments)
    return rows.rows
