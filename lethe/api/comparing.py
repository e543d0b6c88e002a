"""`lethe.compare`: two runs, question by question."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lethe.api.result import TableWithSentences, View
from lethe.errors import BadValue, plural
from lethe.evaluation import compared

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Comparison(compared.Comparison, TableWithSentences):
    """The result of `compare`: ``per_question``, the average (``pooled``), and whether B is ``worse``."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question, with the effect and its interval."""
        import pandas as pd

        return pd.DataFrame([one.row() for one in self.per_question])

    def views(self) -> list[View]:
        """The questions with the largest differences, and the statements on all of them."""
        columns, rows = self.table()
        notes = self.sentences()
        if more := len(self.per_question) - len(rows):
            notes.append(f"{plural(more, 'more question')}: see --json or --page.")
        return [View(f"{self.a} and {self.b}", columns, rows, notes)]


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    alpha: float = 0.05,
    *,
    score: str | None = None,
    filter: str | None = None,
    model: str | Sequence[str] | None = None,
    by: float | None = None,
    on: Literal["questions", "average"] = "questions",
    stopped: Literal["a", "b", "both"] | None = None,
    worst: bool = False,
) -> Comparison:
    """Compare two runs question by question: which leak more or less in B than in A, with effect and interval.

    Parameters
    ----------
    a : str or path
        The earlier side: a log, a table of scores, a data folder, or a git revision or experiment.
    b : str or path
        The later side, of any of these kinds.
    alpha : float
        The list of differences has a false entry with at most this probability.
    score : str, optional
        The score. [default: the 0/1 scorer, or the first of a log]
    filter : str, optional
        One filter of lm-eval logs.
    model : str or list of str, optional
        A model of data folders; repeatable. [default: all]
    by : float, optional
        Bound by how much B is worse, and say whether that is at most this.
    on : {"questions", "average"}
        Whether `by` is about every question or about their average.
    stopped : {"a", "b", "both"}, optional
        The sides whose draws a rule could stop; logs and data folders record it. A table may have a column `stopped`.
    worst : bool
        Also bound the largest score of a question in B.

    Notes
    -----
    A difference holds after Holm's correction over all questions. Each interval holds at alpha by itself. ``worse`` is wrong
    with probability at most alpha. Higher scores are worse. Questions with another text, prompt or scorer are named and not
    compared. Sides that record different seeds are independent, sides with one seed are compared by pairs of answers, and for
    others neither is assumed. With one answer to each question, the average is tested over the questions.

    Examples
    --------
    >>> import lethe
    >>> found = lethe.compare("scores.csv", "scores.csv", score="score")
    >>> found.worse, len(found.to_frame())
    (False, 1)
    """
    from lethe.evaluation.sides import read_side

    models = [model] if isinstance(model, str) else list(model or ())
    sides = [read_side(str(given), score, filter, models) for given in (a, b)]
    kinds = {side.kind for side in sides}
    if filter is not None and "log" not in kinds:
        raise BadValue("filter", filter, "left out: neither side is an lm-eval log")
    if models and kinds <= {"log", "table"}:
        raise BadValue("model", ", ".join(models), "left out: neither side is a data folder or a revision")
    if by is not None and not 0 <= by < 1:
        raise BadValue("by", by, "a number of at least 0 and below 1")
    if by is None and on != "questions":
        raise BadValue("on", on, "left out without by")
    first, second = (
        replace(side, stopped=side.stopped or stopped in (name, "both"))
        for side, name in zip(sides, ("a", "b"), strict=True)
    )
    return Comparison(**vars(compared.compare(first, second, alpha, by, on, worst)))
