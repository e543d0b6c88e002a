"""The privacy-utility landscape of Negoescu et al. (2024): training strategies by Epsilon* and by utility.

A strategy is a baseline with a number of epochs, or DP-SGD with one setting of the grid. Each strategy is trained several
times on the same training set. The scratch folder keeps every finished run under a hash of everything that decides the
run, so that a killed landscape resumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from lethe.audits.finished_models import Runner, in_processes
from lethe.io.cache import cache_key, digest, versions
from lethe.io.json_files import read_json
from lethe.statistics.epsilon_star import audit
from lethe.statistics.epsilon_star.lower import Mechanism, mechanism_epsilon
from lethe.statistics.epsilon_star.parametric import Scale, rejected_sides
from lethe.statistics.epsilon_star.ratios import recommended_delta
from studies.landscape import classification, training
from studies.landscape.classification import Classification
from studies.landscape.settings import LandscapeSettings, Strategy

SCRATCH = Path(".lethe/scratch/landscape")


@dataclass(frozen=True)
class Spread:
    """Statistics of one value over the runs of a strategy."""

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
    """One landscape, described by its settings (`studies.landscape.settings.LandscapeSettings`)."""

    def __init__(self, settings: LandscapeSettings, scratch: Path = SCRATCH):
        self.settings, self.scratch = settings, scratch

    @property
    def data(self) -> Classification:
        """The data set, read at first use."""
        return _data(self.settings.data.model_dump_json())

    @property
    def delta(self) -> float:
        """The delta of both Epsilon* and DP-SGD."""
        return self.settings.delta or recommended_delta(len(self.data.train[1]))

    def strategies(self) -> list[Strategy]:
        """All strategies: the baselines and the grid of DP-SGD."""
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

    def runs(self) -> Iterator[tuple[Strategy, int]]:
        """Yield every run of every strategy."""
        for strategy in self.strategies():
            for run in range(self.settings.runs):
                yield strategy, run

    def place(self, strategy: Strategy, run: int) -> Path:
        """Return the folder of a run, named by a hash of everything that decides the run."""
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
        """Train one model; keep its losses on members and non-members, and its utility."""
        training.make(self.data, self.settings, self.delta, strategy, run, self.place(strategy, run))

    def losses(self, strategy: Strategy, run: int) -> dict[str, np.ndarray]:
        """Return the losses of a finished run on members and non-members."""
        with np.load(self.place(strategy, run) / training.LOSSES) as kept:
            return {name: kept[name] for name in ("train", "population")}

    def measure(self, strategy: Strategy) -> MeasuredStrategy:
        """Measure one strategy: the values of every run, and the mechanism's epsilon over all runs."""
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
        return MeasuredStrategy(
            name=strategy.name,
            group=strategy.group,
            **asdict(strategy),
            utility_train=_spread([one.utility_train for one in found]),
            utility_population=_spread([one.utility_population for one in found]),
            epsilon_star=_spread([one.epsilon_star for one in found]),
            epsilon_star_cut=_spread([one.epsilon_star_cut for one in found]),
            epsilon_lower=_spread([one.epsilon_lower for one in found]),
            fits_rejected=sum(one.fit_rejected for one in found),
            mechanism=mechanism_epsilon(every, self.delta, settings.alpha),
            runs=found,
        )

    def result(self, run: Runner = in_processes) -> LandscapeResult:
        """Train all unfinished models, measure every strategy, find the Pareto frontier."""
        missing = {self.place(*one): one for one in self.runs() if not self.place(*one).is_dir()}
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
        """Return the transformed training losses of the longest baseline and of the most private DP strategy (Figure 6)."""
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
