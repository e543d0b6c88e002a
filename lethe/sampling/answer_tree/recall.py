"""A finite automaton that detects early that the ROUGE-L recall of an answer exceeds a threshold.

Recall is the length of the longest common subsequence of the words of answer and reference, divided by the reference's
words. Words are the runs of a-z and 0-9 in the lower-cased text, compared by their stems. A word is complete once another
character follows it. The proof that a recognised prefix stays recognised:

1. Every further token only appends characters to the settled text, in each decoder that `spelling` knows.
2. Lower-casing and the replacement of other characters work character by character. (The one exception, the Greek final
   sigma, is no letter of ROUGE either way.) So a complete word stays as it is, and further words only follow.
3. The longest common subsequence never shrinks where words are appended. The recall of the complete words is therefore a
   lower bound on the recall of every answer with this beginning.

The automaton counts a word only if it is spelled as in the reference. Other words of the same stem are not counted,
which again gives a lower bound; the scorer itself judges every answer that ends unrecognised.
"""

from __future__ import annotations

import weakref
from functools import lru_cache, partial

import numpy as np

from lethe.errors import BadValue
from lethe.sampling.answer_tree.automaton import UNKNOWN_END, columns_of
from lethe.sampling.answer_tree.spelling import Spelling
from lethe.scoring.text.rouge import blanked, stems

LEAK = 0
UNKNOWN = -1  # an entry of the table that no text has asked for
BLANK, OTHER, FIRST_OWN = 0, 1, 2  # symbols: between words, a letter of no reference word, a reference letter
NO_WORD = -1  # the node of a word that the reference lacks
MOST_ROWS = 256  # next states of a whole vocabulary that are kept
# The part of the guide that the words found so far get. Most answers share words with the reference: the whole guide, meant
# for rare keywords, would lift most of the tree above the threshold.
GUIDED = 0.15

# The lengths of common subsequences with each beginning of the reference; a node.
State = tuple[tuple[int, ...], int]


class TokenBytes:
    """The letters and blanks that every token settles, to read all tokens at once: ``order`` puts the longest first;
    ``columns[l]`` are the l-th letters of the tokens that have one."""

    def __init__(self, spelling: Spelling):
        self.spelling, self.size = spelling, len(spelling.pieces)
        read = [spelling.advance(b"", token) for token in range(self.size)]
        self.order, self.columns = columns_of([np.frombuffer(blanked(text), np.uint8) for text, _ in read])
        self.opens = {token: remainder for token, (_, remainder) in enumerate(read) if remainder}


