"""The report's figures: small panels of one kind each, a panel a model, all on the same axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from stages.reporting import svg
from stages.reporting.run import Model, Run
from stages.reporting.svg import ACCENT, INK, MUTED, WARM
from stages.reporting.text import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 25
SOLID_AND_DASHED = (("", {"linewidth": 1.6}), ("_bound", {"linewidth": 1.1, "dashes": (3, 1.6)}))


@dataclass
class Panel:
    title: str
    note: str = ""
    svg: Markup = Markup("")


@dataclass(frozen=True)
class Chosen:
    """The one question whose distribution is shown, and why this one."""

    prompt_id: str
    why: str


def chosen_question(run: Run) -> Chosen | None:
    """The question with the highest M_bin bound (M_µ where it has none) in the first model under test."""
    first = next((model for model in [*run.subjects, *run.models] if model.questions), None)
    for key, symbol in (("m_bin", "M_bin"), ("m_mu", "M_µ")):
        known = [row for row in first.questions if row.get(key) is not None] if first else []
        if known:
            worst = max(known, key=lambda row: row[key])  # the first in file order among equals
            which = "the first model under test" if first.role == "subject" else "the first model"
            return Chosen(worst["prompt_id"], f"the one with the highest {symbol} bound in {first.name}, {which}")
    return None


def overview(run: Run) -> list[Panel]:
    """Every model in two rows of dots: the leakage score and the 0/1 score, greedy beside sampled."""
    names, metrics = run.params.metrics, [(model.name, model.metrics) for model in run.models]
    score = [
        (name, values.get("greedy_mean"), values.get("mean"), values.get("m_mu_worst")) for name, values in metrics
    ]
    leaks = [
        (name, values.get("keyword_greedy"), values.get("keyword_mean"), values.get("keyword_any"))
        for name, values in metrics
    ]
    return [
        _dots("overview-leak", names.leak, "the bar ends at the bound M_µ of the worst question", score),
        _dots(
            "overview-binary",
            names.binary,
            "the bar ends at the share of questions that leaked at least once",
            leaks,
        ),
    ]


def histograms(run: Run, prompt_id: str) -> list[Panel]:
    """How often each leakage score was drawn for one question; the greedy answer's score as a dashed line."""
    scorer = run.params.metrics.leak
    drawn = [(model, *_one_question(model, prompt_id, scorer)) for model in run.models]
    return [_histogram(model, values, greedy, scorer) for model, values, greedy in drawn if values.size]


def m_gen(run: Run) -> list[Panel]:
    """The bound on the share of answers above each score, the empirical share, and the bounds of both references."""
    references = [(run.role("base"), (1, 1.2)), (run.role("retrain"), (4, 1.5))]
    return [_m_gen(model, references, run.params.metrics.leak) for model in run.models if model.m_gen]


def per_question(run: Run) -> list[Panel]:
    """M_bin of every forget question, sorted, with the sampled share below it and greedy leaks marked."""
    bounded = [(model, [row for row in model.questions if row.get("m_bin") is not None]) for model in run.models]
    return [_questions(model, sorted(rows, key=lambda row: -row["m_bin"])) for model, rows in bounded if rows]


def convergence(run: Run) -> list[Panel]:
    """Mean and standard deviation of one question, estimate and bound, against the number of samples."""
    return [_convergence(model, run.params.metrics.leak) for model in run.models if model.convergence]


def _dots(name: str, label: str, note: str, rows: list[tuple]) -> Panel:
    told = "; ".join(f"{name}: greedy {number(g)}, sampled {number(m)}, bar {number(e)}" for name, g, m, e in rows)
    with _drawing(name, f"{label} over all forget questions", note, told, (4.6, 0.5 + 0.2 * len(rows))) as (
        axes,
        panel,
    ):
        for place, (_, greedy, mean, end) in enumerate(rows):
            if end is not None:
                axes.plot(
                    [0, end],
                    [place, place],
                    color=ACCENT,
                    alpha=0.28,
                    linewidth=5,
                    solid_capstyle="butt",
                    zorder=2,
                )
            if mean is not None:
                axes.plot([mean], [place], "o", color=ACCENT, markersize=4.2, zorder=3, clip_on=False)
            if greedy is not None:
                axes.plot([greedy], [place], "D", mfc="none", mec=WARM, markersize=4.6, zorder=4, clip_on=False)
        axes.set_yticks(range(len(rows)), [row[0] for row in rows])
        axes.tick_params(axis="y", labelcolor=INK)
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, 1)
        axes.set_xlabel(label)
    return panel


