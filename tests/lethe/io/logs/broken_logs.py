"""Logs of every format in which one value is replaced by another, of any type, or stands twice."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.lethe.io.logs.small_logs import KINDS, eval_log, header, sample, small

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def with_value(folder: Path, seed: int, value: Any) -> Path:
    """A small log in which ``value`` replaces one value; ``seed`` chooses the format and the place."""

    def change(node: Any, chance: random.Random) -> None:
        node[chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))] = value

    return _changed(folder, seed, (dict, list), change)


def with_twice(folder: Path, seed: int) -> Path:
    """A small log in which one element of one list stands twice: a sample, an answer, a line, a choice."""

    def change(node: Any, chance: random.Random) -> None:
        node.insert(chance.randrange(len(node) + 1), chance.choice(node))

    return _changed(folder, seed, list, change)


def _changed(folder: Path, seed: int, kind: Any, change: Callable[[Any, random.Random], None]) -> Path:
    chance = random.Random(seed)
    name = chance.choice(KINDS)
    path = small(name, folder)
    if name == "eval":  # the archive of the same log, packed anew
        head = header(["q", 7])
        whole: Any = {"head": head, "samples": [sample(one, epoch) for epoch in (1, 2) for one in ("q", 7)]}
        change(
            chance.choice([node for node in _nodes(whole["samples"]) if node and isinstance(node, kind)]), chance
        )
        told = [one for one in whole["samples"] if isinstance(one, dict)]
        return eval_log(path, head, [{"id": "q", "epoch": 1} | one for one in told])
    text = path.read_text()
    lines = text.splitlines() if text.startswith('{"') else [text]
    found: Any = [json.loads(line) for line in lines]
    change(chance.choice([node for node in _nodes(found) if node and isinstance(node, kind)]), chance)
    path.write_text("\n".join(json.dumps(line) for line in found))
    return path


def _nodes(value: Any) -> Iterator[Any]:
    """Every container in a JSON value."""
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _nodes(inner)
