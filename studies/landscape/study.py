"""The privacy-utility landscape of Negoescu et al. (2024): training strategies by Epsilon* and by utility.

A strategy is a baseline with a number of epochs, or DP-SGD with one setting of the grid. Each strategy is trained several
times on one training set. A table (UCI Adult, Purchase-100 or its shape, scikit-learn's digits) is split at random, once,
into training set and population. Finished runs stay under a hash of what decides them: a killed landscape resumes.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from pydantic import Field
from scipy.stats import gaussian_kde

from lethe.audits import Runner, in_processes
from lethe.config import validate
from lethe.config.fields import Alpha, Count, Positive, Section, Seed
from lethe.config.load import parse, read_preset, section_of
from lethe.errors import BadFile, BadParam, BadValue, MissingColumn, plural
from lethe.identity import cache_key, digest, versions
from lethe.io.files import SCHEMA_VERSION, Json, atomic_folder, read_json, write_json
from lethe.io.tables import read_table
from lethe.report.svg import COLOURS, MARKS, picture
from lethe.statistics.bound import level
from lethe.statistics.epsilon_star import audit
from lethe.statistics.epsilon_star.parametric import Scale, rejected_sides
from lethe.statistics.epsilon_star.ratios import mechanism_epsilon, recommended_delta
from lethe.text import number
from studies import outcome
from studies.landscape import training
from studies.landscape.training import Classification, Network, Optimiser, Strategy
from studies.simulation import fit_p_values, goodness_of_fit, not_rejected

FILES = Path(__file__).parent / "presets"


class Data(Section):
    """The table of a landscape: which one, how many of its rows, and which of them are set aside.

    Attributes
    ----------
    kind
        The table.
    source
        The file of the table; null where the kind has or makes its own rows.
    points
        How many rows take part, at random; null: all.
    population
        The share of these rows that no model learns, from which the population's losses come.
    seed
        Of made rows, and of the split.
    """

    kind: Literal["adult", "purchase100", "digits"]
    source: str | None
    points: Count | None
    population: Annotated[float, Field(gt=0, lt=1)]
    seed: Seed


class Baseline(Section):
    """The strategies without differential privacy: one for each number of ``epochs``, in batches of ``batch`` rows."""

    epochs: Annotated[list[Count], Field(min_length=1)]
    batch: Count


class Private(Section):
    """The grid of DP-SGD: a strategy for each combination, all trained for ``epochs`` epochs.

    Attributes
    ----------
    epsilons
        The budgets for adding or removing one record.
    clips
        The norms to which a gradient is clipped.
    batches
        The expected rows of a batch.
    microbatches
        The number of groups of a batch whose mean gradient is clipped; null: each record is clipped.
    """

    epochs: Count
    epsilons: Annotated[list[Positive], Field(min_length=1)]
    clips: Annotated[list[Positive], Field(min_length=1)]
    batches: Annotated[list[Count], Field(min_length=1)]
    microbatches: Annotated[list[Count | None], Field(min_length=1)]


class GoodnessOfFit(Section):
    """The test of fit: mixtures of 1 to ``components`` Gaussians, each on so many ``samples``."""

    components: Count
    samples: Annotated[list[Count], Field(min_length=1)]


class LandscapeSettings(Section):
    """A file of presets.

    Attributes
    ----------
    data
        The table, and its split.
    network, optimiser
        Shared by all strategies.
    baseline, private
        The strategies.
    runs
        How often each strategy is trained.
    seed
        Together with the number of a run it decides the run.
    delta
        Of DP-SGD and of Epsilon*; null: 1 / (n ln n) for n training rows.
    alpha
        The level of each lower bound of Epsilon*.
    goodness_of_fit
        Null: no test of fit.
    """

    data: Data
    network: Network
    optimiser: Optimiser
    baseline: Baseline
    private: Private
    runs: Count
    seed: Seed
    delta: Annotated[float, Field(gt=0, lt=0.5)] | None
    alpha: Alpha
    goodness_of_fit: GoodnessOfFit | None


def read(name: str, changes: Sequence[str]) -> LandscapeSettings:
    """The preset ``name`` with each change ``key=value`` of an existing key; another key raises `BadParam`."""
    document = read_preset(FILES, name, "landscape")
    source = f"studies/landscape/presets/{name}.yaml"
    legal = "a key of the file"
    for key, value in map(parse, changes):
        section, last = section_of(document, key, value, source, legal)
        if last not in section:
            raise BadParam(key, value, legal, source)
        section[last] = value
    return validate(document, source, LandscapeSettings)


PURCHASE_FEATURES = 600
PURCHASE_CLASSES = 100
GENERATED = 20_000  # rows of generated purchases by default
INCOME = "income"  # Adult's label column
SEPARATION = 0.5  # generated purchases: sd of a class's log-odds around each feature's base rate


Side = tuple[np.ndarray, np.ndarray]  # features and labels
Loaded = tuple[np.ndarray, np.ndarray, int, str]  # features, labels, number of classes, a note


def load(
    kind: str,
    source: str | None,
    points: int | None,
    population: float,
    seed: int,
) -> Classification:
    """The table ``kind``, of which ``points`` random rows (None: all) are split into training set and population.

    ``population`` is the share of rows set aside. Raises `BadValue` where a side would have fewer than 2 rows.
    """
    loaders = {"adult": _adult, "purchase100": _purchase, "digits": _digits}
    if kind not in loaders:
        raise BadValue("data.kind", kind, f"one of {', '.join(loaders)}")

    of_draw, of_split = np.random.SeedSequence(seed).spawn(2)
    draw = np.random.default_rng(of_draw)
    split = np.random.default_rng(of_split)
    features, labels, classes, note = loaders[kind](source, points, draw)
    if points is not None and not 10 <= points <= len(labels):
        legal = f"a number from 10 to {len(labels)}, the rows of {kind}, or null"
        raise BadValue("data.points", points, legal)

    rows = split.permutation(len(labels))[:points]
    n_population = round(population * len(rows))
    if not 2 <= n_population <= len(rows) - 2:
        legal = "a share that leaves at least 2 rows on each side"
        raise BadValue("data.population", population, legal)

    train = _side(features, labels, rows[n_population:])
    others = _side(features, labels, rows[:n_population])
    if kind == "adult":
        train, others = _standardised(train, others)
    return Classification(train, others, classes, note)


def _side(features: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> Side:
    """The features (rows, features) and labels (rows,) of these rows, in the types that torch takes."""
    return features[rows].astype(np.float32), labels[rows].astype(np.int64)


def _adult(source: str | None, points: int | None, rng: np.random.Generator) -> Loaded:
    """Numbers stay as they are; every other value becomes a column of 0s and 1s. Incomplete rows are dropped."""
    if source is None:
        remedy = "Set data.source to a CSV with a header and a column income."
        raise BadFile("UCI Adult", "no file is named", remedy)
    table = read_table(source, required=[INCOME])
    # A column of objects may hold integers too, those of 20 digits and more.
    table = table.map(lambda value: value.strip() if isinstance(value, str) else value)
    complete = table.replace("?", np.nan).dropna()

    labels = complete[INCOME].astype(str).str.rstrip(".")
    names = sorted(labels.unique())
    if len(names) != 2:
        problem = f"income has the values {', '.join(names[:5])}"
        raise BadFile(source, problem, "Use two values: <=50K and >50K.")
    is_rich = (labels == names[-1]).to_numpy(np.int64)

    features = pd.get_dummies(complete.drop(columns=INCOME), dtype=np.float32)
    if features.empty:
        raise MissingColumn(source, "age", table.columns)

    note = f"UCI Adult, {len(complete):,} complete rows of {len(table):,}"
    return features.to_numpy(np.float32), is_rich, 2, note


def _standardised(train: Side, others: Side) -> tuple[Side, Side]:
    """Scale features to mean 0 and standard deviation 1 on the training set; constant features become 0."""
    learned = train[0].astype(float)
    mean = learned.mean(axis=0)
    sd = learned.std(axis=0)
    scale = np.where(sd > 0, sd, 1)

    def scaled(features: np.ndarray) -> np.ndarray:
        return ((features - mean) / scale).astype(np.float32)

    return (scaled(train[0]), train[1]), (scaled(others[0]), others[1])


def _purchase(source: str | None, points: int | None, rng: np.random.Generator) -> Loaded:
    """The published file (label from 1, then 600 features, no header), or generated rows."""
    if source is None:
        note = "generated purchases: 600 binary features, 100 classes"
        return *_generated(points or GENERATED, rng), PURCHASE_CLASSES, note

    path = Path(source)
    if not path.is_file():
        remedy = "Set data.source to the file of Purchase-100, or to null."
        raise BadFile(path, "no such file", remedy)
    try:
        values = pd.read_csv(path, header=None, dtype=np.int16).to_numpy()
    except (ValueError, OSError) as error:
        raise BadFile(path, f"cannot be read as Purchase-100 ({error})") from None

    features = values[:, 1:]
    labels = values[:, 0] - values[:, 0].min()
    n_features = features.shape[1]
    if n_features != PURCHASE_FEATURES or labels.max() >= PURCHASE_CLASSES:
        problem = f"has {n_features} features and labels up to {labels.max() + 1}"
        legal = f"Purchase-100 has {PURCHASE_FEATURES} and {PURCHASE_CLASSES}."
        raise BadFile(path, problem, legal)
    return features, labels, PURCHASE_CLASSES, f"Purchase-100, {len(labels):,} rows"


def _generated(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features (rows, `PURCHASE_FEATURES`) of independent bits, and labels (rows,).

    Each class has its own log-odds around a common base. The classes are of unequal size.
    """
    base = rng.normal(-1.5, 1.0, PURCHASE_FEATURES)
    log_odds = base + rng.normal(0, SEPARATION, (PURCHASE_CLASSES, PURCHASE_FEATURES))
    chances = (1 / (1 + np.exp(-log_odds))).astype(np.float32)

    shares = rng.dirichlet(np.full(PURCHASE_CLASSES, 5.0))
    labels = rng.choice(PURCHASE_CLASSES, size=rows, p=shares)

    features = np.empty((rows, PURCHASE_FEATURES), np.uint8)
    # A block at a time: the uniforms of all rows need much memory.
    for start in range(0, rows, 10_000):
        block = slice(start, start + 10_000)
        chances_of_rows = chances[labels[block]]
        features[block] = rng.random(chances_of_rows.shape, np.float32) < chances_of_rows
    return features, labels


