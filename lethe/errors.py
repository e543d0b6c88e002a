"""Errors that a person can act on: each class words one sentence of what was got, what is legal and what to do, which the
command line prints without a traceback, to exit with ``exit_status`` (1: the work failed; 2: wrong use or bad input).
"""

from __future__ import annotations

import errno
import os
import re
import signal
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from os import PathLike

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The database libraries report a full disk in these sentences, without an error number.
DISK_SENTENCES = ("disk I/O error", "database or disk is full")
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
# torch and NumPy report memory that the system refuses in these words; the CPU allocator's error has no class of its own.
MEMORY_SENTENCES = ("DefaultCPUAllocator", "CUDA out of memory", "Cannot allocate memory")
# Control, format (bidi overrides, zero width), surrogate and private characters, line and paragraph separators
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")

LONGEST = 4000  # characters of a sentence about bad input


class LetheError(Exception):
    """The work failed for a reason that one sentence can state."""

    exit_status = 1

    def __reduce__(self) -> tuple[Callable[..., LetheError], tuple[object, ...]]:
        """Pickle the sentence and the fields, whatever the class takes, so that an error crosses processes."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(
    kind: type[LetheError], arguments: tuple[object, ...], fields: dict[str, object]
) -> LetheError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


class BadInput(LetheError):
    """Wrong use or bad input, where nothing was computed, in one line: it may quote a file of a stranger."""

    exit_status = 2

    def __init__(self, sentence: str):
        super().__init__(one_line(sentence))


class BadValue(BadInput, ValueError):
    """An argument lies outside its range; callers of the pure functions can catch it as a ``ValueError``."""

    def __init__(self, name: str, got: object, legal: str, remedy: str = ""):
        self.name, self.got, self.legal, self.remedy = name, got, legal, remedy
        sentence = f"{name}: got {shortened(got)}; must be {legal}." + (
            f" {remedy}" if remedy else ""
        )
        super().__init__(sentence + near(got, legal))


def check(good: object, name: str, got: object, legal: str) -> None:
    """Raise `BadValue` unless ``good`` holds."""
    if not good:
        raise BadValue(name, got, legal)


class BadArguments(BadInput):
    """Arguments do not go together, or one of them is missing; the command line renders their names as options."""

    def __init__(self, names: tuple[str, ...], problem: str):
        self.names, self.problem = names, problem
        super().__init__(f"{', '.join(names)}: {problem}")


class BadFile(BadInput):
    def __init__(self, path: str | PathLike, problem: str, remedy: str = ""):
        self.path = str(path)
        super().__init__(f"{self.path}: {problem}." + (f" {remedy}" if remedy else ""))


class BadRow(BadInput):
    """One row of a file is broken. ``row`` counts the file's lines from 1 (the header of a CSV is line 1)."""

    def __init__(self, path: str | PathLike, row: int, problem: str, remedy: str = ""):
        self.path, self.row = str(path), row
        sentence = problem if problem.endswith("?") else f"{problem}."
        super().__init__(f"{self.path}, line {row}: {sentence}" + (f" {remedy}" if remedy else ""))


class OtherSchema(BadFile):
    """An artifact of a release of Lethe whose files have another form."""

    def __init__(self, path: str | PathLike, version: object, read: int):
        self.version, self.read = version, read
        newer = isinstance(version, int) and version > read
        remedy = "Install the newer release, or run" if newer else "Run"
        remedy += " `dvc repro` (or `lethe run`; for a folder of `lethe eval`, that command) to make it again."
        problem = f"has schema version {shortened(version)}, and this release of Lethe reads version {read}"
        super().__init__(path, problem, remedy)


class MissingColumn(BadFile):
    def __init__(self, path: str | PathLike, column: str, present: Iterable[str]):
        self.column, self.present = column, sorted(map(str, present))
        problem = f"no column {column!r}; its columns are {', '.join(self.present) or '(none)'}"
        remedy = f"Rename the column that holds these values to {column!r}."
        if column == "text" and "score" in self.present:
            remedy = f"Bound its scores with `lethe bounds {path}`, or add the answers as a column 'text'."
        super().__init__(path, problem, remedy)


