"""Errors that a person can act on: each class words one sentence of what was got, what is legal and what to do, which the
command line prints without a traceback, to exit with ``exit_status`` (1: the work failed; 2: wrong use or bad input).
"""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from os import PathLike

from lethe.wording import one_line, plural, reason_of, shortened, visible

__all__ = ["one_line", "plural", "reason_of", "shortened", "visible"]

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The database libraries report a full disk in these sentences, without an error number.
DISK_SENTENCES = ("disk I/O error", "database or disk is full")
LINK_LOOP = "Symlink loop from "
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
# What is legal begins so where it names no word that a user may give, or names the words that are not legal.
WITHOUT_WORDS = ("left out", "given ", "another ", "a name other ", "in a folder without ")
# torch and NumPy report memory that the system refuses in these words; the CPU allocator's error has no class of its own.
MEMORY_SENTENCES = ("DefaultCPUAllocator", "CUDA out of memory", "Cannot allocate memory")


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

    def __init__(
        self,
        name: str,
        got: object,
        legal: str,
        remedy: str = "",
    ):
        self.name = name
        self.got = got
        self.legal = legal
        self.remedy = remedy
        sentence = f"{name}: got {shortened(got)}; must be {legal}.{_next(remedy)}"
        super().__init__(sentence + near(got, legal))


def _next(sentence: str) -> str:
    """A further sentence with the blank before it; empty where there is none."""
    if not sentence:
        return ""
    return f" {sentence}"


def check(good: object, name: str, got: object, legal: str) -> None:
    """Raise `BadValue` unless ``good`` holds."""
    if not good:
        raise BadValue(name, got, legal)


class BadArguments(BadInput):
    """Arguments do not go together, or one of them is missing; the command line renders their names as options."""

    def __init__(self, names: tuple[str, ...], problem: str):
        self.names = names
        self.problem = problem
        super().__init__(f"{', '.join(names)}: {problem}")


class BadFile(BadInput):
    """A file is missing, broken, or not what was asked for."""

    def __init__(self, path: str | PathLike, problem: str, remedy: str = ""):
        self.path = str(path)
        super().__init__(f"{self.path}: {problem}.{_next(remedy)}")


class BadRow(BadInput):
    """One row of a file is broken. ``row`` counts the file's lines from 1 (the header of a CSV is line 1)."""

    def __init__(
        self,
        path: str | PathLike,
        row: int,
        problem: str,
        remedy: str = "",
    ):
        self.path = str(path)
        self.row = row
        if not problem.endswith("?"):
            problem = f"{problem}."
        super().__init__(f"{self.path}, line {row}: {problem}{_next(remedy)}")


class OtherSchema(BadFile):
    """An artifact of a release of Lethe whose files have another form."""

    def __init__(self, path: str | PathLike, version: object, read: int):
        self.version = version
        self.read = read
        remedy = "Run"
        if isinstance(version, int) and version > read:
            remedy = "Install the newer release, or run"
        remedy += " `dvc repro` (or `lethe run`; for a folder of `lethe eval`, that command) to make it again."
        problem = f"has schema version {shortened(version)}, and this release of Lethe reads version {read}"
        super().__init__(path, problem, remedy)


class MissingColumn(BadFile):
    """A table lacks a column that its reader needs."""

    def __init__(self, path: str | PathLike, column: str, present: Iterable[str], remedy: str = ""):
        self.column = column
        self.present = sorted(map(str, present))
        problem = f"no column {column!r}; its columns are {', '.join(self.present) or '(none)'}"
        remedy = remedy or f"Rename the column that holds these values to {column!r}."
        if column == "text" and "score" in self.present:
            remedy = f"Bound its scores with `lethe bounds {path}`, or add the answers as a column 'text'."
        super().__init__(path, problem, remedy)


def check_columns(path: str | PathLike, required: Iterable[str], present: Collection[str]) -> None:
    """Raise `MissingColumn` for the first required column that is not present."""
    for column in required:
        if column not in present:
            raise MissingColumn(path, column, present)


