"""`lethe.bounds` of large tables beside pandas and SciPy, which read the same file and compute Clopper-Pearson's ends.

A run is a process of its own. The clock counts its processor seconds, imports included. Graded scores of unequal n stand
beside as many of equal n. 30 million rows of either kind must stay below `MEMORY`. Exit status 1 where a limit is exceeded.
An argument divides the rows, for a quick look.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MEMORY = 2048.0  # MiB of the largest table
PANDAS = """
import pandas as pd
from scipy.stats import beta
table = pd.read_csv(path)
counts = table.groupby("prompt_id", sort=False)["score"].agg(["sum", "count"])
clean = counts["count"] - counts["sum"]
beta.ppf(0.01, counts["sum"], clean + 1)
beta.ppf(0.99, counts["sum"] + 1, clean)
"""
LETHE = """
import lethe
lethe.bounds(path).views()
"""
RUN = """
import json, resource, sys, time
from pathlib import Path
path = Path(sys.argv[1])
{work}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.process_time(), used.ru_maxrss / 1024]))
"""


@dataclass(frozen=True)
class Table:
    """A table of random scores: ``rows`` in all, about equally many of each of ``prompts``, or exactly if ``equal``."""

    prompts: int
    rows: int
    graded: bool = False
    equal: bool = False

    def __str__(self) -> str:
        scores = "graded scores" if self.graded else "scores of 0 and 1"
        return f"{self.prompts:,} prompts, {self.rows:,} {scores}"

    def write(self, path: Path) -> Path:
        """The table as CSV; its leak rates differ between prompts."""
        rng = np.random.default_rng(0)
        n = self.rows // self.prompts
        sizes = np.full(self.prompts, n)
        if not self.equal:
            sizes = rng.integers(n * 4 // 5, n * 6 // 5 + 1, self.prompts)
        rates = rng.beta(1, 20, self.prompts)
        with path.open("w") as file:
            file.write("prompt_id,sample,score\n")
            for place, (size, rate) in enumerate(zip(sizes.tolist(), rates.tolist(), strict=True)):
                scores = (rng.random(size) < rate).astype(int)
                if self.graded:
                    scores = rng.beta(2, 5, size).round(4)
                lines = zip(range(size), scores.tolist(), strict=True)
                file.writelines(f"q{place},{sample},{score}\n" for sample, score in lines)
        return path


@dataclass(frozen=True)
class Used:
    """Processor seconds and peak memory in MiB of a run."""

    seconds: float
    memory: float

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.memory:.0f} MiB"

    @classmethod
    def by(cls, work: str, path: Path) -> "Used":
        """What a process takes for ``work`` on the file."""
        command = [sys.executable, "-c", RUN.format(work=work), str(path)]
        # A cache that is empty: a stored Berk-Jones level would hide the time of a first run.
        environment = {**os.environ, "LETHE_CACHE": str(path.parent / "cache")}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return cls(*json.loads(run.stdout.splitlines()[-1]))


def main(scale: int = 1) -> int:
    """Print the ratios of tables with ``scale`` times fewer rows; return the exit status."""
    long = Table(300, 3_000_000 // scale)
    many = Table(30_000 // scale, 900_000 // scale, equal=True)
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for table, limit in ((long, 3.0), (many, 10.0)):
            path = table.write(Path(folder) / "scores.csv")
            ours = Used.by(LETHE, path)
            other = Used.by(PANDAS, path)
            missed |= _is_missed(table, ours, other, "pandas and SciPy", limit)
        unequal = Table(300, 300_000 // scale, graded=True)
        equal = Table(300, 300_000 // scale, graded=True, equal=True)
        ours = Used.by(LETHE, unequal.write(Path(folder) / "unequal.csv"))
        other = Used.by(LETHE, equal.write(Path(folder) / "equal.csv"))
        missed |= _is_missed(unequal, ours, other, "equal n", 2.0)
        for graded in (False, True):
            largest = Table(300, 30_000_000 // scale, graded)
            path = largest.write(Path(folder) / "largest.csv")
            missed |= _is_too_large(largest, Used.by(LETHE, path))
            path.unlink()
    return int(missed)


def _is_missed(table: Table, ours: Used, other: Used, beside: str, limit: float) -> bool:
    """Print a line of the ratio; return whether it exceeds its limit."""
    ratio = ours.seconds / other.seconds
    verdict = "met" if ratio <= limit else "MISSED"
    taken = f"{ours}; {beside} {other.seconds:.1f} s"
    print(f"{table}: {taken}; ratio {ratio:.1f}, target {limit:g} {verdict}", flush=True)
    return ratio > limit


def _is_too_large(table: Table, used: Used) -> bool:
    """Print a line of the memory; return whether it exceeds its limit."""
    is_too_large = used.memory > MEMORY
    verdict = "MISSED" if is_too_large else "met"
    print(f"{table}: {used}, target {MEMORY:.0f} MiB {verdict}", flush=True)
    return is_too_large


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
