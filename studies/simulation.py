"""The simulation of Negoescu et al. (2024), appendix B: losses drawn from known distributions with a known Epsilon*."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, log_ndtr

from lethe.errors import BadValue
from lethe.io.files import SCHEMA_VERSION, Json, files_into, write_json
from lethe.progress import progress
from lethe.report.svg import COLOURS, MARKS, picture
from lethe.statistics.epsilon_star import ratios
from lethe.statistics.epsilon_star.parametric import Scale, fit_mixture, parametric_epsilon_star
from lethe.statistics.two_sample import ks_test
from studies import outcome

GAPS = (0, 1, 2, 3)
# Training losses are Gamma(2, 5), those of the population Gamma(2 + gap, 5).
SHAPE = 2.0
SCALE = 5.0
# The paper's cut for empirical values; the paper cuts parametric values at delta.
EMPIRICAL_CUT = 1e-3
THRESHOLDS_PER_TAIL = 20_000  # thresholds per tail in the search for the true supremum
LEAST_RATE = 1e-9  # Fig. 3 omits rates below this
MOST_FITTED = 4_000  # losses per mixture fit for Fig. 6
APART = 3.0  # Fig. 3: the distance of the two normal laws
DRAWN_LOSSES = 100_000  # Fig. 3: in a sample

# The paper shows the first two. The next two are the same without a cut; the last is a bound with a guarantee.
ESTIMATES = (
    "empirical, cut .001",
    "parametric, cut delta",
    "empirical",
    "parametric",
    "split lower bound",
)


@dataclass(frozen=True)
class Simulated:
    """Estimates (runs,) from draws of ``n`` losses per side; ``truth_cut``: over true rates in [delta, 1 - delta]."""

    gap: float
    n: int
    delta: float
    truth: float
    truth_cut: float
    values: dict[str, np.ndarray]

    def mean(self, estimate: str) -> float:
        """The mean over the runs."""
        return float(self.values[estimate].mean())

    def sd(self, estimate: str) -> float:
        """Standard deviation over the runs (divisor runs - 1; NaN for one run)."""
        values = self.values[estimate]
        if len(values) < 2 or not np.isfinite(values).all():
            return float("nan")
        return float(values.std(ddof=1))

    def shown(self, name: str) -> str:
        """The mean of an estimate, with its standard deviation in brackets."""
        mean = self.mean(name)
        if mean == float("inf"):
            return "infinite"
        return f"{mean:.2f} ({self.sd(name):.2f})"

    def as_json(self) -> dict[str, object]:
        """The cell as it stands in result.json and in the outcome."""
        estimates = {}
        for name in self.values:
            estimates[name] = {"mean": self.mean(name), "sd": self.sd(name)}
        return {
            "n": self.n,
            "gap": self.gap,
            "truth": self.truth,
            "truth_cut": self.truth_cut,
            "estimates": estimates,
        }


def simulate(
    gap: float,
    n: int,
    delta: float,
    runs: int,
    seed: int = 0,
) -> Simulated:
    """All `ESTIMATES` of ``runs`` pairs of samples, ``n`` losses a side; each run has a random stream of its own."""
    if runs < 1:
        raise BadValue("runs", runs, "at least 1")
    truth = gamma_epsilon_star(gap, delta)
    truth_cut = gamma_epsilon_star(gap, delta, cut=delta)

    values = np.empty((len(ESTIMATES), runs))
    for run in range(runs):
        rng = np.random.default_rng([seed, round(gap * 1000), n, run])
        train = rng.gamma(SHAPE, SCALE, n)
        population = rng.gamma(SHAPE + gap, SCALE, n)
        results: tuple[ratios.EpsilonStar | ratios.LowerBound, ...] = (
            ratios.empirical_epsilon_star(train, population, delta, EMPIRICAL_CUT),
            parametric_epsilon_star(train, population, delta, delta),
            ratios.empirical_epsilon_star(train, population, delta),
            parametric_epsilon_star(train, population, delta),
            ratios.split_lower_bound(train, population, delta, seed=run),
        )
        values[:, run] = [result.value for result in results]
    return Simulated(
        gap=gap,
        n=n,
        delta=delta,
        truth=truth,
        truth_cut=truth_cut,
        values=dict(zip(ESTIMATES, values, strict=True)),
    )


def gamma_epsilon_star(gap: float, delta: float, cut: float | None = None) -> float:
    """Epsilon* of Gamma(2, 5) against Gamma(2 + gap, 5), to about six digits, at quantiles of both exact tails.

    With ``cut`` all four rates stay between ``cut`` and 1 - ``cut``; NaN where no threshold is left.
    """
    if not 0 < delta < 1:
        remedy = "At delta = 0, Epsilon* is infinite for any gap but 0."
        raise BadValue("delta", delta, "a number in (0, 1)", remedy)
    cut = ratios.checked_cut(cut)
    shapes = (SHAPE, SHAPE + gap)

    tails = np.geomspace(delta / 10, 0.5, THRESHOLDS_PER_TAIL)
    quantiles = []
    for shape in shapes:
        quantiles.append(gammaincinv(shape, tails))
        quantiles.append(gammainccinv(shape, tails))
    x = np.concatenate(quantiles)

    if cut is not None:
        low = np.max(gammaincinv(shapes, cut))
        high = np.min(gammainccinv(shapes, cut))
        if low > high:
            return float("nan")
        inside = x[(x > low) & (x < high)]
        x = np.concatenate([[low, high], inside])

    # A tail is computed as such: 1 minus the other loses the digits of a small one.
    train = (gammainc(SHAPE, x), gammaincc(SHAPE, x))
    population = (gammainc(SHAPE + gap, x), gammaincc(SHAPE + gap, x))
    logs = ratios.log_ratios(train, population, delta)
    return ratios.largest(logs)[0]


# (TPR + FPR) / 2, and (2, k) of (TPR - delta) / FPR and (TNR - delta) / FNR
Curves = tuple[np.ndarray, np.ndarray]


def ratio_curves(delta: float, seed: int) -> tuple[Curves, Curves]:
    """The first two ratios of two normal laws over all thresholds: the true curves, and those of samples (Fig. 3)."""
    mean = APART
    n = DRAWN_LOSSES

    q = np.linspace(-8, mean + 8, 4001)
    train = _normal_tails(q)
    population = _normal_tails(q - mean)
    laws = _curves(train, population, delta)

    rng = np.random.default_rng(seed)
    losses = rng.normal(size=n)
    other_losses = rng.normal(mean, size=n)
    _, below_train, below_population = ratios.counts(losses, other_losses)
    drawn_train = ratios.shares(below_train, n)
    drawn_population = ratios.shares(below_population, n)
    return laws, _curves(drawn_train, drawn_population, delta)


def _normal_tails(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper tail of the standard normal law at each q; a small one keeps its digits."""
    return np.exp(log_ndtr(q)), np.exp(log_ndtr(-q))


