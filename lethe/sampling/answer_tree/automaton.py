"""Detection of leaking tokens: a keyword automaton over characters, composed with the spelling of tokens.

A state records the progress of every keyword and the open bytes of an unfinished character. The automaton recognises
every tokenisation of a keyword, keywords that end inside a token, and tokens that the text skips. The scorer itself
judges answers that the automaton cannot read, those after a combining mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lethe.sampling.answer_tree.characters import MOST_ASCII, Letters, letters_of
from lethe.sampling.answer_tree.matcher import BLANK, BLANK_MORE, DIRTY, FIRST_OWN, LEAK, MARK, Matcher
from lethe.sampling.answer_tree.spelling import Spelling

CLEAN_END, LEAK_END, UNKNOWN_END = (
    0,
    1,
    2,
)  # the verdict on an answer that ends in a state; unknown: ask the scorer


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


class TokenLetters:
    """The letters of every token of a vocabulary, laid out for reading all tokens at once.

    ``order`` (V,) puts the longest tokens first; ``columns[l]`` are the l-th letters of the tokens that have one.
    ``open_bytes`` (V,) indexes the bytes that a token leaves open in ``opens``, whose first entry is empty. ``allowed``
    (V,) counts the ASCII characters that open bytes may add to the token's own characters.
    """

    def __init__(self, spelling: Spelling):
        self.spelling, self.size = spelling, len(spelling.pieces)
        read = [spelling.advance(b"", token) for token in range(self.size)]
        letters = [letters_of(text) for text, _ in read]
        lengths = np.array([len(each.codes) for each in letters])
        self.order = np.argsort(-lengths, kind="stable")
        ordered = [letters[token] for token in self.order]
        self.columns = [
            Letters(
                *(
                    np.array([getattr(each, name)[place] for each in ordered[: np.count_nonzero(lengths > place)]])
                    for name in ("codes", "starts", "joining")
                )
            )
            for place in range(lengths.max(initial=0))
        ]
        self.opens = list(dict.fromkeys([b"", *(remainder for _, remainder in read)]))
        place_of = {remainder: place for place, remainder in enumerate(self.opens)}
        self.open_bytes = np.array([place_of[remainder] for _, remainder in read])
        self.allowed = MOST_ASCII * (self.open_bytes > 0)
        self.allowed[spelling.continuing] += MOST_ASCII


class KeywordAutomaton:
    """The automaton of one question's keywords; state ``open * S + s`` has the open bytes ``opens[open]``."""

    def __init__(self, matcher: Matcher, tokens: TokenLetters):
        self.matcher, self.tokens, self.spelling = matcher, tokens, tokens.spelling
        self.size, self.start = len(matcher.steps), matcher.start
        self.symbols = [matcher.symbols(column) for column in tokens.columns]
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
        states = np.full(self.tokens.size, at, dtype=np.int32)
        for symbols in self.symbols:
            states[: len(symbols)] = self.matcher.steps[states[: len(symbols)], symbols]
        by_token = np.empty_like(states)
        by_token[self.tokens.order] = states
        settled = by_token <= DIRTY  # open bytes have no effect in these states
        return np.where(settled, by_token, by_token + self.size * self.tokens.open_bytes).astype(np.int32)

    def _behind_open(self, state: int, place: int, at: int) -> np.ndarray:
        remainder = self.opens[place]
        row = self.row(self.matcher.after(at, self.spelling.flush(remainder))).copy()
        row[self.spelling.skipped] = state
        for token in self.spelling.continuing:
            text, further = self.spelling.advance(remainder, int(token))
            row[token] = self._number(self.matcher.after(at, text), further)
        return row

    def _number(self, at: int, remainder: bytes) -> int:
        if remainder not in self.place_of:
            self.place_of[remainder] = len(self.opens)
            self.opens.append(remainder)
        return at if at <= DIRTY else self.place_of[remainder] * self.size + at

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
        by_token[self.tokens.order] = longest
        return by_token

    def leaks(self, states: np.ndarray) -> np.ndarray:
        return states == LEAK

    def _ended(self, states: np.ndarray) -> np.ndarray:
        """The matcher's states if the answer ends here, after the open bytes are read as broken bytes."""
        places, at = np.divmod(states, self.size)
        ended = at.copy()
        for place in np.unique(places[places > 0]).tolist():
            if place not in self._end_state:
                text = self.spelling.flush(self.opens[place])
                self._end_state[place] = self.matcher.all_after(np.arange(self.size), text)
            ended[places == place] = self._end_state[place][at[places == place]]
        return ended

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
