"""The privacy-utility landscape of Negoescu et al. (2024): training strategies by Epsilon* and by utility.

A strategy is a baseline with a number of epochs, or DP-SGD with one setting of the grid. Each strategy is trained several
times on the same training set. The scratch folder keeps every finished run under a hash of everything that decides the
run, so that a killed landscape resumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.audits import Runner, in_processes
from lethe.errors import plural
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.cache import cache_key, digest, versions
from lethe.io.json_files import read_json, write_json
from lethe.report.svg import COLOURS, MARKS, picture
from lethe.statistics.bound import level
from lethe.statistics.epsilon_star import audit
from lethe.statistics.epsilon_star.lower import Mechanism, mechanism_epsilon
from lethe.statistics.epsilon_star.parametric import Scale, rejected_sides
from lethe.statistics.epsilon_star.ratios import recommended_delta
from lethe.text import number
from studies.landscape import classification, training
from studies.landscape.classification import Classification
from studies.landscape.settings import LandscapeSettings, Strategy, read
from studies.simulation import fit_p_values, goodness_of_fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTITIES = ("utility_train", "utility_population", "epsilon_star", "epsilon_star_cut", "epsilon_lower")
OUT = Path("data/landscapes")
SCRATCH = Path(".lethe/scratch/landscape")


@dataclass(frozen=True)
class Spread:
    mean: float
    min: float
    max: float


@dataclass(frozen=True)
class MeasuredRun:
    """One trained model. ``fit_rejected`` says whether the goodness-of-fit test rejects the Gaussians behind Epsilon*."""

    utility_train: float
    utility_population: float
    epsilon_star: float
    epsilon_star_cut: float
    epsilon_lower: float
    fit_rejected: bool


@dataclass(frozen=True)
class MeasuredStrategy:
    """One strategy over its runs; ``mechanism`` is the epsilon of the mechanism, estimated over the runs."""

    name: str
    group: str
    epochs: int
    batch: int
    epsilon: float | None
    clip: float | None
    microbatches: int | None
    utility_train: Spread
    utility_population: Spread
    epsilon_star: Spread
    epsilon_star_cut: Spread
    epsilon_lower: Spread
    fits_rejected: int
    mechanism: Mechanism
    runs: list[MeasuredRun]


@dataclass(frozen=True)
class LandscapeResult:
    """All measured strategies; ``frontier`` has the indices of the strategies on the Pareto frontier."""

    data: str
    n_train: int
    n_population: int
    classes: int
    utility: str
    delta: float
    alpha: float
    runs: int
    trained: int
    frontier: list[int]
    strategies: list[MeasuredStrategy]


class Landscape:
    def __init__(self, settings: LandscapeSettings, scratch: Path = SCRATCH):
        self.settings, self.scratch = settings, scratch

    @property
    def data(self) -> Classification:
        return _data(self.settings.data.model_dump_json())

    @property
    def delta(self) -> float:
        return self.settings.delta or recommended_delta(len(self.data.train[1]))

    def strategies(self) -> list[Strategy]:
        baseline, private = self.settings.baseline, self.settings.private
        found = [Strategy(epochs, baseline.batch) for epochs in baseline.epochs]
        for epsilon in private.epsilons:
            found += [
                Strategy(private.epochs, batch, epsilon, clip, microbatches)
                for clip in private.clips
                for batch in private.batches
                for microbatches in private.microbatches
            ]
        return found

    def place(self, strategy: Strategy, run: int) -> Path:
        settings = self.settings
        return self.scratch / cache_key(
            "studies.landscape.training",
            settings={"network": settings.network, "optimiser": settings.optimiser, "seed": settings.seed},
            data=_content(settings.data.model_dump_json()),
            delta=self.delta,
            strategy=strategy,
            run=run,
            libraries=versions("numpy", "torch", "opacus", "dp-accounting"),
        )

    def make(self, strategy: Strategy, run: int) -> None:
        training.make(self.data, self.settings, self.delta, strategy, run, self.place(strategy, run))

    def losses(self, strategy: Strategy, run: int) -> dict[str, np.ndarray]:
        with np.load(self.place(strategy, run) / training.LOSSES) as kept:
            return {name: kept[name] for name in ("train", "population")}

    def measure(self, strategy: Strategy) -> MeasuredStrategy:
        settings, found = self.settings, []
        every: list[tuple[np.ndarray, np.ndarray]] = []
        for run in range(settings.runs):
            losses = self.losses(strategy, run)
            every.append((losses["train"], losses["population"]))
            exact = audit(*every[-1], delta=self.delta, alpha=settings.alpha)
            cut = audit(*every[-1], delta=self.delta, cut=self.delta, alpha=settings.alpha)
            utility = read_json(self.place(strategy, run) / training.UTILITY)
            found.append(
                MeasuredRun(
                    utility_train=utility["train"],
                    utility_population=utility["population"],
                    epsilon_star=exact.epsilon_star,
                    epsilon_star_cut=cut.epsilon_star,
                    epsilon_lower=exact.epsilon_lower,
                    fit_rejected=exact.fit is not None and bool(rejected_sides(exact.fit.ks_p_values)),
                )
            )
        spreads: dict[str, Any] = {name: _spread([getattr(one, name) for one in found]) for name in QUANTITIES}
        return MeasuredStrategy(
            name=strategy.name,
            group=strategy.group,
            **asdict(strategy),
            **spreads,
            fits_rejected=sum(one.fit_rejected for one in found),
            mechanism=mechanism_epsilon(every, self.delta),
            runs=found,
        )

    def result(self, run: Runner = in_processes) -> LandscapeResult:
        runs = [(strategy, number) for strategy in self.strategies() for number in range(self.settings.runs)]
        missing = {place: one for one in runs if not (place := self.place(*one)).is_dir()}
        run(self.make, list(missing.values()), "runs")
        measured: list[MeasuredStrategy] = run(
            self.measure, [(strategy,) for strategy in self.strategies()], "Epsilon*"
        )
        data = self.data
        finite = [i for i, one in enumerate(measured) if np.isfinite(one.epsilon_star.mean)]
        cost = np.array([measured[i].epsilon_star.mean for i in finite])
        benefit = np.array([measured[i].utility_population.mean for i in finite])
        best = [finite[i] for i in frontier(cost, benefit)]
        return LandscapeResult(
            data=data.note,
            n_train=len(data.train[1]),
            n_population=len(data.population[1]),
            classes=data.classes,
            utility="AUROC" if data.classes == 2 else "accuracy",
            delta=self.delta,
            alpha=self.settings.alpha,
            runs=self.settings.runs,
            trained=len(missing),
            frontier=best,
            strategies=measured,
        )

    def transformed_losses(self) -> dict[str, np.ndarray]:
        strategies = self.strategies()
        chosen = [
            max((one for one in strategies if one.epsilon is None), key=lambda one: one.epochs),
            min((one for one in strategies if one.epsilon is not None), key=lambda one: one.epsilon or 0.0),
        ]
        found = {}
        for strategy in chosen:
            losses = self.losses(strategy, 0)
            found[f"{'no DP' if strategy.epsilon is None else 'DP'}: {strategy.name}"] = Scale.of(**losses).phi(
                losses["train"]
            )
        return found


def _spread(values: Sequence[float]) -> Spread:
    return Spread(float(np.mean(values)), float(np.min(values)), float(np.max(values)))


@lru_cache(maxsize=1)
def _data(settings: str) -> Classification:
    import json

    return classification.load(**json.loads(settings))


@lru_cache(maxsize=1)
def _content(settings: str) -> str:
    data = _data(settings)
    return digest(*data.train, *data.population, data.classes)


def frontier(cost: np.ndarray, benefit: np.ndarray) -> np.ndarray:
    """Indices of the strategies on the frontier, from the lowest cost to the highest benefit.

    ``cost`` and ``benefit`` (k,) are finite. A strategy is on the frontier if no strategy and no convex combination of
    two has at most its cost and at least its benefit and is better in one of them: the part of the convex hull that
    faces low cost and high benefit (Negoescu et al. 2024, section 4.2; Roijers and Whiteson 2017).
    Of several equal strategies, only the first one is included.
    """
    cost, benefit = np.asarray(cost, float), np.asarray(benefit, float)
    hull: list[int] = []
    for i in np.lexsort((-benefit, cost)):
        if hull and benefit[i] <= benefit[hull[-1]]:
            continue  # no lower cost and no higher benefit
        while len(hull) > 1 and not _turns_down(hull[-2], hull[-1], i, cost, benefit):
            hull.pop()
        hull.append(int(i))
    return np.array(hull, dtype=int)


def _turns_down(a: int, b: int, c: int, cost: np.ndarray, benefit: np.ndarray) -> bool:
    """Whether b lies above the line from a to c."""
    return (benefit[b] - benefit[a]) * (cost[c] - cost[a]) > (benefit[c] - benefit[a]) * (cost[b] - cost[a])


PLACES = 400  # points at which a marginal density is drawn


def landscape(path: Path, result: LandscapeResult) -> None:
    """Every strategy's mean Epsilon* and utility with min-max bars, marginal densities of DP and no DP, the frontier."""
    shown = [one for one in result.strategies if np.isfinite(one.epsilon_star.mean)]
    groups = list(dict.fromkeys(one.group for one in shown))
    with picture(
        path,
        6.6,
        4.8,
        nrows=2,
        ncols=2,
        sharex="col",
        sharey="row",
        width_ratios=(4, 1),
        height_ratios=(1, 4),
    ) as (_, grid):
        (top, corner), (main, side) = grid
        corner.axis("off")
        for group, colour, mark in zip(groups, COLOURS, MARKS, strict=False):
            mine = [one for one in shown if one.group == group]
            x, y = (_means(mine, key) for key in ("epsilon_star", "utility_population"))
            main.errorbar(
                x,
                y,
                yerr=_reach(mine, "utility_population"),
                xerr=_reach(mine, "epsilon_star"),
                linestyle="none",
                marker=mark,
                markersize=4,
                color=colour,
                elinewidth=0.7,
                label=group,
            )
        best = [result.strategies[i] for i in result.frontier]
        main.plot(
            _means(best, "epsilon_star"),
            _means(best, "utility_population"),
            color="#1c1d1f",
            linewidth=0.9,
            linestyle="--",
            label="Pareto frontier",
        )
        main.set(xlabel=f"Epsilon* (parametric, no cut, δ = {result.delta:.2g})", ylabel=result.utility)
        main.set_xlim(left=-0.02 * main.get_xlim()[1])
        main.legend(loc="lower right", fontsize=7, framealpha=0.9, edgecolor="none")
        for private, name, colour in ((False, "no DP", COLOURS[0]), (True, "DP", COLOURS[1])):
            mine = [one for one in shown if (one.epsilon is not None) == private]
            _density(top, _means(mine, "epsilon_star"), main.get_xlim(), colour, name)
            _density(side, _means(mine, "utility_population"), main.get_ylim(), colour, name, upright=True)
        top.set(yticks=[], title=result.data)
        side.set(xticks=[])
        top.legend(frameon=False, fontsize=7)


