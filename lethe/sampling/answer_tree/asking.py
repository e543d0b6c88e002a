"""Conversion of dataset rows to questions of the answer tree: what counts as a leak, for one checkpoint.

`keyword_leak` and `rouge_l` have automata, which guide the tree and decide answers before they end. Every other scorer
judges finished answers. A judge is refused, because it reads one answer at a time with its own model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import BadValue
from lethe.models.encoding import Encoder
from lethe.registry import JUDGES, SCORERS
from lethe.sampling.answer_tree.automaton import (
    Automaton,
    KeywordAutomaton,
    TokenLetters,
    WholeTexts,
    build_matcher,
    spellable,
)
from lethe.sampling.answer_tree.growth import Question, Scores
from lethe.sampling.answer_tree.recall import RecallAutomaton, TokenBytes
from lethe.sampling.answer_tree.spelling import CannotSpell, spelling_of
from lethe.sampling.engine import Checkpoint
from lethe.scoring import Question as Scored
from lethe.scoring import applies, open_scorer
from lethe.scoring.text import is_text, normalise
from lethe.scoring.text.binary import Match, occurs

if TYPE_CHECKING:
    from lethe.io.artifacts import Row


KEYWORDS, RECALL = "keyword_leak", "rouge_l"


class Asker:
    """Converts rows to questions. Where keywords cannot be read token by token, the scorer judges every finished
    answer as a whole, and the question's ``note`` gives the reason."""

    def __init__(self, checkpoint: Checkpoint, template: str | os.PathLike, match: Match = "word"):
        if match not in ("word", "substring"):
            raise BadValue("match", match, "word or substring")
        self.tokenizer, self.vocabulary, self.match = checkpoint.tokenizer, checkpoint.vocabulary, match
        self.encoder = Encoder(self.tokenizer, template)
        self.letters: TokenLetters | None = None
        self.bytes: TokenBytes | None = None  # made where ROUGE asks for them
        self.reason = ""
        try:
            self.letters = TokenLetters(spelling_of(self.tokenizer, self.vocabulary))
        except CannotSpell as refusal:
            self.reason = str(refusal)

    def about_keywords(self, row: Row) -> Question:
        given = [keyword for keyword in row.get("keywords") or () if is_text(keyword)]
        keywords = tuple(dict.fromkeys(map(normalise, given)))
        if not keywords:
            raise BadValue(f"keywords of question {row['id']!r}", row.get("keywords"), "at least one text")

        def scores(texts: list[str]) -> np.ndarray:
            return np.array([occurs(text, keywords, self.match) for text in texts], bool)

        unread = [keyword for keyword in keywords if not spellable(keyword)]
        reason = self.reason or (f"The keyword {unread[0]!r} holds a combining mark." if unread else "")
        if self.letters is None or reason:
            return self.question(row, scores, reason=reason)
        return self.question(row, scores, KeywordAutomaton(build_matcher(keywords, self.match), self.letters))

    def about_recall(self, row: Row, above: float, scores: Scores) -> Question:
        if self.letters is None:
            return self.question(row, scores, reason=self.reason)
        if self.bytes is None:
            self.bytes = TokenBytes(self.letters.spelling)
        return self.question(row, scores, RecallAutomaton(row["answer"], above, self.bytes))

    def question(self, row: Row, scores: Scores, automaton: Automaton | None = None, reason: str = "") -> Question:
        """The question that an automaton decides, or a scorer of whole texts; the seeds are the reference answers."""
        note = "" if automaton else f"{reason} Every finished answer was scored whole.".lstrip()
        answers = [row.get("answer"), row.get("paraphrased_answer")]
        seeds = tuple(self.encoder.example(row, answer).answer for answer in answers if is_text(answer))
        reads = automaton or WholeTexts(self.vocabulary)
        return Question(row["id"], self.encoder.prompt(row), reads, self._decode, scores, seeds, note)

    def _decode(self, answers: list[tuple[int, ...]]) -> list[str]:
        return self.tokenizer.batch_decode([list(answer) for answer in answers], skip_special_tokens=True)


def check_scorer(scorer: str, above: float) -> None:
    """Raise `BadValue` unless ``scorer`` is a text scorer and ``above`` a share."""
    if scorer in JUDGES:
        raise BadValue(
            "scorer",
            scorer,
            f"one of {', '.join(SCORERS)}",
            f"{scorer} is a judge: it reads answers one at a time with a model, and a tree has millions of answers. "
            "Sample answers and score those instead.",
        )
    if scorer not in SCORERS:
        raise BadValue("scorer", scorer, f"one of {', '.join(SCORERS)}")
    if not 0 <= above < 1:
        raise BadValue("above", above, "a number of at least 0 and below 1")


def is_binary(scorer: str) -> bool:
    """Whether the scorer itself decides between leak and no leak, so that ``above`` is not used."""
    return bool(getattr(SCORERS[scorer], "BINARY", False))


def leak_of(scorer: str, above: float) -> str:
    return scorer if is_binary(scorer) else f"{scorer} above {above:g}"


def question_about(asker: Asker, row: Row, scorer: str, above: float) -> Question | None:
    """The question whether an answer to a row leaks; None where the scorer cannot judge answers to this row."""
    if not applies(scorer, row) or np.isnan(_scores(scorer, [row["answer"]], row)).any():
        return None
    if scorer == KEYWORDS:
        return asker.about_keywords(row)
    least = 1.0 if is_binary(scorer) else np.nextafter(above, 1)

    def leaks(texts: list[str]) -> np.ndarray:
        return _scores(scorer, texts, row) >= least

    return asker.about_recall(row, above, leaks) if scorer == RECALL else asker.question(row, leaks)


def _scores(scorer: str, texts: list[str], row: Mapping[str, Any]) -> np.ndarray:
    return open_scorer(scorer).score([Scored(texts, row)])[0]