def check_columns(path: str | PathLike, required: Iterable[str], present: Collection[str]) -> None:
    for column in required:
        if column not in present:
            raise MissingColumn(path, column, present)


class BadParam(BadInput):
    """A key of params.yaml is unknown, of the wrong type or impossible."""

    def __init__(
        self, key: str, got: object, legal: str, source: str = "params.yaml", also: str = ""
    ):
        self.key, self.got, self.legal = key, got, legal
        meant = near(got, legal) or near(key.rpartition(".")[2], legal)
        super().__init__(
            f"{source}, key {key}: got {shortened(got)}; must be {legal}{also}.{meant}"
        )


class ParamsClash(BadInput):
    """Keys of params.yaml are each valid but contradict one another."""

    def __init__(self, key: str, problem: str, source: str = "params.yaml"):
        self.key = key
        super().__init__(f"{source}, key {key}: {problem}." if key else f"{source}: {problem}.")


class StageFailed(LetheError):
    """A stage of the pipeline ended with an error; the stage's own message is printed above this one."""

    def __init__(self, stage: str, status: int, tail: str = ""):
        self.stage = stage
        self.exit_status = 2 if status == 2 else 1  # bad input stays bad input
        # A shell between DVC and the stage, where it does not make way for the stage, says 128 + N for signal N.
        number = -status if status < 0 else status - 128
        ended = status < 0 or number in set(signal.Signals)
        how = f"failed with exit status {status}."
        if ended:
            name = (
                signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            )
            memory = (
                ", which the system sends when memory runs out (`lethe run --jobs 1` needs less)"
            )
            how = f"was ended by {name}{memory if name == 'SIGKILL' else ''}."
        super().__init__(f"Stage {stage} {how}" + (f" Its last output:\n{tail}" if tail else ""))


class ParamsChanged(LetheError):
    """params.yaml changed while a stage ran under `dvc repro`, so DVC would record the new values with the old output."""

    def __init__(self) -> None:
        super().__init__(
            "params.yaml changed while the stage ran: the result fits neither version. Run it again."
        )


class MissingArtifact(LetheError):
    def __init__(self, path: str | PathLike, made_by: str):
        super().__init__(
            f"{path} is missing: {made_by} creates it. Run `dvc repro` (or `lethe run`) first."
        )


def visible(text: str) -> str:
    """Return ``text`` for a terminal: characters that move, colour, hide or reorder text are escaped, except line breaks."""
    unseen = {letter for letter in {*text} - {"\n"} if unicodedata.category(letter) in UNSEEN}
    return text.translate(
        {ord(letter): letter.encode("unicode_escape").decode() for letter in unseen}
    )


