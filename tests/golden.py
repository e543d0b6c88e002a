"""The values that every x86-64 machine must produce: of the table of results, and of models and generations.

``python -m tests.golden`` compares the demonstration's values in data/ with the committed hashes (`make golden`): exit
status 0 if all are equal, 1 if some differ, each named, 2 if the demonstration was not run. ``--write`` replaces the
committed hashes: use it after a change that is meant to change numbers, and never to silence a difference.

A hash is of values and not of a file's bytes: a table of results counts with its numbers, unrounded and in order, without
its words; a table of generations counts with its columns, and a model with its bytes.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lethe.io.tables import read_arrow
from lethe.results import table
from tests.small import ROOT, make_repository, run, small_params

FILE = Path(__file__).with_suffix(".json")
# Of a row of results: what it is about, and its numbers.
NUMBERS = (
    *("model", "scope", "item", "split", "quantity", "at", "basis"),
    *("estimate", "lower", "upper", "alpha_lower", "alpha_upper", "n", "missing"),
)


def of_results(path: Path) -> Iterator[bytes]:
    for row in table.read_rows(path):
        yield _line({name: _exactly(getattr(row, name)) for name in NUMBERS})


def of_generations(path: Path) -> Iterator[bytes]:
    """A line per column of a table: its name and its values in order."""
    arrow = read_arrow(path)
    for name, column in zip(arrow.column_names, arrow.columns, strict=True):
        yield _line([name, [_exactly(value) for value in column.to_pylist()]])


def of_bytes(path: Path) -> Iterator[bytes]:
    yield path.read_bytes()


def _line(value: object) -> bytes:
    return f"{json.dumps(value, ensure_ascii=False)}\n".encode()


def _exactly(value: object) -> object:
    """A float as the shortest text that gives it back to the bit; another value unchanged."""
    return repr(value) if isinstance(value, float) else value


# Below data/: the files that are hashed, and the lines that are their content.
CONTENT: dict[str, Callable[[Path], Iterator[bytes]]] = {
    "results/*/*.parquet": of_results,
    "models/*/model.safetensors": of_bytes,
    "generations/*/*.parquet": of_generations,
    "generations/*/*/*.parquet": of_generations,
}
PIPELINES = ("small", "demonstration")


def hashes(data: Path, patterns: Sequence[str] = tuple(CONTENT)) -> dict[str, str]:
    """The SHA-256 of the content of each file below ``data`` that matches a pattern, by its path below ``data``.

    Of a pattern that `CONTENT` lacks, the bytes of a file are its content.
    """
    found = {}
    for pattern in patterns:
        for path in data.glob(pattern):
            digest = hashlib.sha256()
            for line in CONTENT.get(pattern, of_bytes)(path):
                digest.update(line)
            found[str(path.relative_to(data))] = digest.hexdigest()
    return dict(sorted(found.items()))


def committed(pipeline: str) -> dict[str, str]:
    golden: dict[str, dict[str, str]] = json.loads(FILE.read_text())
    return golden[pipeline]


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    lines = [f"{name}: missing" for name in expected if name not in found]
    lines += [f"{name}: not among the golden files" for name in found if name not in expected]
    lines += [
        f"{name}: other values"
        for name in expected
        if name in found and found[name] != expected[name]
    ]
    return sorted(lines)


def write(data: Path) -> None:
    """Run the small pipeline; write the hashes of its files and of the demonstration in ``data``."""
    with tempfile.TemporaryDirectory() as folder:
        small = make_repository(Path(folder) / "lethe", small_params())
        run(small, "lethe", "run")
        golden = dict(zip(PIPELINES, (hashes(small / "data"), hashes(data)), strict=True))
    FILE.write_text(json.dumps(golden, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compare the demonstration's values with the committed hashes."
    )
    parser.add_argument("--write", action="store_true", help="commit to what data/ holds")
    parser.add_argument("--data", type=Path, default=ROOT / "data")
    options = parser.parse_args()
    if not any(options.data.glob("results/*/*.parquet")):
        print(f"{options.data} holds no results: run `make run` first.", file=sys.stderr)
        return 2
    if options.write:
        write(options.data)
        return 0
    found = hashes(options.data)
    lines = differences(found, committed("demonstration"))
    print(
        "\n".join(lines) if lines else f"{len(found)} files of {options.data}: the golden values."
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