def _digits(source: str | None, points: int | None, rng: np.random.Generator) -> Loaded:
    """Grey values of 0 to 16 become numbers of 0 to 1."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    note = "scikit-learn's handwritten digits, 1,797 images of 8 x 8"
    return digits.data / 16, digits.target, 10, note


QUANTITIES = (
    "utility_train",
    "utility_population",
    "epsilon_star",
    "epsilon_star_cut",
    "epsilon_lower",
)
# of a quantity over the runs
SPREAD: dict[str, Callable[..., np.float64]] = {"mean": np.mean, "min": np.min, "max": np.max}
OUT = Path("data/landscapes")
SCRATCH = Path(".lethe/scratch/landscape")
Measured = dict[str, Json]  # a strategy or a whole landscape, under the keys of result.json


class Landscape:
    """All strategies of ``settings``; finished runs are kept below ``scratch``."""

    def __init__(self, settings: LandscapeSettings, scratch: Path = SCRATCH):
        self.settings = settings
        self.scratch = scratch

    @property
    def data(self) -> Classification:
        return _data(self.settings.data)

    @property
    def delta(self) -> float:
        return self.settings.delta or recommended_delta(len(self.data.train[1]))

    def strategies(self) -> list[Strategy]:
        """The baselines, then DP-SGD in every combination of the grid."""
        baseline = self.settings.baseline
        private = self.settings.private
        strategies = [Strategy(epochs, baseline.batch) for epochs in baseline.epochs]
        grid = product(private.epsilons, private.clips, private.batches, private.microbatches)
        for epsilon, clip, batch, groups in grid:
            strategy = Strategy(
                private.epochs,
                batch,
                epsilon=epsilon,
                clip=clip,
                microbatches=groups,
            )
            strategies.append(strategy)
        return strategies

    def place(self, strategy: Strategy, run: int) -> Path:
        """The folder of a run, named for all that decides its losses."""
        settings = self.settings
        of_all_runs = {
            "network": settings.network,
            "optimiser": settings.optimiser,
            "seed": settings.seed,
        }
        key = cache_key(
            "studies.landscape.training",
            settings=of_all_runs,
            data=_content(settings.data),
            delta=self.delta,
            strategy=strategy,
            run=run,
            libraries=versions("numpy", "torch", "opacus", "dp-accounting"),
        )
        return self.scratch / key

    def make(self, strategy: Strategy, run: int) -> None:
        """Train one run of a strategy and write its losses and its utility."""
        settings = self.settings
        training.make(
            data=self.data,
            architecture=settings.network,
            optimiser=settings.optimiser,
            seed=settings.seed,
            delta=self.delta,
            strategy=strategy,
            run=run,
            place=self.place(strategy, run),
        )

    def losses(self, strategy: Strategy, run: int) -> tuple[np.ndarray, np.ndarray]:
        """The losses (rows,) of a run on the training set and on the population."""
        with np.load(self.place(strategy, run) / training.LOSSES) as arrays:
            return arrays["train"], arrays["population"]

    def measure(self, strategy: Strategy) -> Measured:
        """A strategy as it stands in result.json: its runs, and of each quantity mean, least and largest."""
        losses_of_runs = [self.losses(strategy, run) for run in range(self.settings.runs)]
        runs = []
        for run, losses in enumerate(losses_of_runs):
            utility = read_json(self.place(strategy, run) / training.UTILITY)
            runs.append(self._measured_run(losses, utility))

        spreads = {}
        for name in QUANTITIES:
            values = [measured[name] for measured in runs]
            spreads[name] = {what: float(how(values)) for what, how in SPREAD.items()}
        return {
            "name": strategy.name,
            "group": strategy.group,
            **asdict(strategy),
            **spreads,
            "fits_rejected": sum(measured["fit_rejected"] for measured in runs),
            "mechanism": asdict(mechanism_epsilon(losses_of_runs, self.delta)),
            "runs": runs,
        }

    def _measured_run(self, losses: tuple[np.ndarray, np.ndarray], utility: Json) -> Measured:
        """The quantities of a run, and whether the test of fit rejects the Gaussians behind Epsilon*."""
        alpha = self.settings.alpha
        exact = audit(*losses, delta=self.delta, alpha=alpha)
        cut = audit(*losses, delta=self.delta, cut=self.delta, alpha=alpha)
        is_rejected = exact.fit is not None and bool(rejected_sides(exact.fit.ks_p_values))
        return {
            "utility_train": utility["train"],
            "utility_population": utility["population"],
            "epsilon_star": exact.epsilon_star,
            "epsilon_star_cut": cut.epsilon_star,
            "epsilon_lower": exact.epsilon_lower,
            "fit_rejected": is_rejected,
        }

    def result(self, run: Runner = in_processes) -> Measured:
        """All measured strategies; ``frontier`` has the indices of the strategies on the Pareto frontier."""
        strategies = self.strategies()
        data = self.data

        missing = {}  # by place, so that two equal strategies are trained once
        for strategy, index in product(strategies, range(self.settings.runs)):
            place = self.place(strategy, index)
            if not place.is_dir():
                missing[place] = (strategy, index)
        run(self.make, list(missing.values()), "runs")

        arguments = [(strategy,) for strategy in strategies]
        measured: list[Measured] = run(self.measure, arguments, "Epsilon*")

        cost = _ends(measured, "epsilon_star").mean
        benefit = _ends(measured, "utility_population").mean
        finite = np.flatnonzero(np.isfinite(cost))
        best = finite[frontier(cost[finite], benefit[finite])]
        return {
            "data": data.note,
            "n_train": len(data.train[1]),
            "n_population": len(data.population[1]),
            "classes": data.classes,
            "utility": "AUROC" if data.classes == 2 else "accuracy",
            "delta": self.delta,
            "alpha": self.settings.alpha,
            "runs": self.settings.runs,
            "trained": len(missing),
            "frontier": best.tolist(),
            "strategies": measured,
        }

    def transformed_losses(self) -> dict[str, np.ndarray]:
        """The training losses of the longest baseline and of the least epsilon, each on the scale of its Gaussian."""
        strategies = self.strategies()
        baselines = [strategy for strategy in strategies if strategy.epsilon is None]
        private = [strategy for strategy in strategies if strategy.epsilon is not None]
        longest = max(baselines, key=lambda strategy: strategy.epochs)
        tightest = min(private, key=lambda strategy: strategy.epsilon or 0.0)

        transformed = {}
        for side, strategy in {"no DP": longest, "DP": tightest}.items():
            train, population = self.losses(strategy, 0)
            transformed[f"{side}: {strategy.name}"] = Scale.of(train, population).phi(train)
        return transformed


@lru_cache(maxsize=1)
def _data(settings: Data) -> Classification:
    return load(**dict(settings))


@lru_cache(maxsize=1)
def _content(settings: Data) -> str:
    data = _data(settings)
    return digest(*data.train, *data.population, data.classes)


def frontier(cost: np.ndarray, benefit: np.ndarray) -> np.ndarray:
    """Indices of the strategies on the frontier, from the lowest cost to the highest benefit; of equal ones the first.

    It is the part of the convex hull that faces low cost and high benefit (Negoescu et al. 2024, section 4.2). Both
    arrays are (strategies,).
    """
    cost = np.asarray(cost, float)
    benefit = np.asarray(benefit, float)
    hull: list[int] = []
    for i in np.lexsort((-benefit, cost)):
        if hull and benefit[i] <= benefit[hull[-1]]:
            continue  # no lower cost and no higher benefit
        while len(hull) > 1:
            first, last = hull[-2:]
            rise_to_last = benefit[last] - benefit[first]
            run_to_last = cost[last] - cost[first]
            rise = benefit[i] - benefit[first]
            run = cost[i] - cost[first]
            if rise_to_last * run > rise * run_to_last:
                break  # the last one lies above the line from the one before to this one
            hull.pop()
        hull.append(int(i))
    return np.array(hull, dtype=int)


PLACES = 400  # points at which a marginal density is drawn


def landscape(path: Path, result: Measured) -> None:
    """Every strategy's mean Epsilon* and utility with min-max bars, marginal densities of DP and no DP, the frontier."""
    strategies = result["strategies"]
    shown = [strategy for strategy in strategies if np.isfinite(strategy["epsilon_star"]["mean"])]
    panels = picture(
        path,
        6.6,
        4.8,
        nrows=2,
        ncols=2,
        sharex="col",
        sharey="row",
        width_ratios=(4, 1),
        height_ratios=(1, 4),
    )
    with panels as (_, grid):
        (top, corner), (main, side) = grid
        corner.axis("off")

        _draw_strategies(main, shown)
        best = [strategies[place] for place in result["frontier"]]
        main.plot(
            _ends(best, "epsilon_star").mean,
            _ends(best, "utility_population").mean,
            color="#1c1d1f",
            linewidth=0.9,
            linestyle="--",
            label="Pareto frontier",
        )
        main.set(
            xlabel=f"Epsilon* (parametric, no cut, δ = {result['delta']:.2g})",
            ylabel=result["utility"],
        )
        main.set_xlim(left=-0.02 * main.get_xlim()[1])
        main.legend(loc="lower right", fontsize=7, framealpha=0.9, edgecolor="none")

        baselines = [strategy for strategy in shown if strategy["epsilon"] is None]
        private = [strategy for strategy in shown if strategy["epsilon"] is not None]
        groups = {"no DP": baselines, "DP": private}
        for (name, drawn), colour in zip(groups.items(), COLOURS, strict=False):
            style = {"color": colour, "alpha": 0.3, "linewidth": 0, "label": name}
            epsilon = _ends(drawn, "epsilon_star").mean
            if len(set(epsilon)) > 1:  # a density needs two values
                top.fill_between(*_density(epsilon, main.get_xlim()), **style)
            utility = _ends(drawn, "utility_population").mean
            if len(set(utility)) > 1:
                side.fill_betweenx(*_density(utility, main.get_ylim()), **style)
        top.set(yticks=[], title=result["data"])
        side.set(xticks=[])
        top.legend(frameon=False, fontsize=7)


