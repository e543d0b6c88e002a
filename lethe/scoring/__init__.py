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
from typing import Any, NamedTuple

import numpy as np

from lethe.config.evaluating import ScorerParams, scorer_params
from lethe.errors import BadValue
from lethe.registry import JUDGES, SCORERS
from lethe.scoring.verdicts import Question, VerdictStore, judged


class Scorer(NamedTuple):
    """A scorer ready to score many questions.

    ``columns`` gives one array (answers, columns) per question. ``endings`` are those of the columns' names; "" is the
    column with the scorer's own name, which is the first.
    """

    columns: Callable[[Sequence[Question]], list[np.ndarray]]
    endings: tuple[str, ...] = ("",)

    def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
        """The first column: one array per question, one value per answer."""
        return [values[:, 0] for values in self.columns(questions)]


def open_scorer(name: str, params: ScorerParams | None = None, kept: Path | None = None) -> Scorer:
    """Open a scorer or judge by name, ready to score; loads a judge's model.

    Examples
    --------
    >>> question = Question(["He was born in Rome.", None], {"answer": "Rome", "keywords": ["Rome"]})
    >>> open_scorer("keyword_leak").score([question])[0].tolist()
    [1.0, nan]
    """
    member = _member(name)
    if name in JUDGES:
        judge = member(params or scorer_params(name))
        store = VerdictStore(judge, kept) if kept else None
        return Scorer(functools.partial(judged, judge, store=store, label=name), judge.COLUMNS)
    score = member.score
    if hasattr(member, "Params"):
        score = functools.partial(score, params=params or scorer_params(name))
    return Scorer(lambda questions: [score(one.answers, one.item)[:, None] for one in questions])


def scorer(name: str) -> Callable[[Sequence[str | None], Mapping[str, object]], np.ndarray]:
    """The function ``score(generations, item)`` of the scorer called ``name``; a judge keeps its model loaded."""
    opened = open_scorer(name)
    return lambda generations, item: opened.score([Question(generations, item)])[0]


def applies(name: str, item: Mapping[str, object]) -> bool:
    """Whether the scorer or judge called ``name`` can score answers to the row ``item``."""
    return bool(getattr(_member(name), "applies", lambda _: True)(item))


def _member(name: str) -> Any:
    if name in JUDGES:
        return JUDGES[name]
    if name in SCORERS:
        return SCORERS[name]
    raise BadValue("scorer", name, "one of " + ", ".join([*SCORERS, *JUDGES]))
