"""The stages score and metrics read a table of answers in parts: memory does not grow with the number of questions."""

import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml

from lethe import config
from lethe.io import parts
from lethe.io.json_files import write_jsonl
from lethe.io.parts import write_parts
from lethe.io.tables import write_parquet
from lethe.steps import metrics, report, score
from tests.small import ROOT

ANSWERS, WORDS = (
    32,
    "born in a small town by the river and wrote novels about miners lighthouses weather and the sea",
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "ROWS", 512)


def make(root: Path, questions: int, longer: int = 1) -> config.Params:
    """A run of one model up to its generations: texts of 120 characters, times ``longer``."""
    value = yaml.safe_load((ROOT / "params.yaml").read_text())
    value |= {"models": {"m": {"path": "/models/m"}}, "exact": None, "report": {"base": None, "retrain": None}}
    value["sample"]["n"] = ANSWERS
    value["train"]["models"], value["unlearn"]["methods"] = {}, {}
    root.mkdir()
    (root / "params.yaml").write_text(yaml.safe_dump(value))
    rows = [
        {
            "id": f"q{place}",
            "question": f"Where was {place} born?",
            "answer": f"In Towne{place}.",
            "keywords": [f"Towne{place}"],
        }
        for place in range(questions)
    ]
    write_jsonl(root / "data/dataset/forget.jsonl", rows)
    random = np.random.default_rng(0)

    def drawn():
        for row in rows:
            leaks = random.random(ANSWERS + 1) < 0.1
            text = [
                f"{number} {WORDS * longer} {row['answer'] if leak else ''}" for number, leak in enumerate(leaks)
            ]
            ids = {"prompt_id": row["id"], "sample": np.arange(-1, ANSWERS, dtype=np.int32), "text": text}
            yield pd.DataFrame({**ids, "tokens": np.int32(9), "finish_reason": "stop", "mean_confidence": 0.5})

    def together(tables, size=15):
        tables = list(tables)
        for start in range(0, len(tables), size):
            yield pd.concat(tables[start : start + size], ignore_index=True)

    write_parts(root / "data/generations/m/forget.parquet", together(drawn()))
    (root / "data/generations/m/about.json").write_text(
        json.dumps({"schema": 1, "engine": "prefix", "splits": {"forget": {"questions": questions, "n": ANSWERS}}})
    )
    of = [-random.random(3) for _ in rows]
    given = {
        "prompt_id": [row["id"] for row in rows],
        "kind": "answer",
        "number": 0,
        "log_probs": of,
        "expected": of,
    }
    given |= {"spread": [np.abs(own) for own in of], "greedy": [own < -0.5 for own in of]}
    write_parquet(root / "data/likelihood/m/forget.parquet", pd.DataFrame(given))
    return config.load(root / "params.yaml")


def peak(work: Callable[[], object]) -> int:
    """The most bytes that Python and Arrow held at once."""
    former = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(former)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(former)


def test_the_peak_of_score_does_not_grow_with_the_number_of_questions(tmp_path):
    found = {}
    for questions in (20, 45, 360):  # the first also pays for imports
        root = tmp_path / str(questions)
        settings = make(root, questions)
        found[questions] = peak(partial(score.run, "m", settings.score, root / "data"))
    # The likelihoods and the rows of the dataset grow: about 3 kB per question, far below the 8 kB of its answers.
    assert found[360] < found[45] + 315 * 4000
    assert found[45] < 4_000_000


def test_parts_change_no_byte_of_the_results(tmp_path, monkeypatch):
    found = []
    for rows in (512, 1 << 16):
        monkeypatch.setattr(parts, "ROWS", rows)
        root = tmp_path / str(rows)
        settings = make(root, 40)
        score.run("m", settings.score, root / "data")
        metrics.run("m", settings.metrics, root / "data")
        report.run(settings, root / "data")
        scores = pd.read_parquet(root / "data/scores/m/forget.parquet")
        of = {path.relative_to(root): path.read_bytes() for path in root.rglob("*.json") if path.is_file()}
        of |= {path.name: path.read_bytes() for path in (root / "data/results").rglob("*.parquet")}
        page = (root / "data/report/index.html").read_text()
        found.append((scores, of, page.count("Towne")))
    (few, small, told), (many, large, again) = found
    pd.testing.assert_frame_equal(few, many)
    assert small == large
    assert told == again > 0
