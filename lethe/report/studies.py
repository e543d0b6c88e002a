"""The report's sections on methods over seeds, on epochs, and on what comes back under attack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import plural
from lethe.evaluation.attack_counts import Curve, curves
from lethe.evaluation.run import Model, Run
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
        values = [float(value) for model in self.models if (value := model.value(key)) is not None]
        return (
            (fmean(values), min(values), max(values)) if len(values) == len(self.models) else None
        )

    def cell(self, key: str, side: Side | None) -> str:
        mean, least, greatest = (number(one, side=side) for one in self.spread(key) or (None,) * 3)
        return mean if least == greatest else f"{mean} ({least} to {greatest})"


def spreads(run: Run) -> list[MethodSeeds]:
    """The methods of a run, if at least one of them was trained with several seeds; otherwise an empty list."""
    groups: dict[str, list[Model]] = {}
    titles: dict[str, str] = {}
    for model in run.subjects:
        if model.method and model.adaptive_threshold is None:
            method = run.methods[model.method]
            own = repr(method.model_copy(update={"seed": None}))
            groups.setdefault(own, []).append(model)
            titles.setdefault(own, f"{method.loss} + entropy" if method.entropy else method.loss)
    several = any(len(models) > 1 for models in groups.values())
    return [MethodSeeds(titles[own], models) for own, models in groups.items()] if several else []


def _columns(run: Run) -> list[Column]:
    """The headlines of the models, and the other numbers that MLflow tracks."""
    every = [
        column
        for _, own in columns(run, "model", [model.numbers for model in run.models])
        for column in own
    ]
    keys = {name for model in run.models for name in headline(model.values)}
    shown = {column.quantity for column in every if keys & {*column.names}}
    return [
        column
        for column in every
        if column.quantity in shown or "tracked" in column.quantity.headlines
    ]


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


def studies(run: Run) -> SimpleNamespace:
    groups = spreads(run)
    shown = [column for column in _columns(run) if any(one.spread(column.key) for one in groups)]
    bounds = {
        column.key: [m.bounds[column.key] for m in run.models if column.key in m.bounds]
        for column in shown
    }
    sides = {key: own[0].side if own else None for key, own in bounds.items()}
    alone = [
        (MethodSeeds(one.name, [one]), NONE)
        for role in ("base", "retrain")
        if (one := run.role(role))
    ]
    rows = [*alone, *((one, str(len(one.models))) for one in groups)] if groups else []
    guarantees = dict.fromkeys(f"{END} {own[0].guarantee()}." for own in bounds.values() if own)
    return SimpleNamespace(
        methods_head=["method", "seeds", *(f"{column.group}: {column.head}" for column in shown)],
        methods=[
            [one.title, seeds, *(one.cell(key, side) for key, side in sides.items())]
            for one, seeds in rows
        ],
        methods_note=" ".join([METHODS_NOTE, *guarantees]),
        epochs=[
            panel
            for title, seeds in _watched(run, groups).items()
            for panel in _epochs(title, seeds)
        ],
        attacks=_attacks(run),
        attack_head=ATTACK_HEAD,
    )


def _watched(run: Run, methods: Sequence[MethodSeeds]) -> dict[str, list[Records]]:
    """What was observed by epoch: the seeds of one method together, any other model by itself."""
    groups: dict[str, list[Records]] = {}
    together = set()
    for one in methods:
        names = [
            model.method for model in one.models if model.method and model.method in run.epochs
        ]
        if names:
            together.update(names)
            title = one.title if len(names) > 1 and one.title not in groups else names[0]
            groups[title] = [run.epochs[name] for name in names]
    return groups | {
        name: [records] for name, records in run.epochs.items() if name not in together
    }


def _epochs(title: str, seeds: Sequence[Records]) -> Iterator[Panel]:
    """Confidence and entropy on both splits, before the first step (epoch 0) and after each epoch, a line per seed."""
    of, width = ("", 1.6) if len(seeds) == 1 else (f", mean of {len(seeds)} seeds", 0.9)
    for key, words in SEEN:
        ends = {
            split: fmean(records[-1][f"{split}_{key}"] for records in seeds) for split, _ in SPLITS
        }
        values = ", ".join(f"{split} {number(end)}" for split, end in ends.items())
        panel = Panel(f"{title}: {words}", f"at the end{of}: {values}")
        with drawing(panel, "epochs-" + re.sub(r"[^\w-]+", "-", f"{title}-{key}")) as axes:
            for split, colour in SPLITS:
                for records in seeds:
                    epochs, own = zip(
                        *((one["epoch"] + 1, one[f"{split}_{key}"]) for one in records), strict=True
                    )
                    axes.plot(epochs, own, color=colour, linewidth=width)
            axes.set(xlabel="epoch", ylim=(0, None))
        yield panel


def _attacks(run: Run) -> list[SimpleNamespace]:
    base, retrain = run.role("base"), run.role("retrain")
    every = curves(run.attacks, base.path if base else None, retrain.path if retrain else None)
    titles = dict.fromkeys(curve.result.title for curve in every)
    return [
        _attack(title, [curve for curve in every if curve.result.title == title])
        for title in titles
    ]


def _attack(title: str, own: list[Curve]) -> SimpleNamespace:
    beside = [
        (curve, colour, dash)
        for curve in own
        for role, colour, dash in REFERENCES
        if curve.role == role
    ]
    panels = []
    for curve in own:
        if curve.role != "subject" and len(own) > len(beside):
            continue
        panel = Panel(curve.name, plural(len({one.seed for one in curve.result.by_seed}), "seed"))
        with drawing(panel, f"attack-{curve.name}") as axes:
            places = range(len(curve.points))
            for other, colour, dashes in beside:
                if other is not curve and len(other.points) == len(curve.points):
                    axes.plot(
                        places,
                        [point.mean for point in other.points],
                        color=colour,
                        dashes=dashes,
                        linewidth=1.1,
                    )
            lower, upper = (
                [getattr(point, side).value for point in curve.points]
                for side in ("lower", "upper")
            )
            axes.fill_between(places, lower, upper, color=ACCENT, alpha=0.22, linewidth=0)
            axes.plot(places, [point.mean for point in curve.points], color=ACCENT)
            for seed in sorted({one.seed for one in curve.result.by_seed}):
                means = {one.budget: one.mean for one in curve.result.by_seed if one.seed == seed}
                marks = [means[point.budget] for point in curve.points]
                axes.plot(places, marks, ".", color=INK, markersize=3)
            leakage_against(axes, curve)
        panels.append(panel)
    return SimpleNamespace(
        title=title, panels=panels, rows=[_row(curve) for curve in own], notes=_notes(own)
    )


def leakage_against(axes: Axes, curve: Curve) -> None:
    """Set the scales and ticks of a panel: leakage on a scale that shows one in a thousand, budgets in equal steps."""
    axes.set_yscale(
        "function", functions=(lambda share: np.maximum(share, 0) ** 0.25, lambda root: root**4)
    )
    axes.set(ylim=(0, 1.05), xlabel=curve.result.budget)
    axes.set_yticks(SHARES, [f"{share:g}" for share in SHARES])
    axes.minorticks_off()
    axes.set_xticks(range(len(curve.points)), [f"{point.budget:g}" for point in curve.points])


def _row(curve: Curve) -> list[str]:
    most = max(curve.points, key=lambda point: point.mean)
    excess = next((one for one in curve.excess if one.budget == most.budget), None)
    half, life = curve.half_life, NONE
    if half:
        estimate, *ends = (
            "not reached" if one is None else f"{one:g}"
            for one in (half.estimate, half.earliest, half.latest)
        )
        life = "not reached" if half.earliest is None else f"{estimate} ({' to '.join(ends)})"
    return [
        curve.name,
        number(curve.points[0].mean, DECIMALS),
        _within(most.mean, most.lower, most.upper),
        f"{most.budget:g}",
        life,
        _within(excess.estimate, excess.lower, excess.upper) if excess else NONE,
    ]


def _within(estimate: float, lower: Bound, upper: Bound) -> str:
    return f"{number(estimate, DECIMALS)} ({lower.number(DECIMALS)} to {upper.number(DECIMALS)})"


def _notes(own: list[Curve]) -> list[str]:
    bound = own[0].points[0].upper
    seeds = len(own[0].result.seeds)
    attacked = "the one attacked model" if seeds == 1 else f"the {seeds} attacked models"
    notes = [
        f"{upper_first(own[0].result.budget)}; each curve's band holds at all budgets together "
        f"{bound.on('the asked questions')}, {bound.level()}, assuming {bound.assumes} ({bound.method}). "
        f"It is about {attacked} of a curve, not about the attack: another seed of the attack can bring back more."
    ]
    if any(curve.half_life for curve in own):
        notes.append(
            f"The range of a half-life rests on Base's band too, and holds {level(2 * bound.alpha)}."
        )
    if any(curve.excess for curve in own):
        excess = next(curve.excess[0].lower for curve in own if curve.excess)
        notes.append(f"The excess over Retrain at all budgets holds together {excess.level()}.")
    if not any(curve.role == "retrain" for curve in own):
        notes.append("Retrain was not attacked in this way, so no excess is known.")
    return notes
