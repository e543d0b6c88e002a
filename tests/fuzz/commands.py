"""Broken inputs for whole commands: each case is a command of `lethe` on a broken input, in a process of its own.

A case must end in a result (exit status 0), or in one visible sentence with exit status 2 (1 where a run failed by its
data), without a traceback, within a minute and 2 GiB. A failed case prints its kind, seed and number, which repeat it:
``python -m tests.fuzz --kind KIND --seed SEED --only NUMBER`` keeps its files and shows what the command prints.

**How a kind is added.** Write a module of this package whose name is the kind, add the name to `KINDS`, and give it

- ``IMPORTED``: the modules that its commands load. The runner imports them once, and every case is a fork of the
  runner.
- ``prepare(valid: Path) -> None``: writes the valid inputs into the folder ``valid``. It runs once, in a process of its
  own.
- ``case(chance: random.Random, valid: Path, folder: Path) -> Case``: writes a broken input into the empty ``folder``,
  which is the command's current folder, and returns the command. ``chance`` is the only source of chance. The function
  runs in the process of the case, so it may start threads (a server, say) that live as long as the command.
- ``JOBS`` (may be left out): how many cases run at once.
- ``sound(valid: Path) -> list[Case]``: commands on the valid inputs, which must end with exit status 0; otherwise the
  cases would test nothing.

With the seed, the number of a case alone says what the case is: a kind keeps no state between its cases.
"""

import contextlib
import functools
import gc
import importlib
import os
import random
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from lethe.errors import visible
from lethe.identity import library
from lethe.instruction_set import fix_instruction_set
from lethe.progress import progress

KINDS = ("folders", "servers", "tables")
SECONDS = 60.0  # of processor time, which a busy machine does not stretch
WAITING = 150.0  # seconds on the clock, for a command that waits
MEMORY = 2 << 30
ADDRESSABLE = (
    12 << 30
)  # bytes of data; a case that asks for more at once fails before the machine's memory is gone
JOBS = 2  # cases at once
POLLED = 0.02  # seconds between two looks at the running cases
MEASURED = 0.5  # seconds between two measurements of a case, each of which reads all processes of the machine
MOST_SHOWN = 20
CRASHED = 70  # exit status of a case that ended in a traceback
STATED = (0, 1, 2)  # exit statuses of the command line
TRACES = (
    *("Traceback (most recent call last)", "RuntimeWarning: coroutine", "Fatal Python error"),
    "panicked at",  # by the tokenizers' compiled code
)
OUT_OF_MEMORY = "lethe: Out of memory"
# No hub and no telemetry; one thread, which a fork keeps; the tokenizers' threads do not live through a fork.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "true",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "COLUMNS": "200",
}


@dataclass(frozen=True)
class Case:
    """What is broken, in a few words, and the arguments of `lethe`; ``copied``: a folder whose files the current one gets."""

    broken: str
    arguments: Sequence[str]
    copied: Path | None = None


