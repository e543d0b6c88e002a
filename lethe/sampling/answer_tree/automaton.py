"""Detection of leaking tokens: a keyword automaton over characters, composed with the spelling of tokens.

A state records the progress of every keyword and the open bytes of an unfinished character. The automaton recognises
every tokenisation of a keyword, keywords that end inside a token, and tokens that the text skips. The scorer itself
judges answers that the automaton cannot read, those after a combining mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lethe.sampling.answer_tree.matcher import (
    BLANK,
    BLANK_MORE,
    DIRTY,
    FIRST_OWN,
    LEAK,
    MARK,
    MOST_ASCII,
    Letters,
    Matcher,
    letters_of,
)
from lethe.sampling.answer_tree.spelling import Spelling

# The verdict on an answer that ends in a state; unknown: ask the scorer.
CLEAN_END, LEAK_END, UNKNOWN_END = 0, 1, 2


class Automaton(Protocol):
    """Reads answers token by token. States are whole numbers; `leak` and the start may be one state for all.

    ``row(state)`` (V,) holds the state after each token. The other methods take an array of states: ``leaks`` (the answer
    leaks whatever follows), ``ends`` (one of the three ends), ``blank`` (no visible character if the answer ends here),
    ``pending`` (a keyword is complete, the next character decides), ``needs`` (no leak within fewer tokens) and
    ``matched`` (the share of a keyword read so far).
    """

    start: int

    def row(self, state: int) -> np.ndarray: ...

    def leaks(self, states: np.ndarray) -> np.ndarray: ...

    def ends(self, states: np.ndarray) -> np.ndarray: ...

    def blank(self, states: np.ndarray) -> np.ndarray: ...

    def pending(self, states: np.ndarray) -> np.ndarray: ...

    def needs(self, states: np.ndarray) -> np.ndarray: ...

    def matched(self, states: np.ndarray) -> np.ndarray: ...


class Columns:
    """The letters of many texts, laid out for reading all texts at once.

    ``order`` (texts,) puts the longest texts first; ``columns[l]`` are the l-th letters of the texts that have one.
    """

    def __init__(self, texts: Sequence[str]):
        letters = [letters_of(text) for text in texts]
        lengths = np.array([len(each.codes) for each in letters], np.int64)
        self.order = np.argsort(-lengths, kind="stable")
        ordered = [letters[text] for text in self.order]
        self.columns = [
            Letters(
                *(
                    np.array([getattr(each, name)[place] for each in ordered[: np.count_nonzero(lengths > place)]])
                    for name in ("codes", "starts", "joining")
                )
            )
            for place in range(lengths.max(initial=0))
        ]

    def read(self, matcher: Matcher, symbols: Sequence[np.ndarray], at: int) -> np.ndarray:
        """(texts,) the matcher's state after each text, from the state ``at``."""
        states = np.full(len(self.order), at, dtype=np.int32)
        for own in symbols:
            states[: len(own)] = matcher.steps[states[: len(own)], own]
        by_text = np.empty_like(states)
        by_text[self.order] = states
        return by_text


@dataclass(frozen=True)
class Continued:
    """The tokens that may continue some open bytes: the ``letters`` that each settles, and which of the ``opens``, distinct
    and in the order of the tokens, it leaves open (``place``)."""

    letters: Columns
    opens: tuple[bytes, ...]
    place: np.ndarray

    @classmethod
    def of(cls, spelling: Spelling, remainder: bytes) -> Continued:
        """How the tokens of a spelling continue the open bytes ``remainder``."""
        read = [spelling.advance(remainder, token) for token in spelling.continuing.tolist()]
        opens = tuple(dict.fromkeys(further for _, further in read))
        place_of = {further: place for place, further in enumerate(opens)}
        place = np.array([place_of[further] for _, further in read], np.int64)
        return cls(Columns([text for text, _ in read]), opens, place)


class TokenLetters:
    """The ``letters`` of every token of a vocabulary.

    ``open_bytes`` (V,) indexes the bytes that a token leaves open in ``opens``, whose first entry is empty. ``allowed``
    (V,) counts the ASCII characters that open bytes may add to the token's own characters.
    """

    def __init__(self, spelling: Spelling):
        self.spelling, self.size = spelling, len(spelling.pieces)
        read = [spelling.advance(b"", token) for token in range(self.size)]
        self.letters = Columns([text for text, _ in read])
        self._continued: dict[bytes, Continued] = {}
        self.opens = list(dict.fromkeys([b"", *(remainder for _, remainder in read)]))
        place_of = {remainder: place for place, remainder in enumerate(self.opens)}
        self.open_bytes = np.array([place_of[remainder] for _, remainder in read])
        self.allowed = MOST_ASCII * (self.open_bytes > 0)
        self.allowed[spelling.continuing] += MOST_ASCII

    def continued(self, remainder: bytes) -> Continued:
        """The continuations of open bytes, the same for all questions."""
        if remainder not in self._continued:
            self._continued[remainder] = Continued.of(self.spelling, remainder)
        return self._continued[remainder]


