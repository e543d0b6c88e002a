"""Files: written whole or not at all, read with errors that name the file and the line.

Every artifact is written to a temporary name beside its place and moved there, so that a reader never sees half
a file and a killed writer leaves the old one intact. What a killed writer left beside it goes with the next write.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import fcntl
import io
import itertools
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.errors import BadFile, BadRow, MissingArtifact, MissingColumn, shortened

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

SCHEMA_VERSION = 1
SUFFIX = ".tmp"
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux: linux/fcntl.h, linux/fs.h
TABLE_SUFFIXES = (".csv", ".parquet", ".jsonl", ".json")
LARGEST_CELL = 1 << 30  # characters
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "none", "<NA>")


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path beside ``path``: it replaces ``path`` on success and is removed on error."""
    path = Path(path)
    with _temporary(path, _empty_file) as temporary:
        yield temporary
        os.chmod(temporary, 0o644)  # mkstemp makes 0600, which would hide artifacts from other users
        os.replace(temporary, path)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; on success it replaces ``path``, on error it is removed.

    For artifacts only, since what stood in ``path`` is gone then; into a folder of the user's own: `files_into`.
    """
    path = Path(path)
    with _temporary(path, tempfile.mkdtemp) as temporary:
        yield temporary
        os.chmod(temporary, 0o755)
        if not os.path.lexists(path):
            os.rename(temporary, path)
        elif not _exchanged(temporary, path):
            # No reader sees a half even so, but for a moment one sees nothing, and a writer killed in it leaves the
            # old folder under a temporary name. `shutil.move` copes with the lower layers of a container.
            aside = Path(tempfile.mkdtemp(prefix=_prefix(path), suffix=SUFFIX, dir=path.parent))
            shutil.move(path, aside / path.name)
            os.rename(temporary, path)
            _remove(aside)


@contextlib.contextmanager
def files_into(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary folder; on success its files go to the folder ``path``, one by one and each whole.

    Nothing else in ``path`` is touched. A ``path`` that cannot be such a folder is a `BadFile`.
    """
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
    """Make the folder where it is not there; a place that can hold none is a `BadFile`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise BadFile(path, "is a file, expected a folder", "Name another place.") from None
    except OSError as error:
        raise BadFile(path, f"cannot be made a folder ({error.strerror})", "Name another place.") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise BadFile(path, "cannot be written to", "Name another place.")


@contextlib.contextmanager
def _temporary(path: Path, make: Callable[..., str]) -> Iterator[Path]:
    """A temporary sibling of ``path``, locked as long as its writer lives and removed at the end.

    After a success those of dead writers go too: the lock, unlike a process number in the name, tells them apart
    across containers and machines.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        temporary = Path(make(prefix=_prefix(path), suffix=SUFFIX, dir=path.parent))
        try:
            handle = os.open(temporary, os.O_RDONLY)
        except FileNotFoundError:  # swept before it was locked
            continue
        with contextlib.suppress(OSError):  # a file system without locks: nothing is swept there
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


def _empty_file(**place: Any) -> str:
    handle, name = tempfile.mkstemp(**place)
    os.close(handle)
    return name


def _prefix(path: Path) -> str:
    return f".{path.name}.lethe-"


def _sweep(path: Path) -> None:
    """Remove the temporary siblings of ``path`` whose writers are dead."""
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


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the two names changed places, in one step (renameat2, which not every system has)."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    names = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other))
    return rename(*names, ctypes.c_uint(RENAME_EXCHANGE)) == 0


