"""Measure how much a checkout asks of its reader: size, density and names, by folder and in all.

``python -m tests.benchmarks size FOLDER`` measures another checkout, such as that of an earlier commit.
"""

import argparse
import ast
import io
import json
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
SUMS = ("files", "lines", "statements", "tokens", "packed", "starred", "vague_names")
VAGUE_NAMES = {"own", "one", "each", "given"}
PACKED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.NamedExpr)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
CODE_TOKENS = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
# Every member has its Params, and every one of a kind the class of that kind.
OF_MEMBERS = ("Params", "Method", "Judge", "Attack")
SKIPPED_FOLDERS = {".venv", ".git", "build", "dist", "node_modules"}


class File(ast.NodeVisitor):
    """What one pass over the syntax tree of a file counts."""

    def __init__(self, path: Path, source: str):
        self.package = path.parent.parts
        self.sums = Counter(dict.fromkeys(SUMS, 0), files=1, lines=source.count("\n"))
        self.function_lengths: list[int] = []  # in statements
        self.class_names: list[str] = []
        self.imports: set[str] = set()
        self.docstring_starts: set[tuple[int, int]] = set()
        self.visit(ast.parse(source))
        self.sums["tokens"] = count_tokens(source, self.docstring_starts)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Expr) and (node.lineno, node.col_offset) in self.docstring_starts:
            return
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            self.docstring_starts.add((node.body[0].lineno, node.body[0].col_offset))
        self.sums["statements"] += isinstance(node, ast.stmt)
        self.sums["packed"] += isinstance(node, PACKED)
        self.sums["starred"] += isinstance(node, ast.Starred)
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = self.sums["statements"]
        self.generic_visit(node)
        self.function_lengths.append(self.sums["statements"] - before)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.class_names.append(node.name)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        assigned = isinstance(node.ctx, ast.Store)
        self.sums["vague_names"] += assigned and node.id in VAGUE_NAMES

    def visit_arg(self, node: ast.arg) -> None:
        self.sums["vague_names"] += node.arg in VAGUE_NAMES
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        self.sums["starred"] += node.arg is None  # f(**values)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.imports.update(alias.name for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Note both modules that ``from a import b`` may mean: ``a`` and ``a.b``."""
        above = self.package[: len(self.package) + 1 - node.level] if node.level else ()
        base = ".".join([*above, node.module or ""]).strip(".")
        self.imports.add(base)
        self.imports.update(f"{base}.{alias.name}" for alias in node.names)


def count_tokens(source: str, docstring_starts: set[tuple[int, int]]) -> int:
    """Count tokens of code; an f-string is one token, though Python 3.12 and later split it."""
    count = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            count += depth == 0
            depth += 1
        elif kind == "FSTRING_END":
            depth -= 1
        elif depth == 0 and token.type in CODE_TOKENS and token.start not in docstring_starts:
            count += 1
    return count


def read_files(root: Path, folders: list[str]) -> dict[Path, File]:
    files: dict[Path, File] = {}
    for folder in folders:
        for place in sorted((root / folder).rglob("*.py")):
            path = place.relative_to(root)
            if SKIPPED_FOLDERS.isdisjoint(path.parts):
                files[path] = read_file(root, path)
    return files


@cache
def read_file(root: Path, path: Path) -> File:
    """Return what a file counts, which the tests of several budgets ask; nobody edits it meanwhile."""
    return File(path, (root / path).read_text(encoding="utf-8"))


def row_of(files: list[File], excepted: Iterable[str] = OF_MEMBERS) -> dict[str, float]:
    row: Counter[str] = Counter()
    lengths = [0]
    for file in files:
        row.update(file.sums)
        lengths += file.function_lengths
    numbers: dict[str, float] = dict(row)
    for name in ("packed", "starred"):
        numbers[name] = round(100 * row[name] / max(1, row["statements"]), 1)
    numbers["tokens_a_line"] = round(row["tokens"] / max(1, row["lines"]), 1)
    numbers["repeated_classes"] = len(repeated_classes(files, excepted))
    return numbers | {"median_function": median(lengths), "longest_function": max(lengths)}


def circles(files: dict[Path, "File"]) -> list[list[str]]:
    """Return the groups of files in which each imports itself over others (Tarjan 1972)."""
    imports_of = {
        ".".join(path.with_suffix("").parts): file.imports for path, file in files.items()
    }
    edges = {name: sorted(imports & imports_of.keys()) for name, imports in imports_of.items()}
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    open_ones: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        open_ones.append(name)
        for other in edges[name]:
            if other not in number:
                visit(other)
            if other in open_ones:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            place = open_ones.index(name)
            groups.append(open_ones[place:])
            del open_ones[place:]

    for name in imports_of:
        if name not in number:
            visit(name)
    return [sorted(group) for group in groups if len(group) > 1]


def repeated_classes(files: Iterable[File], excepted: Iterable[str]) -> dict[str, int]:
    """Return how often each class name stands that stands twice or more."""
    counts: Counter[str] = Counter()
    for file in files:
        counts.update(file.class_names)
    return {name: n for name, n in counts.items() if n > 1 and name not in excepted}


def budgets() -> dict[str, dict[str, int]]:
    """Return the budgets of pyproject.toml: the most of each number, by folders."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["lethe"]["budget"]


def pages() -> list[Path]:
    """Return the pages of docs/, the notebook among them."""
    return sorted(path for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".ipynb"))


def text_of(page: Path) -> str:
    """Return the text of a page; of a notebook, that of its cells and of what they print."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return text
    parts = []
    for cell in json.loads(text)["cells"]:
        for part in [cell, *cell.get("outputs", ())]:
            parts.append("".join(part.get("source", part.get("text"))))
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?", default=ROOT)
    parser.add_argument("folders", nargs="*", default=["lethe", "flows", "stages"])
    parser.add_argument(
        "--except",
        dest="excepted",
        default=",".join(OF_MEMBERS),
        help="class names that may repeat",
    )
    parser.add_argument("--most", nargs="+", default=[], help="exit with status 1 above these")
    options = parser.parse_args()

    files = read_files(options.checkout, options.folders)
    groups: dict[str, list[File]] = {}
    importers: Counter[str] = Counter()
    for path, file in files.items():
        groups.setdefault("/".join(path.parent.parts[:2]), []).append(file)
        importers.update(file.imports)
    groups["all"] = list(files.values())
    excepted = options.excepted.split(",")
    total = row_of(groups["all"], excepted)
    print("folder".ljust(24), *(name.rjust(16) for name in total))
    for name, group in groups.items():
        print(
            name.ljust(24), *(f"{value:,}".rjust(16) for value in row_of(group, excepted).values())
        )

    imported_by = [importers[".".join(path.with_suffix("").parts)] for path in files]
    total["one_importer"] = imported_by.count(1)
    total["circles"] = len(circles(files))
    print({name: total[name] for name in ("one_importer", "circles")})
    status = 0
    for entry in options.most:
        name, limit = entry.split("=")
        if total[name] > float(limit):
            print(f"above the budget: {name} is {total[name]:,}, at most {limit}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
