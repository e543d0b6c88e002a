"""Seconds, MB/s and peak memory of reading a large log of each format; ``python -m tests.benchmarks log-reading [MB]``.

Each log repeats one realistic row under new names, and a process of its own reads it.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.lethe.io.logs.small_logs import (
    garak_attempt,
    header,
    leak_k_line,
    lm_eval_line,
    promptfoo_row,
    sample,
)

TEXT = "The author was born in Taipei and writes novels about rain, leadership and the sea. " * 5
ANSWERS = 10
NOISE = {"notes": {"lang": "en", "data_path": None, "checksum": None, "params": list(range(40))}, "latency": 0.25}
READ = """
import resource, sys, time
import pandas
from lethe.io.logs import read_log
def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, began, used = memory(), time.perf_counter(), time.process_time()
answers = len(read_log(sys.argv[1]).answers)
print(time.perf_counter() - began, time.process_time() - used, memory() - before, answers)
"""


def garak(number: int) -> list[dict[str, Any]]:
    texts: list[str | None] = [f"{TEXT}{number} {place}" for place in range(ANSWERS)]
    results: dict[str, list[float | None]] = {f"unsafe.Detector{name}": [0.0] * ANSWERS for name in range(5)}
    return [row | NOISE for row in garak_attempt(number, texts, results)]


def promptfoo(number: int) -> list[dict[str, Any]]:
    row = promptfoo_row(number % 4, f"{TEXT}{number}") | NOISE
    return [row | {"testIdx": number, "vars": {"country": f"place {number // ANSWERS}"}}]


def table(number: int) -> list[dict[str, Any]]:
    return [{"prompt_id": f"q{number // ANSWERS}", "sample": number % ANSWERS, "text": f"{TEXT}{number}"}]


def inspect(number: int) -> list[dict[str, Any]]:
    return [sample(f"q{number}", 1, f"{TEXT}{number}", events=[NOISE] * 20)]


LINES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "garak": garak,
    "promptfoo.jsonl": promptfoo,
    "table.jsonl": table,
    "lm-eval": lambda number: [
        lm_eval_line(number, [f"{TEXT}{place}" for place in range(ANSWERS)], exact_match=1.0)
    ],
    "leak-k": lambda _: [leak_k_line(*(f"{TEXT}{place}" for place in range(ANSWERS)))],
}
DOCUMENTS: dict[str, tuple[dict[str, Any], Callable[[int], list[dict[str, Any]]]]] = {
    "promptfoo.json": ({"evalId": "e", "results": {"version": 3, "results": "HERE"}}, promptfoo),
    "inspect.json": ({**header([], 1), "samples": "HERE"}, inspect),
}


def write(path: Path, size: int) -> None:
    """Write a log of about ``size`` bytes, of the kind that the file's name says."""
    head, tail, between, rows = b"", b"", b"\n", LINES.get(path.name)
    if path.name == "table.csv":
        head, rows = b"prompt_id,sample,text\n", None
    elif rows is None:
        frame, rows = DOCUMENTS[path.name]
        head, tail = json.dumps(frame, indent=1).encode().split(b'"HERE"')
        head, tail, between = head + b"[", b"]" + tail, b",\n"
    with path.open("wb") as file:
        file.write(head)
        for place, one in enumerate(itertools.takewhile(lambda _: file.tell() < size, _encoded(path.name, rows))):
            file.write((between if place else b"") + one)
        file.write(tail)


def _encoded(name: str, rows: Callable[[int], list[dict[str, Any]]] | None) -> Iterator[bytes]:
    for number in itertools.count():
        if rows is None:
            yield f"q{number // ANSWERS},{number % ANSWERS},{TEXT.replace(',', ';')}{number}".encode()
        else:
            yield from (json.dumps(row).encode() for row in rows(number))


def main() -> None:
    """Print a line per format."""
    megabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 250
    print(f"{'log':<16} {'MB':>6} {'answers':>9} {'seconds':>8} {'of CPU':>7} {'MB/s':>6} {'memory, MB':>11}")
    for name in (*LINES, *DOCUMENTS, "table.csv"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            write(path, int(megabytes * 1e6))
            done = subprocess.run(
                [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
            )
            seconds, used, memory, answers = map(float, done.stdout.split())
            size = path.stat().st_size / 1e6
            times = f"{seconds:8.1f} {used:7.1f} {size / seconds:6.0f}"
            print(f"{name:<16} {size:6.0f} {answers:9,.0f} {times} {memory / 1000:11,.0f}")


if __name__ == "__main__":
    main()
