"""Lines of the product beside the budgets of pyproject.toml; files, public names, functions and circles; words of docs/.

``python -m tests.benchmarks size FOLDER`` measures another checkout, such as that of an earlier commit.
"""

import ast
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("lethe", "stages", "flows", "studies")


def files(root: Path = ROOT) -> list[Path]:
    return sorted(path for folder in (*PRODUCT, "tests") for path in (root / folder).rglob("*.py"))


def folder_of(path: Path, root: Path = ROOT) -> str:
    """The folder that has a budget: two names below lethe, one elsewhere."""
    parts = path.relative_to(root).parts
    return "/".join(parts[:2]) if parts[0] == "lethe" and len(parts) > 2 else parts[0]


def lines_by_folder(root: Path = ROOT) -> Counter[str]:
    """Lines as `wc -l` counts them, by folder."""
    counts: Counter[str] = Counter()
    for path in files(root):
        counts[folder_of(path, root)] += path.read_bytes().count(b"\n")
    return counts


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function below its signature and its docstring."""
    body = function.body
    first = body[1] if ast.get_docstring(function) and len(body) > 1 else body[0]
    return (function.end_lineno or 0) - first.lineno + 1


def imports(path: Path, root: Path) -> Iterator[str]:
    """The names of modules that a file imports, also inside functions and for the type checker alone."""
    package = path.relative_to(root).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (name for alias in node.names for name in (base, f"{base}.{alias.name}"))


def circles(paths: Iterable[Path], root: Path = ROOT) -> list[list[str]]:
    """The groups of files of which each imports, over others, itself (Tarjan 1972)."""
    modules = {".".join(path.relative_to(root).with_suffix("").parts): path for path in paths}
    edges = {
        name: [one for one in imports(path, root) if one in modules]
        for name, path in modules.items()
    }
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

    for name in modules:
        if name not in number:
            visit(name)
    return [sorted(group) for group in groups if len(group) > 1]


def budgets() -> dict[str, int]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["lethe"]["budget"]


def pages() -> list[Path]:
    """The pages of docs/, the notebook among them."""
    return sorted(path for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".ipynb"))


def text_of(page: Path) -> str:
    """The text of a page; of a notebook, that of its cells and of what they print."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return text
    parts = [[cell, *cell.get("outputs", ())] for cell in json.loads(text)["cells"]]
    return "\n".join(
        "".join(part.get("source", part.get("text"))) for cell in parts for part in cell
    )


def main() -> None:
    root = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT
    lines, most = lines_by_folder(root), budgets()
    print("| folder | lines | budget |\n|---|--:|--:|")
    for folder in sorted(lines):
        print(f"| {folder} | {lines[folder]:,} | {most.get(folder, 0):,} |")
    product = [path for path in files(root) if folder_of(path, root) != "tests"]
    functions, public, importers = [], 0, Counter[str]()
    for path in product:
        tree = ast.parse(path.read_bytes())
        imported = set()
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and node.name[0] != "_"
            ):
                public += node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((body_lines(node), f"{path.relative_to(root)}:{node.name}"))
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        importers.update(imported)
    modules = {".".join(path.relative_to(root).with_suffix("").parts) for path in product}
    total = sum(lines[folder] for folder in lines if folder != "tests")
    print(f"product: {total:,} lines in {len(product)} files; tests: {lines['tests']:,} lines")
    alone = sum(importers[module] == 1 for module in modules)
    print(f"public names of modules: {public:,}; modules with one importer: {alone}")
    long = sum(size > 60 for size, _ in functions)
    print(
        f"circles between files: {len(circles(product, root))}; functions of more than 60 lines: {long}"
    )
    print(
        "longest function bodies: "
        + "; ".join(f"{name} {size}" for size, name in sorted(functions)[-5:][::-1])
    )
    if root != ROOT:
        return
    words = {page.name: text_of(page).split() for page in (ROOT / "README.md", *pages())}
    print(", ".join(f"{name} {len(own):,}" for name, own in words.items()))
    own = [word for name, page in words.items() if name != "README.md" for word in page]
    bars = sum(not word.strip("|-:") for word in own)
    print(f"docs/: {len(own):,} words as `wc -w` counts, {bars:,} of them rules of tables")


if __name__ == "__main__":
    main()
