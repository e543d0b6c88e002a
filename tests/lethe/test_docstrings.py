"""A public function with three or more arguments documents each of them, here or where its docstring points."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lethe

LIBRARY = Path(lethe.__file__).parent
FEWEST = 3
MEMBER = "its protocol documents the arguments"
OTHERS = "another library declares and documents the method"
RECORDS = "records and sections of params.yaml, which document themselves"
SECTIONS = "an entry's name, sections of params.yaml, and the folder of artifacts"
EXEMPT = {
    "attacks/kinds/noise.py:Attack.attacked": MEMBER,
    "attacks/kinds/prune.py:Attack.attacked": MEMBER,
    "attacks/kinds/quantise.py:Attack.attacked": MEMBER,
    "attacks/kinds/relearn.py:Attack.attacked": MEMBER,
    "audits/unlearning_game/images/play.py:ImageGame.view": MEMBER,
    "audits/unlearning_game/images/play.py:ImageGame.fit": MEMBER,
    "audits/unlearning_game/text/play.py:TextGame.view": MEMBER,
    "audits/unlearning_game/text/play.py:TextGame.fit": MEMBER,
    "statistics/one_run/methods/clopper_pearson.py:log_p_value": MEMBER,
    "statistics/one_run/methods/mahloujifar.py:rejects": MEMBER,
    "statistics/one_run/methods/steinke.py:log_p_value": MEMBER,
    "evaluation/knowledge/against_retrain.py:values": MEMBER,
    "evaluation/knowledge/answer_tree.py:values": MEMBER,
    "evaluation/knowledge/answers.py:values": MEMBER,
    "evaluation/knowledge/epsilon_star.py:values": MEMBER,
    "evaluation/knowledge/game_quality.py:values": MEMBER,
    "evaluation/knowledge/leak_at_k.py:values": MEMBER,
    "evaluation/knowledge/likelihoods.py:values": MEMBER,
    "evaluation/knowledge/scorers.py:values": MEMBER,
    "inspect_ai.py:EarlyStopping.start_task": OTHERS,
    "inspect_ai.py:EarlyStopping.complete_sample": OTHERS,
    "sampling/row_cache.py:RowLayer.update": OTHERS,
    "report/answers.py:worst": RECORDS,
    "report/figures.py:histograms": RECORDS,
    "report/first_screen.py:coverage": RECORDS,
    "report/first_screen.py:small_print": RECORDS,
    "report/verdicts.py:plain": RECORDS,
    "sampling/tasks.py:settings_of": RECORDS,
    "sampling/tasks.py:about": RECORDS,
    "steps/training_costs.py:reference_memory": RECORDS,
    "steps/training_costs.py:tokens_of_method": RECORDS,
    "steps/judging_costs.py:measured": RECORDS,
    "cli/plan_tables.py:print_costs": RECORDS,
    "cli/plan_tables.py:print_meta": RECORDS,
    "steps/attack.py:run": SECTIONS,
    "steps/compare.py:run": SECTIONS,
    "steps/train.py:run": SECTIONS,
    "steps/audit.py:run": SECTIONS,
    "steps/epsilon_star.py:run": SECTIONS,
    "steps/exact.py:run": SECTIONS,
    "steps/exact.py:of_params": SECTIONS,
    "steps/game.py:write": SECTIONS,
    "steps/judge.py:run": SECTIONS,
    "steps/likelihood.py:run": SECTIONS,
    "steps/metrics.py:run": SECTIONS,
    "steps/sample.py:run": SECTIONS,
    "steps/score.py:run": SECTIONS,
    "steps/unlearn.py:run": SECTIONS,
}
HEAD = re.compile(r"^[A-Z][A-Za-z ]+\n-{3,}$", re.MULTILINE)
NAMES = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$", re.MULTILINE)
POINTER = re.compile(r"arameters(?: and\s+errors)?\s+are\s+those\s+of\s+`([\w.]+)`")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = dict[str, tuple[Function | ast.ClassDef, set[str], list[str]]]


def public(tree: ast.AST, name: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Public classes, functions and methods by their dotted names; not those inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, Function)) and not node.name.startswith("_"):
            yield name + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node, f"{name}{node.name}.")
        elif isinstance(node, (ast.If, ast.Try)):
            yield from public(node, name)


def arguments(function: Function) -> list[ast.arg]:
    given = function.args
    placed = [*given.posonlyargs, *given.args]
    if placed and placed[0].arg in ("self", "cls"):
        placed = placed[1:]
    return [one for one in (*placed, given.vararg, *given.kwonlyargs, given.kwarg) if one is not None]


def section(doc: str) -> set[str]:
    """The names in the section Parameters of a docstring."""
    parts = HEAD.split(doc)
    heads = [head.splitlines()[0] for head in HEAD.findall(doc)]
    if "Parameters" not in heads:
        return set()
    said = NAMES.findall(parts[1 + heads.index("Parameters")])
    return {name.strip().lstrip("*") for line in said for name in line.split(",")}


def documented(source: str, module: str) -> Documented:
    """Each public name with its node, the arguments that its docstring documents, and the names it points to."""
    found: Documented = {}
    for name, node in public(ast.parse(source)):
        doc = ast.get_docstring(node) or ""
        found[f"{module}.{name}"] = (node, section(doc), POINTER.findall(doc))
    return found


def library() -> dict[str, Documented]:
    """The public modules of the library by their paths."""
    modules = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        place = path.relative_to(LIBRARY)
        if not any(part.startswith("_") and part != "__init__.py" for part in place.parts):
            dotted = ".".join(("lethe", *place.with_suffix("").parts)).removesuffix(".__init__")
            modules[place.as_posix()] = documented(path.read_text(encoding="utf-8"), dotted)
    return modules


def known(name: str, entries: Documented, everything: Documented, seen: tuple[str, ...] = ()) -> set[str]:
    """The arguments that a docstring documents, those of the functions that the docstring points to among them."""
    _, own, pointers = everything[name]
    for pointer in pointers:
        near = [one for one in entries if one.endswith(f".{pointer}") and one != name]
        targets = sorted(near, key=lambda one: one.count("."))[:1]  # a function before a method of its name
        targets = targets or [one for one in everything if one.endswith(f".{pointer}") and one != name]
        assert len(targets) == 1, f"{name} points to {pointer}: {targets}"
        assert targets[0] not in seen, f"{name} points back to itself"
        own = own | known(targets[0], entries, everything, (*seen, name))
    return own


def undocumented(modules: dict[str, Documented]) -> dict[str, list[str]]:
    """Public functions with at least `FEWEST` arguments, and those that no docstring documents."""
    everything = {name: entry for entries in modules.values() for name, entry in entries.items()}
    missing = {}
    for place, entries in modules.items():
        dotted = ".".join(("lethe", *Path(place).with_suffix("").parts)).removesuffix(".__init__")
        for name, (node, *_) in entries.items():
            if isinstance(node, ast.ClassDef) or len(arguments(node)) < FEWEST:
                continue
            own = name.removeprefix(f"{dotted}.")
            if place.startswith("cli/") and own == "command":
                continue  # the next test holds that each option has a help text
            left = [one.arg for one in arguments(node) if one.arg not in known(name, entries, everything)]
            if left:
                missing[f"{place}:{own}"] = left
    return missing


def test_public_functions_document_their_arguments():
    missing = undocumented(library())
    assert {place: left for place, left in missing.items() if place not in EXEMPT} == {}
    assert EXEMPT.keys() - missing.keys() == set(), "these are documented or gone"


@pytest.mark.parametrize("path", sorted((LIBRARY / "cli").glob("*.py")), ids=lambda path: path.stem)
def test_each_argument_of_a_command_has_a_help_text(path):
    for name, node in public(ast.parse(path.read_text(encoding="utf-8"))):
        if name == "command" and not isinstance(node, ast.ClassDef):
            for one in arguments(node):
                words = {word.arg for word in ast.walk(one) if isinstance(word, ast.keyword)}
                shared = isinstance(one.annotation, ast.Name)  # an alias of cli/console.py
                assert "help" in words or shared, f"{path.name}: {one.arg}"


def test_the_check_finds_what_is_missing():
    source = '''
def whole(a, b, c):
    """All.

    Parameters
    ----------
    a, b
        Two.
    c : int
        The third.

    Raises
    ------
    ValueError
        Never.
    """

def part(a, b, d):
    """The parameters are those of `whole`."""

def prose(a, b, c):
    """``a``, ``b`` and ``c`` in prose."""

class Kind:
    def method(self, a, b, *, late, **rest):
        """Further parameters are those of `whole`."""

def few(a, b):
    """Two arguments need no section."""

def _own(a, b, c): ...
'''
    found = undocumented({"kind.py": documented(source, "lethe.kind")})
    assert found == {
        "kind.py:part": ["d"],
        "kind.py:prose": ["a", "b", "c"],
        "kind.py:Kind.method": ["late", "rest"],
    }
