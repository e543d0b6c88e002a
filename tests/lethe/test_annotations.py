"""Results that cross a folder have a type: no public function of the library uses `Any` without a reason."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

import lethe

LIBRARY = Path(lethe.__file__).parent
TYPER = "Typer keeps the class of its context to itself"
ROW = "a row of a dataset may have keys of the user's own"
TOOL = "another tool's settings as the tool wrote them"
JSON = "json.loads and yaml return anything"
ALLOWED = {
    "cli/app.py:LetheCommand.invoke": TYPER,
    "cli/app.py:LetheGroup.invoke": TYPER,
    "cli/app.py:ScoreGroup.parse_args": TYPER,
    "config/yaml.py:load_yaml": JSON,
    "config/yaml.py:parse_yaml": JSON,
    "inspect_ai.py:EarlyStopping.complete_task": "Inspect declares the method so",
    "io/schema.py:read_artifact": JSON,
    "io/json_files.py:read_json": JSON,
    "io/scratch.py:kept": JSON,
    "io/logs/_json.py:Document.decode": JSON,
    "io/logs/_json.py:Document.value": JSON,
    "io/logs/_json.py:Document.members": JSON,
    "io/logs/_json.py:Document.items": JSON,
    "io/logs/_json.py:lines": JSON,
    "io/calibration.py:LabelledAnswer.item": ROW,
    "io/logs/_lm_eval_line.py:Line.metrics": TOOL,
    "io/logs/_lm_eval_line.py:Line.settings": TOOL,
    "io/logs/_lm_eval_results.py:Run.config": TOOL,
    "io/logs/_lm_eval_results.py:Run.sampling": TOOL,
    "io/logs/_lm_eval_results.py:Run.stated": TOOL,
    "io/logs/_log.py:Log.sampling": TOOL,
    "io/logs/_log.py:Log.stated": TOOL,
    "scoring/judges/__init__.py:Asked.item": ROW,
    "scoring/verdicts.py:Question.item": ROW,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, name: str = "") -> Iterator[tuple[str, Function]]:
    """The functions and methods of a module by their dotted names, without private ones and those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, Function)) and not node.name.startswith("_"):
            if isinstance(node, Function):
                yield name + node.name, node
            else:
                yield from functions(node, f"{name}{node.name}.")
        elif isinstance(node, (ast.If, ast.Try)):
            yield from functions(node, name)


def names(annotation: ast.AST | None) -> set[str]:
    """The names in an annotation, those in quotes among them."""
    found = set()
    for node in ast.walk(annotation) if annotation is not None else ():
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError):  # help for the command line
                found |= names(ast.parse(node.value))
    return found


def says_any(function: Function) -> bool:
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    annotations = [function.returns, *(one.annotation for one in arguments if one is not None)]
    return any("Any" in names(annotation) for annotation in annotations)


def fields(tree: ast.AST) -> Iterator[tuple[str, ast.AnnAssign]]:
    """The fields of public classes by their dotted names, without private ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and not ast.unparse(field.target).startswith("_"):
                    yield f"{node.name}.{ast.unparse(field.target)}", field


def found(source: str) -> list[str]:
    tree = ast.parse(source)
    own = [name for name, field in fields(tree) if "Any" in names(field.annotation)]
    return [name for name, function in functions(tree) if says_any(function)] + own


def test_any_stands_in_public_signatures_for_a_reason_alone():
    said = {
        f"{path.relative_to(LIBRARY).as_posix()}:{name}"
        for path in LIBRARY.rglob("*.py")
        for name in found(path.read_text(encoding="utf-8"))
    }
    assert said - ALLOWED.keys() == set(), "say what the value is: a frozen dataclass, a TypedDict, or object"
    assert ALLOWED.keys() - said == set(), "these say Any no more"


def test_the_check_finds_any_wherever_it_stands():
    source = """
def plain(x: dict[str, Any]) -> int: ...
def quoted(x: "list[Any]") -> int: ...
def dotted() -> typing.Any: ...
def rest(**more: Any) -> int: ...
class Kind:
    async def method(self, *, x: Any = 1) -> int: ...
    def _own(self, x: Any) -> int: ...
    field: dict[str, Any]
    _field: Any
def _private(x: Any) -> Any:
    def inner(y: Any) -> int: ...
if True:
    def guarded(x: Any) -> int: ...
def fine(x: dict[str, object]) -> int:
    known: Any = x
"""
    assert found(source) == ["plain", "quoted", "dotted", "rest", "Kind.method", "guarded", "Kind.field"]
