"""The kind logs: broken files for the readers of users' files.

Each case is one valid file after one to three seeded changes. A reader must return, or raise a `LetheError` whose sentence
fits one visible line, within five seconds of processor time and within 1 GiB above the memory at the start. The exit status
is 1 where a case fails; the case's number repeats the case alone (`--only`), and ``--first`` continues an earlier call.
"""

import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from lethe.errors import LetheError, visible
from lethe.progress import progress
from tests.fuzz.mutations import mutated
from tests.fuzz.readers import Reader, readers

SECONDS = 5.0  # of processor time per case, which a busy machine does not stretch
WAITING = 120.0  # seconds on the clock, for a reader that waits
MEMORY = 1 << 30
ADDRESSES = (
    8 << 30
)  # bytes of the process: a reader without bounds ends as a failure, and not the machine's memory
MOST_SHOWN = 20


class Hang(BaseException):
    """A case took too long; no reader catches this."""


@dataclass
class Found:
    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)


def case(number: int, seed: int, known: list[Reader]) -> tuple[Reader, bytes]:
    chance = random.Random(f"{seed}-{number}")
    (reader,) = chance.choices(known, [candidate.weight for candidate in known])
    return reader, mutated(reader.content, reader.kind, chance)


def problem(reader: Reader, path: Path) -> tuple[str | None, bool]:
    """What is wrong with the way in which the reader takes the file, and whether the reader refused the file."""
    before = _memory()
    refused = False
    try:
        with _limited():
            reader.read(path)
    except LetheError as error:
        refused = True
        sentence = str(error)
        if _out_of_memory(error):
            return f"no memory left: {sentence[:300]!r}", refused
        if visible(sentence) != sentence or "\n" in sentence:
            return f"the sentence has a control character: {sentence[:300]!r}", refused
    except Hang as error:
        return str(error), refused
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]!r}{_place(error)}", refused
    used = _memory() - before
    return (f"{used >> 20} MiB of memory" if used > MEMORY else None), refused


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is of memory."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _place(error: BaseException) -> str:
    found = ""
    trace = error.__traceback__
    while trace:
        name = trace.tb_frame.f_code.co_filename
        if "/lethe/" in name and "/tests/" not in name:
            found = f" at {name[name.rindex('/lethe/') + 1 :]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang("over 5 s of processor time" if number == signal.SIGPROF else "over two minutes")

    timers = (
        (signal.ITIMER_PROF, signal.SIGPROF, SECONDS),
        (signal.ITIMER_REAL, signal.SIGALRM, WAITING),
    )
    before = [signal.signal(number, stop) for _, number, _ in timers]
    try:
        for timer, _, seconds in timers:
            signal.setitimer(timer, seconds)
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def fuzz(numbers: Sequence[int], seed: int, folder: Path, minutes: float = float("inf")) -> Found:
    known = readers(folder)
    found = Found()
    began = time.monotonic()
    for reader in known:
        _write(folder / reader.file, reader.content)
        reader.read(folder / reader.file)  # the valid file is read
    for number in progress(numbers, "fuzz", "cases"):
        reader, content = case(number, seed, known)
        path = folder / reader.file
        _write(path, content)
        wrong, refused = problem(reader, path)
        _write(path, reader.content)  # a file beside other files is whole again for their readers
        (found.refused if refused else found.read)[reader.name] += 1
        if wrong is not None:
            found.failed[number] = f"{reader.name}: {wrong}"
            if len(found.failed) <= MOST_SHOWN:
                print(
                    f"case {number} (seed {seed}), {found.failed[number]}",
                    file=sys.stderr,
                    flush=True,
                )
        if time.monotonic() - began > 60 * minutes:
            break
    return found


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def run(
    first: int, cases: int, seed: int, minutes: float = float("inf"), only: int | None = None
) -> int:
    """Run the cases from ``first`` on, or ``only`` one, whose file is kept; the exit status is 1 where a case fails."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    start = time.monotonic()
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="lethe-fuzz-", dir=place) as folder:
        if only is not None:
            reader, content = case(only, seed, readers(Path(folder)))
            kept = Path(tempfile.mkdtemp(prefix="lethe-fuzz-")) / reader.file
            kept.write_bytes(content)
            print(f"{reader.name}: {kept}")
            reader.read(kept)
            return 0
        found = fuzz(range(first, first + cases), seed, Path(folder), minutes)
    done = (found.read + found.refused).total()
    seconds = time.monotonic() - start
    for name in sorted(found.read | found.refused):
        print(f"{name:28} {found.read[name]:>8,} read {found.refused[name]:>8,} refused")
    for number, wrong in found.failed.items():
        print(f"failed: case {number}, {wrong}")
    print(
        f"{done:,} cases from {first:,} of seed {seed} in {seconds:,.0f} s ({done / seconds:,.0f} per second), "
        f"{len(found.failed)} failed; largest memory {_memory() >> 20:,} MiB"
    )
    return 1 if found.failed else 0
