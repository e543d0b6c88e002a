"""The page clicked and typed through in a real browser: any question, any order, with and without a script."""

import json
import re

import pytest

from tests.lethe.report import chromium

pytestmark = pytest.mark.skipif(chromium.found() is None, reason="no chromium: install the package of that name")

ROWS = "[...document.querySelector({table!r}).tBodies[0].rows].map(row => row.cells[{column}].textContent)"
QUESTION = "document.querySelector('#picker [data-part=question]').textContent"


@pytest.fixture(scope="module")
def path(small_page, tmp_path_factory):
    path = tmp_path_factory.mktemp("browsing") / "index.html"
    path.write_text(small_page.html, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data(small_page) -> dict:
    return json.loads(re.search(r'id="questions-data">(.*?)</script>', small_page.html, re.S)[1])


def opened(tab, path) -> None:
    tab.open(path)
    tab.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    tab.settle()


def column(tab, place: int, table: str = "#numbers .models") -> list[str]:
    return tab.evaluate(ROWS.format(table=table, column=place))


def test_next_and_previous_walk_all_questions(tab, path, data):
    tab.open(path)
    tab.evaluate("location.hash = '#question=forget-000'")
    seen = [tab.evaluate(QUESTION)]
    for _ in data["questions"][1:]:
        tab.click("#picker [data-part=next]")
        seen.append(tab.evaluate(QUESTION))
    assert seen == [question for _, _, question, *_ in data["questions"]]
    assert tab.evaluate("document.querySelector('#picker [data-part=next]').disabled")
    assert tab.evaluate("location.hash") == "#question=forget-002"
    tab.click("#picker [data-part=previous]")
    assert tab.evaluate(QUESTION) == seen[1]
    assert tab.logged == []


def test_a_picked_question_shows_every_model_with_its_own_numbers(tab, path, data):
    tab.open(path)
    tab.evaluate("location.hash = '#question=forget-002'")
    rows = tab.evaluate(
        "[...document.querySelectorAll('#picker [data-part=rows] tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )
    expected = []
    for model, told in zip(data["models"], data["told"], strict=True):
        binary, score, *_ = told[2]
        expected.append([model, *data["shared"][binary], *score])
    assert rows == expected
    for place, told in enumerate(data["told"]):
        bars = f"document.querySelectorAll('#picker [data-part=panels] figure')[{place}].querySelectorAll('.bar').length"
        assert tab.evaluate(bars) == sum(count > 0 for count in told[2][3])
    heights = "[...document.querySelectorAll('#picker svg .bar')].map(bar => +bar.getAttribute('height'))"
    assert min(tab.evaluate(heights)) > 0


def test_every_table_sorts_by_click(tab, path):
    opened(tab, path)
    before = column(tab, 0)
    values = [float(value) for value in column(tab, 1)]
    tab.click("#numbers .models th.n .sort")
    assert [float(value) for value in column(tab, 1)] == sorted(values)
    tab.click("#numbers .models th.n .sort")
    assert [float(value) for value in column(tab, 1)] == sorted(values, reverse=True)
    assert (
        tab.evaluate("document.querySelector('#numbers .models th[aria-sort]').getAttribute('aria-sort')")
        == "descending"
    )
    tab.click("#numbers .models th.n .sort")
    assert column(tab, 0) == before
    tables = tab.evaluate("[...document.querySelectorAll('table')].filter(t => !t.querySelector('.sort')).length")
    assert tables == 0


CELLS = """
  const table = document.createElement('table');
  const texts = %s;
  table.innerHTML = '<thead><tr><th>x</th></tr></thead><tbody>' + texts.map(() => '<tr><td></td></tr>').join('') + '</tbody>';
  texts.forEach((text, place) => { table.tBodies[0].rows[place].cells[0].textContent = text; });
  document.body.append(table);
  sortable(table);
  table.querySelector('.sort').click();
  [...table.tBodies[0].rows].map(row => row.textContent)
"""


def test_numbers_sort_as_numbers_and_what_is_missing_comes_last(tab, path):
    tab.open(path)
    order = [
        "-3",
        "<0.1%",
        "≤ 4.4%",
        "at most 30%",
        "43.1% to 50.0%",
        "99.9%",
        "1,024",
        "1.2e5",
        "∞",
        "none",
        "–",
        "",
    ]
    assert tab.evaluate(CELLS % json.dumps(order[::-1])) == [*order[:-2], "", "–"]


def test_without_a_script_the_page_is_whole(tab, path, tmp_path, small_page):
    dumb = tmp_path / "index.html"
    dumb.write_text(small_page.html.replace("'sha256-", "'sha256-x", 1), encoding="utf-8")
    tab.open(dumb)
    assert tab.evaluate("document.querySelector('#picker').checkVisibility()") is False
    assert tab.evaluate("document.querySelector('[data-part=unpicked]').checkVisibility()")
    assert tab.evaluate("document.querySelectorAll('[data-part=unpicked] svg').length") == 4
    assert tab.evaluate("document.querySelectorAll('#questions tbody tr').length") == 3
    assert any("Content Security Policy" in str(entry) for entry in tab.logged)