@dataclass
class Found:
    """The counts of exit statuses by command, and what is wrong by the number of the case."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)


@dataclass
class Running:
    """A case at work: its number, process, folder and start."""

    number: int
    process: int
    folder: Path
    began: float
    measured: float

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.is_file() else ""


def chance_of(kind: str, seed: int, number: int) -> random.Random:
    return random.Random(f"{kind}-{seed}-{number}")


def fuzz(
    kind: str,
    numbers: Sequence[int],
    seed: int,
    place: Path,
    minutes: float = float("inf"),
    jobs: int | None = None,
) -> Found:
    """The outcome of the cases with these numbers; ``place`` is an empty folder for their files."""
    module = module_of(kind)
    jobs = jobs or getattr(module, "JOBS", JOBS)
    valid = prepared(module, place)
    found = Found()
    _check_sound(module, kind, valid, place)
    _compile_pages()
    library().code(
        "lethe.cli.hooks.evaluating"
    )  # parses the sources by which kept results are named
    gc.collect()
    gc.freeze()  # what all forks share stays theirs: a collection would write to each of its pages
    began = time.monotonic()
    running: list[Running] = []
    for number in progress(numbers, f"fuzz {kind}", "cases"):
        while len(running) >= jobs:
            running = _collected(running, kind, seed, found)
        maker = functools.partial(module.case, chance_of(kind, seed, number), valid)
        running.append(_started(maker, number, place))
        if time.monotonic() - began > 60 * minutes:
            break
    while running:
        running = _collected(running, kind, seed, found)
    return found


def module_of(kind: str) -> ModuleType:
    os.environ.update(ENVIRONMENT)
    fix_instruction_set()  # before a numerical library is loaded
    return importlib.import_module(f"tests.fuzz.{kind}")


def prepared(module: ModuleType, place: Path) -> Path:
    """The folder of the valid inputs, after the imports of the kind; nothing that computes runs in this process."""
    valid = place / "valid"
    valid.mkdir()
    os.chdir(place)  # the command line looks for a pipeline in the current folder
    for name in ("lethe.cli.app", *module.IMPORTED):
        importlib.import_module(name)
    process = os.fork()
    if process == 0:
        status = CRASHED
        try:
            module.prepare(valid)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, ended = os.waitpid(process, 0)
    if ended != 0:
        raise RuntimeError(f"{module.__name__}: the valid inputs could not be written.")
    return valid


def _check_sound(module: ModuleType, kind: str, valid: Path, place: Path) -> None:
    """Raise unless the commands on the valid inputs end in a result, and import what they imported, for all cases."""
    outcome = Found()
    imported = place / "imported"
    for number, sound in enumerate(module.sound(valid), start=1):
        maker = functools.partial(_placed, sound)
        running = [_started(maker, -number, place, imported)]
        while running:
            running = _collected(running, kind, 0, outcome, only=0)
        _import(imported)  # now, since the next command would import it once more
    if outcome.failed:
        raise RuntimeError(f"{kind}: the commands on {len(outcome.failed)} valid inputs fail.")


def _import(listing: Path) -> None:
    """Import the modules that a file names, and remove the file."""
    if not listing.is_file():  # the command was killed
        return
    for name in listing.read_text().split():
        if name not in sys.modules:
            with contextlib.suppress(ImportError, AttributeError):  # a module made by another one
                importlib.import_module(name)
    listing.unlink()


def _placed(case: Case, folder: Path) -> Case:
    if case.copied is not None:
        shutil.copytree(case.copied, folder, dirs_exist_ok=True)
    return case


def _compile_pages() -> None:
    """Compile the templates of the report here, for the commands of all cases."""
    import jinja2

    from lethe.report.page import FILTERS
    from lethe.report.templates import templates

    environment = templates(*FILTERS)
    for name in environment.list_templates(extensions=["html"]):
        with contextlib.suppress(jinja2.TemplateAssertionError):  # a page with filters of its own
            environment.get_template(name)


def _started(
    maker: Callable[[Path], Case], number: int, place: Path, imported: Path | None = None
) -> Running:
    folder = place / f"case-{number}"
    (folder / "work").mkdir(parents=True)
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        _run(maker, folder, imported)
    now = time.monotonic()
    return Running(number, process, folder, began=now, measured=now)


def _run(maker: Callable[[Path], Case], folder: Path, imported: Path | None) -> None:
    """The process of a case; it never returns. The names of its modules are added to the file ``imported``."""
    status = CRASHED
    try:
        os.setpgid(0, 0)  # what the command starts ends with the case
        resource.setrlimit(resource.RLIMIT_DATA, (ADDRESSABLE, ADDRESSABLE))
        for number, name in ((0, os.devnull), (1, folder / "out"), (2, folder / "err")):
            opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o644)
            os.dup2(opened, number)
        os.chdir(folder / "work")
        os.environ["LETHE_CACHE"] = str(folder.parent / "cache")
        case = maker(folder / "work")
        told = f"{case.broken}\n{shlex.join(case.arguments)}\n"
        (folder / "case").write_text(told, errors="backslashreplace")
        status = command(case.arguments)
        if imported:
            with imported.open("a") as file:
                file.writelines(f"{name}\n" for name in sys.modules)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def command(arguments: Sequence[str]) -> int:
    """The exit status of ``lethe ARGUMENTS`` in this process."""
    from lethe.cli.app import main

    sys.argv = ["lethe", *arguments]
    try:
        main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


def _collected(
    running: list[Running], kind: str, seed: int, found: Found, only: int | None = None
) -> list[Running]:
    """The cases that still run, after a short wait; what ended is counted, what runs too long or too large is killed.

    ``only`` is the one legal exit status, where there is one.
    """
    time.sleep(POLLED)
    left = []
    for case in running:
        process, ended, used = os.wait4(case.process, os.WNOHANG)
        excess = None
        if process == 0:
            excess = _excess(case)
            if excess is None:
                left.append(case)
                continue
            os.killpg(case.process, signal.SIGKILL)
            _, ended, used = os.wait4(case.process, 0)
        peak = used.ru_maxrss * 1024
        if excess is None and peak > MEMORY:
            excess = f"{peak >> 20:,} MiB of memory"
        status = os.waitstatus_to_exitcode(ended)
        if only is not None and status != only and excess is None:
            excess = f"exit status {status}, {case.text('err')[-500:]!r}"
        _count(case, kind, seed, status, excess, found)
        shutil.rmtree(case.folder, ignore_errors=True)
    return left


def _excess(case: Running) -> str | None:
    """Which limit a running case, with the processes that it started, is beyond."""
    import psutil

    now = time.monotonic()
    if now - case.began > WAITING:
        return f"over {WAITING:.0f} seconds"
    if now - case.measured < MEASURED:
        return None
    case.measured = now
    total = 0
    seconds = 0.0
    try:
        parent = psutil.Process(case.process)
        for process in (parent, *parent.children(recursive=True)):
            total += process.memory_info().rss
            times = process.cpu_times()
            seconds += times.user + times.system
    except psutil.Error:  # it ended meanwhile
        return None
    if seconds > SECONDS:
        return f"over {SECONDS:.0f} seconds of processor time"
    return f"{total >> 20:,} MiB of memory" if total > MEMORY else None


def _count(
    case: Running, kind: str, seed: int, status: int, excess: str | None, found: Found
) -> None:
    broken, _, typed = case.text("case").strip().partition("\n")
    name = typed.partition(" ")[0] or "(no command)"
    found.statuses[name, status] += 1
    wrong = excess or problem(status, case.text("err"))
    if wrong is None:
        return
    found.failed[case.number] = f"{broken}: lethe {typed}: {wrong}"
    if len(found.failed) <= MOST_SHOWN:
        told = visible(found.failed[case.number])
        print(f"kind {kind}, seed {seed}, case {case.number}: {told}", file=sys.stderr, flush=True)


def problem(status: int, errors: str) -> str | None:
    """What is wrong with the exit status of a command and with what it printed on standard error."""
    lines = errors.strip().splitlines()
    last = lines[-1] if lines else ""
    if any(trace in errors for trace in TRACES):
        return f"a traceback that ends in {last[:300]!r}{_place(lines)}"
    if status not in STATED:
        return f"exit status {status}, {last[:300]!r}"
    sentences = [line for line in lines if line.startswith("lethe: ")]
    if status == 0 and sentences:
        return f"exit status 0 with the sentence {sentences[0][:300]!r}"
    if status == 2 and len(sentences) != 1:
        return f"{len(sentences)} sentences with exit status 2: {errors[-300:]!r}"
    if sentences and sentences[0].startswith(OUT_OF_MEMORY):
        return sentences[0][:300]
    if sentences and visible(sentences[0]) != sentences[0]:
        return f"the sentence has a control character: {sentences[0][:300]!r}"
    return None


def _place(lines: Sequence[str]) -> str:
    """The last line of Lethe's code in a traceback."""
    for line in reversed(lines):
        if 'File "' in line and "/lethe/" in line and "/tests/" not in line:
            return f" at {line.strip()[-120:]}"
    return ""


