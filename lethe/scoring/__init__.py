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

An answer may have two parts: the thinking between two marks, and the answer after it. Files keep the text whole. Unlearned
knowledge can return in the thinking while the answer is clean (R-TOFU, arXiv 2505.15214).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lethe.config.evaluating import Parts, ScorerParams
from lethe.errors import BadInput, BadValue
from lethe.io.artifacts import Reference, References, Row
from lethe.registry import JUDGES, SCORERS, Member
from lethe.scoring.verdicts import Question, VerdictStore, judged

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase

MARKS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
THINKING = "_thinking"  # the ending of the columns of scores of the thinking
TURN = "_turn{}"  # the ending of the columns of scores of one turn, beside those of the worst turn
# Columns beside the scores, where an answer has parts or turns: the number of turns, and 1 where one was cut off, or had
# thinking that never ended.
ASKED, CUT, UNCLOSED = "turns", "cut_off", "unclosed"


class Scorer(NamedTuple):
    """A scorer ready to score many questions: ``columns`` gives one array (answers, columns) per question. ``endings`` are
    those of the columns' names, of which the first, "", is the scorer's own name."""

    columns: Callable[[Sequence[Question]], list[np.ndarray]]
    endings: tuple[str, ...] = ("",)

    def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
        """The first column: one array per question, one value per answer."""
        return [values[:, 0] for values in self.columns(questions)]


def open_scorer(
    name: str, params: ScorerParams | None = None, folder: Path | None = None
) -> Scorer:
    """Open a scorer or judge by name, ready to score; loads a judge's model.

    >>> question = Question(["He was born in Rome.", None], {"answer": "Rome", "keywords": ["Rome"]})
    >>> open_scorer("keyword_leak").score([question])[0].tolist()
    [1.0, nan]
    """
    member = _member(name)
    if name in JUDGES:
        judge = member(params or member.Params())
        store = VerdictStore(judge, folder) if folder else None
        return Scorer(functools.partial(judged, judge, store=store, label=name), judge.COLUMNS)
    score = member.score
    if hasattr(member, "Params"):
        score = functools.partial(score, params=params or member.Params())
    return Scorer(lambda questions: [score(one.answers, one.item)[:, None] for one in questions])


def scorer(name: str) -> Callable[[Sequence[str | None], Mapping[str, object]], np.ndarray]:
    """The function ``score(generations, item)`` of the scorer called ``name``; a judge keeps its model loaded."""
    opened = open_scorer(name)
    return lambda generations, item: opened.score([Question(generations, item)])[0]


def applies(name: str, item: Mapping[str, object]) -> bool:
    """Whether the scorer or judge called ``name`` can score answers to the row ``item``."""
    return bool(getattr(_member(name), "applies", lambda _: True)(item))


def _member(name: str) -> Member:
    if name in JUDGES:
        return JUDGES[name]
    if name in SCORERS:
        return SCORERS[name]
    raise BadValue("scorer", name, "one of " + ", ".join([*SCORERS, *JUDGES]))


def split_answer(text: str, parts: Parts) -> tuple[str, str | None]:
    """The thinking and the answer; an unclosed trace has no answer, which is missing and not a clean one.

    >>> parts = Parts(thinking=("<think>", "</think>"))
    >>> split_answer("<think>Ada?</think> She paints.", parts), split_answer("<think>Ada", parts)
    (('Ada?', 'She paints.'), ('Ada', None))
    >>> split_answer("Ada?</think>She paints.", parts), split_answer("Ada", Parts(thinking=parts.thinking, opened=True))
    (('Ada?', 'She paints.'), ('Ada', None))
    >>> split_answer("Ada?</think>She <think>Well.</think>paints.", parts)
    ('Ada?\\nWell.', 'She paints.')
    """
    opening, closing = parts.thinking
    thoughts, answer, inside = list[str](), "", parts.opened
    while inside or opening in text or closing in text:
        head, closed, text = text.partition(closing)
        before, opened, thought = head.partition(opening)
        if inside or not opened:  # the prompt opened the thinking
            before, thought = "", before + thought
        thoughts, answer, inside = [*thoughts, thought], answer + before, not closed
        if inside:
            break
    thinking = "\n".join(filter(None, thoughts))
    return thinking, None if inside else (answer + text).strip() if thoughts else text


def answers_of(table: pd.DataFrame, parts: Parts | None) -> pd.DataFrame:
    return (
        table
        if parts is None
        else table.assign(text=[_part(text, parts, 1) for text in table["text"]])
    )


def thinking_of(table: pd.DataFrame, parts: Parts | None) -> pd.DataFrame:
    """Generations whose texts are the thinking: that of the server's own field, and that between the marks; an answer
    without any has an empty one."""
    within = [_part(text, parts, 0) for text in table["text"]] if parts else [None] * len(table)
    apart = table["thinking"] if "thinking" in table else [None] * len(table)
    thoughts = []
    for *own, text in zip(apart, within, table["text"], strict=True):
        texts = [one for one in own if isinstance(one, str)]
        thoughts.append("\n".join(filter(None, texts)) if texts or isinstance(text, str) else None)
    return table.assign(text=thoughts)


def _part(text: object, parts: Parts, place: int) -> str | None:
    return split_answer(text, parts)[place] if isinstance(text, str) else None


