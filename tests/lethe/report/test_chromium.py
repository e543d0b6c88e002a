"""The report in a real browser: silent, alone, safe, readable."""

import json

import pytest

from lethe.report.page import render
from tests.benchmarks.load import LARGEST
from tests.lethe.report import chromium
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import KINDS, write_run

pytestmark = pytest.mark.skipif(chromium.found() is None, reason="no chromium: install the package of that name")

HIDDEN_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def path(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(page.html, encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_no_error_no_request_no_overflow(tab, path, width, scheme):
    tab.open(path, width, scheme)
    assert tab.logged == []
    assert tab.requested == [path.as_uri()]
    assert tab.evaluate(HIDDEN_OVERFLOW) == 0


def test_the_page_ends_after_few_screens(tab, path):
    """Six screens of 1280 x 800 pixels hold the demonstration; the words count as the browser lays them out."""
    tab.open(path)
    tab.settle()
    assert tab.evaluate("document.documentElement.scrollHeight") <= 6 * 800
    first = "document.querySelector('#verdicts .covers').getBoundingClientRect().bottom"
    assert tab.evaluate(first) <= 1.25 * 800
    options = "document.querySelector('#picker select').innerText.split(/\\s+/).length"
    assert tab.evaluate(f"document.body.innerText.split(/\\s+/).length - {options}") <= 2000


def test_even_a_script_that_slipped_through_would_not_run(tab, path, tmp_path):
    pierced = tmp_path / "pierced.html"
    pierced.write_text(path.read_text().replace("<main>", "<main><script>document.title='owned'</script>"))
    tab.open(pierced)
    assert tab.evaluate("document.title") == "Lethe: what the models still know"
    assert any("Content Security Policy" in str(entry) for entry in tab.logged)


def test_dark_is_dark_and_figures_follow(tab, path):
    seen = {}
    for scheme in ("light", "dark"):
        tab.open(path, scheme=scheme)
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        label = tab.evaluate("getComputedStyle(document.querySelector('#questions svg text')).fill")
        seen[scheme] = [sum(map(int, colour[4:-1].split(", "))) for colour in (background, label)]
    assert seen["light"][0] > 600 > seen["light"][1]
    assert seen["dark"][0] < 150 < seen["dark"][1]


def test_on_paper_all_is_open_and_nothing_asks_to_be_clicked(tab, path):
    tab.open(path)
    tab.call("Emulation.setEmulatedMedia", media="print")
    hidden = "[...document.querySelectorAll('nav, .controls')].filter(node => node.checkVisibility()).length"
    assert tab.evaluate(hidden) == 0
    heights = "[...document.querySelectorAll('details > :not(summary)')].map(node => node.getBoundingClientRect().height)"
    assert min(tab.evaluate(heights)) > 0
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.call("Emulation.setEmulatedMedia", media="")
    pdf = tab.pdf()
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") > 3


def test_the_page_of_many_models_and_questions_is_small_and_whole(tab, tmp_path):
    names = [*KINDS, "more", "most"]
    write_run(tmp_path, 200, 8, models={name: {"path": f"/models/{name}"} for name in names})
    path = tmp_path / "index.html"
    path.write_text(render(load(tmp_path)).html, encoding="utf-8")
    assert path.stat().st_size < LARGEST
    tab.open(path)
    assert (tab.logged, tab.requested) == ([], [path.as_uri()])
    drawn = json.loads(tab.evaluate("document.querySelector('#questions-data').textContent"))
    assert [len(told) for told in drawn["told"]] == [200] * len(names)
    assert all(entry[4] for told in drawn["told"] for entry in told)  # every question has its worst answers
    tab.click("#picker [data-part=next]")
    assert tab.evaluate("document.querySelectorAll('#picker svg').length") == len(names)