class BadParam(BadInput):
    """A key of params.yaml is unknown, of the wrong type or impossible."""

    def __init__(
        self,
        key: str,
        got: object,
        legal: str,
        source: str = "params.yaml",
        also: str = "",
    ):
        self.key = key
        self.got = got
        self.legal = legal
        last = key.rpartition(".")[2]
        meant = near(got, legal) or near(last, legal)
        super().__init__(
            f"{source}, key {key}: got {shortened(got)}; must be {legal}{also}.{meant}"
        )


class ParamsClash(BadInput):
    """Keys of params.yaml are each valid but contradict one another."""

    def __init__(self, key: str, problem: str, source: str = "params.yaml"):
        self.key = key
        place = source
        if key:
            place = f"{source}, key {key}"
        super().__init__(f"{place}: {problem}.")


class StageFailed(LetheError):
    """A stage of the pipeline ended with an error; the stage's own message is printed above this one."""

    def __init__(self, stage: str, status: int, tail: str = ""):
        self.stage = stage
        if status == 2:  # bad input stays bad input
            self.exit_status = 2
        output = ""
        if tail:
            output = f" Its last output:\n{tail}"
        super().__init__(f"Stage {stage} {_ending(status)}.{output}")


def _ending(status: int) -> str:
    """How a process with this exit status ended; a negative one is that of a signal."""
    number = status - 128  # a shell between DVC and the stage that does not make way says 128 + N
    if status < 0:
        number = -status
    known = number in set(signal.Signals)
    if status >= 0 and not known:
        return f"failed with exit status {status}"
    if not known:
        return f"was ended by signal {number}"
    name = signal.Signals(number).name
    if name != "SIGKILL":
        return f"was ended by {name}"
    return (
        "was ended by SIGKILL, which the system sends when memory runs out "
        "(`lethe run --jobs 1` needs less)"
    )


class ParamsChanged(LetheError):
    """params.yaml changed while a stage ran under `dvc repro`, so DVC would record the new values with the old output."""

    def __init__(self) -> None:
        super().__init__(
            "params.yaml changed while the stage ran: the result fits neither version. Run it again."
        )


class MissingArtifact(LetheError):
    """A stage or command that must come first has not run; ``made_by`` names it."""

    def __init__(self, path: str | PathLike, made_by: str):
        super().__init__(
            f"{path} is missing: {made_by} creates it. Run `dvc repro` (or `lethe run`) first."
        )


def behind(error: BaseException) -> BaseException | None:
    """Return the error that led to ``error``, as a traceback would show it."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what caused it, what caused that, and so on."""
    while error is not None:
        yield error
        error = behind(error)


def _disk_full(cause: BaseException) -> LetheError | None:
    full = isinstance(cause, OSError) and cause.errno in DISK
    if not full and not any(sentence in str(cause) for sentence in DISK_SENTENCES):
        return None
    name = getattr(cause, "filename", None)
    place = f" ({name})" if name else ""
    problem = f"The disk is full, or the file size is limited{place}: no incomplete file was kept"
    return LetheError(f"{problem}. Free some space and run the command again.")


def _unwritable(cause: BaseException) -> LetheError | None:
    """A file that cannot be read is bad input (exit status 2); a place that takes no result is work that failed (1)."""
    if not isinstance(cause, OSError) or cause.errno not in READ_ONLY or cause.filename is None:
        return None
    place = os.fsdecode(cause.filename)
    folder, _, name = place.rpartition("/")
    if name.endswith(".tmp"):  # a temporary file, of which the user knows nothing
        place = folder
    reason = cause.strerror
    if os.path.isfile(place) and not os.access(place, os.R_OK):
        return BadFile(place, f"cannot be read ({reason})", "Allow this user to read the file.")
    remedy = "Allow this user to read and write the place, or work in a copy elsewhere."
    return LetheError(f"{one_line(place)}: cannot be used ({reason}). {remedy}")


def _out_of_memory(cause: BaseException) -> LetheError | None:
    named = isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError"
    worded = any(sentence in str(cause) for sentence in MEMORY_SENTENCES)
    if not named and not (worded and isinstance(cause, (RuntimeError, OSError))):
        return None
    problem = "Out of memory"
    message = one_line(" ".join(str(cause).split()))[:200]
    if message:
        problem += f" ({message})"
    return LetheError(
        f"{problem}: no incomplete file was kept. Compute fewer rows at once (a smaller sample.max_rows, or batch of "
        "training), run fewer stages at once (`lethe run --jobs 1`), or free some memory, and run the command again."
    )


