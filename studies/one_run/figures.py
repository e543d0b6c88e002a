"""The figures of "Tight Privacy Audit in One Run" ("the paper"), and how often each method rejects
a true null.

Points are means over five runs at 95%, and over three in Figure 6; bars go from the smallest to the
largest value. The paper's text gives no mu for its Gaussian and Laplace pairs, so this project fixed
one. Figure 6 trains a small convolutional network on Fashion-MNIST by SGD and by Adam; the paper
trains a ResNet-14 on CIFAR-10 by Adam. The last picture is not in the paper.
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.audits import simulated
from lethe.audits.simulated import COUNTEREXAMPLES, Simulator
from lethe.io.files import Json
from lethe.io.yaml import read_yaml
from lethe.statistics.one_run.audit import audit, log_p_value
from lethe.statistics.one_run.channel import (
    Nulls,
    approx_dp,
    gaussian,
    laplace,
    subsampled_gaussian,
)
from lethe.statistics.one_run.counts import Guesses, ReleasedGuesses, release
from studies import outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lethe.audits.kinds.dp_sgd import Params

ALPHA = 0.05
RUNS = 5  # as in the paper
SIZES = (100, 1_000, 10_000, 100_000)
MU = 1.0
DELTA = 1e-5
DP_SGD = Path(__file__).parents[1] / "presets/one-run-dp-sgd.yaml"  # the settings of Figure 6
FALSE_REJECTIONS = 2_000  # runs of each mechanism whose bits share randomness
COLOURS = {
    "exact": "#2459a9",
    "chernoff": "#c2410c",
    "steinke": "#5d6167",
    "mahloujifar": "#15803d",
    "independent": "#7c3aed",  # Xiang et al. 2025: every guess is released, and all are independent
}
METHODS = ("exact", "chernoff", "steinke", "mahloujifar")
LEGEND = {"frameon": False, "fontsize": 8}


@dataclass(frozen=True)
class Point:
    """One point of a figure: the lower bounds of epsilon of all runs by method, and the share
    of right guesses released.

    Each array of ``bounds`` is (runs,), NaN where a run has no bound. ``truth`` is the epsilon of the mechanism.
    """

    x: float
    bounds: dict[str, np.ndarray]
    accuracy: float
    truth: float | None

    def mean(self, method: str) -> float:
        """The mean of a method's bounds over the runs."""
        return float(np.mean(self.bounds[method]))

    def as_json(self) -> dict[str, Json]:
        """The point as it stands in the outcome."""
        bounds: dict[str, Json] = {}
        for method, values in self.bounds.items():
            bounds[method] = {
                "mean": self.mean(method),
                "smallest": float(values.min()),
                "largest": float(values.max()),
            }
        return {"x": self.x, "truth": self.truth, "accuracy": self.accuracy, "bounds": bounds}


@dataclass(frozen=True)
class Drawn:
    """A finished figure: its picture and the numbers behind it."""

    figure: "Figure"
    values: Json


def bounds_at(
    x: float,
    simulate: Simulator,
    family: Nulls,
    n: int,
    r: int,
    delta: float,
    *,
    truth: float | None = None,
    special: bool = False,
    seeds: Sequence[int] = range(RUNS),
) -> Point:
    """Return the bounds of a run by each seed; ``special`` says that guesses are independent, so that
    `independent` takes all n.
    """
    bounds: dict[str, list[float]] = {}
    accuracies = []
    for seed in seeds:
        drawn = simulate(n, np.random.default_rng([seed, n, r]))
        released = _released(drawn, r, seed)
        accuracies.append(released.correct / r)

        results = list(audit(released, family, delta=delta, alpha=ALPHA, methods=METHODS))
        if special:
            whole = _released(drawn, n, seed)
            results += audit(whole, family, delta=delta, alpha=ALPHA, methods=["independent"])
        for result in results:
            epsilon = np.nan if result.epsilon_lower is None else result.epsilon_lower
            bounds.setdefault(result.method, []).append(epsilon)

    arrays = {method: np.array(values) for method, values in bounds.items()}
    return Point(x=x, bounds=arrays, accuracy=float(np.mean(accuracies)), truth=truth)


def _released(drawn: Guesses, r: int, seed: int) -> ReleasedGuesses:
    return release(drawn.bits, drawn.guesses, drawn.scores, r, seed)


def by_size(
    title: str,
    simulate: Simulator,
    family: Nulls,
    truth: float,
    delta: float,
    *,
    special: bool = False,
) -> Drawn:
    """The bounds against n, a fifth of the guesses released."""
    points = []
    for n in SIZES:
        r = n // 5
        point = bounds_at(
            x=n,
            simulate=simulate,
            family=family,
            n=n,
            r=r,
            delta=delta,
            truth=truth,
            special=special,
        )
        points.append(point)

    figure, axes = _figure(title)
    _draw_bounds(axes, points, truth)
    axes.set(xscale="log", xlabel="n; r = n / 5")
    return Drawn(figure, [point.as_json() for point in points])


