"""The stages score and metrics read a table of answers in parts: memory does not grow with the number of questions."""

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from lethe import config
from lethe.io import artifacts
from lethe.report.page import write as write_page
from lethe.steps import metrics, score
from tests.benchmarks.load import write

USUAL = (700, 10, 10)  # when Python searches garbage by default


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(artifacts, "ROWS", 512)


def make(root: Path, questions: int) -> config.Params:
    """A run of one model up to its generations."""
    root.mkdir()
    write(root, ["m"], questions, 32)
    return config.load(root / "params.yaml")


def peak(work: Callable[[], object]) -> int:
    """The most bytes that Python and Arrow held at once, with garbage searched as often as outside of tests.

    Arrow reads in one thread: how many parts its threads hold at once depends on what else a machine does.
    """
    gc.collect()
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    former = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(former)
    pa.set_memory_pool(pool)
    rarely = gc.get_threshold()
    gc.set_threshold(*USUAL)
    tracemalloc.start()
    try:
        work()
        _, largest = tracemalloc.get_traced_memory()
        return largest + (pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        gc.set_threshold(*rarely)
        pa.set_memory_pool(former)
        pa.set_cpu_count(threads)


@pytest.mark.slow
def test_the_peak_of_score_does_not_grow_with_the_number_of_questions(tmp_path):
    found = {}
    for questions in (20, 45, 360):  # the first also pays for imports
        root = tmp_path / str(questions)
        settings = make(root, questions)
        found[questions] = peak(partial(score.run, "m", settings.score, root / "data"))
    # The likelihoods and the rows of the dataset grow: about 3 kB per question, far below the 8 kB of its answers.
    assert found[360] < found[45] + 315 * 4000
    assert found[45] < 4_000_000


@pytest.mark.slow
def test_parts_change_no_byte_of_the_results(tmp_path, monkeypatch):
    found = []
    for rows in (512, 1 << 16):
        root = tmp_path / str(rows)
        settings = make(root, 40)
        monkeypatch.setattr(artifacts, "ROWS", rows)
        score.run("m", settings.score, root / "data")
        metrics.run("m", settings.metrics, root / "data")
        write_page(settings, root / "data")
        scores = pd.read_parquet(root / "data/scores/m/forget.parquet")
        of = {
            path.relative_to(root): path.read_bytes()
            for path in root.rglob("*.json")
            if path.is_file()
        }
        of |= {path.name: path.read_bytes() for path in (root / "data/results").rglob("*.parquet")}
        page = (root / "data/report/index.html").read_text()
        found.append((scores, of, page.count("Towne")))
    (few, small, told), (many, large, again) = found
    pd.testing.assert_frame_equal(few, many)
    assert small == large
    assert told == again > 0
