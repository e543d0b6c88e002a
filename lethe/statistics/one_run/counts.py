"""The counts of one audit: secret bits, released guesses and errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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


@dataclass(frozen=True)
class Guesses:
    """Arrays of shape (n,): secret ``bits``, ``guesses`` of them (0 or 1) and the confidence in each guess (``scores``)."""

    bits: np.ndarray
    guesses: np.ndarray
    scores: np.ndarray


def release(bits: np.ndarray, guesses: np.ndarray, scores: np.ndarray, r: int, seed: int = 0) -> Counts:
    """Release the ``r`` guesses with the highest ``scores`` and count their errors.

    Parameters
    ----------
    bits, guesses : arrays of shape (n,)
        Secret bits and guesses of them, 0 or 1.
    scores : array of shape (n,)
        The confidence in each guess: any number except NaN. A guess with the score -inf is never released.
    r : int
        The number of released guesses, from 1 to the number of guesses with a score above -inf.
    seed : int
        Breaks ties at the cut at random. Breaking ties by position would leak the bits whenever the rows are ordered by bit.

    Returns
    -------
    Counts

    Raises
    ------
    BadValue
        If an array has the wrong shape, or a value or ``r`` lies outside its range.
    """
    bits, guesses, scores = np.asarray(bits), np.asarray(guesses), np.asarray(scores, dtype=np.float64)
    n = bits.size
    for name, values in (("bits", bits), ("guesses", guesses), ("scores", scores)):
        if values.shape != (n,):
            raise BadValue(name, f"shape {values.shape}", f"one for each of the {n} bits")
    for name, values in (("bits", bits), ("guesses", guesses)):
        broken = np.flatnonzero(~((values == 0) | (values == 1)))
        if broken.size:
            raise BadValue(f"{name}[{broken[0]}]", values[broken[0]].item(), "0 or 1")
    broken = np.flatnonzero(np.isnan(scores))
    if broken.size:
        raise BadValue(
            f"scores[{broken[0]}]", "NaN", "a number", "Give a guess that is never released the score -inf."
        )
    Counts(n, r, 0)  # checks n and r
    offered = int(np.count_nonzero(scores > -np.inf))
    if r > offered:
        raise BadValue("r", r, f"at most {offered}, the number of guesses (of {n}) whose score is not -inf")
    released = _highest(scores, r, np.random.default_rng(seed))
    bit, wrong = bits[released] == 1, bits[released] != guesses[released]
    return Counts(n, r, int(wrong.sum()), negatives=int((~bit).sum()), false_positives=int((wrong & ~bit).sum()))


def _highest(scores: np.ndarray, r: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of the ``r`` highest scores; ties at the cut are drawn at random."""
    cut = np.partition(scores, scores.size - r)[scores.size - r]
    above, tied = np.flatnonzero(scores > cut), np.flatnonzero(scores == cut)
    return np.concatenate([above, rng.choice(tied, r - above.size, replace=False)])
