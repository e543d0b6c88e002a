"""The consequences of every next token for the verdict on an answer, from one state of its automaton.

They depend on the state, on the number of tokens left and on the growth's threshold, but on no model, so rows,
levels and growths share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lethe.sampling.answer_tree.automaton import CLEAN_END, LEAK_END, UNKNOWN_END, Automaton
from lethe.sampling.answer_tree.question import Growth

ENTRIES_KEPT = 1 << 24  # of the values per token, over all states that are kept: about 500 MB


@dataclass(frozen=True)
class Ahead:
    """The automaton's values for the state after each token, (V,) each. ``matched`` (D,) are shares of a keyword read in
    the distinct states that follow, ``place`` (V,) the index of each token's state among them, and ``most_needed`` the
    largest of ``needs``."""

    following: np.ndarray
    leak: np.ndarray
    end: np.ndarray
    blank: np.ndarray
    held: np.ndarray
    needs: np.ndarray
    matched: np.ndarray
    place: np.ndarray
    most_needed: int

    @classmethod
    def of(cls, automaton: Automaton, state: int) -> Ahead:
        """The look ahead from one state of the automaton."""
        following = automaton.row(state)
        distinct, place = np.unique(following, return_inverse=True)
        needs = automaton.needs(distinct)
        return cls(
            following,
            leak=automaton.leaks(distinct)[place],
            end=automaton.ends(distinct)[place],
            blank=automaton.blank(distinct)[place],
            held=automaton.pending(distinct)[place],
            needs=needs[place],
            matched=automaton.matched(distinct),
            place=place,
            most_needed=int(needs.max()),
        )


class Sight:
    """The looks ahead from the states of one automaton, for all growths of a question."""

    def __init__(self, automaton: Automaton):
        self.automaton = automaton
        self._ahead: dict[int, Ahead] = {}

    def ahead(self, state: int) -> Ahead:
        if state not in self._ahead:
            ahead = Ahead.of(self.automaton, state)
            if len(self._ahead) * len(ahead.following) > ENTRIES_KEPT:
                self._ahead.clear()
            self._ahead[state] = ahead
        return self._ahead[state]


@dataclass(frozen=True)
class Outlook:
    """The consequences of each token in one state, (V,) each. ``leak``, ``clean``, ``blank``, ``held`` (a keyword is
    complete, the next character decides) and ``unknown`` (finished, to be scored) are masks; ``least`` is the least mass
    at which a child is explored, inf where nothing is left to explore."""

    following: np.ndarray
    leak: np.ndarray
    clean: np.ndarray
    blank: np.ndarray
    held: np.ndarray
    unknown: np.ndarray
    least: np.ndarray

    @cached_property
    def decided(self) -> np.ndarray:
        """(V,) whether the token decides the answer."""
        return self.leak | self.clean

    @cached_property
    def any_leak(self) -> bool:
        return bool(self.leak.any())

    @cached_property
    def any_blank(self) -> bool:
        return bool(self.blank.any())

    @cached_property
    def any_held(self) -> bool:
        return bool(self.held.any())

    @cached_property
    def any_unknown(self) -> bool:
        return bool(self.unknown.any())


class Outlooks:
    """The outlooks of one growth."""

    def __init__(self, sight: Sight, growth: Growth, vocabulary: int, end_ids: tuple[int, ...]):
        self.sight, self.growth = sight, growth
        self.ends = np.zeros(vocabulary, bool)
        self.ends[list(end_ids)] = True
        self._of: dict[tuple[int, int], Outlook] = {}

    def of(self, state: int, left: int) -> Outlook:
        """The outlook of a state if ``left`` tokens may follow the next one."""
        ahead = self.sight.ahead(state)
        key = state, min(left, max(1, ahead.most_needed))  # beyond that number every further token changes nothing
        if key not in self._of:
            if len(self._of) * len(self.ends) > ENTRIES_KEPT:
                self._of.clear()
            self._of[key] = self._outlook(ahead, left)
        return self._of[key]

    def _outlook(self, ahead: Ahead, left: int) -> Outlook:
        over = self.ends | (left == 0)
        leak = ahead.leak | (over & (ahead.end == LEAK_END))
        # Answers without a visible character are continued, so that blank answers are counted completely.
        hopeless = (ahead.needs > left) & ~ahead.blank
        clean = ~leak & np.where(over, ahead.end == CLEAN_END, hopeless)
        unknown = ~leak & over & (ahead.end == UNKNOWN_END)
        explored_from = (self.growth.theta / np.exp(self.growth.guide * ahead.matched))[ahead.place]
        least = np.where(leak | over | clean, np.inf, explored_from)
        return Outlook(ahead.following, leak, clean, clean & over & ahead.blank, ahead.held, unknown, least)
