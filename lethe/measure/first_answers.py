"""What the first answers to each question alone said: the counts on the way to those on which a word rests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.io.artifacts import BESIDE, columns_of
from lethe.measure.answers import sampled_scores


@dataclass(frozen=True)
class FirstAnswers:
    """Of a question, how many of its first 0, 1, ..., n answers leak, (n + 1,), and how many have no verdict, (n + 1,)."""

    leaks: np.ndarray
    missing: np.ndarray

    @classmethod
    def of(cls, leaks: np.ndarray, missing: np.ndarray) -> FirstAnswers:
        """From two arrays (n,) in drawing order: whether an answer leaks, and whether it has no verdict."""
        return cls(_sums(leaks), _sums(missing))

    @property
    def n(self) -> int:
        return len(self.leaks) - 1

    def counts(self, n: int) -> tuple[int, int, int]:
        """Leaks, answers and missing verdicts among the first ``n`` answers, or among all where there are fewer."""
        n = min(n, self.n)
        return int(self.leaks[n]), n, int(self.missing[n])


def _sums(marks: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(marks, dtype=np.int64)])


def first_answers(
    root: Path, model: str, scorer: str, cut_is_missing: bool
) -> dict[str, FirstAnswers]:
    """The answers of a model to the forget questions by question; empty where they or their scores are absent.

    ``root`` is the folder of all artifacts, ``scorer`` a column of 0 and 1. ``cut_is_missing``: an answer that ended at the
    token limit has no verdict, unless it leaks.
    """
    return _read(root, Path(model, "forget.parquet"), scorer, cut_is_missing)


def first_answers_beside(
    root: Path, model: str, retrain: str, scorer: str, cut_is_missing: bool
) -> dict[str, FirstAnswers]:
    """The answers of a Retrain that were drawn beside a model; where none were, all that the Retrain has of its own.

    ``cut_is_missing`` concerns the latter alone: those beside a model are counted with what they say.
    """
    beside = Path(model, BESIDE, f"{retrain}.parquet")
    if (root / "generations" / beside).is_file():
        return _read(root, beside, scorer, cut_is_missing=False)
    return _read(root, Path(retrain, "forget.parquet"), scorer, cut_is_missing)


def _read(root: Path, place: Path, scorer: str, cut_is_missing: bool) -> dict[str, FirstAnswers]:
    drawn = root / "generations" / place
    scores = root / "scores" / place
    if not drawn.is_file() or not scores.is_file() or scorer not in columns_of(scores):
        return {}
    answers_of_question = {}
    for question, values, cut in sampled_scores(drawn, scores, scorer):
        missing = np.isnan(values)
        if cut_is_missing:
            missing |= cut & (values == 0)
        answers_of_question[question] = FirstAnswers.of(values == 1, missing)
    return answers_of_question
