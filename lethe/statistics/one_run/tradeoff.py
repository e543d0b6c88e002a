"""Any pair of distributions as atoms: from two probability vectors, a trade-off curve, or privacy
loss distributions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.checks import check
from lethe.statistics.one_run.channel import Channel, Tangents

MOST_BREAKS = 64  # kinks of the error mass that split the quadrature; smaller ones are negligible


@dataclass(frozen=True, eq=False)
class Atoms(Channel):
    """A pair of distributions over finitely many outcomes.

    An auditor who sees the outcome guesses the likelier bit. The loss of an outcome is
    |ln p / q|, and the error rate of the guess min(p, q) / (p + q) falls as the loss rises.

    Attributes
    ----------
    p, q
        (outcomes,) their probabilities when the bit is 0 and when it is 1, each summing to 1.

    Raises
    ------
    BadValue
        If one of them is no distribution, or they are over different outcomes.
    """

    p: np.ndarray
    q: np.ndarray

    def __post_init__(self) -> None:
        for name, values in (("p", self.p), ("q", self.q)):
            if values.ndim != 1 or not np.all(values >= 0) or abs(values.sum() - 1) > 1e-6:
                raise BadValue(name, values, "probabilities of the outcomes, summing to 1")
        legal = f"{self.p.size} outcomes, as in p"
        check(self.p.shape == self.q.shape, "q", f"{self.q.size} outcomes", legal)

    @cached_property
    def _curve(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Outcomes by falling loss: masses above (from 0 to 1), error masses above, and the error
        rate of each outcome.
        """
        p = self.p / self.p.sum()
        q = self.q / self.q.sum()
        mass = 0.5 * (p + q)
        occurs = mass > 0
        p = p[occurs]
        q = q[occurs]
        mass = mass[occurs]

        rate = np.minimum(p, q) / (p + q)
        by_loss = np.argsort(rate, kind="stable")
        s = np.concatenate([[0.0], np.cumsum(mass[by_loss])])
        wrong = np.concatenate([[0.0], np.cumsum((mass * rate)[by_loss])])
        return s, wrong, rate[by_loss]

    @cached_property
    def breaks(self) -> tuple[float, ...]:
        """The masses at which the error rate jumps most, of at most `MOST_BREAKS` jumps."""
        s, _, rate = self._curve
        kinks = np.diff(rate)
        largest = np.sort(np.argsort(-kinks, kind="stable")[:MOST_BREAKS])
        places = largest[kinks[largest] > 0]
        return tuple(s[places + 1].tolist())

    def error_mass(self, s: np.ndarray) -> np.ndarray:
        masses, wrong, _ = self._curve
        return np.interp(s, masses, wrong)

    def error_rate(self, s: np.ndarray) -> np.ndarray:
        masses, _, rate = self._curve
        outcomes = np.searchsorted(masses, s) - 1
        return rate[np.clip(outcomes, 0, rate.size - 1)]

    @cached_property
    def _least_errors(self) -> Tangents:
        s, wrong, rate = self._curve
        slope = np.concatenate([rate / (1 - rate), [1.0]])
        return Tangents(s - wrong, wrong, slope)

    def least_errors(self, correct: float) -> float:
        return self._least_errors(correct)

    def epsilon(self, delta: float) -> float:
        forward = _epsilon(self.p, self.q, delta)
        backward = _epsilon(self.q, self.p, delta)
        return max(forward, backward)