def _curves(train: tuple, population: tuple, delta: float) -> Curves:
    """The curves of two laws whose lower and upper tails (thresholds,) are ``train`` and ``population``."""
    (tpr, fnr), (fpr, _) = train, population
    inside = (fpr >= LEAST_RATE) & (fnr >= LEAST_RATE)
    logs = ratios.log_ratios(train, population, delta)[:2, inside]
    mean_rate = (tpr[inside] + fpr[inside]) / 2
    return mean_rate, np.exp(logs)


def fit_p_values(
    values: np.ndarray, components: Sequence[int], sizes: Sequence[int], seed: int = 0
) -> np.ndarray:
    """Fig. 6: (components, sizes) p-values of the KS test of fit, on that many values set aside and as many fresh draws.

    Raises `BadValue` where too few values are left to fit the mixtures on.
    """
    rng = np.random.default_rng(seed)
    mixed = rng.permutation(np.asarray(values, float))
    aside = max(sizes)
    least = aside + max(components)
    if len(mixed) < least:
        raise BadValue("losses", len(mixed), f"at least {least}: {aside} are set aside")

    fitted_on = mixed[aside : aside + MOST_FITTED]
    mixtures = [fit_mixture(fitted_on, count) for count in components]

    p_values = np.empty((len(components), len(sizes)))
    for place, mixture in enumerate(mixtures):
        for column, size in enumerate(sizes):
            fresh = mixture.sample(size, rng)
            p_values[place, column] = ks_test(mixed[:size], fresh).p_value
    return p_values


DRAWN = ESTIMATES[:2]  # the paper's own estimates
CERTIFIED = ESTIMATES[-1]
LEVEL = 0.05  # of the test of fit