def write_text(path: str | os.PathLike, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write strict JSON (infinities and NaN become null) with sorted, stable formatting."""
    write_text(path, json.dumps(_finite(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def load_yaml(text: str) -> Any:
    """YAML 1.2, as DVC reads and writes it; raises `ruamel.yaml.error.YAMLError`, also where a key stands twice.

    PyYAML reads 1.1, where 026 is 22, 1:30 is 90 and on is true: a run would not be what DVC records of it.
    """
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(text)


def read_json(path: str | os.PathLike) -> Any:
    return _parsed(path, 1, read_text(path))


def write_jsonl(path: str | os.PathLike, rows: Iterable[dict]) -> None:
    lines = [json.dumps(_finite(row), ensure_ascii=False, allow_nan=False) for row in rows]
    write_text(path, "\n".join(lines) + ("\n" if lines else ""))


def read_jsonl(path: str | os.PathLike) -> list[tuple[int, dict]]:
    """Read JSON lines as (line number from 1, object); blank lines are passed over."""
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        row = _parsed(path, number, line, object_pairs_hook=_object)
        if not isinstance(row, dict):
            raise BadRow(path, number, f"got {type(row).__name__}, expected a JSON object")
        rows.append((number, row))
    return rows


def _parsed(path: str | os.PathLike, line: int, text: str, **how: Any) -> Any:
    """``text``, which begins on ``line``, as JSON; what is none is a `BadRow`."""
    try:
        value = json.loads(text, **how)
        # Perhaps half a character, which no UTF-8 file, nor terminal, can take.
        if r"\ud" in text or r"\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        raise BadRow(path, line + error.lineno - 1, f"not valid JSON ({error.msg})") from None
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise BadRow(path, line, f"{half} is half a character", "Write the character itself.") from None
    except RecursionError:
        raise BadRow(path, line, "nested too deeply") from None
    except ValueError as error:  # a key twice, or an integer of thousands of digits
        raise BadRow(path, line, str(error).split(";")[0]) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the key {_doubled(key for key, _ in pairs)!r} stands twice")
    return found


def _doubled(names: Iterable[Any]) -> Any:
    """The first name that stands twice, or None."""
    seen: set = set()
    return next((name for name in names if name in seen or seen.add(name)), None)


def write_parquet(path: str | os.PathLike, table: pd.DataFrame) -> None:
    """Write a table as Parquet with the schema version in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = pa.Table.from_pandas(table, preserve_index=False)
    arrow = arrow.replace_schema_metadata(
        {**(arrow.schema.metadata or {}), b"lethe_schema": str(SCHEMA_VERSION).encode()}
    )
    with atomic_file(path) as temporary:
        pq.write_table(arrow, temporary)


def read_table(
    path: str | os.PathLike,
    required: Sequence[str] = (),
    text: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> pd.DataFrame:
    """Read a user's table: CSV, Parquet, or JSON lines, told apart by the file's ending.

    The frame keeps the file's row order; `file_line` tells where a row stands. A blank line of a CSV is a row without a
    value where there is one column, but for those at the end. The columns named in ``text`` hold labels: they are taken
    from a CSV as they are written, so that 007 does not become 7 and a label NA is not missing. A column that is called
    almost as one of ``required``, ``text`` or ``optional``, such as " Seed", is refused: left out without a word, it
    would change what the numbers mean. Raises `BadFile`, `BadRow` or `MissingColumn`.
    """
    import pandas as pd

    path = Path(path)
    if path.is_dir():
        raise BadFile(path, "is a folder, expected a file")
    if not path.exists():
        raise BadFile(path, "no such file", "Check the path.")
    suffix = path.suffix.lower()
    if suffix == ".csv":
        table = _read_csv(path, required, text)
    elif suffix == ".parquet":
        try:
            table = _index_as_columns(pd.read_parquet(path))
        except Exception as error:  # pyarrow raises several unrelated classes for a broken file
            raise BadFile(path, f"cannot be read as Parquet ({str(error).splitlines()[0]})") from None
    elif suffix in (".jsonl", ".json"):
        table = pd.DataFrame([row for _, row in read_jsonl(path)])
    else:
        raise BadFile(path, f"ends in {suffix or 'nothing'!r}, legal are {', '.join(TABLE_SUFFIXES)}")
    _check_names(path, [str(column) for column in table.columns], [*required, *text, *optional])
    for column in required:
        if column not in table.columns:
            raise MissingColumn(path, column, table.columns)
    for column in text:
        if column in table.columns and table[column].dtype == object:
            for place, value in enumerate(table[column]):
                if not pd.api.types.is_scalar(value):
                    raise BadRow(
                        path,
                        file_line(path, place),
                        f"column {column}: got {value!r}, expected a label: a text or a number",
                    )
    return table


def _index_as_columns(table: pd.DataFrame) -> pd.DataFrame:
    """pandas writes an index into the file and reads it back as one; with a name it is a column like any other."""
    named = [name for name in table.index.names if name is not None and name not in table.columns]
    return table.reset_index(level=named) if named else table


def _check_names(path: Path, columns: Sequence[str], known: Sequence[str]) -> None:
    plain = {_letters(name): name for name in known if name not in columns}
    for column in columns:
        if column not in known and (name := plain.get(_letters(column))):
            raise BadFile(path, f"its column {column!r} is not spelt {name!r}", "Rename it.")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _read_csv(path: Path, required: Sequence[str], text: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    content = read_text(path).rstrip()  # of trailing blank lines
    before = content[: len(content) - len(content.lstrip())].count("\n")
    header = next((names for _, names in _records(content)), None)
    if header is None:
        raise BadFile(path, "is empty, expected a header and rows")
    if (name := _doubled(name for name in header if name)) is not None:
        raise BadFile(path, f"two columns are called {name!r}", "Rename or remove one.")
    if len(header) == 1 and header[0] not in required and any(mark in header[0] for mark in ";\t|"):
        raise BadFile(
            path, f"its header {header[0]!r} is a single column", "Commas separate the columns of a CSV."
        )
    try:
        table = pd.read_csv(
            io.StringIO(content),
            dtype=dict.fromkeys(text, str),
            skiprows=before,
            skip_blank_lines=len(header) > 1,
            keep_default_na=False,
            na_values={name: [""] if name in text else MISSING for name in header},
        )
    except ValueError as error:  # pandas has several classes of it
        raise BadFile(path, f"cannot be read as CSV ({str(error).strip()})") from None
    if not isinstance(table.index, pd.RangeIndex):  # then the first cells became row names
        raise BadFile(path, "its rows have more fields than its header", "Give every column a name.")
    return table


def _records(content: str) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows of a CSV, each with the line on which it begins; a quoted cell may hold line breaks.

    A blank line is a row without a value under a header of one column, else none, as it is before the header.
    """
    csv.field_size_limit(LARGEST_CELL)
    reader, line = csv.reader(io.StringIO(content, newline="")), 1
    columns = None
    for cells in reader:
        begins, line = line, reader.line_num + 1
        if columns == 1 or (cells and not (len(cells) == 1 and cells[0].isspace())):
            columns = columns or len(cells)
            yield begins, cells


def file_line(path: str | os.PathLike, row: int) -> int:
    """The line of the file on which ``row`` (from 0) of its table begins; of a Parquet file the row, from 1."""
    suffix = Path(path).suffix.lower()
    if suffix == ".csv":
        return next(itertools.islice(_records(read_text(path)), row + 1, None))[0]
    if suffix in (".jsonl", ".json"):
        return read_jsonl(path)[row][0]
    return row + 1


def numeric_column(table: pd.DataFrame, column: str, path: str | os.PathLike) -> np.ndarray:
    """A column as float64, null as NaN; a cell that is no number is a `BadRow`."""
    import numpy as np
    import pandas as pd

    values = table[column]
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    with contextlib.suppress(OverflowError, TypeError, ValueError):  # then cell by cell, to name the one
        return pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
    return np.array([_number(value, path, column, place) for place, value in enumerate(values)])


def _number(value: Any, path: str | os.PathLike, column: str, place: int) -> float:
    import pandas as pd

    # Spelled-out NaN is a missing value, not a broken cell.
    if str(value).strip() in MISSING or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return math.nan
    try:
        if isinstance(value, str) and "_" in value:  # 1_0 is ten to Python alone
            raise ValueError
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        raise BadRow(
            path, file_line(path, place), f"column {column}: got {shortened(value)}, expected a number"
        ) from None


def read_text(path: str | os.PathLike) -> str:
    """A file of UTF-8, with or without a byte-order mark."""
    path = Path(path)
    if not path.is_file():
        raise BadFile(path, "is a folder, expected a file" if path.is_dir() else "no such file", "Check the path.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise BadRow(path, line, "not valid UTF-8", "Convert the file to UTF-8.") from error


def _finite(value: Any) -> Any:
    """Replace what JSON cannot hold; NumPy scalars and arrays become plain numbers and lists."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_split(split: str, folder: str | os.PathLike = "data/dataset") -> list[dict]:
    """The rows of one split of the prepared dataset."""
    path = Path(folder) / f"{split}.jsonl"
    if not path.is_file():
        raise MissingArtifact(path, "stage prepare")
    return [row for _, row in read_jsonl(path)]


def read_tables(folder: str | os.PathLike, made_by: str) -> dict[str, pd.DataFrame]:
    """The Parquet tables of a folder by their names; none at all is a `MissingArtifact`."""
    paths = sorted(Path(folder).glob("*.parquet"))
    if not paths:
        raise MissingArtifact(folder, made_by)
    return {path.stem: read_table(path) for path in paths}
