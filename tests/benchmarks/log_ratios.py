"""`lethe.bounds` of large tables beside pandas and SciPy, which read the same file and compute Clopper-Pearson's ends.

A run is a process of its own. The clock counts its processor seconds, imports included. Graded scores of unequal n stand
beside as many of equal n. Exit status 1 where a ratio exceeds its limit. An argument divides the rows, for a quick look.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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

    def write(self, path: Path) -> Path:
        """The table as CSV; its leak rates differ between prompts."""
        import pandas as pd

        rng = np.random.default_rng(0)
        n = self.rows // self.prompts
        sizes = np.full(self.prompts, n)
        if not self.equal:
            sizes = rng.integers(n * 4 // 5, n * 6 // 5 + 1, self.prompts)
        names = [f"q{place}" for place in range(self.prompts)]
        samples = [np.arange(size) for size in sizes]
        rates = np.repeat(rng.beta(1, 20, self.prompts), sizes)
        scores = (rng.random(len(rates)) < rates).astype(int)
        if self.graded:
            scores = rng.beta(2, 5, len(rates)).round(4)
        columns = {
            "prompt_id": np.repeat(names, sizes),
            "sample": np.concatenate(samples),
            "score": scores,
        }
        pd.DataFrame(columns).to_csv(path, index=False)
        return path


@dataclass(frozen=True)
class Used:
    """Processor seconds and peak memory in MiB of a run."""

    seconds: float
    memory: float

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
    return int(missed)


def _is_missed(table: Table, ours: Used, other: Used, beside: str, limit: float) -> bool:
    """Print a line of the ratio; return whether it exceeds its limit."""
    ratio = ours.seconds / other.seconds
    verdict = "met" if ratio <= limit else "MISSED"
    scores = "graded scores" if table.graded else "scores of 0 and 1"
    what = f"{table.prompts:,} prompts, {table.rows:,} {scores}"
    taken = f"{ours.seconds:.1f} s, {ours.memory:.0f} MiB; {beside} {other.seconds:.1f} s"
    print(f"{what}: {taken}; ratio {ratio:.1f}, target {limit:g} {verdict}", flush=True)
    return ratio > limit


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