def draw_ratios(path: Path, laws: Curves, drawn: Curves) -> None:
    """Fig. 3: the first two ratios along the thresholds; of the laws and of samples."""
    names = ("(TPR − δ) / FPR", "(TNR − δ) / FNR")
    titles = ("(a) the laws", "(b) samples")
    with picture(path, 6.4, 2.6, ncols=2, sharey=True) as (_, grid):
        for side, (x, ratios), title in zip(grid[0], (laws, drawn), titles, strict=True):
            for ratio, colour, name in zip(ratios, COLOURS, names, strict=False):
                there = np.isfinite(ratio) & (ratio > 0)  # the axis is logarithmic
                side.plot(x[there], ratio[there], color=colour, label=name)
            side.set(yscale="log", xlim=(0, 1), title=title, xlabel="(TPR + FPR) / 2")
        grid[0][0].set_ylabel("ratio")
        grid[0][0].legend(frameon=False)


def same_laws(path: Path, cells: Sequence[Simulated]) -> None:
    """Fig. 4: mean and standard deviation of both estimates against n where the truth is 0."""
    with picture(path, 3.6, 2.6) as (_, grid):
        axes: Axes = grid[0][0]
        _bars(axes, [cell.n for cell in cells], cells)
        axes.axhline(0, color="#1c1d1f", linewidth=0.9, label="truth")
        axes.set(
            xscale="log",
            xlabel="losses per side",
            ylabel="Epsilon*",
            title="The same law on both sides",
        )
        axes.legend(frameon=False)


def growing_gap(path: Path, cells: Sequence[Simulated]) -> None:
    """Fig. 5: the estimates against the gap between the laws, one panel per sample size, with both truths and the bound."""
    sizes = sorted({cell.n for cell in cells})
    with picture(path, 2.5 * len(sizes), 2.8, ncols=len(sizes), sharey=True) as (_, grid):
        for axes, n in zip(grid[0], sizes, strict=True):
            of_size = [cell for cell in cells if cell.n == n]
            of_size.sort(key=lambda cell: cell.gap)
            gaps = [cell.gap for cell in of_size]
            truths = [cell.truth for cell in of_size]
            truths_cut = [cell.truth_cut for cell in of_size]
            bounds = [cell.mean(CERTIFIED) for cell in of_size]

            axes.plot(gaps, truths, "-", color="#1c1d1f", label="truth")
            axes.plot(gaps, truths_cut, "--", color="#1c1d1f", label="truth, cut delta")
            _bars(axes, gaps, of_size)
            axes.plot(
                gaps,
                bounds,
                color=COLOURS[2],
                marker="_",
                linestyle=":",
                label=CERTIFIED,
            )
            axes.set(title=f"n = {n:,}", xlabel="gap between the shapes", xticks=gaps)
        grid[0][0].set_ylabel("Epsilon*")
        grid[0][0].legend(frameon=False, fontsize=6.5)


def goodness_of_fit(
    path: Path, tables: Mapping[str, np.ndarray], components: Sequence, sizes: Sequence
) -> None:
    """Fig. 6: p-values of the test of fit, a column per number of components, a row per sample size; rejections crossed."""
    width = 0.6 + 0.15 * len(components)
    panels = picture(path, width * len(tables) + 0.6, 2.6, ncols=len(tables), sharey=True)
    with panels as (figure, grid):
        for axes, (name, table) in zip(grid[0], tables.items(), strict=True):
            image = axes.imshow(
                table.T,
                cmap="Blues",
                vmin=0,
                vmax=1,
                aspect="auto",
                origin="lower",
            )
            column, row = np.nonzero(table < LEVEL)
            axes.plot(
                column,
                row,
                "x",
                color="#c2410c",
                markersize=4,
                linestyle="none",
            )
            axes.set_xticks(range(0, len(components), 4), components[::4])
            axes.set_yticks(range(len(sizes)), sizes)
            axes.set(title=name, xlabel="Gaussians in the mixture")
            axes.grid(False)
        grid[0][0].set_ylabel("samples")
        figure.colorbar(image, ax=grid[0][-1], label=f"p-value (KS); crossed below {LEVEL:g}")


def _bars(axes: Axes, places: Sequence[float], cells: Sequence[Simulated]) -> None:
    """The paper's own estimates of the cells, each mean with a standard deviation to both sides."""
    for name, colour, mark in zip(DRAWN, COLOURS, MARKS, strict=False):
        means = [cell.mean(name) for cell in cells]
        sds = [cell.sd(name) for cell in cells]
        axes.errorbar(
            places,
            means,
            sds,
            color=colour,
            marker=mark,
            markersize=3.5,
            capsize=2,
            label=name,
        )


