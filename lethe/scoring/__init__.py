"""Scorers: the share of the reference answer in a generation, from 0 (none of it) to 1 (all of it).

A scorer of `lethe.scoring.text` is a module with one function::

    score(generations: Sequence[str], item: Mapping) -> np.ndarray

``item`` is a row of the data set (`question`, `answer`, optional `keywords` and so on); the result is float64, one
value in [0, 1] per generation, in the given order. A missing generation or reference gives NaN, which files store as
null: a missing score is never zero. An empty generation is an answer and scores 0. A scorer that needs more of a row
than its answer defines a second function, ``applies(item) -> bool``, which says whether answers to the row can be
scored. A scorer whose values are only 0 and 1 sets ``BINARY = True``. A scorer with a class ``Params`` (a
`ScorerParams`) gets its parameters as a third argument, ``params``. A scorer that owns a model is a judge: see
`lethe.scoring.judges`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lethe.config.evaluating import ScorerParams, scorer_params
from lethe.errors import BadValue
from lethe.registry import JUDGES, SCORERS
from lethe.scoring.verdicts import Question, VerdictStore, judged

if TYPE_CHECKING:
    from lethe.scoring.judges import Judge


class Scorer(Protocol):
    """A scorer ready to score many questions."""

    endings: tuple[str, ...]  # the column names' endings; "" is the column with the scorer's own name

    def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
        """One array per question, one value per answer."""
        ...

    def columns(self, questions: Sequence[Question]) -> list[np.ndarray]:
        """One array (answers, columns) per question, of which `score` is the first column."""
        ...


def names() -> list[str]:
    """The names that ``score.scorers`` may list: the text scorers, then the judges."""
    return [*SCORERS, *JUDGES]


def open_scorer(name: str, params: ScorerParams | None = None, kept: Path | None = None) -> Scorer:
    """Open a scorer or judge by name, ready to score; loads a judge's model.

    Examples
    --------
    >>> question = Question(["He was born in Rome.", None], {"answer": "Rome", "keywords": ["Rome"]})
    >>> open_scorer("keyword_leak").score([question])[0].tolist()
    [1.0, nan]
    """
    _check(name)
    if name in JUDGES:
        return _Judging(JUDGES[name](params or scorer_params(name)), name, kept)
    member = SCORERS[name]
    if not hasattr(member, "Params"):
        return _Scoring(member.score)
    return _Scoring(functools.partial(member.score, params=params or scorer_params(name)))


def scorer(name: str) -> Callable[[Sequence[str | None], Mapping[str, object]], np.ndarray]:
    """The function ``score(generations, item)`` of the scorer called ``name``; a judge keeps its model loaded."""
    opened = open_scorer(name)
    return lambda generations, item: opened.score([Question(generations, item)])[0]


def applies(name: str, item: Mapping[str, object]) -> bool:
    """Whether the scorer or judge called ``name`` can score answers to the row ``item``."""
    _check(name)
    member = JUDGES[name] if name in JUDGES else SCORERS[name]
    return getattr(member, "applies", lambda _: True)(item)


def _check(name: str) -> None:
    if name not in SCORERS and name not in JUDGES:
        raise BadValue("scorer", name, "one of " + ", ".join(names()))


class _Scoring:
    """A text scorer, which scores each question separately."""

    endings: tuple[str, ...] = ("",)

    def __init__(self, function: Callable[[Sequence[str | None], Mapping[str, object]], np.ndarray]):
        self.function = function

    def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
        return [self.function(question.answers, question.item) for question in questions]

    def columns(self, questions: Sequence[Question]) -> list[np.ndarray]:
        return [values[:, None] for values in self.score(questions)]


class _Judging:
    """A judge that reads each distinct answer to a question once, in batches that span questions."""

    def __init__(self, judge: Judge, name: str, kept: Path | None):
        self.judge, self.name, self.endings = judge, name, judge.COLUMNS
        self.store = VerdictStore(judge, kept) if kept else None

    def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
        return [values[:, 0] for values in self.columns(questions)]

    def columns(self, questions: Sequence[Question]) -> list[np.ndarray]:
        return judged(self.judge, questions, self.store, self.name)
