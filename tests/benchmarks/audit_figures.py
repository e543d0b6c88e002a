"""Draws the figures of "Tight Privacy Audit in One Run" into data/figures: `audit-figures` of the benchmarks;
arguments choose numbers.

Points are means of five runs at 95%; bars go from the smallest to the largest value. The paper's text gives no mu, so this
project chose one. Figure 6 trains a small network on scikit-learn's digits by SGD, but the paper a ResNet-14 on CIFAR-10 by
Adam. The last picture is not in the paper: how often each method rejects a true null if bits share randomness.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from lethe.statistics.one_run.audit import audit, log_p_value
from lethe.statistics.one_run.channel import Family, approx_dp, gaussian, laplace, subsampled_gaussian
from lethe.statistics.one_run.counts import Counts, Guesses, release
from tests.lethe.statistics.one_run import simulated_mechanisms as mechanisms

FOLDER = Path("data/figures")
COLOURS = {
    "exact": "#2459a9",
    "chernoff": "#c2410c",
    "steinke": "#5d6167",
    "mahloujifar": "#15803d",
    "independent": "#7c3aed",  # Xiang et al. 2025: every guess is released, and all are independent
}
METHODS = tuple(COLOURS)[:4]
RUNS = 5
SIZES = (100, 1000, 10_000, 100_000)
MU = 1.0
STYLE = {"frameon": False, "fontsize": 8}


@dataclass(frozen=True)
class Point:
    """One point on the horizontal axis: the runs' lower bounds by method, and the share of right guesses released."""

    x: float
    bounds: dict[str, np.ndarray]
    accuracy: float

    def told(self) -> str:
        means = " ".join(f"{name} {_mean(values):.2f}" for name, values in self.bounds.items())
        return f"{means} accuracy {self.accuracy:.3f}"


def point(
    x: float, simulate: Callable, family: Family, n: int, r: int, delta: float, special: bool = False
) -> Point:
    """One point; ``special`` says that the guesses are independent, so that `independent` applies to all n guesses."""
    found: dict[str, list[float]] = {name: [] for name in (*METHODS, *(["independent"] if special else []))}
    right = []
    for seed in range(RUNS):
        drawn = simulate(n, np.random.default_rng([seed, n, r]))
        counts = _released(drawn, r, seed)
        right.append(counts.correct / r)
        results = [*audit(counts, family, delta=delta, methods=METHODS)]
        if special:
            results += audit(_released(drawn, n, seed), family, delta=delta, methods=["independent"])
        for result in results:
            found[result.method].append(np.nan if result.value is None else result.value)
    return Point(x, {name: np.array(values) for name, values in found.items()}, float(np.mean(right)))


def curves(axes, points: Sequence[Point], truth: float | None) -> None:
    for name in points[0].bounds:
        values = np.array([one.bounds[name] for one in points])
        mean = np.array([_mean(row) for row in values])
        bars = np.array([mean - values.min(1), values.max(1) - mean])
        axes.errorbar([one.x for one in points], mean, bars, fmt="o-", color=COLOURS[name], label=name, ms=4, lw=1)
    if truth is not None:
        axes.axhline(truth, color="black", linestyle="--", linewidth=0.8, label="true epsilon")
    axes.set(ylabel="epsilon at least")
    axes.legend(**STYLE)


def by_size(title: str, simulate: Callable, family: Family, truth: float, delta: float, special: bool = False):
    figure, axes = _figure(title)
    points = []
    for n in SIZES:
        points.append(point(n, simulate, family, n, n // 5, delta, special))
        yield f"n {n}, r {n // 5} (true {truth:.3f}): {points[-1].told()}"
    curves(axes, points, truth)
    axes.set(xscale="log", xlabel="n; r = n / 5")
    return figure


def base_pairs():
    figure, panels = _figure("Figure 2: base pairs", 3)
    x = np.linspace(-4, 5, 901)
    normal = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), np.exp(-((x - MU) ** 2) / 2) / np.sqrt(2 * np.pi)
    two_sided = np.exp(-np.abs(x)) / 2, np.exp(-np.abs(x - MU)) / 2
    for axes, name, pair in zip(
        panels, (f"Gaussian, mu {MU:g}", f"Laplace, mu {MU:g}"), (normal, two_sided), strict=False
    ):
        _densities(axes, name, x, pair)
    # (epsilon, delta): two outputs tell the bit, two tell it with odds e^epsilon.
    epsilon, delta = 1.0, 0.1
    told, other = (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon)), (1 - delta) / (1 + np.exp(epsilon))
    places = np.arange(4)
    panels[2].bar(places - 0.2, [delta, told, other, 0], 0.4, color=COLOURS["exact"], label="P")
    panels[2].bar(places + 0.2, [0, other, told, delta], 0.4, color=COLOURS["chernoff"], label="Q")
    panels[2].set(title=f"epsilon {epsilon:g}, delta {delta:g}", xlabel="output", xticks=places)
    panels[2].legend(**STYLE)
    yield "densities of the Gaussian and Laplace pairs, masses of the (epsilon, delta) pair"
    return figure


