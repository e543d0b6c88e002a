"""Seconds that `import lethe` and `lethe --help` take: the best of five starts. Run by `python -m tests.benchmarks start`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WANTED = {"import lethe": 0.3, "lethe --help": 0.4}
COMMANDS = {"import lethe": ("-c", "import lethe"), "lethe --help": ("-m", "lethe", "--help")}
STARTS = 5


def seconds(arguments: tuple[str, ...], folder: Path) -> float:
    """The fastest of some starts, since other processes only slow a start down."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    taken = []
    for _ in range(STARTS):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
        taken.append(time.perf_counter() - began)
    return min(taken)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        for name, arguments in COMMANDS.items():
            for folder, words in ((ROOT, "in a pipeline folder"), (Path(empty), "elsewhere")):
                print(f"{name}, {words}: {seconds(arguments, folder):.2f} s (wanted: under {WANTED[name]:g} s)")
