"""The files that a command writes: their endings, what they may not replace, and tables and exports in them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import BadValue, check, plural
from lethe.io.files import Json

if TYPE_CHECKING:
    import pandas as pd

    from lethe.report.every_eval_ever import Exported


WRITTEN = ("out", "page", "table", "summary", "junit")  # options that name a file to write


def fresh(name: str, path: Path, endings: tuple[str, ...]) -> Path:
    """Return the path of a file to write, which has one of the endings."""
    if path.suffix.lower() not in endings or path.is_dir():
        raise BadValue(name, str(path), f"a file that ends in {' or '.join(endings)}")
    return path


def check_written(values: Mapping[str, Json], may_grow: bool = False) -> None:
    """Refuse a file to write that the command also reads, or writes twice; ``may_grow``: --out may be one that it reads."""
    taken: list[Path] = []
    for name, value in values.items():
        if name not in WRITTEN:
            taken += _files(value)
    for name in WRITTEN:
        for path in _files(values.get(name)):
            if may_grow and name == "out":
                continue
            for other in taken:
                if path.samefile(other):
                    raise BadValue(name, str(path), f"another file than {other}")
            taken.append(path)


def _files(value: Json) -> list[Path]:
    """The files that exist among the values of an option."""
    files = []
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, (str, Path)):
            with suppress(OSError, ValueError):  # a text that no file can have as its name
                if Path(text).is_file():
                    files.append(Path(text))
    return files


def check_export(to: str | None, out: Path | None) -> None:
    """Refuse a folder without an export; the export's default is the current folder."""
    check(to is not None or out is None, "out", str(out), "left out unless --to is eee")


def exported(export: Exported) -> str:
    """The file of an export, and how many numbers it could not hold."""
    if not export.left_out:
        return str(export.aggregate)
    left_out = plural(export.left_out, "number")
    return f"{export.aggregate} (without {left_out} that have no direction or no finite value)"


def write_rows(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV or Parquet, by the ending of the path."""
    from lethe.io.tables import write_csv, write_parquet

    write = write_csv if path.suffix.lower() == ".csv" else write_parquet
    write(path, table)