def base_pairs() -> Drawn:
    """Figure 2: the pair of output distributions of a bit, for three mechanisms."""
    figure, panels = _panels("Figure 2: base pairs", 3)

    x = np.linspace(-4, 5, 901)
    _draw_pair(panels[0], f"Gaussian, mu {MU:g}", x, _normal(x), _normal(x - MU))

    double = np.exp(-np.abs(x)) / 2
    shifted = np.exp(-np.abs(x - MU)) / 2
    _draw_pair(panels[1], f"Laplace, mu {MU:g}", x, double, shifted)

    # Of the four outputs two tell the bit, and two tell it with odds e^epsilon.
    epsilon = 1.0
    delta = 0.1
    likely = (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon))
    unlikely = (1 - delta) / (1 + np.exp(epsilon))
    p = [delta, likely, unlikely, 0]
    q = p[::-1]
    places = np.arange(4)
    panels[2].bar(places - 0.2, p, 0.4, color=COLOURS["exact"], label="P")
    panels[2].bar(places + 0.2, q, 0.4, color=COLOURS["chernoff"], label="Q")
    panels[2].set(title=f"epsilon {epsilon:g}, delta {delta:g}", xlabel="output", xticks=places)
    panels[2].legend(**LEGEND)
    return Drawn(figure, {"mu": MU, "epsilon": epsilon, "delta": delta})


def subsampled_pair() -> Drawn:
    """Figure 8: the pair of a subsampled Gaussian."""
    figure, axes = _figure("Figure 8: subsampled Gaussian, mu 2, q .5")
    x = np.linspace(-4, 6, 1001)
    mixture = 0.5 * _normal(x) + 0.5 * _normal(x - 2)
    _draw_pair(axes, axes.get_title(), x, _normal(x), mixture)
    return Drawn(figure, {"mu": 2.0, "q": 0.5})


def gaussian_special() -> Drawn:
    """Figure 3: the bits of a Gaussian that are guessed independently."""
    return by_size(
        title="Figure 3: Gaussian, special case",
        simulate=partial(simulated.gaussian, mu=MU, special=True),
        family=gaussian(),
        truth=_gaussian_epsilon(MU),
        delta=DELTA,
        special=True,
    )


def laplace_special() -> Drawn:
    """Figure 4: the bits of a Laplace mechanism that are guessed independently."""
    family = laplace()
    return by_size(
        title="Figure 4: Laplace, special case",
        simulate=partial(simulated.laplace, mu=MU, special=True),
        family=family,
        truth=family.channel(MU).epsilon(DELTA),
        delta=DELTA,
        special=True,
    )


def gaussian_general() -> Drawn:
    """Figure 5: the bits of a Gaussian in general."""
    return by_size(
        title="Figure 5: Gaussian, general case",
        simulate=partial(simulated.gaussian, mu=MU),
        family=gaussian(),
        truth=_gaussian_epsilon(MU),
        delta=DELTA,
    )


def dp_sgd(preset: Path = DP_SGD) -> Drawn:
    """Figure 6 as far as two cores go: each run trains a network with its own canaries, by SGD and by
    Adam; the claim is the accountant's epsilon.
    """
    from lethe.audits.kinds.dp_sgd import Params
    from lethe.audits.kinds.guesses import dp_sgd as family_of

    settings: Any = read_yaml(preset)
    entry = Params(**settings["entry"])
    family = family_of(entry.q, entry.steps, entry.delta)
    rates: dict[str, float] = settings["learning_rates"]
    epsilons: list[float] = settings["epsilons"]
    title = f"Figure 6: DP-SGD on {entry.images}, n = {entry.canaries:,}, r = {entry.r[0]:,}"
    figure, panels = _panels(title, len(rates))
    values: dict[str, Json] = {}
    for axes, (optimiser, rate) in zip(panels, rates.items(), strict=True):
        points = []
        for claimed in epsilons:
            changed = entry.model_copy(update={"optimiser": optimiser, "lr": rate})
            points.append(
                bounds_at(
                    x=claimed,
                    simulate=_trained(changed, claimed),
                    family=family,
                    n=entry.canaries,
                    r=entry.r[0],
                    delta=entry.delta,
                    truth=claimed,
                    seeds=settings["seeds"],
                )
            )
        _draw_bounds(axes, points, None)
        diagonal = [0, max(epsilons)]
        axes.plot(diagonal, diagonal, "k--", lw=0.8)
        axes.set(title=optimiser, xlabel="claimed epsilon (dashed: the same)")
        values[optimiser] = [point.as_json() for point in points]
    return Drawn(figure, values)