# Packages whose name on the index is not the name that Python imports.
INDEX_NAMES = {
    "ruamel": "ruamel.yaml",
    "sklearn": "scikit-learn",
    "vl_convert": "vl-convert-python",
    "yaml": "pyyaml",
}


# Packages that an installation before them does not list, with their extras.
EXTRA_OF_PACKAGE = {"securesystemslib": "sign", "cryptography": "sign"}


def _not_installed(cause: BaseException) -> LetheError | None:
    from importlib.metadata import PackageNotFoundError, requires

    if not isinstance(cause, ModuleNotFoundError) or not cause.name:
        return None
    try:
        requirements = requires("lethe") or []
    except PackageNotFoundError:  # a clone on the path that is not installed
        requirements = []
    module = cause.name.partition(".")[0]
    package = INDEX_NAMES.get(module, module.replace("_", "-"))
    requirements += [f"{name}; extra == '{extra}'" for name, extra in EXTRA_OF_PACKAGE.items()]
    for requirement in requirements:
        match = re.match(rf"{re.escape(package)}\b.*extra == ['\"]([\w-]+)['\"]", requirement)
        if match:
            extra = match[1]
            return BadInput(
                f"This needs the extra {extra} ({package} is not installed): `pip install 'lethe[{extra}]'`, "
                f"or `pip install '.[{extra}]'` in a clone."
            )
    return None


def _link_to_itself(cause: BaseException) -> LetheError | None:
    """Of a link that leads to itself pathlib raises a `RuntimeError` with these words, and the system `ELOOP`."""
    place = ""
    if isinstance(cause, OSError) and cause.errno == errno.ELOOP and cause.filename is not None:
        place = repr(os.fsdecode(cause.filename))
    if isinstance(cause, RuntimeError) and str(cause).startswith(LINK_LOOP):
        place = str(cause).removeprefix(LINK_LOOP)
    if not place:
        return None
    return BadFile(place.strip("'\""), "is a link that leads to itself", "Name the file itself.")


def _no_file_name(cause: BaseException) -> LetheError | None:
    """The system takes no name that long: mostly it is the text of a file, where its place is wanted."""
    if not isinstance(cause, OSError) or cause.errno != errno.ENAMETOOLONG:
        return None
    name = os.fsdecode(cause.filename or "")
    problem = f"is too long for the name of a file ({len(name):,} characters)"
    return BadFile(shortened(name), problem, "Name the place of the file, not what it holds.")


def of_the_machine(error: BaseException) -> LetheError | None:
    """Return the error about the machine (disk, memory, permissions, packages) behind ``error``, if it caused it."""
    kinds = (
        _disk_full,
        _out_of_memory,
        _unwritable,
        _link_to_itself,
        _no_file_name,
        _not_installed,
    )
    for kind in kinds:
        for cause in causes(error):
            found = kind(cause)
            if found is not None:
                return found
    return None


def near(got: object, legal: str | Iterable[str]) -> str:
    """Return a question that names the legal word to which a misspelt text is near; else an empty text."""
    if isinstance(legal, str):
        if legal.startswith(WITHOUT_WORDS):
            return ""
        if legal.startswith("a "):
            _, _, legal = legal.rpartition(": ")
        legal = re.findall(r"[\w@-]+(?:\.[\w@-]+)*", legal)
    words = set(legal)
    if not isinstance(got, str) or got in words:
        return ""
    match = nearest(got, words, 0.8)
    if match is None:
        return ""
    return f" Did you mean {match!r}?"


def nearest(word: str, words: Collection[str], likeness: float) -> str | None:
    """Return the word that is most like ``word``, where its likeness in [0, 1] is at least ``likeness``."""
    from difflib import get_close_matches

    matches = get_close_matches(word, words, 1, likeness)
    if not matches:
        return None
    return matches[0]


class LibraryChanged(LetheError):
    """The installed release of a library lacks a non-public name that Lethe reads."""

    def __init__(self, library: str, what: str, error: Exception):
        from importlib.metadata import version

        problem = f"{library} {version(library)} no longer provides {what} in the form that Lethe reads ({error})"
        super().__init__(f"{problem}: install the version that requirements/ names.")