def _draw_strategies(axes: Axes, strategies: Sequence[Measured]) -> None:
    """A mark for each strategy at its means, with bars from the least to the largest run; a colour for each group."""
    strategies_by_group: dict[str, list[Measured]] = {}
    for strategy in strategies:
        strategies_by_group.setdefault(strategy["group"], []).append(strategy)
    for group, colour, mark in zip(strategies_by_group, COLOURS, MARKS, strict=False):
        epsilon = _ends(strategies_by_group[group], "epsilon_star")
        utility = _ends(strategies_by_group[group], "utility_population")
        axes.errorbar(
            epsilon.mean,
            utility.mean,
            yerr=utility.bars(),
            xerr=epsilon.bars(),
            linestyle="none",
            marker=mark,
            markersize=4,
            color=colour,
            elinewidth=0.7,
            label=group,
        )


@dataclass(frozen=True)
class _Spread:
    """A quantity of strategies, (strategies,) each: its mean over the runs, and its least and largest value."""

    mean: np.ndarray
    least: np.ndarray
    largest: np.ndarray

    def bars(self) -> np.ndarray:
        """(2, strategies) the lengths below and above the means; a rounded mean may lie outside its values."""
        return np.maximum([self.mean - self.least, self.largest - self.mean], 0)


def _ends(strategies: Sequence[Measured], quantity: str) -> _Spread:
    """A quantity of strategies as arrays, in their order."""
    spreads = [strategy[quantity] for strategy in strategies]
    return _Spread(
        mean=np.array([spread["mean"] for spread in spreads]),
        least=np.array([spread["min"] for spread in spreads]),
        largest=np.array([spread["max"] for spread in spreads]),
    )


