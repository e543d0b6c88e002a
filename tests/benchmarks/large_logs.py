"""`tests.benchmarks large-logs`: read logs of 250 MB as `lethe bounds` reads them: processor seconds and peak memory.

Each log is read in a process of its own. Exit status 1 where one takes more than `SECONDS` of processor time or `MEMORY`.
``--size`` chooses another size in MB.
"""

import argparse
import base64
import json
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tests.lethe.io.logs import small_logs

SECONDS, MEMORY = 20.0, 3000.0  # MiB
KINDS = ("inspect.eval", "inspect.json", "promptfoo.json", "promptfoo.jsonl", "garak.report.jsonl")
EPOCHS = 8
READ = """
import json, sys, time
from pathlib import Path
from lethe.measure.score_files import read_any_scores
answers = sum(len(prompt.scores) for prompt in read_any_scores(Path(sys.argv[1]), None).prompts)
(line,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
peak = int(line.split()[1]) / 1024
print(json.dumps([answers, time.process_time(), peak]))
"""


def main() -> int:
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--size", type=float, default=250)
    size = asked.parse_args().size
    slow = False
    print(f"{'log':20} {'MB':>6} {'answers':>8} {'cpu s':>7} {'peak MiB':>9}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            path = write(Path(folder) / kind, size * 1e6)
            done = subprocess.run(
                [sys.executable, "-c", READ, path], capture_output=True, text=True, check=True
            )
            answers, seconds, peak = json.loads(done.stdout)
            print(
                f"{kind:20} {path.stat().st_size / 1e6:6.0f} {answers:8,} {seconds:7.1f} {peak:9.0f}",
                flush=True,
            )
            slow |= seconds > SECONDS or peak > MEMORY
            path.unlink()
    return int(slow)


def write(path: Path, size: float) -> Path:
    """A log whose bulk is what the real tools' logs hold: messages and events of each answer."""
    rng = random.Random(0)
    row = 16_000
    rows = max(EPOCHS, int(size / row) // EPOCHS * EPOCHS)
    if path.suffix == ".eval":
        rows = int(rows / 0.75) // EPOCHS * EPOCHS  # what base64 leaves to a compression
    bulk = [base64.b64encode(rng.randbytes(row * 3 // 4)).decode() for _ in range(rows)]
    ids = [f"q{place}" for place in range(rows // EPOCHS)]
    if path.name.startswith("inspect"):
        samples = [
            small_logs.sample(
                ids[place // EPOCHS],
                place % EPOCHS + 1,
                events=[{"event": "model", "output": text}],
            )
            for place, text in enumerate(bulk)
        ]
        head = small_logs.header(ids, EPOCHS)
        if path.suffix == ".eval":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for name, content in small_logs.entries(head, samples):
                    archive.writestr(name, content)
            return path
        return small_logs.write_json(path, head | {"samples": samples})
    if path.name.startswith("garak"):
        attempts: list[dict[str, Any]] = []
        for place in range(0, rows, EPOCHS):
            texts = [
                text[: row // 2] for text in bulk[place : place + EPOCHS]
            ]  # an attempt has two lines
            attempts += small_logs.garak_attempt(place, list(texts), {"mitigation": [0.0] * EPOCHS})
        return small_logs.garak_log(path, attempts)
    results = [small_logs.promptfoo_row(0, text) for place, text in enumerate(bulk)]
    for place, result in enumerate(results):
        result |= {"vars": {"question": ids[place // EPOCHS]}, "testIdx": place}
    if path.suffix == ".jsonl":
        return small_logs.write_lines(path, results)
    return small_logs.promptfoo_log(path, results, repeat=EPOCHS)


if __name__ == "__main__":
    sys.exit(main())
