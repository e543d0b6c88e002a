"""How many small faults in the core the tests notice: mutation testing by Cosmic Ray on a seeded sample.

Each mutant is a copy of one file of the core with one operator, number or keyword changed. The tests that cover the changed
line run until one fails; a mutant that none fails on survives, and its change is printed. Mutants of strings, messages,
annotations and decorators are left out.

Coverage, results and copies of the sources lie in .lethe/mutants: a second call continues an interrupted one, and asks
again only about files that changed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.small import ROOT

CORE = ("statistics", "results", "sampling", "scoring")
TESTS = ("tests/lethe", "tests/stages", "tests/contract")
# Decorators say how a class is made, and the exception of an `except` stands in no result.
LEFT_OUT = {"RemoveDecorator", "ExceptionReplacer", "VariableReplacer", "VariableInserter"}
LONGEST = 900  # seconds of all tests of one mutant; one that takes longer counts as not noticed
NO_TESTS = 5  # pytest's exit status
LEAST = 0.95  # of all that are not equivalent
COVERED = "covered"  # the copy of the sources whose coverage is measured
# Mutants that no test can notice, by `Mutant.key`, each with the reason.
EQUIVALENT: dict[str, str] = {}


@dataclass(frozen=True)
class Mutant:
    """The ``occurrence``-th place in a file where an operator applies."""

    file: str
    operator: str
    occurrence: int
    line: int
    text: str
    source: str  # hash of the file

    @property
    def key(self) -> str:
        return f"{self.file}: {self.operator} {self.occurrence}: {self.text}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="stop after this time; a later call continues")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout, to compare its suite")
    given = parser.parse_args()
    root = given.root.resolve()
    work = ROOT / ".lethe/mutants" / root.name
    chosen = sample(root, given.count, given.seed)
    tests = Covering(measure_coverage(root, work))
    results = Results(work / "results.jsonl")
    until = time.monotonic() + 60 * given.minutes if given.minutes else float("inf")
    tried = {*results.of(chosen), *EQUIVALENT}
    ahead = [mutant for mutant in chosen if mutant.key not in tried]
    run_all(ahead, tests, results, root, given.workers, until)
    return report(chosen, results, root)


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """Mutants of different places, one a place, drawn from all places of the core."""
    places: dict[tuple, list[Mutant]] = {}
    for folder in CORE:
        for path in sorted((root / "lethe" / folder).rglob("*.py")):
            for place, mutant in mutants_of(path, root):
                places.setdefault((mutant.file, place), []).append(mutant)
    drawn = random.Random(seed)
    chosen = drawn.sample(sorted(places), min(count, len(places)))
    return [drawn.choice(places[place]) for place in chosen]


def mutants_of(path: Path, root: Path) -> Iterator[tuple[tuple[int, int], Mutant]]:
    """Each mutant of a file with its place."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    source = path.read_text(encoding="utf-8")
    lines, quiet, tree = source.splitlines(), silent(source), get_ast(source)
    for name in plugins.operator_names():
        if name.partition("/")[2] in LEFT_OUT:
            continue
        operator = plugins.get_operator(name)()
        positions = [span for node in ast_nodes(tree) for span in operator.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(positions):
            if any(first <= start < last for first, last in quiet):
                continue
            text = lines[start[0] - 1].strip()
            digest = hashlib.sha256(source.encode()).hexdigest()[:12]
            short = name.partition("/")[2]
            yield start, Mutant(str(path.relative_to(root)), short, occurrence, start[0], text, digest)


def silent(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a change is none of behaviour: annotations, imports for types, strings, and the messages of errors."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        inside: list[ast.AST | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            inside = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            inside = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            inside = [*node.decorator_list, *node.bases]
        elif isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ):
            inside = [node]
        spans += [
            ((one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset))
            for one in inside
            if one is not None
        ]
    return spans


def copy_sources(root: Path, target: Path) -> Path:
    """The sources of a checkout, in a folder in which a mutant harms nobody."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, target / name)
    return target


def pytest_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *arguments]


def environment_of(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def measure_coverage(root: Path, work: Path) -> Path:
    """Which test runs which line, of the tests as they are: measured once for a state of the sources."""
    names = [path for top in ("lethe", "tests") for path in sorted((root / top).rglob("*.py"))]
    state = hashlib.sha256(b"".join(path.read_bytes() for path in names)).hexdigest()[:12]
    database = work / f"coverage-{state}"
    if not database.exists():
        print("measuring which test covers which line: some minutes", flush=True)
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            tree = copy_sources(root, Path(folder, COVERED))
            command = pytest_command("--cov=lethe", "--cov-context=test", "--cov-report=", *TESTS)
            written = Path(folder, "coverage")
            environment = environment_of(tree) | {"COVERAGE_FILE": str(written)}
            if subprocess.run(command, cwd=tree, env=environment).returncode:
                sys.exit("Some tests fail without a mutant: mend them first.")
            shutil.move(written, database)
    return database


class Covering:
    """The tests that run a line; of a line that runs when its module is imported, those that run any line of the module."""

    def __init__(self, database: Path) -> None:
        import coverage

        self.data = coverage.CoverageData(str(database))
        self.data.read()
        self.files = {name.partition(f"/{COVERED}/")[2]: name for name in self.data.measured_files()}

    def of(self, file: str, line: int) -> list[str]:
        by_line = self.data.contexts_by_lineno(self.files[file]) if file in self.files else {}
        contexts = set(by_line.get(line, ()))
        if "" in contexts:
            contexts = {name for names in by_line.values() for name in names}
        own = f"tests/{Path(file).parent}/"
        names = {name.partition("|")[0] for name in contexts if name}
        return sorted(names, key=lambda name: (not name.startswith(own), name))


class Results:
    """A line per mutant that was tried."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.known = {
            (row["mutant"]["source"], Mutant(**row["mutant"]).key): row for row in map(json.loads, lines)
        }

    def of(self, chosen: Sequence[Mutant]) -> dict[str, dict]:
        return {one.key: self.known[one.source, one.key] for one in chosen if (one.source, one.key) in self.known}

    def add(self, mutant: Mutant, outcome: str, seconds: float, tests: int) -> None:
        row = {"mutant": asdict(mutant), "outcome": outcome, "seconds": round(seconds, 1), "tests": tests}
        self.known[mutant.source, mutant.key] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as out:
            out.write(json.dumps(row) + "\n")


