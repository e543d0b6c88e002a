"""The figures of paper 002 that bound epsilon on simulated mechanisms, into data/figures: `make audit-figures`.

Mean of five runs at 95%; the text of the paper names no mu, so mu is ours. Figure 6 (DP-SGD) is `make audit-dp-sgd`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from stages.statistics.one_run import mechanisms
from stages.statistics.one_run.audit import audit, log_p_value
from stages.statistics.one_run.channel import Family
from stages.statistics.one_run.counts import Counts
from stages.statistics.one_run.families import approx_dp, gaussian, laplace, subsampled_gaussian
from stages.statistics.one_run.release import release

FOLDER = Path("data/figures")
METHODS = {"exact": "#2459a9", "chernoff": "#c2410c", "steinke": "#5d6167", "mahloujifar": "#15803d"}
RUNS = 5
SIZES = (100, 1000, 10_000, 100_000)


def bounds(simulate: Callable, family: Family, n: int, r: int, delta: float) -> dict[str, float]:
    """Mean lower bound of each method over the runs; not a number where a family is rejected whole."""
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for seed in range(RUNS):
        drawn = simulate(n, np.random.default_rng([seed, n, r]))
        counts = release(drawn.bits, drawn.guesses, drawn.scores, r, seed)
        for result in audit(counts, family, delta=delta, methods=METHODS):
            found[result.method].append(np.nan if result.value is None else result.value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def lines(title: str, xlabel: str, xs: tuple, rows: list[dict[str, float]], truth: float | None, log: bool = True):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for name, colour in METHODS.items():
        axes.plot(xs, [row[name] for row in rows], "o-", color=colour, label=name, markersize=4)
    if truth is not None:
        axes.axhline(truth, color="black", linestyle="--", linewidth=0.8, label="true epsilon")
    if log:
        axes.set_xscale("log")
    axes.set(title=title, xlabel=xlabel, ylabel="epsilon at least")
    axes.legend(frameon=False, fontsize=8)
    return figure


def by_size(number: str, title: str, simulate: Callable, family: Family, truth: float, delta: float) -> None:
    rows = [bounds(simulate, family, n, n // 5, delta) for n in SIZES]
    save(number, lines(f"Figure {number}: {title}", "n, r = n / 5", SIZES, rows, truth), SIZES, rows, truth)


def p_values() -> None:
    """Figure 10: p-values of randomised response, by errors; n = r = 100."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, delta in zip(figure.subplots(1, 2), (0.01, 0.1), strict=True):
        errors = np.arange(5, 45)
        null = approx_dp.family(delta)
        for name, colour in METHODS.items():
            values = [np.exp(log_p_value(name, Counts(100, 100, int(u)), null, 1.0, delta)) for u in errors]
            axes.plot(errors, values, color=colour, label=name)
        axes.axvline(100 * (1 - delta) / (1 + np.e), color="black", linestyle="--", label="expected errors")
        axes.set(title=f"Figure 10: eps 1, delta {delta}", xlabel="errors", ylabel="p-value")
        axes.legend(frameon=False, fontsize=8)
    save("10", figure, (), [], None)


def save(number: str, figure, xs: tuple, rows: list[dict[str, float]], truth: float | None) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / f"figure_{number}.png", dpi=120)
    for x, row in zip(xs, rows, strict=True):
        told = " ".join(f"{name} {value:.2f}" for name, value in row.items())
        print(f"figure {number}: {x} (true {truth:.3f}) {told}", flush=True)


def main() -> None:
    mu = 1.0
    true_gaussian = gaussian.family().channel(mu).epsilon(1e-5)
    for number, guess, name in (("4", "threshold", "special case"), ("5", "rank", "general case")):
        simulate = partial(mechanisms.gaussian, mu=mu, guess=guess)
        by_size(number, f"Gaussian, {name}", simulate, gaussian.family(), true_gaussian, 1e-5)
    true_laplace = laplace.family().channel(mu).epsilon(1e-5)
    simulate = partial(mechanisms.laplace, mu=mu, guess="threshold")
    by_size("3", "Laplace", simulate, laplace.family(), true_laplace, 1e-5)
    for number, delta in (("7a", 1e-2), ("7b", 1e-5)):
        simulate = partial(mechanisms.randomised_response, epsilon=3.2, delta=delta)
        by_size(number, f"randomised response, delta {delta}", simulate, approx_dp.family(delta), 3.2, delta)
    sampled = subsampled_gaussian.family(0.5)
    simulate = partial(mechanisms.subsampled_gaussian, mu=2.0, q=0.5)
    by_size("9", "subsampled Gaussian", simulate, sampled, sampled.channel(2.0).epsilon(1e-7), 1e-7)
    p_values()
    simulate = partial(mechanisms.gaussian, mu=mu)
    sizes = (2000, 5000, 10_000, 100_000)
    rows = [bounds(simulate, gaussian.family(), n, 1000, 1e-5) for n in sizes]
    figure = lines("Figure 11: r = 1000", "n", sizes, rows, true_gaussian)
    save("11", figure, sizes, rows, true_gaussian)
    released = (100, 1000, 10_000, 30_000, 100_000)
    truth = gaussian.family().channel(0.8).epsilon(1e-5)
    simulate = partial(mechanisms.gaussian, mu=0.8)
    rows = [bounds(simulate, gaussian.family(), 100_000, r, 1e-5) for r in released]
    save("12", lines("Figure 12: mu = .8, n = 1e5", "r", released, rows, truth), released, rows, truth)


if __name__ == "__main__":
    main()
