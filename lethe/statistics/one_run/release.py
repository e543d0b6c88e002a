"""From guesses to counts: the r guesses with the highest scores are released."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.one_run.counts import Counts


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