def outcome_of(mutant: Mutant, names: list[str], tree: Path) -> str:
    """Run the tests that cover a mutant in a copy of the sources: ``killed``, ``survived`` or ``too long``."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    path = tree / mutant.file
    source = path.read_text(encoding="utf-8")
    changed = mutate_code(source, get_operator(f"core/{mutant.operator}")(), mutant.occurrence)
    (tree / "names").write_text("\n".join(names))
    path.write_text(changed, encoding="utf-8")
    command = pytest_command("-x", "--timeout", "120", f"@{tree / 'names'}")
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(command, cwd=tree, env=environment_of(tree), **options)
    try:
        if (status := process.wait(LONGEST)) == NO_TESTS:
            raise RuntimeError(f"pytest finds none of the {len(names)} tests that cover {mutant.key}")
        return "killed" if status else "survived"
    except subprocess.TimeoutExpired:
        return "too long"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        path.write_text(source, encoding="utf-8")


def run_all(
    ahead: list[Mutant], tests: Covering, results: Results, root: Path, workers: int, until: float
) -> None:
    """Try each mutant in one of as many copies of the sources as there are workers."""
    with tempfile.TemporaryDirectory() as folder:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            trees.put(copy_sources(root, Path(folder, str(number))))

        def work(mutant: Mutant) -> None:
            if time.monotonic() > until:
                return
            tree, start, names = trees.get(), time.monotonic(), tests.of(mutant.file, mutant.line)
            try:
                outcome = outcome_of(mutant, names, tree) if names else "not covered"
            finally:
                trees.put(tree)
            results.add(mutant, outcome, time.monotonic() - start, len(names))
            print(f"{outcome}: {mutant.key}", flush=True)

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, ahead))


def report(chosen: list[Mutant], results: Results, root: Path) -> int:
    """Print a line per folder and every mutant that no test noticed; 1 where fewer than 95 % were."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    tried = results.of(chosen)
    counts = Counter((mutant.file.split("/")[1], verdict_of(mutant, tried)) for mutant in chosen)
    words = ("killed", "survived", "too long", "not covered", "equivalent", "ahead")
    print(f"{'':12}" + "".join(f"{word:>13}" for word in words))
    for folder in CORE:
        print(f"{folder:12}" + "".join(f"{counts[folder, word]:13}" for word in words))
    for mutant in chosen:
        if verdict_of(mutant, tried) in ("survived", "too long", "not covered"):
            source = (root / mutant.file).read_text(encoding="utf-8")
            changed = mutate_code(source, get_operator(f"core/{mutant.operator}")(), mutant.occurrence)
            difference = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
            print(f"\n{mutant.key} (line {mutant.line})", *list(difference)[2:], sep="\n")
    totals = Counter(verdict_of(mutant, tried) for mutant in chosen)
    asked = len(chosen) - totals["equivalent"] - totals["ahead"]
    seconds = sum(row["seconds"] for row in tried.values())
    share = totals["killed"] / max(asked, 1)
    print(f"\n{totals['killed']} of {asked} killed ({share:.1%}), {seconds / max(len(tried), 1):.0f} s a mutant")
    return int(share < LEAST or totals["ahead"] > 0)


def verdict_of(mutant: Mutant, tried: dict[str, dict]) -> str:
    if mutant.key in EQUIVALENT:
        return "equivalent"
    return tried[mutant.key]["outcome"] if mutant.key in tried else "ahead"


if __name__ == "__main__":
    sys.exit(main())
