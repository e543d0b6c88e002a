"""One name for one thing: no constant is written down in two modules, and no function or class either."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.small import ROOT

FOLDERS = ("lethe", "flows", "stages", "studies")
# What every member of a registry says of itself, in the words of its protocol.
OF_MEMBERS = {
    *(
        "AIM",
        "ASSUMES",
        "BINARY",
        "COLUMNS",
        "CONSERVATIVE",
        "FAMILY_FREE",
        "HOLDS",
        "NAME",
        "NEEDS_LEARNED",
        "NOTE",
        "P",
    ),
    *("SMALLER", "STRONGEST", "Attack", "Method", "Params", "family", "fit", "measure", "play", "score"),
    *("main", "run"),  # of a stage
}


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The public names of a module with what they stand for: a literal, or the code of a function or class."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield node.name, "\n".join(map(ast.unparse, body))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_literal(node.value):
            yield node.targets[0].id, ast.unparse(node.value)


def is_literal(value: ast.expr) -> bool:
    return not any(isinstance(part, (ast.Name, ast.Call)) for part in ast.walk(value))


def doubles(modules: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Each name that stands for the same in several modules, with these modules."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for place, source in modules:
        for name, value in definitions(ast.parse(source)):
            if name not in OF_MEMBERS and len(value) > 5:  # a short number can be equal by chance
                found[name, value].append(place)
    return {name: sorted(places) for (name, _), places in found.items() if len(places) > 1}


def sources() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(Path(path).relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_nothing_is_written_down_twice():
    assert doubles(sources()) == {}


def test_the_check_finds_what_is_there_twice():
    one = 'PLACES = {"a": 1, "b": 2}\nSMALL = 3\ndef f(x):\n    """Text."""\n    return x + 1\n'
    other = 'PLACES = {"a": 1, "b": 2}\nSMALL = 3\ndef f(x):\n    """Another text."""\n    return x + 1\ndef g(x): return 2\n'
    assert doubles([("one", one), ("other", other)]) == {"PLACES": ["one", "other"], "f": ["one", "other"]}
    assert doubles([("one", one), ("other", "PLACES = {}\ndef f(x): return x + 2\n")]) == {}
