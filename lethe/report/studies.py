"""The report's sections on methods over seeds, on epochs, and on what comes back under attack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import plural
from lethe.measure.attack_counts import Curve, curves
from lethe.measure.run import Model, Run
from lethe.report.columns import Column, columns
from lethe.report.figures import Panel, drawing
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.results.quantities import headline
from lethe.statistics.bound import Bound, Side, level
from lethe.text import NONE, number, upper_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class MethodSeeds:
    """A method with its models, one per seed."""

    title: str
    models: list[Model]

    def spread(self, key: str) -> tuple[float, float, float] | None:
        """The mean, the least and the greatest value; None where one of the models has no value."""
        values = []
        for model in self.models:
            value = model.value(key)
            if value is None:
                return None
            values.append(float(value))
        return fmean(values), min(values), max(values)

    def cell(self, key: str, side: Side | None) -> str:
        """The mean, and the least and the greatest value where they differ, each rounded to its side."""
        spread = self.spread(key)
        if spread is None:
            return number(None)
        mean, least, greatest = (number(value, side=side) for value in spread)
        return mean if least == greatest else f"{mean} ({least} to {greatest})"


def spreads(run: Run) -> list[MethodSeeds]:
    """The methods of a run, if at least one of them was trained with several seeds; otherwise an empty list."""
    groups: dict[str, MethodSeeds] = {}
    for model in run.subjects:
        if not model.method or model.adaptive_threshold is not None:
            continue
        method = run.methods[model.method]
        title = f"{method.loss} + entropy" if method.entropy else method.loss
        settings = repr(method.model_copy(update={"seed": None}))
        groups.setdefault(settings, MethodSeeds(title, [])).models.append(model)
    has_several = any(len(group.models) > 1 for group in groups.values())
    return list(groups.values()) if has_several else []


def _columns(run: Run) -> list[Column]:
    """The headlines of the models, and the other numbers that MLflow tracks."""
    groups = columns(run, "model", [model.numbers for model in run.models])
    all_columns = list(chain.from_iterable(members for _, members in groups))
    headlines: set[str] = set()
    for model in run.models:
        headlines.update(headline(model.values))
    in_headlines = {column.quantity for column in all_columns if headlines & {*column.names}}

    shown = []
    for column in all_columns:
        if column.quantity in in_headlines or "tracked" in column.quantity.headlines:
            shown.append(column)
    return shown


Dashes = tuple[float, float]
SEEN = (("confidence", "confidence"), ("entropy", "entropy, nats"))
REFERENCES = (("base", WARM, (4, 1.5)), ("retrain", MUTED, (1, 1.2)))
SPLITS = (("forget", ACCENT), ("retain", MUTED))
SHARES = (0, 0.001, 0.01, 0.1, 0.4, 1)  # the ticks of a share that leaks
DECIMALS = 4  # of a share that leaks: few answers do
Records = Sequence[Mapping[str, float]]
METHODS_NOTE = (
    "Each cell has the mean over the seeds, and in brackets the smallest and the largest value where they differ. All "
    "seeds start from one model. The mean of bounds is no bound."
)
END = "An end of an interval holds in each run by itself,"
ATTACK_HEAD = ("model", "before", "most", "after", "half-life", "excess over Retrain")


@dataclass(frozen=True)
class Attack:
    """The curves of one kind of attack: a panel and a row of the table for each, and what holds for them."""

    title: str
    panels: list[Panel]
    rows: list[list[str]]
    notes: list[str]


@dataclass(frozen=True)
class Studies:
    """The sections on methods over seeds, on epochs, and on attacks; each is empty where the run has none."""

    methods_head: list[str]
    methods: list[list[str]]
    methods_note: str
    epochs: list[Panel]
    attacks: list[Attack]
    attack_head: Sequence[str] = ATTACK_HEAD


def studies(run: Run) -> Studies:
    groups = spreads(run)
    shown = []
    for column in _columns(run):
        if any(group.spread(column.key) for group in groups):
            shown.append(column)
    bound_of_key = {column.key: _first_bound(run, column.key) for column in shown}

    rows = []
    for group, seeds in _rows_of_methods(run, groups):
        cells = []
        for key, bound in bound_of_key.items():
            cells.append(group.cell(key, bound.side if bound else None))
        rows.append([group.title, seeds, *cells])
    guarantees = [f"{END} {bound.guarantee()}." for bound in bound_of_key.values() if bound]
    epochs: list[Panel] = []
    for title, records in _watched(run, groups).items():
        epochs += _epochs(title, records)
    return Studies(
        methods_head=["method", "seeds", *(f"{column.group}: {column.head}" for column in shown)],
        methods=rows,
        methods_note=" ".join([METHODS_NOTE, *dict.fromkeys(guarantees)]),
        epochs=epochs,
        attacks=_attacks(run),
    )


def _first_bound(run: Run, key: str) -> Bound | None:
    for model in run.models:
        if key in model.bounds:
            return model.bounds[key]
    return None


def _rows_of_methods(run: Run, groups: list[MethodSeeds]) -> list[tuple[MethodSeeds, str]]:
    """Base, Retrain and the methods, each with its number of seeds in words; empty without methods."""
    if not groups:
        return []
    rows = []
    for role in ("base", "retrain"):
        reference = run.role(role)
        if reference:
            rows.append((MethodSeeds(reference.name, [reference]), NONE))
    for group in groups:
        rows.append((group, str(len(group.models))))
    return rows


def _watched(run: Run, methods: Sequence[MethodSeeds]) -> dict[str, list[Records]]:
    """What was observed by epoch: the seeds of one method together, any other model by itself."""
    records_of_title: dict[str, list[Records]] = {}
    together: set[str] = set()
    for group in methods:
        methods_of_models = [model.method for model in group.models]
        names = [name for name in methods_of_models if name and name in run.epochs]
        if not names:
            continue
        together.update(names)
        has_own_title = len(names) > 1 and group.title not in records_of_title
        title = group.title if has_own_title else names[0]
        records_of_title[title] = [run.epochs[name] for name in names]
    for name, records in run.epochs.items():
        if name not in together:
            records_of_title[name] = [records]
    return records_of_title


def _epochs(title: str, seeds: Sequence[Records]) -> Iterator[Panel]:
    """Confidence and entropy on both splits, before the first step (epoch 0) and after each epoch, a line per seed."""
    if len(seeds) == 1:
        averaged, width = "", 1.6
    else:
        averaged, width = f", mean of {len(seeds)} seeds", 0.9
    for key, words in SEEN:
        values = []
        for split, _ in SPLITS:
            last = fmean(records[-1][f"{split}_{key}"] for records in seeds)
            values.append(f"{split} {number(last)}")
        panel = Panel(f"{title}: {words}", f"at the end{averaged}: {', '.join(values)}")
        with drawing(panel, "epochs-" + re.sub(r"[^\w-]+", "-", f"{title}-{key}")) as axes:
            for split, colour in SPLITS:
                for records in seeds:
                    epochs = [record["epoch"] + 1 for record in records]
                    observed = [record[f"{split}_{key}"] for record in records]
                    axes.plot(epochs, observed, color=colour, linewidth=width)
            axes.set(xlabel="epoch", ylim=(0, None))
        yield panel


def _attacks(run: Run) -> list[Attack]:
    base = run.role("base")
    retrain = run.role("retrain")
    base_path = base.path if base else None
    retrain_path = retrain.path if retrain else None
    curves_of_title: dict[str, list[Curve]] = {}
    for curve in curves(run.attacks, base_path, retrain_path):
        curves_of_title.setdefault(curve.result.title, []).append(curve)
    return [_attack(title, members) for title, members in curves_of_title.items()]


def _attack(title: str, members: list[Curve]) -> Attack:
    references = []
    for curve in members:
        for role, colour, dashes in REFERENCES:
            if curve.role == role:
                references.append((curve, colour, dashes))
    has_subjects = len(members) > len(references)
    panels = []
    for curve in members:
        if curve.role == "subject" or not has_subjects:
            panels.append(_attack_panel(curve, references))
    rows = [_row(curve) for curve in members]
    return Attack(title, panels, rows, _notes(members))


def _attack_panel(curve: Curve, references: Sequence[tuple[Curve, str, Dashes]]) -> Panel:
    """A curve with its band and the mean of each seed, and the references of equal length."""
    means_of_seed: dict[int, dict[float, float]] = {}
    for point in curve.result.by_seed:
        means_of_seed.setdefault(point.seed, {})[point.budget] = point.mean
    panel = Panel(curve.name, plural(len(means_of_seed), "seed"))
    with drawing(panel, f"attack-{curve.name}") as axes:
        places = range(len(curve.points))
        for other, colour, dashes in references:
            if other is not curve and len(other.points) == len(curve.points):
                means = [point.mean for point in other.points]
                axes.plot(places, means, color=colour, dashes=dashes, linewidth=1.1)
        lower = [point.lower.value for point in curve.points]
        upper = [point.upper.value for point in curve.points]
        axes.fill_between(places, lower, upper, color=ACCENT, alpha=0.22, linewidth=0)
        axes.plot(places, [point.mean for point in curve.points], color=ACCENT)
        for seed in sorted(means_of_seed):
            marks = [means_of_seed[seed][point.budget] for point in curve.points]
            axes.plot(places, marks, ".", color=INK, markersize=3)
        leakage_against(axes, curve)
    return panel


def leakage_against(axes: Axes, curve: Curve) -> None:
    """Set the scales and ticks of a panel: leakage on a scale that shows one in a thousand, budgets in equal steps."""
    axes.set_yscale("function", functions=(_fourth_root, lambda root: root**4))
    axes.set(ylim=(0, 1.05), xlabel=curve.result.budget)
    axes.set_yticks(SHARES, [f"{share:g}" for share in SHARES])
    axes.minorticks_off()
    axes.set_xticks(range(len(curve.points)), [f"{point.budget:g}" for point in curve.points])


def _fourth_root(share: np.ndarray) -> np.ndarray:
    return np.maximum(share, 0) ** 0.25


def _row(curve: Curve) -> list[str]:
    most = max(curve.points, key=lambda point: point.mean)
    excess_there = NONE
    for excess in curve.excess:
        if excess.budget == most.budget:
            excess_there = _within(excess.estimate, excess.lower, excess.upper)
            break
    return [
        curve.name,
        number(curve.points[0].mean, DECIMALS),
        _within(most.mean, most.lower, most.upper),
        f"{most.budget:g}",
        _half_life(curve),
        excess_there,
    ]


def _half_life(curve: Curve) -> str:
    half_life = curve.half_life
    if not half_life:
        return NONE
    if half_life.earliest is None:
        return "not reached"
    earliest, latest = _budget(half_life.earliest), _budget(half_life.latest)
    return f"{_budget(half_life.estimate)} ({earliest} to {latest})"


def _budget(budget: float | None) -> str:
    return "not reached" if budget is None else f"{budget:g}"


def _within(estimate: float, lower: Bound, upper: Bound) -> str:
    return f"{number(estimate, DECIMALS)} ({lower.number(DECIMALS)} to {upper.number(DECIMALS)})"


def _notes(members: list[Curve]) -> list[str]:
    """What holds for the curves of an attack, and what is not known."""
    result = members[0].result
    bound = members[0].points[0].upper
    seeds = len(result.seeds)
    attacked = "the one attacked model" if seeds == 1 else f"the {seeds} attacked models"
    notes = [
        f"{upper_first(result.budget)}; each curve's band holds at all budgets together "
        f"{bound.on('the asked questions')}, {bound.level()}, assuming {bound.assumes} ({bound.method}). "
        f"It is about {attacked} of a curve, not about the attack: another seed of the attack can bring back more."
    ]
    if any(curve.half_life for curve in members):
        two_bands = level(2 * bound.alpha)
        notes.append(f"The range of a half-life rests on Base's band too, and holds {two_bands}.")
    excesses = list(chain.from_iterable(curve.excess for curve in members))
    if excesses:
        together = excesses[0].lower.level()
        notes.append(f"The excess over Retrain at all budgets holds together {together}.")
    if not any(curve.role == "retrain" for curve in members):
        notes.append("Retrain was not attacked in this way, so no excess is known.")
    return notes
