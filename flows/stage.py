"""A stage in one run: what it reads, what changed about it, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from flows.workspace import Graph

# How a stage can end, and what Prefect's record calls it.
ENDS = {
    "clean": ("Cached", "nothing it reads has changed"),
    "unchanged": ("Cached", "what it reads came out the same"),
    "restored": ("Cached", "DVC's cache had its outputs"),
    "ran": ("Completed", ""),
    "failed": ("Failed", ""),
    "blocked": ("UpstreamFailed", "not run, because a stage it needs failed"),
    "stopped": ("Cancelled", "stopped by a signal"),
    "not started": ("Cancelled", "a signal came before it started"),
}
UP_TO_DATE = ("clean", "unchanged", "restored", "ran")


@dataclass
class Stage:
    """One stage in this run; ``end`` is a key of ENDS as soon as the stage has ended."""

    name: str
    upstream: list[Stage]
    stale: list[str]  # what changed about it when the run began
    end: str = ""
    seconds: float = 0.0
    status: int = 0
    tail: str = ""  # its last lines, if it failed

    @property
    def up_to_date(self) -> bool:
        return self.end in UP_TO_DATE

    def foregone(self) -> str:
        """Return the end of a stage that need not run, else nothing; call it when every upstream stage has ended."""
        if not all(stage.up_to_date for stage in self.upstream):
            return "blocked"
        inputs_are_old = all(stage.end in ("clean", "unchanged") for stage in self.upstream)
        if inputs_are_old and not self.stale:
            return "clean"
        return ""


def stages_of(graph: Graph) -> list[Stage]:
    """The stages of a graph, those with the longest chains behind them first."""
    stages: dict[str, Stage] = {}
    for name, upstream in graph.upstream.items():
        before = [stages[other] for other in upstream]
        stages[name] = Stage(name, before, graph.stale.get(name, []))
    height = graph.height()
    return sorted(stages.values(), key=lambda stage: -height[stage.name])
