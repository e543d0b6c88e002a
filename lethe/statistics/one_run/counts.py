"""The checked counts of one audit."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.errors import BadValue

MOST_BITS = 10**8  # with more bits, the binomial tails lose their digits to rounding


@dataclass(frozen=True)
class Counts:
    """``n`` secret bits, ``r`` guesses released, ``errors`` of them wrong.

    The counts by the value of the bit are known only from a file of guesses: ``negatives`` counts the released guesses of
    bits that are 0, and ``false_positives`` those of them that guessed 1. The remaining errors are false negatives.
    """

    n: int
    r: int
    errors: int
    negatives: int | None = None
    false_positives: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.n <= MOST_BITS:
            raise BadValue("n", self.n, f"a whole number from 1 to {MOST_BITS}")
        if not 1 <= self.r <= self.n:
            raise BadValue(
                "r", self.r, f"a whole number from 1 to n = {self.n}", "At most all n guesses can be released."
            )
        if not 0 <= self.errors <= self.r:
            raise BadValue("errors", self.errors, f"a whole number from 0 to r = {self.r}")

    @property
    def correct(self) -> int:
        """The number of right guesses."""
        return self.r - self.errors

    def by_bit(self) -> tuple[int, int]:
        """``negatives`` and ``false_positives``; raises `BadValue` if only the total counts are known."""
        if self.negatives is None or self.false_positives is None:
            raise BadValue(
                "guesses", "counts only", "a file of guesses, which gives the counts by the value of the bit"
            )
        return self.negatives, self.false_positives
