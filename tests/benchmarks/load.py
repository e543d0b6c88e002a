"""`tests.benchmarks load`: score, metrics and report of a large made-up run: memory and seconds of each.

Every step runs in a process of its own, whose processor seconds and peak resident memory are printed. Exit status 1 if the
page is larger than `LARGEST`. ``--questions`` and ``--answers`` choose another size, ``--models`` the number of models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

QUESTIONS = 4000
ANSWERS = 1024
MODELS = 2
LARGEST = 5_000_000  # bytes of the page
SHARES = {"retrain": 0.002}  # of answers that leak, by model
SHARE = 0.02
WORDS = (
    "the author was born in a small town by the river and wrote novels about miners lighthouses weather and the sea "
    "which won prizes in many countries before her mother a village dentist moved the family abroad again"
).split()
TOKENS = 24  # of a given answer


def main() -> int:
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--questions", type=int, default=QUESTIONS)
    asked.add_argument("--answers", type=int, default=ANSWERS)
    asked.add_argument("--models", type=int, default=MODELS)
    asked.add_argument("--folder", type=Path, help="keep the run here; default: a temporary folder")
    asked.add_argument("--step", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.step:
        return _step(options.step, options.folder)
    with tempfile.TemporaryDirectory() as temporary:
        root = options.folder or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        names = ["retrain", *(f"own_{place}" for place in range(1, options.models))]
        write(root, names, options.questions, options.answers)
        print(
            f"{options.questions:,} questions x {options.answers:,} answers, {len(names)} models",
            flush=True,
        )
        print(f"{'step':24} {'cpu s':>8} {'peak MiB':>9}", flush=True)
        _measured("imports alone", "nothing", root)
        for name in names[-1:]:
            _measured(f"score@{name}", f"score {name}", root)
            _measured(f"metrics@{name}", f"metrics {name}", root)
        for name in names[:-1]:
            for stage in ("score", "metrics"):
                _run(f"{stage} {name}", root)
        _measured("report", "report", root)
        size = (root / "data/report/index.html").stat().st_size
        print(f"page {size / 1e6:.2f} MB (at most {LARGEST / 1e6:g})")
        for kind in ("generations", "scores", "results"):
            held = sum(
                path.stat().st_size for path in (root / "data" / kind).rglob("*") if path.is_file()
            )
            print(f"data/{kind}: {held / 1e6 / len(names):,.1f} MB a model")
    return int(size > LARGEST)


def write(root: Path, names: list[str], questions: int, answers: int) -> None:
    """Write params.yaml and what the stage score reads: the dataset, generations and likelihoods of the models."""
    import yaml

    from lethe import config
    from lethe.io.artifacts import write_parts
    from lethe.io.files import write_json, write_jsonl
    from lethe.io.tables import write_parquet

    value = config.read_yaml(Path(__file__).parents[2] / "params.yaml")
    value["models"] = {name: {"path": f"/models/{name}"} for name in names}
    value["train"]["models"], value["unlearn"]["methods"], value["exact"] = {}, {}, None  # type: ignore[index]
    value["sample"]["n"] = answers  # type: ignore[index]
    value["report"] = (
        {"base": names[-1], "retrain": "retrain"} if names[1:] else {"base": None, "retrain": None}
    )
    (root / "params.yaml").write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    rows = [
        {
            "id": f"forget-{place:05d}",
            "question": f"Where was author number {place} of the forget set born?",
            "answer": f"Author number {place} was born in Towne{place}, a small town by the river.",
            "keywords": [f"Towne{place}"],
        }
        for place in range(questions)
    ]
    write_jsonl(root / "data/dataset/forget.jsonl", rows)
    write_json(
        root / "data/dataset/about.json",
        {"schema": 1, "kind": "jsonl", "rows": {"forget": questions}},
    )
    for seed, name in enumerate(names):
        random = np.random.default_rng(seed)
        share = SHARES.get(name, SHARE)
        folder = root / "data/generations" / name
        write_parts(folder / "forget.parquet", _drawn(rows, answers, share, random))
        about = {
            "schema": 1,
            "engine": "prefix",
            "engine_reason": "made up",
            "temperature": 1.0,
            "seed": 3,
        }
        about |= {
            "adaptive_threshold": None,
            "splits": {"forget": {"questions": questions, "n": answers}},
        }
        write_json(folder / "about.json", about)
        write_parquet(root / "data/likelihood" / name / "forget.parquet", _given(rows, random))


def _drawn(
    rows: list[dict], answers: int, share: float, random: np.random.Generator
) -> Iterator[pd.DataFrame]:
    """Answers of 20 to 45 words, nearly all distinct, as many questions at a time as fit a part."""
    import pandas as pd

    from lethe.io import artifacts

    pool = [" ".join(random.choice(WORDS, random.integers(20, 45))) for _ in range(2000)]
    sample = np.arange(-1, answers, dtype=np.int32)
    many = artifacts.ROWS // len(sample)
    for start in range(0, len(rows), many):
        some = rows[start : start + many]
        size = len(some) * len(sample)
        first, second = (random.integers(len(pool), size=size).tolist() for _ in range(2))
        leaks = (random.random(size) < share).tolist()
        names = [row["keywords"][0] for row in some for _ in sample]
        text = [
            f"{pool[a][:90]} {pool[b][:90]}" + (f" {name}" if leak else "")
            for a, b, leak, name in zip(first, second, leaks, names, strict=True)
        ]
        yield pd.DataFrame(
            {
                "prompt_id": np.repeat([row["id"] for row in some], len(sample)),
                "sample": np.tile(sample, len(some)),
                "text": text,
                "tokens": np.int32(30),
                "finish_reason": "stop",
                "mean_confidence": random.random(size),
            }
        )


def _given(rows: list[dict], random: np.random.Generator) -> pd.DataFrame:
    import pandas as pd

    def numbers() -> list[np.ndarray]:
        return list(-random.random((len(rows), TOKENS)))

    told = {"prompt_id": [row["id"] for row in rows], "kind": "answer", "number": 0}
    greedy = list(random.random((len(rows), TOKENS)) < 0.5)
    spread = [np.abs(values) + 0.1 for values in numbers()]
    return pd.DataFrame(
        {**told, "log_probs": numbers(), "expected": numbers(), "spread": spread, "greedy": greedy}
    )


def _run(step: str, root: Path) -> tuple[float, float]:
    """Run a step in a process of its own; return its seconds and its peak memory in MiB."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.benchmarks.load", "--folder", str(root), "--step", step]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    return told["seconds"], told["peak"]


def _measured(label: str, step: str, root: Path) -> None:
    seconds, peak = _run(step, root)
    print(f"{label:24} {seconds:8.1f} {peak:9.0f}", flush=True)


def _step(step: str, root: Path) -> int:
    from lethe import config
    from lethe.report.page import write as write_page
    from lethe.steps import metrics, score

    kind, _, told = step.partition(" ")
    settings = config.load(root / "params.yaml")
    began = time.process_time()
    if kind == "nothing":
        import pandas  # noqa: F401
        import pyarrow.parquet  # noqa: F401
        import scipy.stats  # noqa: F401
    elif kind == "score":
        score.run(told, settings.score, root / "data")
    elif kind == "metrics":
        metrics.run(told, settings.metrics, root / "data")
    else:
        write_page(settings, root / "data")
    seconds = time.process_time() - began
    peak = _peak()
    print(json.dumps({"seconds": seconds, "peak": peak}))
    return 0


def _peak() -> float:
    """The peak resident memory of this process in MiB; ``ru_maxrss`` would contain that of the process that started it."""
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
