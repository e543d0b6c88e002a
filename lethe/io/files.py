"""Files written completely or not at all; text, JSON and JSON lines; the schema version of artifacts.

A writer writes every artifact to a temporary name in the same folder and then moves it to its place. A reader never sees
half a file, and a killed writer leaves the old file intact. The next write removes the temporary files of killed writers.

A JSON object carries the version under ``schema``, a Parquet file in its metadata under ``lethe_schema``. A folder whose
files cannot carry one (JSON lines, and the JSON lists that DVC plots) has a JSON object or a Parquet file beside them. Kept
answers, verdicts and levels carry none, because the key of each contains the source of the code that reads them.
"""

import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import itertools
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lethe.errors import BadFile, BadRow, LetheError, OtherSchema, near
from lethe.io.packed import opened

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
Json = Any  # a value of parsed JSON or YAML, or a cell of a table, that nothing has checked yet
SCHEMA_VERSION = 1
KEY = "schema"
METADATA = b"lethe_schema"
STAMP = {METADATA: str(SCHEMA_VERSION).encode()}  # in the metadata of a Parquet file
FIRST = 1  # the version of an artifact that names none
SUFFIX = ".tmp"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # Linux constants: linux/fcntl.h, linux/fs.h


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; success moves the file to ``path``, an error removes the file."""
    path = Path(path)
    with _temporary(path, _empty_file) as temporary:
        yield temporary
        # mkstemp sets mode 0600, which would hide artifacts from other users.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary folder that replaces the artifact ``path`` on success; for a user's folder, use `files_into`."""
    path = Path(path)
    with _temporary(path, tempfile.mkdtemp) as temporary:
        yield temporary
        os.chmod(temporary, 0o755)
        if not os.path.lexists(path):
            os.rename(temporary, path)
        elif not _exchanged(temporary, path):
            # No reader sees half a folder, but for a moment there is no folder. A writer killed at that moment leaves
            # the old folder under a temporary name. `shutil.move` also works on the lower layers of a container.
            aside = Path(tempfile.mkdtemp(prefix=_prefix(path), suffix=SUFFIX, dir=path.parent))
            shutil.move(path, aside / path.name)
            os.rename(temporary, path)
            _remove(aside)