def _means(strategies: list[MeasuredStrategy], key: str) -> np.ndarray:
    return np.array([getattr(one, key).mean for one in strategies])


def _reach(strategies: list[MeasuredStrategy], key: str) -> np.ndarray:
    low, mean, high = (
        np.array([getattr(getattr(one, key), what) for one in strategies]) for what in ("min", "mean", "max")
    )
    return np.maximum([mean - low, high - mean], 0)


def _density(
    axes: Axes, values: np.ndarray, limits: tuple[float, float], colour: str, name: str, upright: bool = False
) -> None:
    """A Gaussian kernel density of the strategies' means, each at its own height; none for fewer than two values."""
    if len(set(values)) < 2:
        return
    from scipy.stats import gaussian_kde

    places = np.linspace(max(limits[0], 0), limits[1], PLACES)  # neither Epsilon* nor utility is negative
    heights = gaussian_kde(values, "silverman")(places)
    heights /= heights.max()
    if upright:
        axes.fill_betweenx(places, heights, color=colour, alpha=0.3, linewidth=0, label=name)
    else:
        axes.fill_between(places, heights, color=colour, alpha=0.3, linewidth=0, label=name)


def draw(name: str, changes: Sequence[str]) -> tuple[LandscapeResult, dict[str, object]]:
    settings = read(name, changes)
    study = Landscape(settings)
    result = study.result()
    values, fit = asdict(result), settings.goodness_of_fit
    with atomic_folder(OUT / name) as folder:
        landscape(folder / "landscape.png", result)
        if fit is not None:
            components = range(1, fit.components + 1)
            tables = {
                title: fit_p_values(losses, components, fit.samples, settings.seed)
                for title, losses in study.transformed_losses().items()
            }
            goodness_of_fit(folder / "goodness-of-fit.png", tables, components, fit.samples)
            values["goodness_of_fit"] = {
                "components": list(components),
                "samples": fit.samples,
                "p_values": tables,
            }
        whole = {"schema": SCHEMA_VERSION, "settings": settings.model_dump(), **values}
        write_json(folder / "result.json", whole)
    return result, values


