"""The report's sections on epochs, and on what comes back under attack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import plural
from lethe.measure.attack_counts import Curve, curves
from lethe.measure.run import Run, RunModel
from lethe.report.figures import Panel, drawing
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.statistics.bound import Bound, level
from lethe.text import NONE, number, upper_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Dashes = tuple[float, float]
SEEN = (("confidence", "confidence"), ("entropy", "entropy, nats"))
REFERENCES = (("base", WARM, (4, 1.5)), ("retrain", MUTED, (1, 1.2)))
SPLITS = (("forget", ACCENT), ("retain", MUTED))
SHARES = (0, 0.001, 0.01, 0.1, 0.4, 1)  # the ticks of a share that leaks
DECIMALS = 4  # of a share that leaks: few answers do
Records = Sequence[Mapping[str, float]]
ATTACK_HEAD = ("model", "before", "most", "after", "half-life", "excess over Retrain")


@dataclass(frozen=True)
class Attack:
    """The curves of one kind of attack: a panel and a row of the table for each, and what holds for them."""

    title: str
    panels: list[Panel]
    rows: list[list[str]]  # the cells of `ATTACK_HEAD`
    notes: list[str]


@dataclass(frozen=True)
class Studies:
    """The sections on epochs and on attacks; each is empty where the run has none."""

    epochs: list[Panel]
    attacks: list[Attack]
    attack_head: Sequence[str] = ATTACK_HEAD


def studies(run: Run) -> Studies:
    """What was measured along training and under attacks, as panels of the page."""
    epochs: list[Panel] = []
    for title, records in _watched(run).items():
        epochs += _epochs(title, records)

    return Studies(
        epochs=epochs,
        attacks=_attacks(run),
    )


def _watched(run: Run) -> dict[str, list[Records]]:
    """What was observed by epoch: the seeds of one method together, any other model by itself."""
    records_of_title: dict[str, list[Records]] = {}
    for name, records in run.epochs.items():
        title = name
        method = run.methods.get(name)
        if method is not None and method.same_as is not None:
            title = method.same_as
        records_of_title.setdefault(title, []).append(records)
    return records_of_title


def _epochs(title: str, seeds: Sequence[Records]) -> Iterator[Panel]:
    """Confidence and entropy on both splits, before the first step (epoch 0) and after each epoch, a line per seed."""
    averaged = ""
    width = 1.6
    if len(seeds) > 1:
        averaged = f", mean of {len(seeds)} seeds"
        width = 0.9
    for key, words in SEEN:
        values = []
        for split, _ in SPLITS:
            last = fmean(records[-1][f"{split}_{key}"] for records in seeds)
            values.append(f"{split} {number(last)}")

        panel = Panel(f"{title}: {words}", f"at the end{averaged}: {', '.join(values)}")
        name = re.sub(r"[^\w-]+", "-", f"{title}-{key}")
        with drawing(panel, f"epochs-{name}") as axes:
            for split, colour in SPLITS:
                for records in seeds:
                    epochs = [record["epoch"] + 1 for record in records]
                    observed = [record[f"{split}_{key}"] for record in records]
                    axes.plot(epochs, observed, color=colour, linewidth=width)
            axes.set(xlabel="epoch", ylim=(0, None))
        yield panel


def _attacks(run: Run) -> list[Attack]:
    """The attacks of a run, the curves of equal title together."""
    base_path = _path(run.role("base"))
    retrain_path = _path(run.role("retrain"))

    curves_of_title: dict[str, list[Curve]] = {}
    for curve in curves(run.attacks, base_path, retrain_path):
        curves_of_title.setdefault(curve.result.title, []).append(curve)

    attacks = []
    for title, members in curves_of_title.items():
        attacks.append(_attack(title, members))
    return attacks


def _path(model: RunModel | None) -> str | None:
    """The folder of a model's weights, by which an attack names its model."""
    if model is None:
        return None
    return model.path


def _attack(title: str, members: list[Curve]) -> Attack:
    """Panels of the models under test, or of the references where only these were attacked."""
    references = []
    for curve in members:
        for role, colour, dashes in REFERENCES:
            if curve.role == role:
                references.append(_Reference(curve, colour, dashes))
    has_subjects = len(members) > len(references)

    panels = []
    rows = []
    for curve in members:
        rows.append(_row(curve))
        if curve.role == "subject" or not has_subjects:
            panels.append(_attack_panel(curve, references))
    return Attack(title, panels, rows, _notes(members))


