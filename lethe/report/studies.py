"""The report's sections on methods over seeds, on epochs, and on what comes back under attack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.schema import MethodParams
from lethe.errors import plural
from lethe.evaluation.attack_counts import Curve, curves
from lethe.evaluation.run import Model, Run
from lethe.report.columns import Column, columns
from lethe.report.figures import Panel, drawing
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.results.quantities import headline
from lethe.statistics.bound import Bound
from lethe.statistics.many_prompts import HalfLife
from lethe.text import NONE, Rounding, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Spread:
    mean: float
    least: float
    greatest: float


@dataclass(frozen=True)
class MethodSeeds:
    """A method with all its seeds; ``quantities`` omits each quantity that one of the models lacks."""

    loss: str
    entropy: bool
    models: list[str]
    quantities: dict[str, Spread]


def spreads(run: Run) -> list[MethodSeeds]:
    """The methods of a run, if at least one of them was trained with several seeds; otherwise an empty list."""
    groups: dict[str, list[Model]] = {}
    for model in run.subjects:
        if model.method and model.adaptive_threshold is None:
            own = run.methods[model.method].model_copy(update={"seed": None})
            groups.setdefault(repr(own), []).append(model)
    if all(len(models) == 1 for models in groups.values()):
        return []
    keys = [column.key for column in _columns(run)]
    return [_of(models, run.methods[models[0].method or ""], keys) for models in groups.values()]


def _columns(run: Run) -> list[Column]:
    """The headlines of the models, and the other numbers that MLflow tracks."""
    every = [column for _, own in columns(run, "model", [model.numbers for model in run.models]) for column in own]
    keys = {name for model in run.models for name in headline(model.values)}
    shown = {column.quantity for column in every if keys & {*column.names}}
    return [column for column in every if column.quantity in shown or "tracked" in column.quantity.headlines]


def _of(models: list[Model], method: MethodParams, keys: Sequence[str]) -> MethodSeeds:
    found = {}
    for key in keys:
        values = [float(value) for model in models if (value := model.value(key)) is not None]
        if len(values) == len(models):
            found[key] = Spread(fmean(values), min(values), max(values))
    return MethodSeeds(method.loss, method.entropy is not None, [model.name for model in models], found)


SEEN = (("confidence", "confidence"), ("entropy", "entropy, nats"))
REFERENCES = (("base", WARM, (4, 1.5)), ("retrain", MUTED, (1, 1.2)))
SPLITS = (("forget", ACCENT), ("retain", MUTED))
SHARES = (0, 0.001, 0.01, 0.1, 0.4, 1)  # the ticks of a share that leaks
DECIMALS = 4  # of a share that leaks: few answers do
Records = Sequence[Mapping[str, float]]
METHODS_NOTE = (
    "Each cell has the mean over the seeds, and in brackets the smallest and the largest value. The spread is that of "
    "unlearning: all seeds start from one model. The mean of bounds over the seeds is no bound."
)
END = "An end of an interval holds in each run by itself,"
ROUNDING: Mapping[str, Rounding] = {"upper": "up", "lower": "down"}
ATTACK_HEAD = ("model", "before", "most", "after", "half-life", "excess over Retrain")


def studies(run: Run) -> SimpleNamespace:
    found = spreads(run)
    shown = [column for column in _columns(run) if any(column.key in one.quantities for one in found)]
    ends = {column.key: bound for column in shown if (bound := _end(column.key, run))}
    keys = {column.key: ROUNDING[ends[column.key].side] if column.key in ends else "near" for column in shown}
    return SimpleNamespace(
        methods_head=["method", "seeds", *(f"{column.group}: {column.head}" for column in shown)],
        references=[_reference_row(model, keys) for role in ("base", "retrain") if (model := run.role(role))],
        methods=[_method_row(one, keys) for one in found],
        epochs=[panel for title, seeds in _watched(run, found).items() for panel in _epochs(title, seeds)],
        attacks=_attacks(run),
        attack_head=ATTACK_HEAD,
        methods_note=" ".join(
            [METHODS_NOTE, *dict.fromkeys(f"{END} {bound.guarantee()}." for bound in ends.values())]
        ),
    )


def _end(key: str, run: Run) -> Bound | None:
    return next((model.bounds[key] for model in run.models if key in model.bounds), None)


def _reference_row(model: Model, shown: Mapping[str, Rounding]) -> list[str]:
    return [model.name, NONE, *(number(model.value(key), rounding=rounding) for key, rounding in shown.items())]


def _method_row(one: MethodSeeds, shown: Mapping[str, Rounding]) -> list[str]:
    spreads = [_spread(one.quantities.get(key), rounding) for key, rounding in shown.items()]
    return [_title(one), str(len(one.models)), *spreads]


def _spread(value: Spread | None, rounding: Rounding) -> str:
    if value is None:
        return NONE
    mean, least, greatest = (number(one, rounding=rounding) for one in (value.mean, value.least, value.greatest))
    return f"{mean} ({least} to {greatest})"


def _title(one: MethodSeeds) -> str:
    return f"{one.loss} + entropy" if one.entropy else one.loss


def _watched(run: Run, found: Sequence[MethodSeeds]) -> dict[str, list[Records]]:
    """What was observed by epoch: the seeds of one method together, any other model by itself."""
    made = {model.name: model.method or "" for model in run.models}
    groups: dict[str, list[Records]] = {}
    together = set()
    for one in found:
        names = [made[name] for name in one.models if made[name] in run.epochs]
        if names:
            together.update(names)
            title = _title(one) if len(names) > 1 and _title(one) not in groups else names[0]
            groups[title] = [run.epochs[name] for name in names]
    return groups | {name: [records] for name, records in run.epochs.items() if name not in together}


def _epochs(title: str, seeds: Sequence[Records]) -> Iterator[Panel]:
    """Confidence and entropy on both splits, before the first step (epoch 0) and after each epoch, a line per seed."""
    for key, words in SEEN:
        panel = Panel(f"{title}: {words}")
        name = "epochs-" + re.sub(r"[^\w-]+", "-", f"{title}-{key}")
        ends = {split: fmean(records[-1][f"{split}_{key}"] for records in seeds) for split, _ in SPLITS}
        told = ", ".join(f"{split} {number(end)}" for split, end in ends.items())
        panel.note = (
            f"at the end: {told}" if len(seeds) == 1 else f"at the end, mean of {len(seeds)} seeds: {told}"
        )
        with drawing(panel, name) as axes:
            for split, colour in SPLITS:
                for records in seeds:
                    epochs = [record["epoch"] + 1 for record in records]
                    axes.plot(
                        epochs,
                        [record[f"{split}_{key}"] for record in records],
                        color=colour,
                        linewidth=1.6 if len(seeds) == 1 else 0.9,
                    )
            axes.set(xlabel="epoch", ylim=(0, None))
        yield panel


def _attacks(run: Run) -> list[SimpleNamespace]:
    base, retrain = run.role("base"), run.role("retrain")
    found = curves(run.attacks, base.path if base else None, retrain.path if retrain else None)
    titles = dict.fromkeys(curve.title for curve in found)
    return [_attack(title, [curve for curve in found if curve.title == title]) for title in titles]


def _attack(title: str, own: list[Curve]) -> SimpleNamespace:
    beside = [
        (curve, colour, dashes) for curve in own for role, colour, dashes in REFERENCES if curve.role == role
    ]
    panels = []
    for curve in own:
        if curve.role != "subject" and len(own) > len(beside):
            continue
        panel = Panel(curve.name, plural(len({one.seed for one in curve.by_seed}), "seed"))
        with drawing(panel, f"attack-{curve.name}") as axes:
            places = range(len(curve.points))
            for other, colour, dashes in beside:
                if other is not curve and len(other.points) == len(curve.points):
                    axes.plot(
                        places, [point.mean for point in other.points], color=colour, dashes=dashes, linewidth=1.1
                    )
            lower, upper = ([getattr(point, side).value for point in curve.points] for side in ("lower", "upper"))
            axes.fill_between(places, lower, upper, color=ACCENT, alpha=0.22, linewidth=0)
            axes.plot(places, [point.mean for point in curve.points], color=ACCENT)
            for seed in sorted({one.seed for one in curve.by_seed}):
                means = {one.budget: one.mean for one in curve.by_seed if one.seed == seed}
                marks = [means[point.budget] for point in curve.points]
                axes.plot(places, marks, ".", color=INK, markersize=3)
            leakage_against(axes, curve)
        panels.append(panel)
    return SimpleNamespace(title=title, panels=panels, rows=[_row(curve) for curve in own], notes=_notes(own))


def leakage_against(axes: Axes, curve: Curve) -> None:
    """Set the scales and ticks of a panel: leakage on a scale that shows one in a thousand, budgets in equal steps."""
    axes.set_yscale("function", functions=(lambda share: np.maximum(share, 0) ** 0.25, lambda root: root**4))
    axes.set(ylim=(0, 1.05), xlabel=curve.budget)
    axes.set_yticks(SHARES, [f"{share:g}" for share in SHARES])
    axes.minorticks_off()
    axes.set_xticks(range(len(curve.points)), [f"{point.budget:g}" for point in curve.points])


def _row(curve: Curve) -> list[str]:
    most = max(curve.points, key=lambda point: point.mean)
    excess = next((one for one in curve.excess if one.budget == most.budget), None)
    half = curve.half_life
    return [
        curve.name,
        number(curve.points[0].mean, DECIMALS),
        f"{number(most.mean, DECIMALS)} ({_between(most.lower, most.upper)})",
        f"{most.budget:g}",
        NONE if half is None else _half_life(half),
        NONE
        if excess is None
        else f"{number(excess.estimate, DECIMALS)} ({_between(excess.lower, excess.upper)})",
    ]


def _between(lower: Bound, upper: Bound) -> str:
    return f"{lower.number(DECIMALS)} to {upper.number(DECIMALS)}"


def _half_life(half: HalfLife) -> str:
    if half.earliest is None:
        return "not reached"
    return f"{_budget(half.estimate)} ({_budget(half.earliest)} to {_budget(half.latest)})"


def _budget(value: float | None) -> str:
    return "not reached" if value is None else f"{value:g}"


def _notes(own: list[Curve]) -> list[str]:
    bound = own[0].points[0].upper
    notes = [
        f"{own[0].budget[:1].upper()}{own[0].budget[1:]}; each curve's band holds at all budgets together "
        f"{bound.on('the asked questions')}, {bound.level()}, assuming {bound.assumes} ({bound.method})."
    ]
    if any(curve.excess for curve in own):
        told = next(curve.excess[0].lower for curve in own if curve.excess)
        notes.append(f"The excess over Retrain at all budgets holds together {told.level()}.")
    if not any(curve.role == "retrain" for curve in own):
        notes.append("Retrain was not attacked in this way, so no excess is known.")
    return notes
