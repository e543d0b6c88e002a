"""How many small faults in the core the tests notice: mutation testing by Cosmic Ray on a seeded sample.

Each mutant is a copy of one file of the core with one operator, number or keyword changed. The tests that run the changed
line go first, the quickest of them before the others; then the other tests of the same files. The first that fails kills
the mutant; one that none fails on survives, and its change is printed. Mutants of strings, messages, annotations and
decorators are left out, and so are tests marked slow.

Coverage and results lie in .lethe/mutants: a second call continues an interrupted one, and asks again only about files that
changed. ``--against`` names an older checkout: the mutants whose line stands there too meet its tests as well.
"""

import argparse
import ast
import difflib
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import pytest

from tests.small import ROOT

CORE = ("statistics", "results", "sampling", "scoring")
TESTS = ("tests/lethe", "tests/stages", "tests/contract", "tests/test_simulations.py")
OURS = {"lethe", "tests", "stages", "flows", "studies"}
# Imported once: a process of tests begins as a copy of one that has them.
PRELOADED = (
    "numpy scipy.stats scipy.optimize scipy.special pandas pyarrow.parquet torch transformers pytest hypothesis pydantic "
    "_pytest.assertion.rewrite hypothesis.strategies typer.testing rich.table"
).split()
# Decorators say how a class is made, and the exception of an `except` stands in no result.
LEFT_OUT = {"RemoveDecorator", "ExceptionReplacer", "VariableReplacer", "VariableInserter"}
# The syntax that operators of many kinds change, and what no operator changes: 200 of them look at each node.
CHANGED = {
    "ReplaceBinaryOperator": ("operator",),
    "ReplaceComparisonOperator": ("comparison",),
    "ReplaceUnaryOperator": ("factor", "not_test"),
}
PUNCTUATION = frozenset("()[]{},:.=")
QUICK = 2.0  # seconds of a test that goes before the others
FIRST = 30  # tests that start without the import of the files of all others
# A test hangs, and would in the suite, that takes this many processor seconds and this many times those without a mutant.
HANGS, TIMES = 5.0, 5.0
START = 60.0  # processor seconds of the imports, at most
MEMORY = 12 * 2**30
# pytest's exit statuses; of the last two a module cannot be imported
PASSED, FAILED, INTERRUPTED, USAGE = 0, 1, 2, 4
MISSED = ("survived", "not covered")
LEAST = 0.95  # of all that are not equivalent
# Mutants that no test can notice, by `Mutant.key`, each with the reason.
EQUIVALENT: dict[str, str] = json.loads(Path(__file__).with_name("equivalent_mutants.json").read_text("utf-8"))


@dataclass(frozen=True)
class Mutant:
    """The ``occurrence``-th place in a file where an operator applies, and the ``nth`` in its line."""

    file: str
    operator: str
    occurrence: int
    nth: int
    line: int
    text: str
    source: str  # hash of the file

    @property
    def key(self) -> str:
        return f"{self.file}: {self.operator} {self.nth}: {self.text}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="stop after this time; a later call continues")
    parser.add_argument("--seconds", type=float, default=300, help="the most time of the tests of one mutant")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout whose code is changed")
    parser.add_argument("--against", type=Path, help="an older checkout, whose tests meet the same mutants")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders or files of tests in both")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes if given.minutes else float("inf")
    for name in PRELOADED:
        importlib.import_module(name)
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    chosen = sample(given.root.resolve(), given.count, given.seed)
    suites = [Suite(given.root.resolve(), given.tests, chosen, given.seconds)]
    if given.against:
        old = given.against.resolve()
        suites.append(Suite(old, given.tests, counterparts(chosen, given.root.resolve(), old), given.seconds))
    for suite in suites:
        suite.run(given.workers, until)
    return report(chosen, suites)


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """Mutants of different places, one a place, drawn from all places of the core; those that Python can read."""
    places: dict[tuple, list[Mutant]] = {}
    for path in core_files(root):
        for place, mutant in mutants_of(path, root):
            places.setdefault((mutant.file, place), []).append(mutant)
    drawn = random.Random(seed)
    order = drawn.sample(sorted(places), len(places))
    readable = (one for place in order if parses(one := drawn.choice(places[place]), root))
    return list(islice(readable, count))


