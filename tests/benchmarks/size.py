"""Lines, files, public names and longest functions of the product beside the budgets of pyproject.toml; words of docs/."""

import ast
import json
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("lethe", "stages", "flows", "studies")


def files() -> list[Path]:
    return sorted(path for folder in (*PRODUCT, "tests") for path in (ROOT / folder).rglob("*.py"))


def folder_of(path: Path) -> str:
    """The folder that has a budget: two names below lethe, one elsewhere."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == "lethe" and len(parts) > 2 else parts[0]


def lines_by_folder() -> Counter[str]:
    """Lines as `wc -l` counts them, by folder."""
    counts: Counter[str] = Counter()
    for path in files():
        counts[folder_of(path)] += path.read_bytes().count(b"\n")
    return counts


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
    return "\n".join("".join(part.get("source", part.get("text"))) for cell in parts for part in cell)


def main() -> None:
    lines, most = lines_by_folder(), budgets()
    print("| folder | lines | budget |\n|---|--:|--:|")
    for folder in sorted(lines):
        print(f"| {folder} | {lines[folder]:,} | {most[folder]:,} |")
    product = [path for path in files() if folder_of(path) != "tests"]
    functions, public, importers = [], 0, Counter[str]()
    for path in product:
        tree = ast.parse(path.read_bytes())
        imported = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name[0] != "_":
                public += node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                start = node.body[1].lineno if ast.get_docstring(node) and len(node.body) > 1 else node.lineno
                functions.append(((node.end_lineno or 0) - start + 1, f"{path.relative_to(ROOT)}:{node.name}"))
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        importers.update(imported)
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in product}
    total = sum(lines[folder] for folder in lines if folder != "tests")
    print(f"product: {total:,} lines in {len(product)} files; tests: {lines['tests']:,} lines")
    print(
        f"public names of modules: {public:,}; modules with one importer: {sum(importers[m] == 1 for m in modules)}"
    )
    print("longest function bodies: " + "; ".join(f"{name} {size}" for size, name in sorted(functions)[-5:][::-1]))
    words = {page.name: text_of(page).split() for page in (ROOT / "README.md", *pages())}
    print(", ".join(f"{name} {len(own):,}" for name, own in words.items()))
    own = [word for name, page in words.items() if name != "README.md" for word in page]
    bars = sum(not word.strip("|-:") for word in own)
    print(f"docs/: {len(own):,} words as `wc -w` counts, {bars:,} of them rules of tables")


if __name__ == "__main__":
    main()
