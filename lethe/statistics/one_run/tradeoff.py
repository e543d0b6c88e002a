"""Any pair of distributions as atoms: from two probability vectors, a trade-off curve, or privacy loss distributions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.checks import check
from lethe.statistics.one_run.channel import Channel, Tangents

MOST_BREAKS = 64  # the number of kinks of the error mass that split the quadrature; smaller kinks are negligible


@dataclass(frozen=True, eq=False)
class Atoms(Channel):
    """``p`` and ``q``: probabilities of the same outcomes when the bit is 0 and when it is 1, each summing to 1."""

    p: np.ndarray
    q: np.ndarray

    def __post_init__(self) -> None:
        for name, values in (("p", self.p), ("q", self.q)):
            if values.ndim != 1 or not np.all(values >= 0) or abs(values.sum() - 1) > 1e-6:
                raise BadValue(name, values, "probabilities of the outcomes, summing to 1")
        check(
            self.p.shape == self.q.shape,
            "q",
            f"{self.q.size} outcomes",
            f"{self.p.size} outcomes, as in p",
        )

    @cached_property
    def _curve(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Outcomes by falling loss: masses above (from 0 to 1), error masses above, and the error rate of each outcome."""
        p, q = self.p / self.p.sum(), self.q / self.q.sum()
        mass = 0.5 * (p + q)
        p, q, mass = p[mass > 0], q[mass > 0], mass[mass > 0]
        rate = np.minimum(p, q) / (p + q)
        order = np.argsort(rate, kind="stable")
        s = np.concatenate([[0.0], np.cumsum(mass[order])])
        wrong = np.concatenate([[0.0], np.cumsum((mass * rate)[order])])
        return s, wrong, rate[order]

    @cached_property
    def breaks(self) -> tuple[float, ...]:
        s, _, rate = self._curve
        kink = np.diff(rate)
        largest = np.sort(np.argsort(-kink, kind="stable")[:MOST_BREAKS])
        return tuple(float(s[i + 1]) for i in largest if kink[i] > 0)

    def error_mass(self, s: np.ndarray) -> np.ndarray:
        masses, wrong, _ = self._curve
        return np.interp(s, masses, wrong)

    def error_rate(self, s: np.ndarray) -> np.ndarray:
        masses, _, rate = self._curve
        return rate[np.clip(np.searchsorted(masses, s) - 1, 0, rate.size - 1)]

    @cached_property
    def _least_errors(self) -> Tangents:
        s, wrong, rate = self._curve
        slope = np.concatenate([rate / (1 - rate), [1.0]])
        return Tangents(s - wrong, wrong, slope)

    def least_errors(self, correct: float) -> float:
        return self._least_errors(correct)

    def epsilon(self, delta: float) -> float:
        return max(_epsilon(self.p, self.q, delta), _epsilon(self.q, self.p, delta))


def _epsilon(p: np.ndarray, q: np.ndarray, delta: float) -> float:
    """The smallest epsilon >= 0 with sum (p - e^epsilon q)+ <= delta; the sum is piecewise linear in e^epsilon."""
    with np.errstate(divide="ignore"):
        ratio = np.divide(p, q, out=np.full(p.shape, np.inf), where=q > 0)
    order = np.argsort(-ratio, kind="stable")
    order = order[p[order] > 0]
    ratio, p_above, q_above = ratio[order], np.cumsum(p[order]), np.cumsum(q[order])
    # If the first k atoms have ratios above x = e^epsilon, the excess is p_above - x q_above. Solve excess = delta for each
    # k. The excess is the maximum of these lines, so the largest solution is the answer.
    needed = q_above > 0
    if (p_above[~needed] > delta).any():
        return np.inf
    solutions = (p_above[needed] - delta) / q_above[needed]
    return float(np.log(max(solutions.max(initial=1.0), 1.0)))


@dataclass(frozen=True, eq=False)
class Tradeoff(Atoms):
    """A trade-off function known at some points: p-values use a curve certainly below it, epsilon one certainly above."""

    above: Atoms

    def epsilon(self, delta: float) -> float:
        return self.above.epsilon(delta)

    def highest_epsilon(self, delta: float) -> float:
        return super().epsilon(delta)


def from_tradeoff(alpha: np.ndarray, beta: np.ndarray) -> Tradeoff:
    """The null whose trade-off function passes through the given points.

    ``alpha`` (k,) ascends in [0, 1]; ``beta`` (k,) is the smallest type II error at each ``alpha``. Between two points a
    convex curve lies below their chord and above the extensions of the neighbouring chords, whose convex hull is the null
    for the p-value. Points through which no convex curve under 1 - alpha passes are refused.
    """
    alpha, beta = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    _check_points(alpha, beta)
    if alpha[-1] < 1:
        alpha, beta = np.append(alpha, 1.0), np.append(beta, 0.0)
    above_x, above_y = (
        (alpha, beta) if alpha[0] == 0 else (np.append(0.0, alpha), np.append(1.0, beta))
    )
    below = _atoms(*_lower_hull(*_tangent_corners(*_lower_hull(alpha, beta))))
    return Tradeoff(below.p, below.q, above=_atoms(*_lower_hull(above_x, above_y)))


