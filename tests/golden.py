"""The bytes that every x86-64 machine must produce: hashes of the small pipeline and of the demonstration.

``python -m tests.golden`` compares the demonstration's metrics in data/ with the committed hashes (`make golden`): exit
status 0 if all are equal, 1 if some differ, each named, 2 if the demonstration was not run. ``--write`` replaces the
committed hashes: use it after a change that is meant to change numbers, and never to silence a difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.small import ROOT, make_repository, run, small_params

FILE = Path(__file__).with_suffix(".json")
# Below data/: the files of each pipeline that are hashed.
PARTS = {
    "small": ("models/*/model.safetensors", "metrics/*.json", "metrics/details/*.json", "compare.json"),
    "demonstration": ("metrics/*.json", "metrics/details/*.json", "compare.json"),
}


def hashes(data: Path, patterns: Sequence[str]) -> dict[str, str]:
    """The SHA-256 of each file below ``data`` that matches a pattern, by its path relative to ``data``."""
    found = sorted(path for pattern in patterns for path in data.glob(pattern))
    return {str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def committed(pipeline: str) -> dict[str, str]:
    """The committed hashes of one pipeline."""
    golden: dict[str, dict[str, str]] = json.loads(FILE.read_text())
    return golden[pipeline]


def differences(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """One line per file that is missing, not expected, or of other bytes."""
    lines = [f"{name}: missing" for name in expected if name not in found]
    lines += [f"{name}: not among the golden files" for name in found if name not in expected]
    lines += [f"{name}: other bytes" for name in expected if name in found and found[name] != expected[name]]
    return sorted(lines)


def write(data: Path) -> None:
    """Run the small pipeline; write the hashes of its files and of the demonstration in ``data``."""
    with tempfile.TemporaryDirectory() as folder:
        small = make_repository(Path(folder) / "lethe", small_params())
        run(small, "lethe", "run")
        golden = {"small": hashes(small / "data", PARTS["small"])}
    golden["demonstration"] = hashes(data, PARTS["demonstration"])
    FILE.write_text(json.dumps(golden, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the demonstration's metrics with the committed hashes.")
    parser.add_argument("--write", action="store_true", help="commit to what data/ holds")
    parser.add_argument("--data", type=Path, default=ROOT / "data")
    options = parser.parse_args()
    found = hashes(options.data, PARTS["demonstration"])
    if not found:
        print(f"{options.data} holds no metrics: run `make run` first.", file=sys.stderr)
        return 2
    if options.write:
        write(options.data)
        return 0
    lines = differences(found, committed("demonstration"))
    print("\n".join(lines) if lines else f"{len(found)} files of {options.data}: the golden bytes.")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
