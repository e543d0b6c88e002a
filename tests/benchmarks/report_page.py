"""`tests.benchmarks report-page`: the report of a large made-up run, its size and the time until Chromium first paints it.

Exit status 1 if the page is larger than `LARGEST`, requests anything but itself, or paints later than `LATEST`. The time to
the paint is the median over `REPEATS` fresh browsers.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from lethe import config
from lethe.evaluation.run import load
from lethe.report.page import render
from tests.lethe.report import chromium
from tests.lethe.report.large import MODELS, QUESTIONS, SAMPLES, write_large

LARGEST, LATEST, REPEATS = 5_000_000, 2.0, 5  # bytes, seconds
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
LOADED = "performance.timing.loadEventEnd - performance.timing.navigationStart"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_large(root)
        start = time.perf_counter()
        page = render(load(config.load(root / "params.yaml"), root / "data", PROVENANCE))
        seconds = time.perf_counter() - start
        path = root / "index.html"
        path.write_text(page.html, encoding="utf-8")
        seen = [_seen(path) for _ in range(REPEATS)]
    size = len(page.html.encode())
    paint, loaded = (statistics.median(times) / 1000 for times in zip(*(row[:2] for row in seen), strict=True))
    requests = max(row[2] for row in seen)
    print(f"{MODELS} models x {QUESTIONS} questions x {SAMPLES:,} answers, read and rendered in {seconds:.0f} s")
    print(f"size         {size / 1e6:6.2f} MB  (at most {LARGEST / 1e6:g})")
    print(f"first paint  {paint:6.2f} s   (at most {LATEST:g}; median of {REPEATS})")
    print(f"loaded       {loaded:6.2f} s")
    print(f"requests     {requests:6}     (the page itself)")
    return int(size > LARGEST or paint > LATEST or requests > 1)


PROVENANCE = {"revision": "made up", "python": "", "machine": {}, "packages": {}}


def _seen(path: Path) -> tuple[float, float, int]:
    """Milliseconds to the first paint and to the end of loading, and how many requests were made."""
    with chromium.page() as tab:
        tab.open(path)
        while tab.evaluate(PAINT) is None:  # what was painted is noted a moment later
            tab.settle()
        return tab.evaluate(PAINT), tab.evaluate(LOADED), len(tab.requested)


if __name__ == "__main__":
    sys.exit(main())