class KeywordAutomaton:
    """The automaton of one question's keywords; state ``open * S + s`` has the open bytes ``opens[open]``."""

    def __init__(self, matcher: Matcher, tokens: TokenLetters):
        self.matcher, self.tokens, self.spelling = matcher, tokens, tokens.spelling
        self.size, self.start = len(matcher.steps), matcher.start
        self.symbols = [matcher.symbols(column) for column in tokens.letters.columns]
        self._open_symbols: dict[int, list[np.ndarray]] = {}  # of the characters after the open bytes of a place
        self.opens = list(tokens.opens)
        self.place_of = {remainder: place for place, remainder in enumerate(self.opens)}
        self._rows: dict[int, np.ndarray] = {}
        self._end_state: dict[int, np.ndarray] = {0: np.arange(self.size)}
        self._stride = max(1, int((self._runs() + tokens.allowed).max(initial=0)))

    def row(self, state: int) -> np.ndarray:
        if state not in self._rows:
            place, at = divmod(state, self.size)
            self._rows[state] = self._behind_open(state, place, at) if place else self._behind(at)
        return self._rows[state]

    def _behind(self, at: int) -> np.ndarray:
        by_token = self.tokens.letters.read(self.matcher, self.symbols, at)
        settled = by_token <= DIRTY  # open bytes have no effect in these states
        return np.where(settled, by_token, by_token + self.size * self.tokens.open_bytes).astype(np.int32)

    def _behind_open(self, state: int, place: int, at: int) -> np.ndarray:
        remainder = self.opens[place]
        row = self.row(self.matcher.after(at, self.spelling.flush(remainder))).copy()
        row[self.spelling.skipped] = state
        continued = self.tokens.continued(remainder)
        if place not in self._open_symbols:
            self._open_symbols[place] = [self.matcher.symbols(column) for column in continued.letters.columns]
        after = continued.letters.read(self.matcher, self._open_symbols[place], at)
        places = np.array([self._place(further) for further in continued.opens], np.int64)[continued.place]
        row[self.spelling.continuing] = np.where(after <= DIRTY, after, places * self.size + after)
        return row

    def _place(self, remainder: bytes) -> int:
        if remainder not in self.place_of:
            self.place_of[remainder] = len(self.opens)
            self.opens.append(remainder)
        return self.place_of[remainder]

    def _runs(self) -> np.ndarray:
        """(V,) the longest run of characters of the keywords' alphabet in each token."""
        run, longest = np.zeros(self.tokens.size, np.int64), np.zeros(self.tokens.size, np.int64)
        before = np.zeros(self.tokens.size, bool)  # the last letter was a blank, so a further blank adds nothing
        for symbols in self.symbols:
            count = len(symbols)
            blank = (symbols == BLANK) | (symbols == BLANK_MORE)
            gain = np.where(symbols == MARK, MOST_ASCII, ~(blank & before[:count]))
            goes_on = blank | (symbols >= FIRST_OWN) | (symbols == MARK)
            run[:count] = np.where(goes_on, run[:count] + gain, 0)
            before[:count] = blank
            longest = np.maximum(longest, run)
        by_token = np.empty_like(longest)
        by_token[self.tokens.letters.order] = longest
        return by_token

    def leaks(self, states: np.ndarray) -> np.ndarray:
        return states == LEAK

    def _ended(self, states: np.ndarray) -> np.ndarray:
        """The matcher's states if the answer ends here, after the open bytes are read as broken bytes."""
        places, at = np.divmod(states, self.size)
        used, which = np.unique(places, return_inverse=True)
        for place in used.tolist():
            if place not in self._end_state:
                text = self.spelling.flush(self.opens[place])
                self._end_state[place] = self.matcher.all_after(np.arange(self.size), text)
        # One table for all states, since each open character would otherwise need a search of its own.
        table = np.stack([self._end_state[place] for place in used.tolist()] or [self._end_state[0]])
        return table[which.reshape(states.shape), at]

    def ends(self, states: np.ndarray) -> np.ndarray:
        ended = self._ended(states)
        return np.where(
            ended == DIRTY, UNKNOWN_END, np.where(self.matcher.leaks_at_end[ended], LEAK_END, CLEAN_END)
        )

    def blank(self, states: np.ndarray) -> np.ndarray:
        return self.matcher.empty[self._ended(states)]

    def pending(self, states: np.ndarray) -> np.ndarray:
        return self.matcher.pending[states % self.size]

    def needs(self, states: np.ndarray) -> np.ndarray:
        """The number of tokens before which no answer leaks. A token adds at most a run of the keywords' characters and the
        characters of open bytes. A state with open bytes gives 0, which promises nothing."""
        missing = self.matcher.missing[states % self.size]
        return np.where(states < self.size, -(-missing // self._stride), 0)

    def matched(self, states: np.ndarray) -> np.ndarray:
        return self.matcher.matched[states % self.size]


class WholeTexts:
    """Reads nothing, so the scorer judges every finished answer; for scorers and tokenizers without an automaton."""

    start = 0

    def __init__(self, vocabulary: int):
        self._row = np.zeros(vocabulary, np.int32)

    def row(self, state: int) -> np.ndarray:
        return self._row

    def leaks(self, states: np.ndarray) -> np.ndarray:
        return np.zeros(states.shape, bool)

    def ends(self, states: np.ndarray) -> np.ndarray:
        return np.full(states.shape, UNKNOWN_END)

    blank = pending = leaks

    def needs(self, states: np.ndarray) -> np.ndarray:
        return np.zeros(states.shape, np.int64)

    def matched(self, states: np.ndarray) -> np.ndarray:
        return np.zeros(states.shape)


def read(automaton: Automaton, tokens: Sequence[int]) -> int:
    """The state after an answer's tokens: the naive use of an automaton."""
    state = automaton.start
    for token in tokens:
        if automaton.leaks(np.array([state]))[0]:
            return state
        state = int(automaton.row(state)[token])
    return state
