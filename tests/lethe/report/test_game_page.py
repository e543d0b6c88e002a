"""The game's page and its trends: on the paper's own numbers every trend holds, on others it does not."""

import re
from html import unescape

import pytest

from lethe.audits.unlearning_game.result import GameResult, trends
from lethe.io.files import restored
from lethe.report.game_page import page
from lethe.statistics.bound import Assumes, Bound, Covers
from tests.cases import cases, merged
from tests.lethe.report import chromium, other_pages
from tests.lethe.report.other_pages import paper, single
from tests.lethe.report.test_chromium import HIDDEN_OVERFLOW


def typed(result):
    return restored(GameResult, result)


def held(result):
    return {trend.claim: trend.held for trend in trends(typed(result))}


@cases
def test_a_trend_that_fails_is_told(change, claim):
    failed = [name for name, one in held(merged(paper(), change)).items() if not one]
    assert len(failed) == 1
    assert claim in failed[0]


def read(html):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_the_page_shows_tables_figure_trends_and_bounds():
    html = page("paper", typed(paper()))
    text = read(html)
    parts = ("Table 1", "Table 4", "Figure 2", "Held", "vacuous", "NegGrad", "0.709", "ε = ∞")
    assert [part for part in parts if part not in text] == []
    assert "Did not hold" not in text
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert page("paper", typed(paper())) == html  # the same result, the same bytes


def test_leakage_bounds_stand_beside_the_quality():
    result = single()
    for at, method in enumerate(result["methods"].values()):
        method["leakage"] = {
            "scorer": "keyword_leak",
            "questions": 42,
            "n": 128,
            "temperature": 0.7,
            "alpha": 0.01,
            "greedy": 0.1,
            "mean": 0.2,
            "pooled_bound": 0.30101,
            "worst_bound": round(0.8 + at / 100, 2),
            "guarantees": {
                key: Bound(0.5, "upper", 0.01, covers, Assumes.DRAWS_WITHIN, "Clopper-Pearson").guarantee_dict()
                for key, covers in (("pooled_bound", Covers.AVERAGE), ("worst_bound", Covers.WORST_PROMPT))
            },
        }
    text = read(page("authors", typed(result)))
    for part in (
        "bound, worst question",
        "0.850",
        "0.302",
        "42 forget questions",
    ):  # up: rounded down it would be no bound
        assert part in text, part


NAMES = ("game", "tables", "compare", "extraction")
BROWSED = pytest.mark.skipif(chromium.found() is None, reason="no chromium: install the package of that name")


@pytest.fixture(scope="module")
def pages():
    return other_pages.pages()


@pytest.fixture(scope="module")
def folder(pages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, html in pages.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return folder


@BROWSED
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_silent_alone_and_readable(tab, folder, name, width, scheme):
    path = folder / f"{name}.html"
    tab.open(path, width, scheme)
    tab.settle()
    assert tab.logged == []
    assert tab.requested == [path.as_uri()]
    assert tab.evaluate(HIDDEN_OVERFLOW) == 0
    assert tab.evaluate("document.querySelectorAll('main, header').length") == 2


@BROWSED
def test_a_comparison_sorts_and_shows_where_each_difference_lies(tab, folder):
    tab.open(folder / "compare.html")
    names = "[...document.querySelectorAll('#compared tbody th')].map(cell => cell.textContent.slice(0, 4))"
    assert tab.evaluate(names) == ["q-1", "q-0", "q-2", "<scr"]  # what holds first, the largest first
    tab.click("#compared thead th:nth-child(5) button")
    assert tab.evaluate(names) == ["q-1", "<scr", "q-2", "q-0"]
    outcomes = tab.evaluate("[...document.querySelectorAll('#compared .outcome')].map(cell => cell.textContent)")
    assert outcomes == ["better", "open", "open", "worse"]
    places = tab.evaluate("""[...document.querySelectorAll('.effect')].map(bar => {
        const [zero, reach, dot] = [...bar.children].map(part => part.getBoundingClientRect());
        return [reach.left < zero.left, reach.right > zero.left, dot.left + dot.width / 2 < zero.left - 1];
    })""")
    assert places == [[True, False, True], [True, True, False], [True, True, False], [False, True, False]]
    assert tab.evaluate("document.title") == "Lethe: before and after"