class RecallAutomaton:
    """Reads answers token by token until ``needed`` words of the reference, in order, prove a ROUGE-L recall
    ``above``."""

    start = 1

    def __init__(self, reference: str, above: float, tokens: TokenBytes):
        words = blanked(reference).decode().split()
        if not words or not 0 <= above < 1:
            raise BadValue("reference", reference, "a text with a word, and a threshold from 0, less than 1")
        self.tokens, self.spelling = tokens, tokens.spelling
        classes = stems(words)
        self.reference = tuple(sorted(set(classes)).index(each) for each in classes)
        self.needed = next(count for count in range(1, len(words) + 1) if count / len(words) > above)
        letters = sorted(set("".join(words)))
        self.symbol_of = np.full(256, OTHER)
        self.symbol_of[ord(" ")] = BLANK
        self.symbol_of[[ord(letter) for letter in letters]] = FIRST_OWN + np.arange(len(letters))
        self.symbols = [self.symbol_of[column] for column in tokens.columns]
        self._nodes(dict(zip(words, self.reference, strict=True)), letters)
        beginning: State = ((0,) * (len(words) + 1), 0)
        # State 0 leaks; the others are listed as texts reach them.
        self.states: list[State] = [beginning, beginning]
        self.number = {beginning: self.start}
        self.table = np.full((64, FIRST_OWN + len(letters)), UNKNOWN)
        self.table[LEAK] = LEAK
        # A cache with a bound method would keep the rows until the garbage collector runs.
        self.row = lru_cache(MOST_ROWS)(partial(type(self)._row, weakref.proxy(self)))
        # States with the open bytes of an unfinished character are negative: -1 is the first of the list.
        self.opened: list[tuple[int, bytes]] = []
        self._open: dict[tuple[int, bytes], int] = {}

    def _nodes(self, word_class: dict[str, int], letters: list[str]) -> None:
        """The reference's words as a tree of letters: ``following[node][symbol]``, and the class of a complete word."""
        self.following: list[dict[int, int]] = [{}]
        self.complete: list[int | None] = [None]
        for word, own in word_class.items():
            node = 0
            for letter in word:
                symbol = FIRST_OWN + letters.index(letter)
                if symbol not in self.following[node]:
                    self.following[node][symbol] = len(self.following)
                    self.following.append({})
                    self.complete.append(None)
                node = self.following[node][symbol]
            self.complete[node] = own

    def _read(self, state: int, symbol: int) -> int:
        common, node = self.states[state]
        if symbol == BLANK:
            own = self.complete[node] if node != NO_WORD else None
            if own is not None:
                common = self._with(common, own)
            if common[-1] >= self.needed:
                return LEAK
            return self._number((common, 0))
        return self._number((common, NO_WORD if node == NO_WORD else self.following[node].get(symbol, NO_WORD)))

    def _with(self, common: tuple[int, ...], word: int) -> tuple[int, ...]:
        """One row of the table of longest common subsequences."""
        row = [0]
        for place, own in enumerate(self.reference):
            row.append(max(common[place + 1], row[-1], common[place] + (own == word)))
        return tuple(row)

    def _number(self, state: State) -> int:
        if state not in self.number:
            self.number[state] = len(self.states)
            self.states.append(state)
            if len(self.states) > len(self.table):
                self.table = np.concatenate([self.table, np.full_like(self.table, UNKNOWN)])
        return self.number[state]

    def _all_read(self, states: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        """The states after one symbol each; entries that no text has asked for are computed first."""
        found = self.table[states, symbols]
        unknown = found == UNKNOWN
        if unknown.any():
            width = self.table.shape[1]
            for pair in np.unique(states[unknown] * width + symbols[unknown]).tolist():
                after = self._read(*divmod(pair, width))
                self.table[divmod(pair, width)] = after
            found = self.table[states, symbols]
        return found

    def after(self, state: int, text: str) -> int:
        """The state after further settled characters."""
        states = np.array([state])
        for symbol in self.symbol_of[np.frombuffer(blanked(text), np.uint8)]:
            states = self._all_read(states, np.array([symbol]))
        return int(states[0])

    def _behind(self, state: int, remainder: bytes) -> int:
        """A state with the open bytes of an unfinished character; a leak stays a leak."""
        if not remainder or state == LEAK:
            return state
        if (state, remainder) not in self._open:
            self.opened.append((state, remainder))
            self._open[state, remainder] = -len(self.opened)
        return self._open[state, remainder]

    def _row(self, state: int) -> np.ndarray:
        if state < 0:
            at, remainder = self.opened[-state - 1]
            row = self._row(self.after(at, self.spelling.flush(remainder)))
            row[self.spelling.skipped] = state
            for token in self.spelling.continuing:
                text, further = self.spelling.advance(remainder, int(token))
                row[token] = self._behind(self.after(at, text), further)
            return row
        states = np.full(self.tokens.size, state)
        for symbols in self.symbols:
            states[: len(symbols)] = self._all_read(states[: len(symbols)], symbols)
        by_token = np.empty_like(states)
        by_token[self.tokens.order] = states
        for token, remainder in self.tokens.opens.items():
            by_token[token] = self._behind(int(by_token[token]), remainder)
        return by_token

    def leaks(self, states: np.ndarray) -> np.ndarray:
        return states == LEAK

    def ends(self, states: np.ndarray) -> np.ndarray:
        """The scorer judges what ends unrecognised: the last word counts as well, and so do other words of a stem."""
        return np.full(states.shape, UNKNOWN_END)

    def blank(self, states: np.ndarray) -> np.ndarray:
        return np.zeros(states.shape, bool)

    pending = blank

    def needs(self, states: np.ndarray) -> np.ndarray:
        return np.zeros(states.shape, np.int64)

    def matched(self, states: np.ndarray) -> np.ndarray:
        """The share of the needed words that are found so far, times `GUIDED`."""
        plain = [self.opened[-state - 1][0] if state < 0 else state for state in states.tolist()]
        return GUIDED * np.array([1.0 if at == LEAK else self.states[at][0][-1] / self.needed for at in plain])