def parses(mutant: Mutant, root: Path) -> bool:
    try:
        with warnings.catch_warnings(action="error"):  # such as `name is "constant"`, or `if not name := value`
            compile(changed_source(mutant, root)[1], mutant.file, "exec")
    except SyntaxError:
        return False
    return True


def core_files(root: Path) -> list[Path]:
    return [path for folder in CORE for path in sorted((root / "lethe" / folder).rglob("*.py"))]


def mutants_of(path: Path, root: Path) -> Iterator[tuple[tuple[int, int], Mutant]]:
    """Each mutant of a file with its place."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    source = path.read_text(encoding="utf-8")
    lines, quiet = source.splitlines(), silent(source)
    nodes = [node for node in ast_nodes(get_ast(source)) if node.type not in ("name", "string", "newline")]
    nodes = [node for node in nodes if getattr(node, "value", "") not in PUNCTUATION]
    of_type = {kinds: [node for node in nodes if node.type in kinds] for kinds in CHANGED.values()}
    seen: set[str] = set()
    file, digest = str(path.relative_to(root)), hash_of(source)
    for name in plugins.operator_names():
        short = name.partition("/")[2]
        if short in LEFT_OUT:
            continue
        operator = plugins.get_operator(name)()
        searched = of_type[CHANGED[family]] if (family := short.partition("_")[0]) in CHANGED else nodes
        positions = [span for node in searched for span in operator.mutation_positions(node)]
        in_line: Counter[int] = Counter()
        for occurrence, (start, _) in enumerate(positions):
            if not any(first <= start < last for first, last in quiet):
                text = lines[start[0] - 1].strip()
                mutant = Mutant(file, short, occurrence, in_line[start[0]], start[0], text, digest)
                in_line[start[0]] += 1
                if mutant.key not in seen:  # a line that the file has twice
                    seen.add(mutant.key)
                    yield start, mutant


def hash_of(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


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


def counterparts(chosen: Sequence[Mutant], root: Path, old: Path) -> list[Mutant | None]:
    """The same changes of an older checkout: of the same line in the same file, or in the only file that has it."""

    def by_change(checkout: Path) -> dict[tuple, dict[str, Mutant]]:
        found: dict[tuple, dict[str, Mutant]] = defaultdict(dict)
        for path in core_files(checkout):
            for _, one in mutants_of(path, checkout):
                found[one.operator, one.nth, one.text][one.file] = one
        return found

    now, then = by_change(root), by_change(old)
    pairs = []
    for mutant in chosen:
        change = (mutant.operator, mutant.nth, mutant.text)
        files = then[change]
        moved = next(iter(files.values())) if len(now[change]) == len(files) == 1 else None
        pairs.append(files.get(mutant.file, moved))
    return pairs


def changed_source(mutant: Mutant, root: Path) -> tuple[str, str]:
    """The text of a mutant's file without and with the change."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = (root / mutant.file).read_text(encoding="utf-8")
    return source, mutate_code(source, get_operator(f"core/{mutant.operator}")(), mutant.occurrence)


