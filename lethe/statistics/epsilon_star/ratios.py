"""The four ratios whose largest logarithm is Epsilon*: its estimate from counts, and lower bounds
at alpha.

A point is called a member when its loss is at most a threshold. Let F be the share of losses at or
under the threshold, and S = 1 - F the share above it. The ratios of Negoescu et al. (2024), eq. 7,
are (F_train - delta) / F_pop, (S_pop - delta) / S_train, (S_train - delta) / S_pop and (F_pop -
delta) / F_train. A ratio whose numerator is not positive is ignored; a positive numerator over zero
is infinite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from lethe.errors import BadValue
from lethe.statistics.bands import LARGEST_BERK_JONES, berk_jones, berk_jones_eta, dkw
from lethe.statistics.bounds import binary_lower
from lethe.statistics.checks import check, check_share

INSTANCE = (
    "the losses of either side are independent draws from its distribution; the statement is about "
    "this one model"
)
NO_THRESHOLD = "no threshold has FPR and FNR inside ({low:g}, {high:g}): lower the cut or omit it"
# Shares of losses at or under each threshold, and above it; arrays (k,).
Shares = tuple[np.ndarray, np.ndarray]
# Their lower and their upper bounds.
Bounds = tuple[Shares, Shares]


class Ratio(NamedTuple):
    """(share of ``numerator``'s losses - delta) / share of the other side's losses, below or above
    the threshold.
    """

    name: str
    numerator: str  # "train" | "population"
    below: bool  # whether the shares are at or under the threshold, not above it


RATIOS = (
    Ratio("(TPR - delta) / FPR", "train", True),
    Ratio("(TNR - delta) / FNR", "population", False),
    Ratio("(FNR - delta) / TNR", "train", False),
    Ratio("(FPR - delta) / TPR", "population", True),
)


@dataclass(frozen=True)
class Fit:
    """Each side's mixture components on the transformed losses, and the p-value of the test of fit
    (NaN: too few losses).
    """

    weights: dict[str, list[float]]
    means: dict[str, list[float]]
    sds: dict[str, list[float]]
    ks_p_values: dict[str, float]


@dataclass(frozen=True)
class EpsilonStar:
    """An estimate of Epsilon*, without a guarantee: infinite if some ratio has no finite supremum,
    NaN if the cut leaves no threshold. ``threshold`` is the loss that attains the value (None if
    none does, or only in the limit).
    """

    value: float
    delta: float
    cut: float | None
    n_train: int
    n_population: int
    threshold: float | None
    ratio: str | None
    method: str
    side: str = "estimate"
    assumes: str = INSTANCE
    fit: Fit | None = None
    note: str | None = None


@dataclass(frozen=True)
class LowerBound:
    """Epsilon* of the model is at least ``value`` with probability 1 - alpha over the sampled
    losses.
    """

    value: float
    alpha: float
    delta: float
    n_train: int
    n_population: int
    threshold: float | None
    ratio: str | None
    method: str
    side: str = "lower"
    assumes: str = INSTANCE


def log_ratios(
    train: Shares,
    population: Shares,
    delta: float,
    denominators: tuple[Shares, Shares] | None = None,
) -> np.ndarray:
    """Logarithms of the four ratios, shape (4, k), in the order of `RATIOS`; -inf where a ratio is
    ignored.

    ``denominators`` are the shares of both sides, training first, where they differ from those of
    the numerators.
    """
    train_below, population_below = denominators or (train, population)
    rows = []
    for ratio in RATIOS:
        place = 0 if ratio.below else 1
        top, bottom = train, population_below
        if ratio.numerator == "population":
            top, bottom = population, train_below
        numerator = np.asarray(top[place], float) - delta
        denominator = np.asarray(bottom[place], float)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(numerator) - np.log(denominator)
        rows.append(np.where(numerator > 0, logs, -np.inf))
    return np.array(rows)


def largest(logs: np.ndarray) -> tuple[float, int, int]:
    """The largest entry of `log_ratios`, at least 0, with its row (the ratio) and its column (the
    threshold).
    """
    row, column = np.unravel_index(np.argmax(logs), logs.shape)
    return max(0.0, float(logs[row, column])), int(row), int(column)


def checked(
    train: np.ndarray, population: np.ndarray, delta: float, cut: float | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Both sides as float64 vectors, and ``delta``; raises `BadValue` as the three checks do."""
    train = checked_losses(train, "train")
    population = checked_losses(population, "population")
    checked_cut(cut)
    return train, population, checked_delta(delta)


def checked_losses(losses: np.ndarray, name: str) -> np.ndarray:
    """The losses as a float64 vector; `BadValue` unless they are finite and at least two."""
    losses = np.asarray(losses, float).ravel()
    check(len(losses) >= 2, f"{name} losses", f"{len(losses)} of them", "at least 2")
    broken = losses[~np.isfinite(losses)]
    if broken.size:
        raise BadValue(f"{name} losses", float(broken[0]), "finite numbers")
    return losses


def checked_delta(delta: float) -> float:
    """``delta``; `BadValue` outside [0, 1)."""
    if not 0 <= delta < 1:
        remedy = "Choose delta well below 1 / n, for example 1 / (n ln n)."
        raise BadValue("delta", delta, "a number in [0, 1)", remedy)
    return float(delta)


def checked_cut(cut: float | None) -> float | None:
    """``cut``; `BadValue` outside (0, 0.5), unless it is None."""
    if cut is not None and not 0 < cut < 0.5:
        raise BadValue("cut", cut, "a number in (0, 0.5)", "Omit the cut for the exact value.")
    return cut


def recommended_delta(n: int) -> float:
    """1 / (n ln n), well below 1 / n, for n >= 3 training points; 1 / n for n = 2, where ln n is
    below 1.
    """
    return 1 / (n * max(1.0, math.log(n)))


def empirical_epsilon_star(
    train: np.ndarray, population: np.ndarray, delta: float, cut: float | None = None
) -> EpsilonStar:
    """The exact maximum of the ratios over all observed thresholds (Negoescu et al. 2024, eq. 7):
    an estimate, biased upward.

    ``cut`` keeps only thresholds whose FPR and FNR lie strictly inside (cut, 1 - cut), in (0, 0.5).
    """
    train, population, delta = checked(train, population, delta, cut)
    thresholds, below_train, below_population = counts(train, population)
    fnr = 1 - below_train / len(train)
    fpr = below_population / len(population)
    if cut is not None:
        inside = (fpr > cut) & (fpr < 1 - cut) & (fnr > cut) & (fnr < 1 - cut)
        thresholds = thresholds[inside]
        below_train = below_train[inside]
        below_population = below_population[inside]

    def estimate(
        value: float, threshold: float | None, ratio: str | None, note: str | None
    ) -> EpsilonStar:
        sizes = (len(train), len(population))
        return EpsilonStar(
            value, delta, cut, *sizes, threshold, ratio, method="empirical", note=note
        )

    if cut is not None and not len(thresholds):
        return estimate(np.nan, None, None, NO_THRESHOLD.format(low=cut, high=1 - cut))
    train_shares = shares(below_train, len(train))
    population_shares = shares(below_population, len(population))
    value, row, column = largest(log_ratios(train_shares, population_shares, delta))
    if value <= 0:
        return estimate(value, None, None, None)
    note = None
    if np.isinf(value):
        note = "a ratio has a zero denominator: beyond some loss, all losses belong to one side"
    return estimate(value, float(thresholds[column]), RATIOS[row].name, note)


def counts(train: np.ndarray, population: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every observed loss as a threshold, ascending, and each side's number of losses at or
    under the threshold.
    """
    thresholds = np.sort(np.concatenate([train, population]), kind="stable")
    at_train = np.searchsorted(np.sort(train), thresholds, side="right")
    at_population = np.searchsorted(np.sort(population), thresholds, side="right")
    return thresholds, at_train, at_population


def shares(below: np.ndarray, n: int) -> Shares:
    """The shares at or under the thresholds and above them, where ``below`` of n lie at or under."""
    return below / n, (n - below) / n


COMPLETE = (
    "the training losses are those of the whole training set, so that its shares are known and not "
    "estimated; the population's losses are independent draws; the statement is about this one model"
)


def split_lower_bound(
    train: np.ndarray,
    population: np.ndarray,
    delta: float,
    alpha: float = 0.05,
    train_complete: bool = False,
    seed: int = 0,
) -> LowerBound:
    """Choose a threshold and a ratio on one half of the losses, and certify them on the other half;
    ``seed`` splits them.

    The losses, at least two and finite, are independent on each side. The certificate is two
    Clopper-Pearson bounds at alpha / 2 each. With ``train_complete``, where ``train`` holds the
    whole training set, its shares are exact: they are not split, and the remaining bound takes
    alpha. The choice maximises the bound in Wilson's approximation.
    """
    train, population, delta = checked(train, population, delta)
    check_share("alpha", alpha)
    rng = np.random.default_rng(seed)
    if train_complete:
        level = alpha
        choose_train = certify_train = train
        choosing = certifying = _exact
        assumes = COMPLETE
    else:
        level = alpha / 2
        choose_train, certify_train = _halves(train, rng)
        choosing = _wilson
        certifying = _clopper_pearson
        assumes = INSTANCE
    choose_population, certify_population = _halves(population, rng)

    thresholds, below_train, below_population = counts(choose_train, choose_population)
    chosen_train = choosing(below_train, len(choose_train), level)
    chosen_population = _wilson(below_population, len(choose_population), level)
    _, row, column = largest(_log_bounds(chosen_train, chosen_population, delta))
    threshold = float(thresholds[column])

    k_train = np.array([(certify_train <= threshold).sum()])
    k_population = np.array([(certify_population <= threshold).sum()])
    side_train = certifying(k_train, len(certify_train), level)
    side_population = _clopper_pearson(k_population, len(certify_population), level)
    value = max(0.0, float(_log_bounds(side_train, side_population, delta)[row, 0]))
    sizes = (len(train), len(population))
    method = "split, Clopper-Pearson"
    return LowerBound(
        value, alpha, delta, *sizes, threshold, RATIOS[row].name, method, assumes=assumes
    )


def band_lower_bound(
    train: np.ndarray,
    population: np.ndarray,
    delta: float,
    alpha: float = 0.05,
    train_complete: bool = False,
    band: str = "auto",
) -> LowerBound:
    """Bound the largest ratio over all thresholds from below, by simultaneous bands on both
    distribution functions.

    The bands are two-sided at alpha / 2 each, so the threshold may be chosen on the same losses.
    ``band`` is "dkw", of one width everywhere, "berk-jones", far narrower in the tails, where the
    ratios are large, or "auto": Berk-Jones if its level is solved in seconds (each side has at most
    `LARGEST_BERK_JONES` losses). The rest is as in `split_lower_bound`.
    """
    train, population, delta = checked(train, population, delta)
    check_share("alpha", alpha)
    check(band in ("auto", *BANDS), "band", band, f"one of auto, {', '.join(BANDS)}")
    if band == "auto":
        estimated = [population] if train_complete else [train, population]
        band = "berk-jones" if max(map(len, estimated)) <= LARGEST_BERK_JONES else "dkw"
    name, bounds = BANDS[band]
    thresholds, k_train, k_population = counts(train, population)
    if train_complete:
        level = alpha
        side_train = _exact(k_train, len(train), level)
        assumes = COMPLETE
    else:
        level = alpha / 2
        side_train = bounds(k_train, len(train), level)
        assumes = INSTANCE
    side_population = bounds(k_population, len(population), level)

    value, row, column = largest(_log_bounds(side_train, side_population, delta))
    threshold = ratio = None
    if value > 0:
        threshold = float(thresholds[column])
        ratio = RATIOS[row].name
    sizes = (len(train), len(population))
    method = f"band, {name}"
    return LowerBound(value, alpha, delta, *sizes, threshold, ratio, method, assumes=assumes)


def _log_bounds(train: Bounds, population: Bounds, delta: float) -> np.ndarray:
    """`log_ratios` of lower bounds of the numerators and upper bounds of the denominators."""
    train_lower, train_upper = train
    population_lower, population_upper = population
    return log_ratios(train_lower, population_lower, delta, (train_upper, population_upper))


def _halves(losses: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    mixed = rng.permutation(losses)
    half = len(mixed) // 2
    return mixed[:half], mixed[half:]


def _exact(k: np.ndarray, n: int, level: float) -> Bounds:
    return shares(k, n), shares(k, n)


def _clopper_pearson(k: np.ndarray, n: int, level: float) -> Bounds:
    """One-sided bounds, each at ``level``, of the shares at or under a threshold and above it; k of
    n lie at or under.
    """
    below = binary_lower(k, n, level)
    above = binary_lower(n - k, n, level)
    return (below, above), (1 - above, 1 - below)


def _wilson(k: np.ndarray, n: int, level: float) -> Bounds:
    """Wilson's score bounds: close to Clopper-Pearson, and fast enough for millions of thresholds."""
    z = -ndtri(level)
    centre = (k + z * z / 2) / (n + z * z)
    reach = z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    lower = np.maximum(centre - reach, 0.0)
    upper = np.minimum(centre + reach, 1.0)
    return (lower, 1 - upper), (upper, 1 - lower)


def _dkw(k: np.ndarray, n: int, level: float) -> Bounds:
    """The two-sided Dvoretzky-Kiefer-Wolfowitz band at ``level``, at every threshold at once."""
    e = dkw(n, level, sides=2)
    below, above = shares(k, n)
    lower = np.maximum(below - e, 0), np.maximum(above - e, 0)
    upper = np.minimum(below + e, 1), np.minimum(above + e, 1)
    return lower, upper


def _berk_jones(k: np.ndarray, n: int, level: float) -> Bounds:
    """The Berk-Jones band: a one-sided band at ``level`` / 2 for the shares under thresholds, and
    one for those above.
    """
    least = np.concatenate([[0.0], berk_jones(n, berk_jones_eta(n, level / 2))])
    return (least[k], least[n - k]), (1 - least[n - k], 1 - least[k])


BANDS = {"berk-jones": ("Berk-Jones", _berk_jones), "dkw": ("DKW", _dkw)}

QUANTILES = 1000  # the largest number of compared FPRs
INDEPENDENT = (
    "training sets, training and populations of the instances are independent; records are "
    "exchanged one for one"
)


@dataclass(frozen=True)
class Mechanism:
    """``value`` estimates eps-bar (eq. 19); ``jensen_upper`` estimates ln E[e^(Epsilon*)], an upper
    bound of eps-bar.

    Neither bounds the mechanism's epsilon from below.
    """

    value: float
    jensen_upper: float
    delta: float
    instances: int
    fpr: float | None
    ratio: str | None
    method: str = "mean FNR at equal FPR"
    assumes: str = INDEPENDENT


def mechanism_epsilon(
    instances: Sequence[tuple[np.ndarray, np.ndarray]], delta: float
) -> Mechanism:
    """Compute eps-bar: Epsilon* at the FNR averaged over independently trained instances at equal
    FPR.

    Source: Negoescu et al. (2024), appendix A, eq. 19. An instance is a model's training losses and
    population losses.
    """
    sides = []
    for train, population in instances:
        sides.append((checked_losses(train, "train"), checked_losses(population, "population")))
    delta = checked_delta(delta)
    check(sides, "instances", 0, "at least one")

    fpr, fnr = rates(sides)
    mean_fpr = fpr.mean(axis=0)
    mean_fnr = fnr.mean(axis=0)
    logs = log_ratios((1 - mean_fnr, mean_fnr), (mean_fpr, 1 - mean_fpr), delta)
    value, row, column = largest(logs)
    fpr_of_value = ratio = None
    if value > 0:
        fpr_of_value = float(mean_fpr[column])
        ratio = RATIOS[row].name

    singles = np.array([empirical_epsilon_star(*losses, delta).value for losses in sides])
    jensen_upper = float(np.logaddexp.reduce(singles) - math.log(len(singles)))
    return Mechanism(value, jensen_upper, delta, len(sides), fpr_of_value, ratio)


def rates(instances: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """(FPR, FNR) of each instance at equal quantiles of its population, arrays (instances,
    quantiles).
    """
    points = min(QUANTILES, *(len(population) for _, population in instances))
    levels = np.arange(1, points + 1) / points
    fpr, fnr = [], []
    for train, population in instances:
        ordered = np.sort(population)
        ranks = np.ceil(levels * len(population) - 1e-9).astype(int)
        thresholds = ordered[ranks - 1]
        accepted = np.searchsorted(ordered, thresholds, side="right")
        accepted_train = np.searchsorted(np.sort(train), thresholds, side="right")
        fpr.append(accepted / len(population))
        fnr.append(1 - accepted_train / len(train))
    return np.array(fpr), np.array(fnr)
