"""Shards of models: the section ``shards`` of params.yaml, and their place in the graph of stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flows.dependencies import SHARD
from flows.workspace import Graph, in_order
from lethe.config.evaluating import Model
from lethe.config.yaml import read_yaml
from lethe.io.shards import Shard, model_of, name_of


def section(models: Mapping[str, Model], count: int) -> dict[str, dict[str, str]]:
    """The section ``shards`` of params.yaml that divides each model's questions into ``count`` shards; empty for one."""
    shards = [Shard(number, count) for number in range(1, count + 1)] if count > 1 else []
    return {
        name_of(name, shard): {"model": name, "path": model.path, "shard": str(shard)}
        for name, model in models.items()
        for shard in shards
    }


def written(path: Path) -> int:
    """The number of shards of each model in a params file; 0 without the section."""
    held = read_yaml(path).get("shards")
    counts = (
        [entry.get("shard") for entry in held.values() if isinstance(entry, dict)]
        if isinstance(held, dict)
        else []
    )
    return max((Shard.parse(str(text)).of for text in counts), default=0)


def with_shards(graph: Graph) -> Graph:
    """Have the stage of a whole model wait for its shards, and leave out the shards of stages that need not run.

    DVC knows no such edge, because no output of the whole depends on how it was divided.
    """
    shards: dict[str, list[str]] = {}
    for name in graph.upstream:
        group, _, key = name.partition("@")
        if group.endswith(SHARD):
            shards.setdefault(f"{group.removesuffix(SHARD)}@{model_of(key)}", []).append(name)
    if not shards:
        return graph
    behind = set(graph.behind())
    idle = {name for whole, own in shards.items() if whole not in behind for name in own}
    upstream = {
        name: sorted({*before, *shards.get(name, ())} - idle)
        for name, before in graph.upstream.items()
        if name not in idle
    }
    stale = {name: why for name, why in graph.stale.items() if name not in idle}
    return Graph(in_order(upstream), stale, graph.whole)