def repeat(kind: str, seed: int, number: int) -> int:
    """Run a case in this process and return the exit status of its command; its files are kept."""
    module = module_of(kind)
    place = Path(tempfile.mkdtemp(prefix=f"lethe-fuzz-{kind}-"))
    valid = prepared(module, place)
    work = place / "work"
    work.mkdir()
    os.chdir(work)
    case = module.case(chance_of(kind, seed, number), valid, work)
    print(f"{case.broken}\ncd {work} && lethe {shlex.join(case.arguments)}", file=sys.stderr)
    return command(case.arguments)


def run(kind: str, numbers: range, seed: int, minutes: float, jobs: int | None) -> int:
    """Run the cases and print their counts; the exit status is 1 where a case failed."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lethe-fuzz-", ignore_cleanup_errors=True) as folder:
        found = fuzz(kind, numbers, seed, Path(folder), minutes, jobs)
        os.chdir("/")
    seconds = time.monotonic() - start
    for (name, status), count in sorted(found.statuses.items()):
        print(f"{name:20} {count:>7,} with exit status {status}")
    for number, wrong in found.failed.items():
        print(visible(f"failed: kind {kind}, seed {seed}, case {number}, {wrong}"))
    done = found.statuses.total()
    rate = f"{seconds:,.0f} s ({done / seconds:,.1f} per second)"
    failed = len(found.failed)
    print(
        f"{done:,} cases of {kind} from {numbers.start:,} of seed {seed} in {rate}, {failed} failed"
    )
    return 1 if failed else 0