def _trained(entry: "Params", claimed: float) -> Simulator:
    """Train with the noise that the accountant asks for the claimed epsilon, and guess the canaries."""
    from lethe.audits.kinds.dp_sgd import train_and_guess
    from lethe.models.dp_sgd import noise_multiplier

    noise = noise_multiplier(claimed, entry.delta, entry.q, entry.steps)

    def simulate(canaries: int, rng: np.random.Generator) -> Guesses:
        seed = int(rng.integers(2**31))
        changed = {"canaries": canaries, "noise_multiplier": noise, "seed": seed}
        return train_and_guess(entry.model_copy(update=changed))

    return simulate


def randomised_response(delta: float, number: str) -> Drawn:
    """Figure 7: randomised response that reveals a bit with probability ``delta``; ``number`` names the panel."""
    epsilon = 3.2
    return by_size(
        title=f"Figure {number}: randomised response, delta {delta:g}",
        simulate=partial(simulated.randomised_response, epsilon=epsilon, delta=delta),
        family=approx_dp(delta),
        truth=epsilon,
        delta=delta,
    )


def subsampled() -> Drawn:
    """Figure 9: a Gaussian whose record takes part with probability 1/2."""
    mu = 2.0
    q = 0.5
    delta = 1e-7
    family = subsampled_gaussian(q)
    return by_size(
        title="Figure 9: subsampled Gaussian, mu 2, q .5",
        simulate=partial(simulated.subsampled_gaussian, mu=mu, q=q),
        family=family,
        truth=family.channel(mu).epsilon(delta),
        delta=delta,
    )


def p_values() -> Drawn:
    """Figure 10: the p-value of each method against the errors, n = r = 100."""
    figure, panels = _panels("Figure 10: randomised response, epsilon 1, n = r = 100", 2)
    errors = np.arange(5, 45)
    values: dict[str, Json] = {}
    for axes, delta in zip(panels, (0.01, 0.1), strict=True):
        family = approx_dp(delta)
        expected = 100 * (1 - delta) / (1 + math.e)
        at_expected: dict[str, Json] = {}
        for method in METHODS:
            logs = []
            for count in errors.tolist():
                guesses = ReleasedGuesses(100, 100, count)
                logs.append(log_p_value(method, guesses, family, null=1.0, delta=delta))

            p = np.exp(logs)
            axes.plot(errors, p, color=COLOURS[method], label=method)
            at_expected[method] = float(np.interp(expected, errors, p))

        axes.axvline(expected, color="black", linestyle="--", lw=0.8, label="expected errors")
        axes.set(title=f"delta {delta:g}", xlabel="errors", ylabel="p-value")
        axes.legend(**LEGEND)
        values[f"delta {delta:g}"] = {"errors": expected, "p": at_expected}
    return Drawn(figure, values)


def fixed_release() -> Drawn:
    """Figure 11: the bounds against n, 1,000 guesses released."""
    truth = _gaussian_epsilon(MU)
    simulate = partial(simulated.gaussian, mu=MU)
    points = []
    for n in (2_000, 5_000, 10_000, 100_000):
        point = bounds_at(
            x=n,
            simulate=simulate,
            family=gaussian(),
            n=n,
            r=1_000,
            delta=DELTA,
            truth=truth,
        )
        points.append(point)

    figure, axes = _figure("Figure 11: Gaussian, r = 1000")
    _draw_bounds(axes, points, truth)
    axes.set(xscale="log", xlabel="n")
    return Drawn(figure, [point.as_json() for point in points])


def varied_release() -> Drawn:
    """Figure 12: the bounds and the accuracy against the number of guesses released."""
    n = 100_000
    truth = _gaussian_epsilon(0.8)
    simulate = partial(simulated.gaussian, mu=0.8)
    points = []
    for r in (100, 300, 1_000, 3_000, 10_000, 30_000, n):
        point = bounds_at(
            x=r,
            simulate=simulate,
            family=gaussian(),
            n=n,
            r=r,
            delta=DELTA,
            truth=truth,
        )
        points.append(point)

    figure, axes = _figure("Figure 12: Gaussian, mu .8, n = 100,000")
    _draw_bounds(axes, points, truth)
    axes.set(xscale="log", xlabel="r")

    right = axes.twinx()
    released = [point.x for point in points]
    accuracies = [point.accuracy for point in points]
    right.plot(released, accuracies, "s:", color="black", ms=3, lw=1)
    right.set(ylabel="accuracy of the released guesses (dotted)", ylim=(0.5, 1))
    return Drawn(figure, [point.as_json() for point in points])


