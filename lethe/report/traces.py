"""The twin test on the page: words beside the verdicts, the curves of the ranks, and the authors who still stand out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import plural
from lethe.measure.run import Run, RunModel
from lethe.report.figures import Panel, drawing
from lethe.report.svg import ACCENT, INK, MUTED
from lethe.results.trace import BESIDE, Trace, p_text, trace_of, twin_test_of
from lethe.statistics.twins import TwinTest, rank_band
from lethe.verdict.finding import TRACE, Findings
from lethe.verdict.standing import Standing, Tone

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TONE: dict[str, Tone] = {"trace": "bad", "no trace found": "good", "open": "open", "none": "open"}
TICKS = (0, 0.5, 1)


@dataclass(frozen=True)
class TraceOfModel:
    """The word on a trace of one model.

    Attributes
    ----------
    model
        Its name.
    word
        "trace", "no trace found", "open", or "none" where nothing may be said.
    sentence
        What the word rests on, or why there is none.
    trace
        The test behind it; None where there is no word.
    """

    model: str
    word: str
    sentence: str
    trace: Trace | None = None

    @property
    def tone(self) -> Tone:
        """The tone in which the page shows the word."""
        return TONE[self.word]


def shown(run: Run, found: Findings) -> dict[str, TraceOfModel]:
    """The words of the models under test by their names; empty where nothing was drawn."""
    words = {}
    for model in run.models:
        finding = found.about(model.name, TRACE)
        if finding is not None:
            trace = trace_of(model.numbers)
            words[model.name] = TraceOfModel(model.name, finding.outcome, finding.sentence, trace)
    return words


def beside(words: dict[str, TraceOfModel], standings: Sequence[Standing]) -> list[str]:
    """What verdict and trace mean together, a sentence for each pair that says more than either."""
    models_of_pair: dict[tuple[str, str], list[str]] = {}
    for standing in standings:
        if standing.model in words:
            pair = (standing.word, words[standing.model].word)
            models_of_pair.setdefault(pair, []).append(standing.model)

    sentences = []
    for pair, meaning in BESIDE.items():
        if pair in models_of_pair:
            verdict, trace = pair
            names = ", ".join(models_of_pair[pair])
            sentences.append(f"{names}: {verdict}, {trace}. {meaning}")
    return sentences


def panels(run: Run, found: Findings) -> list[Panel]:
    """The step curve of the ranks of each model that was tested; models that share weights share scores and a curve.

    Each is drawn with the band at the lowest level of a word.
    """
    levels = []
    for finding in found.asked(TRACE):
        if finding.alpha is not None:
            levels.append(finding.alpha)
    level = min(levels, default=run.params.metrics.alpha / run.sharing)

    drawn = []
    paths = set()
    for model in run.models:
        test = twin_test_of(model.numbers)
        if test is not None and model.path not in paths:
            paths.add(model.path)
            drawn.append(_panel(model, test, level))
    return drawn


def _panel(model: RunModel, test: TwinTest, level: float) -> Panel:
    """The share of the secrets that rank among the first: a curve on the diagonal says that the model does not know.

    The band around the diagonal is drawn where all secrets have the same number of candidates.
    """
    first = sum(rank == 1 for rank in test.ranks)
    m = len(test.ranks)
    panel = Panel(model.name, f"{first} of {m} first, p {p_text(test.p, test.log_p)}")

    # The steps begin at (0, 0) and end at (1, 1).
    places = np.divide(test.ranks, test.candidates)
    at = np.concatenate([[0.0], np.sort(places), [1.0]])
    shares = np.concatenate([np.arange(m + 1) / m, [1.0]])

    with drawing(panel, f"trace-{model.name}", plural(m, "secret")) as axes:
        if len(set(test.candidates)) == 1:
            _draw_band(axes, m, test.candidates[0], level)
        axes.plot(TICKS, TICKS, color=INK, linewidth=0.8)
        axes.plot(at, shares, drawstyle="steps-post", color=ACCENT, linewidth=1.8)

        axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=TICKS, yticks=TICKS)
        axes.set_xlabel("rank among the candidates")
        axes.set_title("share of the secrets", loc="left", fontsize=8, color=MUTED, pad=5, x=-0.06)
    return panel


def _draw_band(axes: Axes, m: int, k: int, level: float) -> None:
    """Draw where the curve of m ranks among k candidates stays with probability 1 - level, if the model does not know."""
    fewest, most = rank_band(m, k, level)
    steps = np.arange(k + 1) / k
    low = np.concatenate([[0], fewest]) / m
    high = np.concatenate([[0], most]) / m
    axes.fill_between(steps, low, high, step="post", color=MUTED, alpha=0.2, linewidth=0)


def authors(words: dict[str, TraceOfModel]) -> list[list[str]]:
    """A row per model and author: the p-value of the author's own secrets, alone and adjusted over the authors (Holm)."""
    rows = []
    for of_model in words.values():
        if of_model.trace is None:
            continue
        for author in of_model.trace.authors:
            p = p_text(author.p)
            adjusted = p_text(author.holm)
            rows.append([of_model.model, author.author, p, adjusted])
    return rows


def scores(words: dict[str, TraceOfModel]) -> list[list[str]]:
    """A row per model and further declared score: the p-value and the way in which the true candidates rank."""
    rows = []
    for of_model in words.values():
        if of_model.trace is None:
            continue
        for by_score in of_model.trace.by_scores:
            p = p_text(by_score.p, by_score.log_p)
            rows.append([of_model.model, by_score.score, by_score.direction, p])
    return rows