def unclosed(table: pd.DataFrame, parts: Parts | None) -> np.ndarray:
    answers = answers_of(table, parts)["text"]
    answered = table["text"].notna() | (table["thinking"].notna() if "thinking" in table else False)
    return (answers.isna() & answered).to_numpy()


def worst_turn(turns: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The largest score of the turns that were asked, from a mask and the scores of each; a turn without a score leaves
    no score, unless another has the largest possible one.

    >>> both = np.array([True, True, True])
    >>> second = (np.array([True, True, False]), np.array([1.0, np.nan, np.nan]))
    >>> worst_turn([(both, np.array([np.nan, 0.0, 0.0])), second]).tolist()
    [1.0, nan, 0.0]
    """
    most = np.max(
        [np.where(asked, np.nan_to_num(values, nan=0.0), 0.0) for asked, values in turns], axis=0
    )
    missing = np.any([asked & np.isnan(values) for asked, values in turns], axis=0)
    return np.where(missing & (most < 1), np.nan, most)


def marks_of(tokenizer: PreTrainedTokenizerBase) -> Parts | None:
    """The parts that a tokenizer's chat template knows; None where the model does not think aloud."""
    template = str(tokenizer.chat_template or "")
    for marks in MARKS:
        if marks[1] in template:
            return Parts(thinking=marks)
    return None


def score_answers(
    generations: pd.DataFrame,
    items: Mapping[str, Row],
    scorers: Sequence[str],
    params: Mapping[str, ScorerParams] | None = None,
    folder: Path | None = None,
    references: References | None = None,
) -> pd.DataFrame:
    """``prompt_id, sample`` and one float64 column per scorer, rows as in ``generations``; NaN is missing. A judge keeps its
    verdicts below ``folder`` and may fill further columns, whose names have endings. ``references`` are the answers that
    single productions ask for. A generation of an unknown prompt raises `BadInput`."""
    (table,) = scored_parts(lambda: [generations], items, scorers, params, folder, references)
    return table


def scored_parts(
    parts: Callable[[], Iterable[pd.DataFrame]],
    items: Mapping[str, Row],
    scorers: Sequence[str],
    params: Mapping[str, ScorerParams] | None = None,
    folder: Path | None = None,
    references: References | None = None,
) -> Iterator[pd.DataFrame]:
    """The same for a table of generations in parts, of which one is in memory at a time. ``parts`` begins the table anew at
    each call: every judge reads it once by itself, because two judges need not fit into memory together, and then the text
    scorers read it together. Of a judge, the numbers of all answers are in memory."""
    params_of = params or {}
    verdicts: dict[str, list[dict[str, np.ndarray]]] = {}
    for name in scorers:
        if name in JUDGES:
            judge = open_scorer(name, params_of.get(name), folder)
            verdicts[name] = [_columns(part, items, name, judge, references) for part in parts()]
            del judge
    opened = {
        name: open_scorer(name, params_of.get(name)) for name in scorers if name not in verdicts
    }
    for number, part in enumerate(parts()):
        columns: dict[str, np.ndarray] = {}
        for name in scorers:
            of_judge = verdicts.get(name)
            columns |= (
                of_judge[number]
                if of_judge
                else _columns(part, items, name, opened[name], references)
            )
        yield part[["prompt_id", "sample"]].reset_index(drop=True).assign(**columns)


def _columns(
    generations: pd.DataFrame,
    items: Mapping[str, Row],
    name: str,
    opened: Scorer,
    references: References | None,
) -> dict[str, np.ndarray]:
    places, questions = asked_of(generations, items, references)
    values = np.full((len(generations), len(opened.endings)), np.nan)
    for rows, scored in zip(places, opened.columns(questions), strict=True):
        values[rows] = scored
    return {name + ending: column for ending, column in zip(opened.endings, values.T, strict=True)}


def asked_of(
    generations: pd.DataFrame, items: Mapping[str, Row], references: References | None = None
) -> tuple[list[np.ndarray], list[Question]]:
    """The row numbers and answers of each prompt, by what they are scored against; an unknown prompt raises `BadInput`."""
    texts, places, questions = generations["text"].to_numpy(), [], []
    rows_of = generations.reset_index(drop=True).groupby("prompt_id", sort=False).indices
    for prompt_id, rows in rows_of.items():
        if prompt_id not in items:
            raise BadInput(
                f"Generations of prompt {prompt_id!r}: the dataset has no such id. Run `dvc repro` again."
            )
        for own, item in _by_reference(
            generations, rows, items[prompt_id], (references or {}).get(prompt_id, {})
        ):
            places.append(own)
            questions.append(Question(texts[own], item))
    return places, questions


def _by_reference(
    generations: pd.DataFrame, rows: np.ndarray, item: Row, references: Mapping[str, Reference]
) -> Iterator[tuple[np.ndarray, Row]]:
    """The row numbers of one prompt by what they are scored against: the item, and one part per other reference."""
    if not references or "production" not in generations:
        yield rows, item
        return
    asked = [references.get(name) for name in generations["production"].to_numpy()[rows]]
    for reference in dict.fromkeys(asked):
        own = rows[np.array([one == reference for one in asked])]
        yield own, reference.of(item) if reference else item
