"""What people read of the commands, in one file: `python -m tests.contract.terminal [--write]`."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from tests.contract.commands import CASES, called, lay_out, make_model

GOLDEN = Path(__file__).with_name("terminal.txt")
# One command of each kind, and errors of users.
SHOWN = (
    *(
        "bounds-leaks",
        "bounds-calibration",
        "bounds-missing-refused",
        "bounds-out-of-range",
        "bounds-no-file",
    ),
    *("compare-tables", "compare-gate-closed", "log-inspect", "tofu-log", "plan", "plan-refused"),
    *("one-run", "one-run-refused", "epsilon-star", "swap", "twins", "eval-greedy", "eval-refused"),
)


def printed(folder: Path) -> str:
    """What each command prints without --json, under its own line."""
    model = make_model(folder / "model")
    sections = []
    for case in CASES:
        if case.name in SHOWN:
            place = folder / case.name
            lay_out(place, model)
            call = case.call.replace(" --json", "")
            with contextlib.chdir(place):
                done = called(call)
            sections.append(f"$ lethe {call}\n{done.output.rstrip()}\n[{done.exit_code}]\n")
    return "\n".join(sections).replace(str(folder), "FOLDER")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ.update(COLUMNS="100", LETHE_CACHE=f"{place}/cache")
        now = printed(Path(place).resolve())
    print(now)
    if "--write" in sys.argv:
        GOLDEN.write_text(now, encoding="utf-8")
