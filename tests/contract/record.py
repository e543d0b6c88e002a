"""Record the results of the cases: `python -m tests.contract.record [--write] [CASE ...]`.

The record is what other people's checks rely on. It is written anew only where a result is meant to change.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.contract.commands import CASES, RECORDED, differences, make_model, result_of

WIDTH = 110  # what fits into a line stands in a line


def text_of(value: Any, indent: str = "") -> str:
    """JSON with a line per value that is short, so that a change of the record can be read."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(line) + len(indent) <= WIDTH or not isinstance(value, dict | list):
        return line
    inner = f"{indent} "
    if isinstance(value, list):
        return (
            f"[\n{inner}"
            + f",\n{inner}".join(text_of(entry, inner) for entry in value)
            + f"\n{indent}]"
        )
    rows = [
        f"{json.dumps(key, ensure_ascii=False)}: {text_of(entry, inner)}"
        for key, entry in value.items()
    ]
    return f"{{\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}}}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.contract.record", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="only these cases; the others keep their record"
    )
    parser.add_argument("--write", action="store_true", help="replace the record")
    options = parser.parse_args()
    names = [case.name for case in CASES]
    if unknown := set(options.cases) - set(names):
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}")
    before = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    found = {name: before[name] for name in names if name in before}
    with tempfile.TemporaryDirectory() as place:
        # The user's own cache is neither read nor written.
        os.environ["LETHE_CACHE"] = f"{place}/cache"
        model = make_model(Path(place, "model"))
        for case in CASES:
            if options.cases and case.name not in options.cases:
                continue
            folder = Path(place, case.name).resolve()
            folder.mkdir()
            found[case.name] = result_of(case, folder, model)
            if case.name not in before:
                print(f"{case.name}: new, status {found[case.name]['status']}")
            else:
                for difference in differences(before[case.name], found[case.name], case.tolerance):
                    print(f"{case.name}: {difference}")
    if before and not options.write:
        print(f"{RECORDED.name} is left as it was: --write replaces it.", file=sys.stderr)
        return 1
    whole = {name: found[name] for name in names if name in found}
    RECORDED.write_text(text_of(whole) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