def table(name: str, result: LandscapeResult) -> tuple[str, list[str], list[list[object]], list[str]]:
    strategies = result.strategies
    return (
        f"{name}: {result.data}, {result.n_train:,} to train on and {result.n_population:,} others; "
        f"means of {plural(result.runs, 'run')}, delta {result.delta:.3g}",
        ["strategy", result.utility, "training", "Epsilon*", "range", "cut", "lower"],
        [_row(one) for one in strategies],
        [
            f"Pareto frontier: {'; '.join(strategies[place].name for place in result.frontier)}.",
            f"{result.utility}: on the others; training: on what was learnt.",
            "Epsilon*: parametric, an estimate, with no cut; range: least to most; cut: the paper's, of rates at delta.",
            f"lower: mean of the runs' lower bounds; each holds for its run {level(result.alpha)}.",
            f"Trained now: {plural(result.trained, 'run')}; the pictures: data/landscapes/{name}",
        ],
    )


def _row(one: MeasuredStrategy) -> list[object]:
    exact = one.epsilon_star
    return [
        one.name,
        one.utility_population.mean,
        one.utility_train.mean,
        f"{exact.mean:.2f}",
        f"{exact.min:.2f}–{exact.max:.2f}",
        f"{one.epsilon_star_cut.mean:.2f}",
        number(one.epsilon_lower.mean, 2, "down"),
    ]