def one_line(text: str) -> str:
    """Return ``text`` as one line of visible characters; the middle of a longer text than `LONGEST` is left out."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    return text if text.isprintable() else visible(text).replace("\n", "\\n")


def reason_of(error: Exception) -> str:
    """Return the first line of a library's message, cut, or the name of an error that has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def behind(error: BaseException) -> BaseException | None:
    """Return the error that led to ``error``, as a traceback would show it."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = behind(error)


def _disk_full(cause: BaseException) -> LetheError | None:
    full = isinstance(cause, OSError) and cause.errno in DISK
    if not full and not any(sentence in str(cause) for sentence in DISK_SENTENCES):
        return None
    place = f" ({name})" if (name := getattr(cause, "filename", None)) else ""
    problem = f"The disk is full, or the file size is limited{place}: no incomplete file was kept"
    return LetheError(f"{problem}. Free some space and run the command again.")


def _unwritable(cause: BaseException) -> LetheError | None:
    """A file that cannot be read is bad input (exit status 2); a place that takes no result is work that failed (1)."""
    if not isinstance(cause, OSError) or cause.errno not in READ_ONLY or cause.filename is None:
        return None
    folder, _, own = (name := os.fsdecode(cause.filename)).rpartition("/")
    name, reason = folder if own.endswith(".tmp") else name, cause.strerror  # not a temporary file
    if os.path.isfile(name) and not os.access(name, os.R_OK):
        return BadFile(name, f"cannot be read ({reason})", "Allow this user to read the file.")
    remedy = "Allow this user to read and write the place, or work in a copy elsewhere."
    return LetheError(f"{one_line(name)}: cannot be used ({reason}). {remedy}")


def _out_of_memory(cause: BaseException) -> LetheError | None:
    named = isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError"
    refused = isinstance(cause, (RuntimeError, OSError))
    if not named and not (refused and any(sentence in str(cause) for sentence in MEMORY_SENTENCES)):
        return None
    message = one_line(" ".join(str(cause).split()))[:200]
    fewer = "Compute fewer rows at once (a smaller sample.max_rows, or batch of training), run fewer stages at once"
    remedy = f"{fewer} (`lethe run --jobs 1`), or free some memory, and run the command again."
    return LetheError(
        f"Out of memory{f' ({message})' if message else ''}: no incomplete file was kept. {remedy}"
    )


# Packages whose name on the index is not the name that Python imports.
INDEX_NAMES = {
    "ruamel": "ruamel.yaml",
    "sklearn": "scikit-learn",
    "vl_convert": "vl-convert-python",
    "yaml": "pyyaml",
}


def _not_installed(cause: BaseException) -> LetheError | None:
    from importlib.metadata import PackageNotFoundError, requires

    if not isinstance(cause, ModuleNotFoundError) or not cause.name:
        return None
    try:
        requirements = requires("lethe") or []
    except PackageNotFoundError:  # a clone on the path that is not installed
        return None
    module = cause.name.partition(".")[0]
    package = INDEX_NAMES.get(module, module.replace("_", "-"))
    for requirement in requirements:
        if extra := re.match(rf"{re.escape(package)}\b.*extra == ['\"]([\w-]+)['\"]", requirement):
            remedy = (
                f"`pip install 'lethe[{extra[1]}]'`, or `pip install '.[{extra[1]}]'` in a clone"
            )
            return BadInput(
                f"This needs the extra {extra[1]} ({package} is not installed): {remedy}."
            )
    return None


def of_the_machine(error: BaseException) -> LetheError | None:
    """Return the error about the machine (disk, memory, permissions, packages) behind ``error``, if it caused it."""
    kinds = (_disk_full, _out_of_memory, _unwritable, _not_installed)
    return next(filter(None, (kind(cause) for kind in kinds for cause in causes(error))), None)


def plural(value: int, thing: str, things: str = "") -> str:
    return f"{value:,} {thing if value == 1 else things or f'{thing}s'}"


def near(got: object, legal: str | Iterable[str]) -> str:
    """Return a question that names the legal word to which a misspelt text is near; else an empty text."""
    words = set(re.findall(r"[\w@-]+(?:\.[\w@-]+)*", legal) if isinstance(legal, str) else legal)
    match = nearest(got, words, 0.8) if isinstance(got, str) and got not in words else None
    return f" Did you mean {match!r}?" if match else ""


def nearest(word: str, words: Collection[str], likeness: float) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, words, 1, likeness)), None)


def shortened(value: object, limit: int = 80) -> str:
    """Return the ``repr`` of ``value`` (of a path, that of its text), cut to at most ``limit`` characters."""
    try:
        text = repr(str(value) if isinstance(value, PathLike) else value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        text = f"{'an integer' if isinstance(value, int) else 'an entry with an integer'} of thousands of digits"
    return text if len(text) <= limit else text[: limit - 3] + "..."


class LibraryChanged(LetheError):
    """The installed release of a library lacks a non-public name that Lethe reads."""

    def __init__(self, library: str, what: str, error: Exception):
        from importlib.metadata import version

        problem = f"{library} {version(library)} no longer provides {what} in the form that Lethe reads ({error})"
        super().__init__(f"{problem}: install the version that requirements/ names.")
