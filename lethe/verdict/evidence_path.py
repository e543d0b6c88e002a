"""The path of the evidence: ln e of each question after its first answers, at a few numbers of answers and at the last.

The numbers are powers of a ratio, not the looks at which the rule of draws stopped, and a Retrain enters with as many of its
answers as the model, as far as these were drawn. A path shows how the evidence grew; the word rests on its last point.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lethe.io.files import Json
from lethe.measure.first_answers import FirstAnswers, first_answers, first_answers_beside
from lethe.measure.run import Run
from lethe.results.table import Result, Rows
from lethe.statistics.anytime import Counts
from lethe.verdict.compared import Compared, finite, log_e_of_forgot, log_e_of_leaks
from lethe.verdict.deciding import compared

QUANTITY = "evidence_path"
BASIS = "anytime"
FIRST_POINT = 16  # answers: fewer say nothing at a tolerance of some per cent
RATIO = math.sqrt(2)  # of neighbouring points: 23 at 32,768 answers, and 40 at 8 million


@dataclass(frozen=True)
class QuestionPath:
    """The final counts of a question for one model, and the answers that led there; None where none was drawn."""

    final: Counts
    answers: FirstAnswers | None

    @property
    def is_whole(self) -> bool:
        """Whether the answers lead to the final counts: a person's labels, for example, are counted otherwise."""
        final = (self.final.leaks, self.final.n, self.final.missing)
        if self.answers is None:
            return self.final.n == 0
        return self.answers.counts(self.answers.n) == final

    def at(self, n: int) -> Counts:
        """The counts of the first ``n`` answers, with the certain ends of the question."""
        if self.answers is None:
            return self.final
        leaks, drawn, missing = self.answers.counts(n)
        return replace(self.final, leaks=leaks, n=drawn, missing=missing)


def paths(run: Run, root: Path) -> list[Result]:
    """A row for each question of each model under test whose answers are evidence at any time, in the order of the run.

    ``root`` is the folder of all artifacts. The evidence of a row has its ``goal``, and lists of equal length: ``n``, the
    numbers of answers, ``forgot`` and ``leaks``, ln e after them (None where certain ends decide).
    """
    binary = run.params.metrics.binary
    if binary is None:
        return []
    cut_is_missing = run.params.sample.truncated == "missing"
    rows: list[Result] = []
    for model, sides in compared(run):
        if sides.scores is not None or not sides.independent:
            continue
        answers = first_answers(root, model.name, binary, cut_is_missing)
        beside = []
        for retrain in run.retrains:
            drawn = first_answers_beside(root, model.name, retrain.name, binary, cut_is_missing)
            beside.append(drawn)
        rows += _rows(model.name, sides, answers, beside)
    return rows


def _rows(
    name: str,
    sides: Compared,
    answers: Mapping[str, FirstAnswers],
    beside: Sequence[Mapping[str, FirstAnswers]],
) -> list[Result]:
    """The rows of a model; a question whose answers do not lead to its counts is left out."""
    rows = Rows(name)
    for place, item in enumerate(sides.subject.items):
        model = QuestionPath(sides.counts[place], answers.get(item))
        retrains = []
        for chance, of_retrain in zip(sides.chances[place], beside, strict=True):
            counted = None
            if chance.n:  # of a Retrain that is refused no answer counts
                counted = of_retrain.get(item)
            retrains.append(QuestionPath(chance, counted))
        is_whole = all(side.is_whole for side in (model, *retrains))
        if not model.final.n or not is_whole:
            continue
        rows.add(
            "question",
            QUANTITY,
            BASIS,
            item=item,
            split="forget",
            n=model.final.n,
            evidence=_path(model, retrains, sides.tau, float(sides.goals[place])),
        )
    return rows.rows


def _path(
    model: QuestionPath, retrains: Sequence[QuestionPath], tau: float, goal: float
) -> dict[str, Json]:
    """The evidence of a question; its last point is that of the word, with all that was drawn of Retrain."""
    numbers = points(model.final.n)
    forgot: list[Json] = []
    leaks: list[Json] = []
    for n in numbers:
        chances = []
        for side in retrains:
            if n == model.final.n:
                chances.append(side.final)
            else:
                chances.append(side.at(n))
        counts = model.at(n)
        forgot.append(finite(log_e_of_forgot(counts, tuple(chances), tau)))
        leaks.append(finite(log_e_of_leaks(counts, tuple(chances), tau)))
    return {"goal": goal, "n": list(numbers), "forgot": forgot, "leaks": leaks}


def points(n: int) -> list[int]:
    """The numbers of answers of a path that ends at ``n``.

    >>> points(100)
    [16, 23, 32, 45, 64, 91, 100]
    """
    numbers = []
    number = FIRST_POINT
    while number < n:
        numbers.append(number)
        number = round(FIRST_POINT * RATIO ** len(numbers))
    return [*numbers, n]