def _density(values: np.ndarray, limits: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian kernel density of the strategies' means within the limits of an axis: `PLACES` and heights.

    The heights are of no unit: the highest is 1.
    """
    least = max(limits[0], 0)  # neither Epsilon* nor utility is negative
    places = np.linspace(least, limits[1], PLACES)
    heights = gaussian_kde(values, "silverman")(places)
    return places, heights / heights.max()


def draw(name: str, changes: Sequence[str], *, keep: bool = False) -> Measured:
    """The result of a preset with these changes, written below `OUT` with its pictures; ``keep`` as in `outcome.Study`."""
    settings = read(name, changes)
    changed = "".join(f" -S {change}" for change in changes)
    seeds_of_runs = range(settings.seed, settings.seed + settings.runs)
    of_study = outcome.Study(
        name=f"landscape-{name}",
        command=f"lethe study landscape {name}{changed}",
        seeds=[settings.data.seed, *seeds_of_runs],
        settings=settings.model_dump(mode="json"),
        keep=keep,
    )
    study = Landscape(settings)
    result = study.result()

    fit = settings.goodness_of_fit
    with atomic_folder(OUT / name) as folder:
        landscape(folder / "landscape.png", result)
        if fit is not None:
            components = range(1, fit.components + 1)
            p_values = {}
            for title, losses in study.transformed_losses().items():
                p_values[title] = fit_p_values(losses, components, fit.samples, settings.seed)
            goodness_of_fit(folder / "goodness-of-fit.png", p_values, components, fit.samples)
            result["goodness_of_fit"] = {
                "components": list(components),
                "samples": fit.samples,
                "p_values": p_values,
            }
        whole = {"schema": SCHEMA_VERSION, "settings": settings.model_dump(), **result}
        write_json(folder / "result.json", whole)

    of_study.finish(summary(result), sorted((OUT / name).glob("*.png")))
    return result


def summary(result: Measured) -> Measured:
    """What an outcome file holds of a result: each strategy's spreads, and what the paper's claims are about."""
    strategies = result["strategies"]
    private = [strategy for strategy in strategies if strategy["epsilon"] is not None]
    baselines = [strategy for strategy in strategies if strategy["epsilon"] is None]
    epsilon_of_private = _ends(private, "epsilon_star").mean
    utility_of_private = _ends(private, "utility_population").mean
    epsilon_of_baselines = _ends(baselines, "epsilon_star").mean
    utility_of_baselines = _ends(baselines, "utility_population").mean

    kept = ("name", *QUANTITIES, "fits_rejected", "mechanism")
    of_strategies = []
    for strategy in strategies:
        of_strategies.append({key: strategy[key] for key in kept})

    values: Measured = {
        "n_train": result["n_train"],
        "n_population": result["n_population"],
        "delta": result["delta"],
        "utility": result["utility"],
        "Epsilon* of DP, largest": float(epsilon_of_private.max()),
        "Epsilon* without DP, smallest": float(epsilon_of_baselines.min()),
        "Epsilon* without DP, largest": float(epsilon_of_baselines.max()),
        "utility of DP, largest": float(utility_of_private.max()),
        "utility without DP, largest": float(utility_of_baselines.max()),
        "frontier": [strategies[place]["name"] for place in result["frontier"]],
        "strategies": of_strategies,
    }
    if "goodness_of_fit" in result:
        values["fits not rejected"] = not_rejected(result["goodness_of_fit"]["p_values"])
    return values


def table(name: str, result: Measured) -> tuple[str, list[str], list[list[object]], list[str]]:
    """The title, the headings, the rows and the notes of the table for people, a row for each strategy."""
    strategies = result["strategies"]
    utility = result["utility"]
    sides = f"{result['n_train']:,} to train on and {result['n_population']:,} others"
    runs = plural(result["runs"], "run")
    delta = f"delta {result['delta']:.3g}"
    title = f"{name}: {result['data']}, {sides}; means of {runs}, {delta}"
    columns = ["strategy", utility, "training", "Epsilon*", "range", "cut", "lower"]
    rows = [_row(strategy) for strategy in strategies]

    best = [strategies[place]["name"] for place in result["frontier"]]
    notes = [
        f"Pareto frontier: {'; '.join(best)}.",
        f"{utility}: on the others; training: on what was learnt.",
        "Epsilon*: parametric, an estimate, with no cut; range: least to most; cut: the paper's, of rates at delta.",
        f"lower: mean of the runs' lower bounds; each holds for its run {level(result['alpha'])}.",
        f"Trained now: {plural(result['trained'], 'run')}; the pictures: data/landscapes/{name}",
    ]
    return title, columns, rows, notes


def _row(strategy: Measured) -> list[object]:
    """The cells of a strategy under the headings of `table`."""
    exact = strategy["epsilon_star"]
    return [
        strategy["name"],
        strategy["utility_population"]["mean"],
        strategy["utility_train"]["mean"],
        f"{exact['mean']:.2f}",
        f"{exact['min']:.2f}–{exact['max']:.2f}",
        f"{strategy['epsilon_star_cut']['mean']:.2f}",
        number(strategy["epsilon_lower"]["mean"], 2, "lower"),
    ]
