"""The page of many models and questions stays small, alone and quick to use.

`report-page` of the benchmarks measures the full number of answers; here there are fewer, which changes only the
digits of counts.
"""

from __future__ import annotations

import json
import re

import pytest

from lethe.report.page import render
from tests.benchmarks.report_page import LARGEST
from tests.lethe.report import chromium
from tests.lethe.report.conftest import load
from tests.lethe.report.large import MODELS, QUESTIONS, write_large

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="no chromium: install the package of that name"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    root = tmp_path_factory.mktemp("large")
    write_large(root, samples=32)
    path = root / "index.html"
    path.write_text(render(load(root)).html, encoding="utf-8")
    return path


def test_it_is_small_whole_and_asks_for_nothing(path):
    assert path.stat().st_size < LARGEST
    block = re.search(r'id="questions-data">(.*?)</script>', path.read_text(encoding="utf-8"), re.S)[1]
    data = json.loads(block)
    assert len(data["questions"]) == QUESTIONS
    assert [len(told) for told in data["told"]] == [QUESTIONS] * MODELS
    assert all(entry[4] for told in data["told"] for entry in told)  # every question has its worst answers
    with chromium.page() as tab:
        tab.open(path)
        assert tab.logged == []
        assert tab.requested == [path.as_uri()]
        tab.click("#picker [data-part=next]")
        assert tab.evaluate("document.querySelectorAll('#picker svg').length") == MODELS
