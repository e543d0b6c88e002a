"""Logs of every format in which one value is replaced by another, of any type."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.lethe.io.logs.small_logs import KINDS, small

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def with_value(folder: Path, seed: int, value: Any) -> Path:
    """A small log in which ``value`` replaces one value; ``seed`` chooses the format and the place."""
    chance = random.Random(seed)
    path = small(chance.choice(KINDS[1:]), folder)
    text = path.read_text()
    lines = text.splitlines() if text.startswith('{"') else [text]
    place = chance.randrange(len(lines))
    whole = json.loads(lines[place])
    node = chance.choice([one for one in _nodes(whole) if one])
    node[chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))] = value
    lines[place] = json.dumps(whole)
    path.write_text("\n".join(lines))
    return path


def _nodes(value: Any) -> Iterator[Any]:
    """Every container in a JSON value."""
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _nodes(inner)