class Coverage:
    """A plug-in of pytest: the seconds of each test that passes, and the lines of the core that it runs.

    What a fixture costs and runs counts for each test that takes it, though it may be made once for all.
    """

    def __init__(self, tree: Path) -> None:
        import coverage

        self.tree = tree
        self.tracer = coverage.Coverage(data_file=None, source=[str(tree / "lethe" / name) for name in CORE])
        self.current = "?import"
        self.seconds: Counter[str] = Counter()
        self.fixtures: dict[str, list[str]] = {}
        self.failed: set[str] = set()
        self.skipped: set[str] = set()

    @contextmanager
    def measured(self, context: str) -> Iterator[None]:
        outer, self.current, start = self.current, context, time.process_time()
        self.tracer.switch_context(context)
        try:
            yield
        finally:
            spent = time.process_time() - start
            self.seconds[context] += spent
            self.seconds[outer] -= spent
            self.current = outer
            self.tracer.switch_context(outer)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        taken = item._fixtureinfo.name2fixturedefs.values()
        self.fixtures[item.nodeid] = [_of_fixture(definitions[-1]) for definitions in taken]
        with self.measured(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        with self.measured(_of_fixture(fixturedef)):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            (self.failed if report.failed else self.skipped).add(report.nodeid)

    def result(self) -> dict[str, Any]:
        self.tracer.stop()
        data = self.tracer.get_data()
        tests = [name for name in self.fixtures if name not in self.failed | self.skipped]
        users = defaultdict(list)
        for number, name in enumerate(tests):
            for context in (name, *self.fixtures[name]):
                users[context].append(number)
        lines: dict[str, dict[int, list[int]]] = {}
        for path in data.measured_files():
            by_line = data.contexts_by_lineno(path)
            lines[str(Path(path).relative_to(self.tree))] = {
                line: numbers
                for line, contexts in by_line.items()
                if (numbers := sorted({number for one in contexts for number in users[one]}))
            }
        seconds = [round(sum(self.seconds[one] for one in (name, *self.fixtures[name])), 3) for name in tests]
        return {"tests": tests, "seconds": seconds, "lines": lines, "failed": sorted(self.failed)}


def _of_fixture(definition: Any) -> str:
    return f"?{definition.baseid}?{definition.argname}"


class Chosen:
    """A plug-in of pytest: runs the named tests alone, in the order of the names, and writes which one failed."""

    def __init__(self, seconds: dict[str, float], failing: Path) -> None:
        self.seconds, self.place = seconds, {name: number for number, name in enumerate(seconds)}
        self.failing = failing
        signal.signal(signal.SIGPROF, self.stop)

    def stop(self, *_: Any) -> None:
        pytest.fail("this test hangs")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, HANGS + TIMES * self.seconds[nodeid])

    def pytest_runtest_logfinish(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.place]

    def pytest_collection_finish(self, session: Any) -> None:  # after every other plug-in's order
        session.items.sort(key=lambda item: self.place[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failing.write_text(report.nodeid)


def tests_in(files: Iterable[str], *options: str, plugins: list[Any]) -> int:
    quiet = ("-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", "not slow")
    return int(pytest.main([*quiet, *options, *files], plugins=plugins))


def in_child(tree: Path, folder: Path, seconds: float, work: Callable[[], int]) -> int:
    """Do the work in a copy of this process whose checkout is ``tree``: its status, below 0 where a signal ended it.

    ``seconds`` are the processor's; a process that sleeps ends after an hour.
    """
    pid = os.fork()
    if not pid:
        status = 70
        try:
            os.setsid()
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
            signal.alarm(3600)
            os.chdir(tree)
            sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
            os.environ |= {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
            for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
                del sys.modules[name]
            status = work()
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what the tests started
    return os.waitstatus_to_exitcode(status)


class Worker:
    """A process with a checkout of its own, in which a mutant harms nobody."""

    def __init__(self, root: Path, folders: Any) -> None:
        self.folder: Path = folders.get()
        self.tree = self.folder / "tree"
        listed = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout
        for name in listed.splitlines():
            if (root / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, self.tree / name)
        self.changes = 0

    def cover(self, file: str) -> dict[str, Any]:
        """What `Coverage` measures of a file of tests."""
        written = self.folder / "coverage.json"

        def work() -> int:
            measure = Coverage(self.tree)
            measure.tracer.start()
            status = tests_in([file], plugins=[measure])
            written.write_text(json.dumps(measure.result()))
            return status

        written.unlink(missing_ok=True)
        in_child(self.tree, self.folder, 3600, work)
        if not written.exists():
            return {"failed": [file], "tests": [], "seconds": [], "lines": {}}
        return json.loads(written.read_text())

    def ask(self, seconds: dict[str, float]) -> tuple[str, str]:
        """Whether tests notice the state of the sources, and which does; ``seconds`` are those without a mutant."""
        names, failing = list(seconds), self.folder / "failing"
        for part in filter(None, (names[:FIRST], names[FIRST:])):
            failing.unlink(missing_ok=True)
            files = dict.fromkeys(name.partition("::")[0] for name in part)

            def work(part: list[str] = part, files: Iterable[str] = files) -> int:
                chosen = Chosen({name: seconds[name] for name in part}, failing)
                return tests_in(files, "-x", plugins=[chosen])

            most = START + HANGS + TIMES * sum(seconds[name] for name in part)
            status = in_child(self.tree, self.folder, most, work)
            if status < 0:
                return "killed", "a process that does not end"
            if status != PASSED:
                if status not in (FAILED, INTERRUPTED, USAGE):
                    raise RuntimeError(f"pytest ends with {status}: {(self.folder / 'log').read_text()[-2000:]}")
                return "killed", failing.read_text() if failing.exists() else "the import of the tests"
        return "survived", ""

    def kill(self, mutant: Mutant, seconds: dict[str, float]) -> tuple[str, str]:
        path = self.tree / mutant.file
        source, changed = changed_source(mutant, self.tree)
        try:
            self.write(path, changed)
            return self.ask(seconds)
        finally:
            self.write(path, source)

    def write(self, path: Path, text: str) -> None:
        """Write a source at a time of its own, by which Python sees that its compiled file is out of date."""
        self.changes += 1
        path.write_text(text, encoding="utf-8")
        os.utime(path, (self.changes, self.changes))


_worker: Worker


def _start(root: Path, folders: Any) -> None:
    global _worker
    _worker = Worker(root, folders)


def _work(job: tuple[str, tuple, float]) -> tuple[tuple, Any, float]:
    """Call a method of the worker: its arguments, its result (None where the time is over) and the seconds."""
    name, arguments, until = job
    start = time.monotonic()
    result = getattr(_worker, name)(*arguments) if start < until else None
    return arguments, result, time.monotonic() - start


class Suite:
    """The tests of a checkout, and what they say of mutants of its code; None stands for one that is not there."""

    def __init__(
        self, root: Path, folders: Sequence[str], mutants: Sequence[Mutant | None], seconds: float
    ) -> None:
        self.root, self.folders, self.mutants, self.longest = root, folders, mutants, seconds
        self.work = ROOT / ".lethe/mutants" / root.name
        named = [path for each in folders for path in ((root / each).rglob("test_*.py"), (root / each,))]
        paths = sorted({path for group in named for path in group if path.is_file()})
        self.files = {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}
        self.core = hash_of(*(path.read_text(encoding="utf-8") for path in core_files(root)))
        self.rows: dict[str, dict[str, Any]] = {}
        self.seconds: dict[str, float] = {}
        self.lines: dict[tuple[str, int], set[str]] = defaultdict(set)

    def run(self, workers: int, until: float) -> None:
        context = multiprocessing.get_context("fork")
        (self.work / "coverage").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            folders = context.Queue()
            for number in range(workers):
                Path(folder, str(number)).mkdir()
                folders.put(Path(folder, str(number)))
            with context.Pool(workers, _start, (self.root, folders)) as pool:
                self.cover(pool)
                self.ask(pool, until)

    def measured(self, file: str) -> Path:
        return self.work / "coverage" / f"{hash_of(file, self.files[file], self.core)}.json"

    def cover(self, pool: Any) -> None:
        """Measure each file of tests that changed, or whose core did."""
        ahead = [file for file in self.files if not self.measured(file).exists()]
        ahead.sort(key=lambda file: not file.startswith(tuple(f"tests/lethe/{name}" for name in CORE)))
        jobs = [("cover", (file,), float("inf")) for file in ahead]
        for number, ((file,), measured, _) in enumerate(pool.imap_unordered(_work, jobs), 1):
            self.measured(file).write_text(json.dumps(measured))
            spent = sum(measured["seconds"])
            print(f"coverage {number} of {len(ahead)}: {file} {spent:.0f} s", flush=True)
        for file in self.files:
            measured = json.loads(self.measured(file).read_text())
            for name in measured["failed"]:
                print(f"left out, as it fails without a mutant: {name}", flush=True)
            tests = measured["tests"]
            self.seconds |= zip(tests, measured["seconds"], strict=True)
            for source, lines in measured["lines"].items():
                for line, numbers in lines.items():
                    self.lines[source, int(line)] |= {tests[number] for number in numbers}

    def of(self, mutant: Mutant) -> list[str]:
        """The tests of a mutant: those that run its line, then others of the same files, as far as the time reaches.

        Of a line that runs when its module is imported, those that run any line of the module.
        """
        source = (self.root / mutant.file).read_text(encoding="utf-8")
        of_module = {name for (file, _), names in self.lines.items() if file == mutant.file for name in names}
        first = self.lines[mutant.file, mutant.line] if in_function(source, mutant.line) else of_module
        files = {name.partition("::")[0] for name in first}
        own = f"tests/lethe/{mutant.file.split('/')[1]}/"

        def place(name: str) -> tuple:
            quick = self.seconds[name] < QUICK
            return name not in first, not quick, quick and not name.startswith(own), self.seconds[name]

        names = sorted(
            (name for name in self.seconds if name in first or name.partition("::")[0] in files), key=place
        )
        spent = accumulate(self.seconds[name] for name in names)
        return [name for name, seconds in zip(names, spent, strict=True) if seconds <= self.longest]

    def ask(self, pool: Any, until: float) -> None:
        """Try each mutant that was not tried, and the survivors whose tests changed."""
        path = self.work / "results.jsonl"
        rows = map(json.loads, path.read_text().splitlines() if path.exists() else ())
        before = {(row["mutant"]["source"], Mutant(**row["mutant"]).key): row for row in rows}
        ahead, states = [], {}
        for mutant in self.mutants:
            if mutant is None or mutant.key in EQUIVALENT:
                continue
            names = self.of(mutant)
            files = dict.fromkeys(name.partition("::")[0] for name in names)
            states[mutant] = hash_of(*names, *(self.files[name] for name in files))
            row = before.get((mutant.source, mutant.key))
            if row and (row["outcome"] == "killed" or row["state"] == states[mutant]):
                self.rows[mutant.key] = row
            elif names:
                ahead.append(("kill", (mutant, {name: self.seconds[name] for name in names}), until))
            else:
                self.rows[mutant.key] = {"outcome": "not covered", "seconds": 0.0, "by": ""}
        for number, ((mutant, _), result, seconds) in enumerate(pool.imap_unordered(_work, ahead), 1):
            if result is None:
                continue
            outcome, by = result
            row = {"mutant": asdict(mutant), "outcome": outcome, "by": by, "seconds": round(seconds, 1)}
            row |= {"state": states[mutant]}
            self.rows[mutant.key] = row
            with path.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(f"{number} of {len(ahead)}, {seconds:.0f} s: {outcome}: {mutant.key}: {by}", flush=True)
        killers = sorted({row["by"] for row in self.rows.values()} & set(self.seconds))
        job = ("ask", ({name: self.seconds[name] for name in killers},), float("inf"))
        _, (outcome, by), _ = pool.apply(_work, (job,))
        if outcome == "killed":
            sys.exit(f"{by} fails without a mutant too")
        print(f"without a mutant the {len(killers)} tests that killed one pass")

    def verdict(self, mutant: Mutant | None) -> str:
        if mutant is None:
            return "not there"
        return self.rows[mutant.key]["outcome"] if mutant.key in self.rows else "ahead"


def in_function(source: str, line: int) -> bool:
    """Whether a line runs when a function is called, not when its module is imported."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body[0].lineno <= line <= (node.end_lineno or 0)
        for node in ast.walk(ast.parse(source))
    )


def report(chosen: list[Mutant], suites: list[Suite]) -> int:
    """Print every mutant that no test noticed, and a line per folder; 1 where fewer than 95 % were noticed."""
    suite = suites[0]
    for mutant in chosen:
        if suite.verdict(mutant) in MISSED:
            source, changed = changed_source(mutant, suite.root)
            difference = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
            print(f"\n{mutant.key} (line {mutant.line})", *list(difference)[2:], sep="\n")
    print("\n| folder | mutants | equivalent |" + " tests of | there | killed | survived | share |" * len(suites))
    print("|---|" + "---|" * (2 + 5 * len(suites)))
    for folder in (*CORE, "all"):
        places = [n for n, one in enumerate(chosen) if folder in ("all", one.file.split("/")[1])]
        equivalent = sum(chosen[n].key in EQUIVALENT for n in places)
        cells = [folder, len(places), equivalent]
        for each in suites:
            counts = Counter(each.verdict(each.mutants[n]) for n in places if chosen[n].key not in EQUIVALENT)
            killed, missed = counts["killed"], sum(counts[one] for one in MISSED)
            share = f"{killed / max(killed + missed, 1):.1%}"
            cells += [commit_of(each.root), killed + missed, killed, missed, share]
        print("| " + " | ".join(map(str, cells)) + " |")
    verdicts = Counter(suite.verdict(mutant) for mutant in chosen if mutant.key not in EQUIVALENT)
    seconds = sum(row["seconds"] for row in suite.rows.values()) / max(len(suite.rows), 1)
    print(f"\nTests in {', '.join(suite.folders)}; {seconds:.0f} s a mutant; {verdicts['ahead']} ahead")
    return int(verdicts["ahead"] > 0 or verdicts["killed"] < LEAST * verdicts.total())


def commit_of(root: Path) -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