def shared_randomness() -> Drawn:
    """How often each method rejects a true null if bits share randomness; no figure of the
    paper.
    """
    values: dict[str, Json] = {}
    for name, case in COUNTEREXAMPLES.items():
        if not case.product:
            values[name] = dict(simulated.false_rejections(case, FALSE_REJECTIONS, ALPHA))

    figure, axes = _figure("A true null rejected, bits sharing randomness")
    places = np.arange(len(values))
    for number, method in enumerate(METHODS):
        heights = [shares[method] for shares in values.values()]
        left = places + 0.2 * (number - 1.5)  # four bars around each place
        axes.bar(left, heights, 0.2, color=COLOURS[method], label=method)

    axes.axhline(ALPHA, color="black", linestyle="--", lw=0.8, label=f"nominal {ALPHA:g}")
    axes.set(ylabel=f"share of {FALSE_REJECTIONS:,} runs", xticks=places, ylim=(0, 0.75))
    axes.set_xticklabels([textwrap.fill(name, 11) for name in values], fontsize=7)
    axes.legend(**LEGEND)
    return Drawn(figure, values)


FIGURES: dict[str, Callable[[], Drawn]] = {
    "2": base_pairs,
    "3": gaussian_special,
    "4": laplace_special,
    "5": gaussian_general,
    "6": dp_sgd,
    "7a": partial(randomised_response, 1e-2, "7a"),
    "7b": partial(randomised_response, 1e-5, "7b"),
    "8": subsampled_pair,
    "9": subsampled,
    "10": p_values,
    "11": fixed_release,
    "12": varied_release,
    "shared": shared_randomness,
}


def draw(names: Sequence[str], out: Path, *, keep: bool = False) -> Iterator[str]:
    """Draw figures into ``out`` as PNG and SVG, and yield the name of each; ``keep`` writes
    their outcome files for the repository.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        command = f"lethe study one-run-figures {name}"
        seeds: Sequence[int] = range(RUNS)
        settings: dict[str, Json] = {"alpha": ALPHA, "methods": list(METHODS)}
        if name == "6":
            preset: Any = read_yaml(DP_SGD)
            seeds = preset["seeds"]
            settings |= {"preset": DP_SGD.stem, **preset}
        settings["runs"] = len(seeds)
        study = outcome.Study(
            name=f"one-run-{name}",
            command=command,
            seeds=seeds,
            settings=settings,
            keep=keep,
        )
        drawn = FIGURES[name]()

        pictures = [out / f"figure-{name}.{ending}" for ending in ("png", "svg")]
        for picture in pictures:
            drawn.figure.savefig(picture, dpi=120)
        study.finish(drawn.values, pictures)
        yield name


def _gaussian_epsilon(mu: float) -> float:
    """The true epsilon of a Gaussian bit at `DELTA`."""
    return gaussian().channel(mu).epsilon(DELTA)


def _normal(x: np.ndarray) -> np.ndarray:
    """The density of the standard normal law."""
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def _figure(title: str) -> "tuple[Figure, Axes]":
    """A figure of one panel, without pyplot: pyplot would keep it open."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=10)
    return figure, axes


def _panels(title: str, count: int) -> "tuple[Figure, list[Axes]]":
    """A figure of ``count`` panels beside each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * count, 3.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    return figure, list(figure.subplots(1, count))


def _draw_bounds(axes: "Axes", points: Sequence[Point], truth: float | None) -> None:
    """Each method's mean bound at each point, with a bar from the smallest to the largest run."""
    x = [point.x for point in points]
    for method in points[0].bounds:
        values = np.array([point.bounds[method] for point in points])  # (points, runs)
        means = values.mean(axis=1)
        below = means - values.min(axis=1)
        above = values.max(axis=1) - means
        axes.errorbar(
            x,
            means,
            np.array([below, above]),
            fmt="o-",
            color=COLOURS[method],
            label=method,
            ms=4,
            lw=1,
        )

    if truth is not None:
        axes.axhline(truth, color="black", linestyle="--", linewidth=0.8, label="true epsilon")
    axes.set(ylabel="epsilon at least")
    axes.legend(**LEGEND)


def _draw_pair(
    axes: "Axes",
    title: str,
    x: np.ndarray,
    p: np.ndarray,
    q: np.ndarray,
) -> None:
    """The densities ``p`` and ``q`` of an output under both values of the bit."""
    pairs = (
        (p, "P", COLOURS["exact"]),
        (q, "Q", COLOURS["chernoff"]),
    )
    for density, name, colour in pairs:
        axes.plot(x, density, color=colour, label=name)
        axes.fill_between(x, density, color=colour, alpha=0.15)

    axes.set_title(title, fontsize=10)
    axes.set(xlabel="output", ylabel="density")
    axes.legend(**LEGEND)
