"""The path of the evidence: ln e of a question against its answers, for both words, with the goal as a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lethe.errors import visible
from lethe.io.files import Json
from lethe.measure.run import Question, Run, RunModel
from lethe.report.figures import Panel, drawing
from lethe.report.svg import ACCENT, INK, MUTED, WARM
from lethe.results.table import Result
from lethe.verdict.standing import Standing

LOWEST = -2.0  # ln e at the floor of a picture
ABOVE = 1.6  # times the goal: ln e at its top
LEAST_HEIGHT = 4.0  # of the axis, where the goal is near 0
LONGEST = 24  # characters of a question's id above its picture
TICKS = (16, 128, 1024, 8192, 65536)  # answers


@dataclass(frozen=True)
class EvidencePath:
    """The path of a question as the stage `compare` wrote it.

    The facts of its row are the goal (ln e that a word must reach), the numbers of answers ``n``, and for each of the two
    words ln e at these; None stands for certainty, which no e-value needs.
    """

    row: Result

    @classmethod
    def of(cls, question: Question) -> EvidencePath | None:
        """The path of a question; None where its answers are no evidence at any time, or are too few for a line."""
        row = question.numbers.row("evidence_path", "anytime")
        if row is None or len(row.facts["n"]) < 2:
            return None
        return cls(row)

    @property
    def goal(self) -> float:
        """What ln e of a word must reach."""
        return float(self.row.facts["goal"])

    @property
    def n(self) -> list[int]:
        """The numbers of answers, rising."""
        return list(self.row.facts["n"])

    @cached_property
    def top(self) -> float:
        """ln e at the top of the picture."""
        return max(LEAST_HEIGHT, ABOVE * self.goal)

    def heights(self, word: str) -> np.ndarray:
        """(points,) ln e for "forgot" or "leaks" within the picture; at its top where certain ends decide."""
        values = []
        for log_e in self.row.facts[word]:
            values.append(self.top if log_e is None else log_e)
        return np.clip(values, LOWEST, self.top)

    def as_data(self) -> list[Json]:
        """What the page's script draws: the goal, both ends of the axis, the numbers of answers, and both lines."""
        lines = []
        for word in ("forgot", "leaks"):
            lines.append([round(float(height), 1) for height in self.heights(word)])
        return [round(self.goal, 2), LOWEST, round(self.top, 2), self.n, *lines]


def panels(run: Run, standings: Sequence[Standing]) -> list[Panel]:
    """The path of one question of each model under test: of that in the way of a word, else of the worst."""
    drawn = []
    for model, standing in zip(run.models, standings, strict=True):
        path = _path_to_show(model, standing)
        if path is not None:
            drawn.append(_panel(model, path))
    return drawn


def _path_to_show(model: RunModel, standing: Standing) -> EvidencePath | None:
    """The path of the question in the way of a word, else of the worst; None where there is no verdict, or no path."""
    verdict = standing.verdict
    if verdict is None:
        return None
    shown = verdict.in_the_way or verdict.worst
    for question in model.questions:
        if shown is not None and question.prompt_id == shown.item:
            return EvidencePath.of(question)
    return None


def _panel(model: RunModel, path: EvidencePath) -> Panel:
    """Both lines of a path below and above the goal, by the number of answers."""
    panel = Panel(model.name, visible(str(path.row.item))[:LONGEST])
    words = f"ln e against answers, goal {path.goal:.3g}"
    first, last = path.n[0], path.n[-1]
    with drawing(panel, f"evidence-{model.name}", words) as axes:
        axes.axhline(path.goal, color=INK, linewidth=0.8, dashes=(3, 2))
        axes.plot(path.n, path.heights("forgot"), color=ACCENT, linewidth=1.6)
        axes.plot(path.n, path.heights("leaks"), color=WARM, linewidth=1.6)

        axes.set_xscale("log")
        ticks = [n for n in TICKS if first <= n < last / 2]  # others would touch the last one
        ticks.append(last)
        axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
        axes.minorticks_off()

        axes.set(xlim=(first, last), ylim=(LOWEST, path.top))
        axes.set_yticks([0, path.goal], ["0", f"{path.goal:.1f}"])
        axes.set_xlabel("answers, log scale")
        axes.set_title("ln e", loc="left", fontsize=8, color=MUTED, pad=5, x=-0.06)
    return panel