@dataclass(frozen=True)
class _Reference:
    """The curve of Base or Retrain under the same attack, and how it is drawn."""

    curve: Curve
    colour: str
    dashes: Dashes


def _attack_panel(curve: Curve, references: Sequence[_Reference]) -> Panel:
    """A curve with its band and the mean of each seed, and the references of equal length."""
    means_of_seed: dict[int, dict[float, float]] = {}
    for point in curve.result.by_seed:
        means_of_seed.setdefault(point.seed, {})[point.budget] = point.mean

    panel = Panel(curve.name, plural(len(means_of_seed), "seed"))
    with drawing(panel, f"attack-{curve.name}") as axes:
        places = range(len(curve.points))
        for reference in references:
            points = reference.curve.points
            if reference.curve is curve or len(points) != len(curve.points):
                continue
            means = [point.mean for point in points]
            dashes = reference.dashes
            axes.plot(places, means, color=reference.colour, dashes=dashes, linewidth=1.1)

        lower = [point.lower.value for point in curve.points]
        upper = [point.upper.value for point in curve.points]
        axes.fill_between(places, lower, upper, color=ACCENT, alpha=0.22, linewidth=0)

        means = [point.mean for point in curve.points]
        axes.plot(places, means, color=ACCENT)

        for seed in sorted(means_of_seed):
            marks = [means_of_seed[seed][point.budget] for point in curve.points]
            axes.plot(places, marks, ".", color=INK, markersize=3)
        leakage_against(axes, curve)
    return panel


def leakage_against(axes: Axes, curve: Curve) -> None:
    """Set the scales and ticks of a panel: leakage on a scale that shows one in a thousand, budgets in equal steps."""
    axes.set_yscale("function", functions=(_fourth_root, _fourth_power))
    axes.set(ylim=(0, 1.05), xlabel=curve.result.budget)
    axes.set_yticks(SHARES, [f"{share:g}" for share in SHARES])
    axes.minorticks_off()
    budgets = [f"{point.budget:g}" for point in curve.points]
    axes.set_xticks(range(len(budgets)), budgets)


def _fourth_root(share: np.ndarray) -> np.ndarray:
    """The scale of a panel; a value below 0, as in a margin, counts as 0."""
    return np.maximum(share, 0) ** 0.25


def _fourth_power(root: np.ndarray) -> np.ndarray:
    return root**4


def _row(curve: Curve) -> list[str]:
    """The cells of `ATTACK_HEAD`; the most is that of the budget with the highest mean."""
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
    """The budget at which half of Base's leakage is back, with its range; a dash where there is none."""
    half_life = curve.half_life
    if not half_life:
        return NONE
    if half_life.earliest is None:
        return "not reached"
    estimate = _budget(half_life.estimate)
    earliest = _budget(half_life.earliest)
    latest = _budget(half_life.latest)
    return f"{estimate} ({earliest} to {latest})"


def _budget(budget: float | None) -> str:
    if budget is None:
        return "not reached"
    return f"{budget:g}"


def _within(estimate: float, lower: Bound, upper: Bound) -> str:
    ends = f"{lower.number(DECIMALS)} to {upper.number(DECIMALS)}"
    return f"{number(estimate, DECIMALS)} ({ends})"


def _notes(members: list[Curve]) -> list[str]:
    """What holds for the curves of an attack, and what is not known."""
    result = members[0].result
    bound = members[0].points[0].upper
    seeds = len(result.seeds)
    attacked = f"the {seeds} attacked models"
    if seeds == 1:
        attacked = "the one attacked model"
    notes = [
        f"{upper_first(result.budget)}; each curve's band holds at all budgets together "
        f"{bound.on('the asked questions')}, {bound.level()}, assuming {bound.assumes} ({bound.method}). "
        f"It is about {attacked} of a curve, not about the attack: another seed of the attack can bring back more."
    ]

    if any(curve.half_life for curve in members):
        two_bands = level(2 * bound.alpha)
        notes.append(f"The range of a half-life rests on Base's band too, and holds {two_bands}.")

    for curve in members:
        if curve.excess:
            together = curve.excess[0].lower.level()
            notes.append(f"The excess over Retrain at all budgets holds together {together}.")
            break
    if not any(curve.role == "retrain" for curve in members):
        notes.append("Retrain was not attacked in this way, so no excess is known.")
    return notes
