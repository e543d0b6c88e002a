"""Assertions are on data: what the program says is asserted by a field, a key or a number, with few words around it.

Wording has one golden page and one golden terminal; a better sentence elsewhere breaks no test.
"""

import ast
import re
from collections.abc import Iterator

from tests.small import ROOT

MOST = 4
WORD = re.compile(r"[A-Za-z][a-z]*(?:['’-][a-z]+)*")


def words(text: str) -> int:
    """The words of prose in a text; keys, numbers and patterns are none."""
    return sum(WORD.fullmatch(one.strip("\\.,;:()'\"[]!?*^$+|")) is not None for one in text.split())


def expected_texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """The literals of ``assert "text" in ...`` and of ``match="text"``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "match":
            yield from (one for one in ast.walk(node.value) if isinstance(one, ast.Constant))
        elif isinstance(node, ast.Assert):
            for one in ast.walk(node.test):
                if (
                    isinstance(one, ast.Compare)
                    and isinstance(one.ops[0], ast.In)
                    and isinstance(one.left, ast.Constant)
                ):
                    yield one.left


def test_no_assertion_holds_a_sentence():
    long = [
        f"{path.relative_to(ROOT)}:{one.lineno}: {one.value!r}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for one in expected_texts(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(one.value, str) and words(one.value) > MOST
    ]
    assert long == []