def _epsilon(p: np.ndarray, q: np.ndarray, delta: float) -> float:
    """The smallest epsilon >= 0 with sum (p - e^epsilon q)+ <= delta; the sum is piecewise linear
    in e^epsilon.

    Infinite where more than delta of p lies where q has no mass.
    """
    with np.errstate(divide="ignore"):
        ratio = np.divide(p, q, out=np.full(p.shape, np.inf), where=q > 0)
    by_ratio = np.argsort(-ratio, kind="stable")
    by_ratio = by_ratio[p[by_ratio] > 0]
    p_above = np.cumsum(p[by_ratio])
    q_above = np.cumsum(q[by_ratio])

    # If the first k atoms have ratios above x = e^epsilon, the excess is p_above - x q_above. Solve
    # excess = delta for each k. The excess is the maximum of these lines, so the largest solution
    # is the answer.
    falls = q_above > 0
    if (p_above[~falls] > delta).any():
        return np.inf
    solutions = (p_above[falls] - delta) / q_above[falls]
    return float(np.log(solutions.max(initial=1.0)))


@dataclass(frozen=True, eq=False)
class Tradeoff(Atoms):
    """A trade-off function known at some points: p-values use a curve certainly below it, epsilon
    one certainly above.

    So neither claims too much. ``p`` and ``q`` are the pair below; ``above`` is the pair above.
    """

    above: Atoms

    def epsilon(self, delta: float) -> float:
        return self.above.epsilon(delta)

    def highest_epsilon(self, delta: float) -> float:
        return super().epsilon(delta)


def from_tradeoff(alpha: np.ndarray, beta: np.ndarray) -> Tradeoff:
    """The null whose trade-off function passes through the given points.

    ``alpha`` (k,) ascends in [0, 1]; ``beta`` (k,) is the smallest type II error at each ``alpha``.
    Between two points a convex curve lies below their chord and above the extensions of the
    neighbouring chords, whose convex hull is the null for the p-value. Points through which no
    convex curve under 1 - alpha passes are refused.

    Raises
    ------
    BadValue
        For the first point that no such curve has.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    beta = np.asarray(beta, dtype=np.float64)
    _check_points(alpha, beta)

    # Every trade-off function ends in (1, 0).
    if alpha[-1] < 1:
        alpha = np.append(alpha, 1.0)
        beta = np.append(beta, 0.0)
    corners = _tangent_corners(*_lower_hull(alpha, beta))
    below = _atoms(*_lower_hull(*corners))

    # The chords, from (0, 1) on.
    if alpha[0] > 0:
        alpha = np.append(0.0, alpha)
        beta = np.append(1.0, beta)
    above = _atoms(*_lower_hull(alpha, beta))
    return Tradeoff(below.p, below.q, above=above)


def _atoms(x: np.ndarray, y: np.ndarray) -> Atoms:
    """The pair whose trade-off curve is the convex polygon with corners (x, y), from x = 0 to x =
    1.
    """
    p = np.concatenate([[0.0], np.diff(x)])
    q = np.concatenate([[1 - y[0]], -np.diff(y)])
    return Atoms(np.maximum(p, 0.0), np.maximum(q, 0.0))


def _check_points(alpha: np.ndarray, beta: np.ndarray) -> None:
    """Raise `BadValue` unless a convex curve under 1 - alpha passes through the points."""
    if alpha.ndim != 1 or alpha.shape != beta.shape or alpha.size < 2:
        sizes = f"{alpha.size} and {beta.size} points"
        raise BadValue("alpha, beta", sizes, "two columns of at least two points")

    def refuse(
        name: str, values: np.ndarray, broken: np.ndarray, legal: Callable[[int], str]
    ) -> None:
        if broken.any():
            first = int(np.argmax(broken))
            raise BadValue(f"{name}[{first}]", float(values[first]), legal(first))

    for name, values in (("alpha", alpha), ("beta", beta)):
        refuse(name, values, ~((values >= 0) & (values <= 1)), lambda _: "a number in [0, 1]")

    def above_before(i: int) -> str:
        return f"above the one before ({alpha[i - 1]:g})"

    def below_diagonal(i: int) -> str:
        return f"at most 1 - alpha = {1 - alpha[i]:g}"

    def below_hull(i: int) -> str:
        return f"at most {convex[i]:.9g}, because the curve must be convex"

    steps = np.diff(alpha, prepend=-1.0)
    refuse("alpha", alpha, steps <= 0, above_before)
    refuse("beta", beta, beta > 1 - alpha + 1e-9, below_diagonal)

    rises = np.diff(beta, prepend=2.0) / steps > 1e-9
    refuse("beta", beta, rises, lambda _: "at most the one before: the curve falls")

    convex = np.interp(alpha, *_lower_hull(alpha, beta))
    refuse("beta", beta, beta > convex + 1e-6, below_hull)


def _lower_hull(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the largest convex function below the points; ``x`` must ascend.

    Andrew's monotone chain: the last corner goes while the next point lies below its extension.
    """
    corners: list[int] = []
    for i in range(x.size):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            rise_to_b = (y[b] - y[a]) * (x[i] - x[a])
            rise_to_i = (y[i] - y[a]) * (x[b] - x[a])
            if rise_to_b < rise_to_i:
                break
            corners.pop()
        corners.append(i)
    return x[corners], y[corners]


