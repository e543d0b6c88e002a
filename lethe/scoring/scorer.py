"""A scorer by name, ready to score answers: a text scorer, or a judge with its model."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.config.measuring import ScorerParams
from lethe.errors import BadValue
from lethe.registry import JUDGES, SCORERS, Member
from lethe.scoring.judges import Judge
from lethe.scoring.verdicts import AnsweredRow, VerdictStore, every_answer, judged


@dataclass(frozen=True)
class Scorer:
    """A scorer ready to score many questions: ``columns`` gives one array (answers, columns) per question. ``endings`` are
    those of the columns' names, of which the first, "", is the scorer's own name. ``judge`` is the judge, before whose first
    question `prepare` may tell it all questions."""

    columns: Callable[[Sequence[AnsweredRow]], list[np.ndarray]]
    endings: tuple[str, ...] = ("",)
    judge: Judge | None = None

    def prepare(self, questions: Iterable[AnsweredRow]) -> None:
        """Tell a judge every question that comes, which it reads only where it opens its model for the longest."""
        if self.judge is not None:
            self.judge.prepare(every_answer(self.judge, questions))

    def score(self, questions: Sequence[AnsweredRow]) -> list[np.ndarray]:
        """The first column: one array per question, one value per answer."""
        return [values[:, 0] for values in self.columns(questions)]


def open_scorer(
    name: str, params: ScorerParams | None = None, folder: Path | None = None
) -> Scorer:
    """The scorer or judge of this name, ready to score; loads a judge's model.

    ``params`` are its parameters, the defaults if None. ``folder`` keeps the verdicts of a judge, which none does if None.
    Raises `BadValue` for an unknown name, and for a scorer that has parameters without a default where none are given.

    >>> question = AnsweredRow(["He was born in Rome.", None], {"answer": "Rome", "keywords": ["Rome"]})
    >>> open_scorer("keyword_leak").score([question])[0].tolist()
    [1.0, nan]
    """
    member = _member(name)
    if name in JUDGES:
        judge = member(params or _defaults(name, member.Params))
        store_of = functools.cache(lambda: VerdictStore(judge, folder) if folder else None)

        def verdicts(questions: Sequence[AnsweredRow]) -> list[np.ndarray]:
            return judged(judge, questions, store_of(), name)

        return Scorer(verdicts, judge.COLUMNS, judge)
    score = member.score
    if hasattr(member, "Params"):
        score = functools.partial(score, params=params or _defaults(name, member.Params))

    def columns(questions: Sequence[AnsweredRow]) -> list[np.ndarray]:
        scores = []
        for question in questions:
            values = score(question.answers, question.item)
            scores.append(values[:, None])
        return scores

    return Scorer(columns)


def _defaults(name: str, params: type[ScorerParams]) -> ScorerParams:
    """The parameters of a scorer, each at its default."""
    needed = [key for key, field in params.model_fields.items() if field.is_required()]
    if needed:
        where = "Name it with them in score.scorers or judges of params.yaml (docs/judges.md)"
        remedy = f"{name} needs {' and '.join(needed)}. {where}; a served model judges by --judge endpoint."
        raise BadValue("scorer", name, "a scorer that needs no parameters", remedy)
    return params()


def scorer(name: str) -> Callable[[Sequence[str | None], Mapping[str, object]], np.ndarray]:
    """The function ``score(generations, item)`` of the scorer called ``name``; a judge keeps its model loaded."""
    opened = open_scorer(name)
    return lambda generations, item: opened.score([AnsweredRow(generations, item)])[0]


def applies(name: str, item: Mapping[str, object]) -> bool:
    """Whether the scorer or judge called ``name`` can score answers to the row ``item``."""
    member = _member(name)
    if not hasattr(member, "applies"):
        return True
    return bool(member.applies(item))


def _member(name: str) -> Member:
    """The scorer or judge of this name; raises `BadValue` for an unknown one."""
    if name in JUDGES:
        return JUDGES[name]
    if name in SCORERS:
        return SCORERS[name]
    raise BadValue("scorer", name, "one of " + ", ".join([*SCORERS, *JUDGES]))