def _atoms(x: np.ndarray, y: np.ndarray) -> Atoms:
    """The pair whose trade-off curve is the convex polygon with corners (x, y), from x = 0 to x = 1."""
    p = np.concatenate([[0.0], np.diff(x)])
    q = np.concatenate([[1 - y[0]], -np.diff(y)])
    return Atoms(np.maximum(p, 0.0), np.maximum(q, 0.0))


def _check_points(alpha: np.ndarray, beta: np.ndarray) -> None:
    if alpha.ndim != 1 or alpha.shape != beta.shape or alpha.size < 2:
        raise BadValue(
            "alpha, beta",
            f"{alpha.size} and {beta.size} points",
            "two columns of at least two points",
        )

    def refuse(
        name: str, values: np.ndarray, broken: np.ndarray, legal: Callable[[int], str]
    ) -> None:
        if broken.any():
            first = int(np.argmax(broken))
            raise BadValue(f"{name}[{first}]", float(values[first]), legal(first))

    for name, values in (("alpha", alpha), ("beta", beta)):
        refuse(name, values, ~((values >= 0) & (values <= 1)), lambda _: "a number in [0, 1]")
    steps, falls = np.diff(alpha, prepend=-1.0), np.diff(beta, prepend=2.0)
    refuse("alpha", alpha, steps <= 0, lambda i: f"above the one before ({alpha[i - 1]:g})")
    refuse("beta", beta, beta > 1 - alpha + 1e-9, lambda i: f"at most 1 - alpha = {1 - alpha[i]:g}")
    refuse("beta", beta, falls / steps > 1e-9, lambda _: "at most the one before: the curve falls")
    hull = np.interp(alpha, *_lower_hull(alpha, beta))
    refuse(
        "beta",
        beta,
        beta > hull + 1e-6,
        lambda i: f"at most {hull[i]:.9g}, because the curve must be convex",
    )


def _lower_hull(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners of the largest convex function below the points; ``x`` must ascend."""
    corners: list[int] = []
    for i in range(x.size):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return x[corners], y[corners]


def _tangent_corners(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points where the extensions of neighbouring chords meet, one per interval, from 0 to 1 (``x`` ends at 1).

    In the first interval only the next chord bounds the curve, and in the last interval only the previous chord.
    """
    slope = np.diff(y) / np.diff(x)
    intercept = y[:-1] - slope * x[:-1]
    before, after = slice(None, -2), slice(2, None)
    bends = slope[after] > slope[before]
    places = ((intercept[before] - intercept[after])[bends]) / (slope[after] - slope[before])[bends]
    heights = intercept[after][bends] + slope[after][bends] * places
    second = (intercept[1] + slope[1] * x[0]) if slope.size > 1 else 0.0
    corners = [
        (0.0, intercept[0] if x[0] > 0 else second),
        (x[0], second),
        (1.0, 0.0),
        *zip(places, heights, strict=True),
    ]
    if slope.size > 1 and slope[-2] < 0:
        corners.append((-intercept[-2] / slope[-2], 0.0))
    # Of several corners at one x (the first two, if the points begin at 0), keep the lowest.
    lowest: dict[float, float] = {}
    for place, height in corners:
        lowest[float(place)] = min(lowest.get(float(place), 1.0), max(float(height), 0.0))
    ascending = np.array(sorted(place for place in lowest if 0 <= place <= 1))
    return ascending, np.array([lowest[place] for place in ascending])


def from_losses(
    loss_in: np.ndarray,
    in_: np.ndarray,
    infinite_in: float,
    loss_out: np.ndarray,
    out: np.ndarray,
    infinite_out: float,
) -> Atoms:
    """The pair behind two discretised privacy loss distributions: the positive losses of each side determine the outcomes
    that favour that side; the remaining mass carries no information.
    """
    keep_in, keep_out = loss_in > 0, loss_out > 0
    p = [in_[keep_in] * np.exp(-loss_in[keep_in]), out[keep_out], [0.0], [infinite_out]]
    q = [in_[keep_in], out[keep_out] * np.exp(-loss_out[keep_out]), [infinite_in], [0.0]]
    sides = [np.concatenate(parts) for parts in (p, q)]
    whole_p, whole_q = (np.append(side, max(1 - side.sum(), 0.0)) for side in sides)
    # Pessimistic rounding may make the total of a side exceed 1.
    return Atoms(whole_p / whole_p.sum(), whole_q / whole_q.sum())