def draw(
    runs: int,
    sizes: Sequence[int],
    delta: float,
    components: int,
    seed: int,
    out: Path,
    *,
    keep: bool = False,
) -> tuple[list[Simulated], dict[str, object]]:
    """Simulate every gap at every size and write the figures; return the cells, and the JSON that ``out`` holds."""
    of_sizes = "".join(f" --size {size}" for size in sizes)
    command = f"lethe study epsilon-star-simulation --runs {runs}{of_sizes} --delta {delta:g}"
    settings: dict[str, Json] = {
        "runs": runs,
        "sizes": list(sizes),
        "delta": delta,
        "components": components,
    }
    of_study = outcome.Study(
        name="epsilon-star-simulation",
        command=f"{command} --components {components} --seed {seed}",
        seeds=[seed],
        settings=settings,
        keep=keep,
    )

    with files_into(out) as folder:
        jobs = list(itertools.product(sizes, GAPS))
        cells = []
        for n, gap in progress(jobs, "simulation", "settings"):
            cells.append(simulate(gap, n, delta, runs, seed))

        tried = range(1, components + 1)
        sample_sizes = range(100, 1001, 100)
        fits = _fits(tried, sample_sizes, seed)

        draw_ratios(folder / "figure-3.png", *ratio_curves(delta, seed))
        same_laws(folder / "figure-4.png", [cell for cell in cells if cell.gap == 0])
        growing_gap(folder / "figure-5.png", cells)
        goodness_of_fit(folder / "figure-6.png", fits, tried, sample_sizes)

        values_of_cells = [cell.as_json() for cell in cells]
        result: dict[str, object] = {
            "delta": delta,
            "runs": runs,
            "seed": seed,
            "cells": values_of_cells,
            "goodness_of_fit": {
                "components": list(tried),
                "samples": list(sample_sizes),
                "p_values": fits,
            },
        }
        write_json(folder / "result.json", {"schema": SCHEMA_VERSION, **result})

    kept = {"cells": values_of_cells, "fits not rejected": not_rejected(fits)}
    of_study.finish(kept, sorted(out.glob("figure-*.png")))
    return cells, result


def _fits(components: Sequence[int], sizes: Sequence[int], seed: int) -> dict[str, np.ndarray]:
    """Fig. 6: the p-values of `fit_p_values` for the losses of both sides at the largest gap."""
    rng = np.random.default_rng([seed, 6])
    train = rng.gamma(SHAPE, SCALE, 4000)
    population = rng.gamma(SHAPE + max(GAPS), SCALE, 4000)
    phi = Scale.of(train, population).phi

    fits = {}
    sides = {"training losses": train, "population losses": population}
    for name, losses in progress(sides.items(), "test of fit", "samples", total=2):
        fits[name] = fit_p_values(phi(losses), components, sizes, seed)
    return fits


def not_rejected(fits: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """The share of tests of fit that do not reject, of one Gaussian and of all mixtures, for each side."""
    shares = {}
    for title, table in fits.items():
        passed = np.asarray(table) >= LEVEL
        shares[title] = {
            "one Gaussian": float(passed[0].mean()),
            "all": float(passed.mean()),
        }
    return shares


def table(
    cells: Sequence[Simulated], runs: int, out: Path
) -> tuple[str, list[str], list[list[object]], list[str]]:
    """The title, the headings, the rows and the notes of the table for people, a row for each cell."""
    rows: list[list[object]] = []
    for cell in cells:
        row: list[object] = [
            cell.n,
            cell.gap,
            f"{cell.truth:.2f}",
            f"{cell.truth_cut:.2f}",
        ]
        for name in ESTIMATES:
            row.append(cell.shown(name))
        rows.append(row)

    laws = f"Gamma(2, 5) against Gamma(2 + gap, 5), delta {cells[0].delta:g}"
    title = f"Epsilon* of {laws}: mean (sd) of {runs} runs"
    columns = ["n", "gap", "truth", "truth, cut delta", *ESTIMATES]
    notes = [f"The pictures: {out}/figure-3.png to figure-6.png"]
    return title, columns, rows, notes