def _one_question(model: Model, prompt_id: str, scorer: str) -> tuple[np.ndarray, float | None]:
    table = model.answers.get("forget")
    if table is None or scorer not in table:
        return np.empty(0), None
    rows = table[table["prompt_id"] == prompt_id]
    drawn = rows.loc[rows["sample"] >= 0, scorer].dropna().to_numpy(dtype=np.float64)
    greedy = rows.loc[rows["sample"] < 0, scorer].dropna()
    return drawn, float(greedy.iloc[0]) if len(greedy) else None


def _histogram(model: Model, values: np.ndarray, greedy: float | None, scorer: str) -> Panel:
    mean = float(values.mean())
    note = f"greedy {number(greedy)}, mean {number(mean)}, max {number(float(values.max()))}"
    with _drawing(f"histogram-{model.name}", model.name, note, f"{values.size} answers; {note}") as (axes, panel):
        axes.hist(values, bins=np.linspace(0, 1, BINS + 1), color=ACCENT, alpha=0.75, rwidth=0.9, log=True)
        axes.axvline(mean, color=INK, linewidth=1)
        if greedy is not None:
            axes.axvline(greedy, color=WARM, linewidth=1.5, dashes=(3, 2), clip_on=False)
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(0.7, values.size * 1.3)
        axes.set_xlabel(scorer)
        axes.set_ylabel("answers (log scale)")
    return panel


def _m_gen(model: Model, references: list, scorer: str) -> Panel:
    half = max((row for row in model.m_gen if row["x"] <= 0.5), key=lambda row: row["x"], default=None)
    note = f"above {half['x']:g}: at most {number(half['bound'], 3, 'up')}" if half else ""
    with _drawing(f"mgen-{model.name}", model.name, note, f"share of answers {note}") as (axes, panel):
        for reference, dashes in references:
            if reference and reference.m_gen and reference is not model:
                _steps(axes, reference.m_gen, "bound", color=MUTED, linewidth=1, dashes=dashes)
        _steps(axes, model.m_gen, "empirical", color=ACCENT, linewidth=0.8, alpha=0.7)
        _steps(axes, model.m_gen, "bound", color=ACCENT, linewidth=1.8)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(f"{scorer} score x")
        axes.set_ylabel("share of answers above x")
    return panel


def _steps(axes: Axes, points: Sequence[dict], key: str, **line) -> None:
    axes.plot([row["x"] for row in points], [row[key] for row in points], drawstyle="steps-post", **line)


def _questions(model: Model, rows: list[dict]) -> Panel:
    note = f"worst M_bin {number(rows[0]['m_bin'], 3, 'up')}"
    with _drawing(f"questions-{model.name}", model.name, note, note) as (axes, panel):
        places = np.arange(1, len(rows) + 1)
        bounds = [row["m_bin"] for row in rows]
        axes.bar(places, bounds, width=0.9, color=ACCENT, alpha=0.28, linewidth=0)
        axes.plot(places, [row["keyword_share"] for row in rows], "o", color=ACCENT, markersize=2.4, clip_on=False)
        leaks = [place for place, row in zip(places, rows, strict=True) if row.get("keyword_greedy")]
        axes.plot(leaks, np.ones(len(leaks)), "D", markersize=3.2, mec=WARM, mfc="none", clip_on=False)
        axes.set_xlim(0.4, len(rows) + 0.6)
        axes.set_ylim(0, 1)
        axes.set_xlabel("forget questions, most leaking first")
        axes.set_ylabel("share of leaking answers")
        axes.grid(False, axis="x")
    return panel


def _convergence(model: Model, scorer: str) -> Panel:
    last = model.convergence[-1]
    note = (
        f"n = {last['n']:,}: mean {number(last['mean'])} ≤ {number(last['mean_bound'], 3, 'up')}, "
        f"sd {number(last['sd'])} ≤ {number(last['sd_bound'], 3, 'up')}"
    )
    with _drawing(f"convergence-{model.name}", model.name, note, note) as (axes, panel):
        for key, colour in (("mean", ACCENT), ("sd", WARM)):
            for suffix, line in SOLID_AND_DASHED:
                known = [
                    (row["n"], row[key + suffix]) for row in model.convergence if row.get(key + suffix) is not None
                ]
                axes.plot([n for n, _ in known], [value for _, value in known], color=colour, **line)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("samples n (log scale)")
        axes.set_ylabel(scorer)
    return panel


@contextmanager
def _drawing(
    name: str, title: str, note: str, told: str, size: tuple[float, float] = (3.3, 2.1)
) -> Iterator[tuple[Axes, Panel]]:
    """Empty axes in the house style; on leaving, the panel holds the drawing. ``told`` is read to who cannot see it."""
    name, panel = name.replace(".", "_"), Panel(title, note)
    with svg.style(name):
        figure, axes = svg.canvas(*size)
        yield axes, panel
        panel.svg = svg.inline(figure, name, f"{title}: {told}")
