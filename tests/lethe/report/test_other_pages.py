"""The pages of games and of comparisons obey what the report obeys: one policy, no request, readable anywhere."""

import pytest

from tests.lethe.report import chromium, other_pages
from tests.lethe.report.test_accessible import CONTRAST, RULES
from tests.lethe.report.test_chromium import HIDDEN_OVERFLOW

NAMES = ("game", "tables", "compare")
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
    assert tab.evaluate(CONTRAST) == []
    for rule, script in RULES.items():
        if rule != "sections":  # a page of one screen has no list of sections
            assert tab.evaluate(f"({script}).map(node => node.outerHTML.slice(0, 120))") == [], rule
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