def subsampled_pair():
    figure, axes = _figure("Figure 8: the subsampled Gaussian's base pair, q = .5")
    x = np.linspace(-4, 6, 1001)
    p, shifted = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), np.exp(-((x - 2) ** 2) / 2) / np.sqrt(2 * np.pi)
    _densities(axes, axes.get_title(), x, (p, 0.5 * p + 0.5 * shifted))
    yield "densities for mu 2"
    return figure


def gaussian_special():
    return by_size("Figure 3: Gaussian, special case", partial(mechanisms.gaussian, mu=MU, guess="threshold"),
                   gaussian(), _true_gaussian(MU), 1e-5, special=True)  # fmt: skip


def laplace_special():
    return by_size("Figure 4: Laplace, special case", partial(mechanisms.laplace, mu=MU, guess="threshold"),
                   laplace(), laplace().channel(MU).epsilon(1e-5), 1e-5, special=True)  # fmt: skip


def gaussian_general():
    simulate = partial(mechanisms.gaussian, mu=MU)
    return by_size("Figure 5: Gaussian, general case", simulate, gaussian(), _true_gaussian(MU), 1e-5)


def dp_sgd():
    """Each run trains a network with its own canaries; the claim is the accountant's epsilon."""
    from lethe import config
    from lethe.audits.kinds.dp_sgd import train_and_guess
    from lethe.audits.one_run import dp_sgd as family
    from lethe.models.dp_sgd import noise_multiplier

    entry = config.read_yaml("flows/presets/audit-dp-sgd.yaml")["audits"]["right"]
    figure, axes = _figure("Figure 6: DP-SGD on digits, n = 2000, r = 1000")
    points = []
    for claimed in (1.0, 2.0, 4.0, 8.0):
        noise = noise_multiplier(claimed, entry["delta"], entry["q"], entry["steps"])

        def simulate(n: int, rng: np.random.Generator, noise=noise) -> Guesses:
            changed = {"canaries": n, "noise_multiplier": noise, "seed": int(rng.integers(2**31))}
            audits = config.validate(config.read_yaml("params.yaml") | {"audits": {"one": entry | changed}}).audits
            return train_and_guess(audits["one"])

        null = family(entry["q"], entry["steps"])
        points.append(point(claimed, simulate, null, entry["canaries"], entry["canaries"] // 2, entry["delta"]))
        yield f"claimed {claimed:g} (noise multiplier {noise:.2f}): {points[-1].told()}"
    curves(axes, points, None)
    axes.plot([0, 8], [0, 8], "k--", lw=0.8)
    axes.set(xlabel="claimed epsilon (dashed: the same)")
    return figure


def randomised_response(delta: float, number: str):
    simulate = partial(mechanisms.randomised_response, epsilon=3.2, delta=delta)
    title = f"Figure {number}: randomised response, delta {delta:g}"
    return by_size(title, simulate, approx_dp(delta), 3.2, delta)


def subsampled():
    family = subsampled_gaussian(0.5)
    simulate = partial(mechanisms.subsampled_gaussian, mu=2.0, q=0.5)
    return by_size(
        "Figure 9: subsampled Gaussian, mu 2, q .5", simulate, family, family.channel(2.0).epsilon(1e-7), 1e-7
    )


def p_values():
    figure, panels = _figure("Figure 10: randomised response, eps 1, n = r = 100", 2)
    for axes, delta in zip(panels, (0.01, 0.1), strict=True):
        errors, null = np.arange(5, 45), approx_dp(delta)
        expected = 100 * (1 - delta) / (1 + np.e)
        for name in METHODS:
            logs = [log_p_value(name, Counts(100, 100, int(u)), null, 1.0, delta) for u in errors]
            axes.plot(errors, np.exp(logs), color=COLOURS[name], label=name)
            yield f"delta {delta:g}: {name} {np.interp(expected, errors, np.exp(logs)):.3f} at {expected:.1f} errors"
        axes.axvline(expected, color="black", linestyle="--", lw=0.8, label="expected errors")
        axes.set(title=f"delta {delta:g}", xlabel="errors", ylabel="p-value")
        axes.legend(**STYLE)
    return figure


def fixed_release():
    figure, axes = _figure("Figure 11: Gaussian, r = 1000")
    points = []
    for n in (2000, 5000, 10_000, 100_000):
        simulate = partial(mechanisms.gaussian, mu=MU)
        points.append(point(n, simulate, gaussian(), n, 1000, 1e-5))
        yield f"n {n} (true {_true_gaussian(MU):.3f}): {points[-1].told()}"
    curves(axes, points, _true_gaussian(MU))
    axes.set(xscale="log", xlabel="n")
    return figure


def varied_release():
    figure, axes = _figure("Figure 12: Gaussian, mu .8, n = 100,000")
    points = []
    for r in (100, 300, 1000, 3000, 10_000, 30_000, 100_000):
        points.append(point(r, partial(mechanisms.gaussian, mu=0.8), gaussian(), 100_000, r, 1e-5))
        yield f"r {r} (true {_true_gaussian(0.8):.3f}): {points[-1].told()}"
    curves(axes, points, _true_gaussian(0.8))
    axes.set(xscale="log", xlabel="r")
    right = axes.twinx()
    right.plot([one.x for one in points], [one.accuracy for one in points], "s:", color="black", ms=3, lw=1)
    right.set(ylabel="accuracy of the released guesses (dotted)", ylim=(0.5, 1))
    return figure


def shared_randomness():
    from tests.lethe.statistics.one_run.calibration import ALPHA, SHARED, false_rejections, shared_setting

    figure, axes = _figure("A true null rejected, bits sharing randomness")
    places = np.arange(len(SHARED))
    shares = []
    for name in SHARED:
        shares.append(false_rejections(shared_setting(name), 2000))
        yield f"{name}: " + " ".join(f"{method} {shares[-1][method]:.3f}" for method in METHODS)
    for number, method in enumerate(METHODS):
        heights = [one[method] for one in shares]
        axes.bar(places + 0.2 * (number - 1.5), heights, 0.2, color=COLOURS[method], label=method)
    axes.axhline(ALPHA, color="black", linestyle="--", lw=0.8, label=f"nominal {ALPHA:g}")
    axes.set(ylabel="share of 2,000 runs", xticks=places, ylim=(0, 0.75))
    axes.set_xticklabels([textwrap.fill(name, 11) for name in SHARED], fontsize=7)
    axes.legend(**STYLE)
    return figure


FIGURES: dict[str, Callable] = {
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


def _released(drawn: Guesses, r: int, seed: int) -> Counts:
    return release(drawn.bits, drawn.guesses, drawn.scores, r, seed)


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values))


def _true_gaussian(mu: float) -> float:
    return gaussian().channel(mu).epsilon(1e-5)


def _figure(title: str, panels: int = 1):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 if panels == 1 else 3.4 * panels, 3.4), layout="constrained")
    if panels == 1:
        axes = figure.add_subplot()
        axes.set_title(title, fontsize=10)
        return figure, axes
    figure.suptitle(title, fontsize=10)
    return figure, figure.subplots(1, panels)


def _densities(axes, title: str, x: np.ndarray, pair: tuple[np.ndarray, np.ndarray]) -> None:
    for density, name, colour in zip(pair, "PQ", (COLOURS["exact"], COLOURS["chernoff"]), strict=True):
        axes.plot(x, density, color=colour, label=name)
        axes.fill_between(x, density, color=colour, alpha=0.15)
    axes.set_title(title, fontsize=10)
    axes.set(xlabel="output", ylabel="density")
    axes.legend(**STYLE)


def main(chosen: Sequence[str]) -> int:
    unknown = [name for name in chosen if name not in FIGURES]
    if unknown:
        print(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in chosen or FIGURES:
        steps: Iterator[str] = FIGURES[name]()
        while True:  # a figure yields its numbers one by one and ends with the picture
            try:
                print(f"figure {name}: {next(steps)}", flush=True)
            except StopIteration as end:
                end.value.savefig(FOLDER / f"figure_{name}.png", dpi=120)
                break
    print(f"the pictures: {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
