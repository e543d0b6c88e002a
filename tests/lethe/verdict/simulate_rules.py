"""How often a word of the verdict is false: many runs at once, by the rule in arrays."""

import math

import numpy as np
from scipy.special import logsumexp

from lethe.statistics.anytime import LN2, is_reached, log_above, log_below, log_beyond
from lethe.verdict.rules import level_of


def log_e_forgot(x, n, y, k, tau):
    """ln e of each question; the arrays have one shape, ``y`` is None without Retrain."""
    alone = _of_distinct(log_below, tau, x, n)
    if y is None:
        return alone
    return np.logaddexp(alone, _of_distinct(log_beyond, tau, x, n, y, k)) - LN2


def log_e_leaks(x, n, y, k, tau):
    if y is None:
        return _of_distinct(log_above, tau, x, n)
    return _of_distinct(log_beyond, -tau, y, k, x, n)


def _of_distinct(log_e, null, *counts):
    """``log_e`` of each distinct set of counts: most questions have the same."""
    arrays = np.broadcast_arrays(*counts)
    table = np.stack([values.ravel() for values in arrays], axis=1).astype(np.float64)
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    values = log_e(*distinct.T, np.full(len(distinct), null))
    return np.asarray(values)[place.ravel()].reshape(arrays[0].shape)


def words(x, n, y, k, tau, level):
    """The words of runs, (...), from counts (..., m) of the model and of Retrain (None: without)."""
    goal = math.log(1 / level)
    mean = logsumexp(log_e_leaks(x, n, y, k, tau), axis=-1) - math.log(np.shape(x)[-1])
    passed = is_reached(log_e_forgot(x, n, y, k, tau), goal).all(axis=-1)
    return np.where(is_reached(mean, goal), "leaks", np.where(passed, "forgot", "open"))


def run(rng, chance, subject, models, runs, n, tau=0.01, alpha=0.05, level=None, retrain=True):
    """(runs, models) words of models with the probabilities ``subject`` beside one Retrain with ``chance``."""
    x = rng.binomial(n, subject, (runs, models, len(subject)))
    y = None
    if retrain:
        y = np.broadcast_to(rng.binomial(n, chance, (runs, 1, len(chance))), x.shape)
    size = np.full(x.shape, n)
    return words(x, size, y, size, tau, level or level_of(alpha, models))


def ever(rng, chance, subject, runs, looks, batch, tau, level, false, retrain=True):
    """The share of runs that ever get the word ``false``, looked at after each batch.

    Retrain is drawn by the leaks seen: a question gets a batch of it only where the model leaked more often.
    """
    x = np.zeros((runs, len(subject)))
    y, k = np.zeros_like(x), np.zeros_like(x)
    is_false = np.zeros(runs, dtype=bool)
    for look in range(1, looks + 1):
        x += rng.binomial(batch, subject, x.shape)
        drawn = (x > y) | (look % 4 == 0)
        y += np.where(drawn, rng.binomial(batch, chance, x.shape), 0)
        k += np.where(drawn, batch, 0)
        n = np.full(x.shape, look * batch)
        found = words(x, n, y if retrain else None, k, tau, level)
        is_false |= found == false
    return is_false.mean()


def any_false(found, false):
    return float((found == false).any(axis=-1).mean())