@contextlib.contextmanager
def files_into(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary folder; on success move its files to the folder ``path``, one by one, each completely."""
    path = Path(path)
    make_folder(path)
    with tempfile.TemporaryDirectory(prefix=".", suffix=SUFFIX, dir=path) as temporary:
        yield Path(temporary)
        for file in sorted(Path(temporary).iterdir()):
            try:
                os.replace(file, path / file.name)
            except OSError as error:
                raise BadFile(path / file.name, f"cannot be written ({error.strerror})") from None


def make_folder(path: Path) -> None:
    """Make a folder with those around it; raises `BadFile` where it cannot be made or written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise BadFile(path, "is a file, expected a folder", "Name another place.") from None
    except OSError as error:
        raise BadFile(
            path, f"cannot be made a folder ({error.strerror})", "Name another place."
        ) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadFile(path, "cannot be written to", "Name another place.")


@contextlib.contextmanager
def _temporary(path: Path, make: Callable[..., str]) -> Iterator[Path]:
    """Yield a temporary sibling of ``path``, locked while its writer lives and removed at the end.

    A success also removes the siblings of dead writers. The lock, unlike a process number in the name, identifies dead
    writers across containers and machines.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        temporary = Path(make(prefix=_prefix(path), suffix=SUFFIX, dir=path.parent))
        try:
            handle = os.open(temporary, os.O_RDONLY)
        except FileNotFoundError:  # another writer removed the file before the lock
            continue
        # On a file system without locks, no writer removes files.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        if temporary.exists():
            break
        os.close(handle)
    try:
        yield temporary
        _sweep(path)
    finally:
        os.close(handle)
        _remove(temporary)


@contextlib.contextmanager
def alone(path: Path, taken: Callable[[str], LetheError]) -> Iterator[None]:
    """Hold the lock file ``path`` until this process ends; raises ``taken(number of the process)`` where another holds it."""
    make_folder(path.parent)
    with open(path, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise taken(lock.read().strip() or "unknown") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _empty_file(prefix: str, suffix: str, dir: Path) -> str:
    handle, name = tempfile.mkstemp(suffix, prefix, dir)
    os.close(handle)
    return name


def _prefix(path: Path) -> str:
    return f".{path.name}.lethe-"


def _sweep(path: Path) -> None:
    start = _prefix(path)
    for name in os.listdir(path.parent):
        if not (name.startswith(start) and name.endswith(SUFFIX)):
            continue
        with contextlib.suppress(OSError):
            handle = os.open(path.parent / name, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path.parent / name)
            finally:
                os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange the two names atomically; return whether the system could (renameat2 is not everywhere)."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    names = (AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second))
    return rename(*names, ctypes.c_uint(RENAME_EXCHANGE)) == 0


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text to a temporary name and move the file to its place."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike, value: object) -> None:
    """Write strict JSON (infinities and NaN become null) with sorted, stable formatting."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        # Piece by piece, so that the text of a large value is never whole in memory.
        json.dump(plain(value), file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def read_json(path: str | os.PathLike) -> Json:
    """Return the value of a JSON file; `BadFile` or `BadRow` says what is wrong with the file."""
    return _parsed(path, 1, read_text(path))


def write_jsonl(path: str | os.PathLike, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as JSON lines, as `write_text` writes."""
    write_text(path, jsonl_text(rows))


def jsonl_text(rows: Iterable[Mapping[str, object]]) -> str:
    """The JSON lines of rows, as `write_jsonl` writes them."""
    lines = [json.dumps(plain(row), ensure_ascii=False, allow_nan=False) for row in rows]
    return "\n".join(lines) + ("\n" if lines else "")


def restored(kind: type[T], values: object) -> T:
    """An object of a dataclass from the plain values that `dataclasses.asdict` made of it; other keys are ignored."""
    reader = reader_of(kind)  # type: ignore[arg-type]  # mypy does not see that a type has a hash
    validated: T = reader.validate_python(values)
    return validated


@functools.cache  # making one takes longer than reading a file with it
def reader_of(kind: Any) -> "TypeAdapter[Any]":
    """What makes an object of the type ``kind`` from plain values, and plain values of the object."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def read_jsonl(path: str | os.PathLike) -> list[tuple[int, dict]]:
    """Read JSON lines as (line number from 1, object); blank lines are skipped."""
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        row = _parsed(path, number, line, without_doubles)
        if not isinstance(row, dict):
            raise BadRow(path, number, f"got {type(row).__name__}, expected a JSON object")
        rows.append((number, row))
    return rows


def read_records(path: str | os.PathLike) -> list[tuple[int, dict]]:
    """Read JSON lines as `read_jsonl`, or one list of objects as (number from 1, object), as pandas writes records."""
    text = read_text(path)
    if not text.lstrip().startswith("["):
        return read_jsonl(path)
    rows = []
    for number, row in enumerate(_parsed(path, 1, text, without_doubles), start=1):
        if not isinstance(row, dict):
            raise BadRow(path, number, f"got {type(row).__name__}, expected a JSON object")
        rows.append((number, row))
    return rows


def check_text(path: str | os.PathLike, line: int, value: Json) -> None:
    """Refuse a lone surrogate anywhere in a value: JSON can hold one, and neither a UTF-8 file nor a terminal can."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        problem = f"lone surrogate {half} is not valid text"
        raise BadRow(path, line, problem, "Write the full character.") from None
    except RecursionError:
        raise BadRow(path, line, "nested too deeply") from None


def _parsed(path: str | os.PathLike, line: int, text: str, members: Callable | None = None) -> Json:
    try:
        value = json.loads(text, object_pairs_hook=members)
    except json.JSONDecodeError as error:
        raise BadRow(path, line + error.lineno - 1, f"not valid JSON ({error.msg})") from None
    except RecursionError:
        raise BadRow(path, line, "nested too deeply") from None
    except ValueError as error:  # a duplicate key, or an integer of thousands of digits
        raise BadRow(path, line, str(error).split(";")[0]) from None
    if r"\ud" in text or r"\uD" in text:  # possibly a lone surrogate
        check_text(path, line, value)
    return value


def without_doubles(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """The object of these pairs; raises `ValueError` where a key appears twice, whose later value would hide the earlier."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"duplicate key {str(doubled(key for key, _ in pairs))[:60]!r}")
    return members


def doubled(names: Iterable[T]) -> T | None:
    """Return the first name that stands a second time, None where none does."""
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_file(path: Path) -> None:
    """Refuse a folder, a missing file, and a pipe or a device, which could block a reader forever."""
    if not path.is_file():
        problem = "no such file"
        if path.is_dir():
            problem = "is a folder, expected a file"
        raise BadFile(path, problem, f"Check the path.{meant(path)}")


def meant(path: Path) -> str:
    """Return a question that names the file to whose name the name of a missing file is near; else an empty text."""
    beside = itertools.islice(path.parent.glob("*"), 1000)
    return near(path.name, (file.name for file in beside))


def read_text(path: str | os.PathLike) -> str:
    """Return the text of a plain or packed UTF-8 file without its byte order mark; `BadRow` names a line that is no UTF-8."""
    path = Path(path)
    check_file(path)
    with opened(path) as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadRow(path, line, "not valid UTF-8", "Convert the file to UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def plain(value: object) -> object:
    """Return what strict JSON can hold: objects for dataclasses, plain values for NumPy's, null for infinities and NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def flat_items(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of a JSON object; those of nested objects have dotted keys."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_items(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def flat_numbers(values: Mapping[str, object]) -> dict[str, float]:
    """The finite numbers of a JSON object; those of nested objects have dotted keys."""
    numbers: dict[str, float] = {}
    for key, value in flat_items(values):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            numbers[key] = float(value)
    return numbers


def check_version(path: str | os.PathLike, version: object) -> None:
    """Raise `OtherSchema` unless a file has the version that this release writes."""
    if type(version) is not int or version != SCHEMA_VERSION:
        raise OtherSchema(path, version, SCHEMA_VERSION)


def check_metadata(path: str | os.PathLike, metadata: dict[bytes, bytes] | None) -> None:
    """Check the version in the metadata of a Parquet file; a table of a user has none."""
    stated = (metadata or {}).get(METADATA)
    if stated is None:
        return
    version: object = stated.decode("utf-8", "replace")
    if stated.isdigit() and len(stated) < 10:
        version = int(stated)
    check_version(path, version)


def read_artifact(path: str | os.PathLike) -> Json:
    """Read a JSON artifact; raise `OtherSchema` where another release of Lethe wrote an object of another version."""
    value = read_json(path)
    if isinstance(value, dict):
        check_version(path, value.get(KEY, FIRST))
    return value