def _tangent_corners(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points where the extensions of neighbouring chords meet, one per interval, from 0 to 1
    (``x`` ends at 1).

    In the first interval only the next chord bounds the curve, and in the last interval only the
    previous chord.
    """
    slope = np.diff(y) / np.diff(x)
    intercept = y[:-1] - slope * x[:-1]

    # Between two points: where the chord before and the chord behind meet, unless they are one line.
    flatter = slope[2:] > slope[:-2]
    rises = (slope[2:] - slope[:-2])[flatter]
    places = (intercept[:-2] - intercept[2:])[flatter] / rises
    heights = intercept[2:][flatter] + slope[2:][flatter] * places

    # Before the second point, and behind the last but one.
    second = 0.0
    if slope.size > 1:
        second = intercept[1] + slope[1] * x[0]
    first = intercept[0] if x[0] > 0 else second
    corners = [(0.0, first), (x[0], second), (1.0, 0.0), *zip(places, heights, strict=True)]
    if slope.size > 1 and slope[-2] < 0:
        corners.append((-intercept[-2] / slope[-2], 0.0))

    # Of several corners at one x (the first two, if the points begin at 0), keep the lowest.
    lowest: dict[float, float] = {}
    for place, height in corners:
        height_before = lowest.get(float(place), 1.0)
        lowest[float(place)] = min(height_before, max(float(height), 0.0))
    ascending = sorted(place for place in lowest if 0 <= place <= 1)
    return np.array(ascending), np.array([lowest[place] for place in ascending])


def from_losses(
    loss_in: np.ndarray,
    in_: np.ndarray,
    infinite_in: float,
    loss_out: np.ndarray,
    out: np.ndarray,
    infinite_out: float,
) -> Atoms:
    """The pair behind two discretised privacy loss distributions: the positive losses of each side
    determine the outcomes that favour that side; the remaining mass carries no information.

    Parameters
    ----------
    loss_in, loss_out
        (k,) privacy losses, with the canary and without.
    in_, out
        (k,) their probabilities.
    infinite_in, infinite_out
        Probabilities of an infinite loss.
    """
    positive_in = loss_in > 0
    positive_out = loss_out > 0
    mass_in = in_[positive_in]
    mass_out = out[positive_out]

    # A loss l says that an outcome has exp(-l) times the mass on the other side.
    tilted_in = mass_in * np.exp(-loss_in[positive_in])
    tilted_out = mass_out * np.exp(-loss_out[positive_out])
    p = np.concatenate([tilted_in, mass_out, [0.0, infinite_out]])
    q = np.concatenate([mass_in, tilted_out, [infinite_in, 0.0]])
    return Atoms(_completed(p), _completed(q))


def _completed(masses: np.ndarray) -> np.ndarray:
    """The masses and their rest, summing to 1: pessimistic rounding may make their total exceed 1."""
    completed = np.append(masses, max(1 - masses.sum(), 0.0))
    return completed / completed.sum()
