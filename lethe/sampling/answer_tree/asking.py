"""Conversion of dataset rows to questions of the answer tree: what counts as a leak, for one checkpoint.

`keyword_leak` and `rouge_l` have automata, which guide the tree and decide answers before they end. Every other scorer
judges finished answers. A judge is refused, because it reads one answer at a time with its own model.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lethe.errors import BadValue
from lethe.io.artifacts import Row
from lethe.io.files import Json
from lethe.models.encoding import Encoder
from lethe.models.model import Model
from lethe.models.refusals import refusals
from lethe.registry import JUDGES, SCORERS
from lethe.sampling.answer_tree.automaton import (
    LEAK,
    Automaton,
    KeywordAutomaton,
    TokenAutomaton,
    TokenLetters,
    build_matcher,
    spellable,
)
from lethe.sampling.answer_tree.enumeration import Scores, TreeQuestion
from lethe.sampling.answer_tree.spelling import CannotSpell, Spelling, spelling_of
from lethe.sampling.engine import before_end
from lethe.scoring.keyword import Match, keywords_of, occurs
from lethe.scoring.scorer import applies, open_scorer
from lethe.scoring.text import is_text
from lethe.scoring.text.rouge import blanked, stems
from lethe.scoring.verdicts import AnsweredRow

KEYWORDS = "keyword_leak"
RECALL = "rouge_l"


class Asker:
    """Converts rows to questions; ``note`` says why answers are scored whole where keywords are not read token by token."""

    def __init__(self, model: Model, template: str | os.PathLike, match: Match = "word"):
        if match not in ("word", "substring"):
            raise BadValue("match", match, "word or substring")
        self.match = match
        self.tokenizer = model.tokenizer
        self.vocabulary = model.vocabulary
        self.end_ids = model.end_ids
        self.encoder = Encoder(self.tokenizer, template)
        self.spelling: Spelling | None = None
        self.reason = ""
        try:
            self.spelling = spelling_of(self.tokenizer, self.vocabulary)
        except CannotSpell as refusal:
            self.reason = str(refusal)

    @cached_property
    def letters(self) -> TokenLetters:
        """The letters of every token, for keywords."""
        assert self.spelling is not None  # or there is no automaton
        return TokenLetters(self.spelling)

    @cached_property
    def bytes(self) -> TokenLetters:
        """The letters of every token, for ROUGE."""
        assert self.spelling is not None
        return token_bytes(self.spelling)

    def ask(self, row: Row, scorer: str = KEYWORDS, above: float = 0.5) -> TreeQuestion | None:
        """The question whether an answer to a row leaks; None where the scorer cannot judge answers to this row.

        ``above`` in [0, 1) is the threshold of a scorer that is not binary. The answers of the row are seeds, so that
        their prefixes are always explored.
        """
        rule = rule_of(row, scorer, above, self.match)
        if rule is None:
            return None
        reason = self._unread(rule.keywords)
        note = ""
        automaton: Automaton
        if scorer == KEYWORDS and not reason:
            automaton = KeywordAutomaton(build_matcher(rule.keywords, self.match), self.letters)
        elif scorer == RECALL and not reason:
            automaton = RecallAutomaton(row["answer"], above, self.bytes)
        else:
            automaton = Automaton(self.vocabulary)
            note = "Every finished answer was scored whole."
            if reason and scorer in (KEYWORDS, RECALL):
                note = f"{reason} {note}"

        seeds = []
        for answer in (row.get("answer"), row.get("paraphrased_answer")):
            if is_text(answer):
                seeds.append(self.encoder.example(row, answer).answer)
        prompt = self.encoder.prompt(row)
        return TreeQuestion(
            row["id"],
            prompt,
            automaton,
            self._decode,
            rule.leaks,
            tuple(seeds),
            note,
        )

    def _unread(self, keywords: Sequence[str]) -> str:
        """Why no automaton reads the answers token by token; empty if one does."""
        if self.reason:
            return self.reason
        for keyword in keywords:
            if not spellable(keyword):
                return f"The keyword {keyword!r} holds a combining mark."
        return ""

    def _decode(self, answers: list[tuple[int, ...]]) -> list[str]:
        place = self.tokenizer.name_or_path
        with refusals(place, "its tokenizer cannot decode an answer"):
            spoken = [before_end(answer, self.end_ids) for answer in answers]
            return self.tokenizer.batch_decode(spoken, skip_special_tokens=True)


def check_scorer(scorer: str, above: float) -> None:
    """Raise `BadValue` unless ``scorer`` is a text scorer and ``above`` a share."""
    if scorer in JUDGES:
        raise BadValue(
            "scorer",
            scorer,
            f"one of {', '.join(SCORERS)}",
            f"{scorer} is a judge, a model that reads sampled answers: as an entry of judges in params.yaml, or served, by "
            "`lethe score log --judge endpoint` (docs/judges.md).",
        )
    if scorer not in SCORERS:
        raise BadValue("scorer", scorer, f"one of {', '.join(SCORERS)}")
    if not 0 <= above < 1:
        raise BadValue("above", above, "a number of at least 0 and below 1")


def is_binary(scorer: str) -> bool:
    """Whether the scorer itself decides between leak and no leak, so that ``above`` is not used."""
    return bool(getattr(SCORERS[scorer], "BINARY", False))


def leak_of(scorer: str, above: float) -> str:
    """What counts as a leak, in words: the scorer, and the threshold where it has one."""
    return scorer if is_binary(scorer) else f"{scorer} above {above:g}"


class LeakRule(NamedTuple):
    """Which whole answers to a row leak, and the keywords that decide it, if any do."""

    leaks: Scores
    keywords: tuple[str, ...] = ()

    def begun(self, text: str) -> bool:
        """Whether every answer that begins so leaks: neither a letter nor an accent that follows can undo a keyword; the
        last characters may be half a letter."""
        read = text.rstrip("\ufffd")
        return bool(self.keywords and self.leaks([f"{read}x", f"{read}\u0301"]).all())


def rule_of(row: Row, scorer: str, above: float, match: Match) -> LeakRule | None:
    """The rule for answers to a row; None where the scorer cannot judge them."""
    if not applies(scorer, row) or np.isnan(_scores(scorer, [row["answer"]], row)).any():
        return None
    if scorer != KEYWORDS:
        return LeakRule(lambda texts: leaks(scorer, above, texts, row)[1] == 1)
    keywords = keywords_of(row)

    def occurring(texts: list[str]) -> np.ndarray:
        return np.array([occurs(text, keywords, match) for text in texts], bool)

    return LeakRule(occurring, keywords)


def leaks(
    scorer: str, above: float, texts: Sequence[str | None], row: Mapping[str, Json]
) -> tuple[np.ndarray, np.ndarray]:
    """The scores of answers, and whether each leaks (1 or 0); NaN where the scorer cannot judge."""
    scores = _scores(scorer, texts, row)
    least = 1.0 if is_binary(scorer) else np.nextafter(above, 1)
    return scores, np.where(np.isnan(scores), np.nan, scores >= least)


def _scores(scorer: str, texts: Sequence[str | None], row: Mapping[str, Json]) -> np.ndarray:
    return open_scorer(scorer).score([AnsweredRow(texts, row)])[0]


# The recall automaton detects early that the ROUGE-L recall of an answer exceeds a threshold. Recall is the length of the
# longest common subsequence of the words of answer and reference, divided by the reference's words. Words are the runs of
# a-z and 0-9 in the lower-cased text, compared by their stems; a word is complete once another character follows it. The
# proof that a recognised prefix stays recognised:
# 1. Every further token only appends characters to the settled text, in each decoder that `spelling` knows.
# 2. Lower-casing and the replacement of other characters work character by character. (The one exception, the Greek final
#    sigma, is no letter of ROUGE either way.) So a complete word stays as it is, and further words only follow.
# 3. The longest common subsequence never shrinks where words are appended. The recall of the complete words is therefore
#    a lower bound on the recall of every answer with this beginning.
# A word counts only if it is spelled as in the reference: a lower bound again, and the scorer itself judges every answer
# that ends unrecognised.

UNKNOWN = -1  # an entry of the table that no text has asked for
# Symbols: between words, a letter of no reference word, and from FIRST_OWN on the letters of the reference.
BLANK = 0
OTHER = 1
FIRST_OWN = 2
NO_WORD = -1  # the node of a word that the reference lacks
MOST = 1 << 32  # states
# The part of the guide that the words found so far get. Most answers share words with the reference: the whole guide, meant
# for rare keywords, would lift most of the tree above the threshold.
GUIDED = 0.15

# The lengths of common subsequences with each beginning of the reference; a node.
State = tuple[tuple[int, ...], int]


def token_bytes(spelling: Spelling) -> TokenLetters:
    """The letters and blanks that every token settles."""
    return TokenLetters(spelling, lambda text: np.frombuffer(blanked(text), np.uint8))


class RecallAutomaton(TokenAutomaton):
    """Reads until ``needed`` words of the reference, in order, prove a ROUGE-L recall ``above``."""

    most_rows = 256

    def __init__(self, reference: str, above: float, tokens: TokenLetters):
        words = blanked(reference).decode().split()
        if not words or not 0 <= above < 1:
            raise BadValue(
                "reference", reference, "a text with a word, and a threshold from 0, less than 1"
            )
        word_stems = stems(words)
        distinct = sorted(set(word_stems))
        self.reference = tuple(distinct.index(stem) for stem in word_stems)
        self.needed = 1
        while self.needed / len(words) <= above:
            self.needed += 1
        letters = sorted(set("".join(words)))
        self.symbol_of = np.full(256, OTHER)
        self.symbol_of[ord(" ")] = BLANK
        self.symbol_of[[ord(letter) for letter in letters]] = FIRST_OWN + np.arange(len(letters))
        self._nodes(dict(zip(words, self.reference, strict=True)), letters)
        beginning: State = ((0,) * (len(words) + 1), 0)
        self.states: list[State] = [beginning] * 3  # the first two stand for the absorbing states
        self.number = {beginning: 2}
        self.table = np.full((64, FIRST_OWN + len(letters)), UNKNOWN)
        self.table[LEAK] = LEAK
        super().__init__(tokens, MOST, start=2)

    def _nodes(self, word_class: dict[str, int], letters: list[str]) -> None:
        """The reference's words as a tree of letters: ``following[node][symbol]``, and the class of a complete word."""
        self.following: list[dict[int, int]] = [{}]
        self.complete: list[int | None] = [None]
        for word, number in word_class.items():
            node = 0
            for letter in word:
                symbol = FIRST_OWN + letters.index(letter)
                if symbol not in self.following[node]:
                    self.following[node][symbol] = len(self.following)
                    self.following.append({})
                    self.complete.append(None)
                node = self.following[node][symbol]
            self.complete[node] = number

    def _read_symbol(self, state: int, symbol: int) -> int:
        """The state after a symbol; `LEAK` once enough words are found."""
        common, node = self.states[state]
        if symbol != BLANK:
            following = NO_WORD
            if node != NO_WORD:
                following = self.following[node].get(symbol, NO_WORD)
            return self._number((common, following))

        word = None
        if node != NO_WORD:
            word = self.complete[node]
        if word is not None:
            common = self._with(common, word)
        if common[-1] >= self.needed:
            return LEAK
        return self._number((common, 0))

    def _with(self, common: tuple[int, ...], word: int) -> tuple[int, ...]:
        """The row of the table of longest common subsequences after a further word."""
        row = [0]
        for place, expected in enumerate(self.reference):
            longest = max(common[place + 1], row[-1])
            if word == expected:
                longest = max(longest, common[place] + 1)
            row.append(longest)
        return tuple(row)

    def _number(self, state: State) -> int:
        """The number of a state, a new one for a new state."""
        if state not in self.number:
            self.number[state] = len(self.states)
            self.states.append(state)
            if len(self.states) > len(self.table):
                self.table = np.concatenate([self.table, np.full_like(self.table, UNKNOWN)])
        return self.number[state]

    def symbols_of(self, letters: np.ndarray) -> np.ndarray:
        return self.symbol_of[letters]

    def step(self, states: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        """The states after one symbol each; entries that no text has asked for are computed first."""
        unknown = self.table[states, symbols] == UNKNOWN
        if unknown.any():
            width = self.table.shape[1]
            for pair in np.unique((states * width + symbols)[unknown]).tolist():
                state, symbol = divmod(pair, width)
                after = self._read_symbol(state, symbol)  # which may grow the table
                self.table[state, symbol] = after
        return self.table[states, symbols]

    def matched(self, states: np.ndarray) -> np.ndarray:
        """The share of the needed words that are found so far, times `GUIDED`."""
        shares = []
        for state in (states % self.size).tolist():
            common, _ = self.states[state]
            shares.append(1.0 if state == LEAK else common[-1] / self.needed)
        return GUIDED * np.array(shares)
