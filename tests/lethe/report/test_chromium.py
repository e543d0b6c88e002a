"""The report in a real browser: silent, alone, safe, readable by everyone, clicked through with and without a script."""

import json
import re

import pytest

from tests.benchmarks.load import LARGEST
from tests.lethe.report import chromium
from tests.lethe.report.conftest import rendered
from tests.lethe.report.synthetic import KINDS, write_run

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason="no chromium: install the package of that name"
)

HIDDEN_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def path(page, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(page.html, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
)
def test_no_error_no_request_no_overflow(tab, path, width, scheme):
    tab.open(path, width, scheme)
    assert tab.logged == []
    assert tab.requested == [path.as_uri()]
    assert tab.evaluate(HIDDEN_OVERFLOW) == 0


@pytest.mark.parametrize("font", ["system-ui", "DejaVu Sans", "Liberation Sans"])
def test_the_page_ends_after_few_screens(tab, path, font):
    """Six screens of 1280 x 800 pixels hold the demonstration, in a wide font too; words count as laid out."""
    tab.open(path)
    tab.evaluate(f"document.documentElement.style.setProperty('--sans', '{font}')")
    tab.settle()
    assert tab.evaluate("document.documentElement.scrollHeight") <= 6 * 800
    first = "document.querySelector('#verdicts .covers').getBoundingClientRect().bottom"
    assert tab.evaluate(first) <= 1.3 * 800  # the sentence on traces included
    options = "document.querySelector('#picker select').innerText.split(/\\s+/).length"
    assert tab.evaluate(f"document.body.innerText.split(/\\s+/).length - {options}") <= 2000


def test_even_a_script_that_slipped_through_would_not_run(tab, path, tmp_path):
    pierced = tmp_path / "pierced.html"
    pierced.write_text(
        path.read_text().replace("<main>", "<main><script>document.title='owned'</script>")
    )
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
    opened = "[...document.querySelectorAll('details:not([hidden], [hidden] *) > :not(summary)')]"
    heights = opened + ".map(node => node.getBoundingClientRect().height)"
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
    path.write_text(rendered(tmp_path).html, encoding="utf-8")
    assert path.stat().st_size < LARGEST
    tab.open(path)
    assert (tab.logged, tab.requested) == ([], [path.as_uri()])
    drawn = json.loads(tab.evaluate("document.querySelector('#questions-data').textContent"))
    assert [len(told) for told in drawn["told"]] == [200] * len(names)
    assert all(
        entry[4] for told in drawn["told"] for entry in told
    )  # every question has its worst answers
    tab.click("#picker [data-part=next]")
    assert tab.evaluate("document.querySelectorAll('#picker svg').length") == len(names)


# Each gives the elements that break a rule, as a list of their outer tags.
RULES = {
    "language": "document.documentElement.lang ? [] : [document.documentElement]",
    "heads": "[...document.querySelectorAll('thead th')].filter(th => !th.scope)",
    "names": "[...document.querySelectorAll('svg')].filter(s => s.role !== 'img' || !s.ariaLabel)",
    "regions": "[...document.querySelectorAll('[role=region], [role=group]')].filter(node => !node.ariaLabel)",
    "scrolled": """[...document.querySelectorAll('.scroll, pre')].filter(node => node.tabIndex !== 0)""",
    "labels": "[...document.querySelectorAll('input, select')].filter(node => !node.labels?.[0]?.textContent.trim())",
    "buttons": "[...document.querySelectorAll('button, a')].filter(node => !node.textContent.trim())",
    "lists": "[...document.querySelectorAll('dl > *, dl > div > *')].filter(n => !['DIV', 'DT', 'DD'].includes(n.tagName))",
    "targets": """[...document.querySelectorAll('a[href^="#term-"], nav a')]
        .filter(a => !document.getElementById(decodeURIComponent(a.hash.slice(1))))""",
    "headings": """(levels => levels.filter(([level], i) => i && level > levels[i - 1][0] + 1).map(([, node]) => node))(
        [...document.querySelectorAll('h1, h2, h3, h4')].filter(n => n.checkVisibility()).map(n => [+n.tagName[1], n]))""",
    "sections": """['main', 'header', 'nav', 'footer'].filter(name => document.querySelectorAll(name).length !== 1)
        .map(() => document.body)""",
}
# Colours of text against the ground behind it, WCAG 2.1: at least 4.5.
CONTRAST = """(() => {
  const light = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(part => +part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = [...document.querySelectorAll('body *')].filter(node => node.checkVisibility() && !node.disabled
    && [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()));
  return texts.map(node => {
    const style = getComputedStyle(node);
    const [a, b] = [light(node.closest('svg') ? style.fill : style.color), light(ground(node))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), node.outerHTML.slice(0, 80)];
  }).filter(([ratio]) => ratio < 4.5);
})()"""


@pytest.fixture(scope="module")
def pages(small_page, tmp_path_factory):
    """With the page's script, and without."""
    folder = tmp_path_factory.mktemp("accessible")
    for name, html in (
        ("live", small_page.html),
        ("dumb", small_page.html.replace("script-src 'sha256-", "script-src 'sha256-x")),
    ):
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", ["live", "dumb"])
def test_every_rule_holds(tab, pages, kind):
    tab.open(pages / f"{kind}.html")
    tab.settle()
    assert tab.evaluate("document.querySelector('#picker').checkVisibility()") == (kind == "live")
    for name, rule in RULES.items():
        found = tab.evaluate(f"({rule}).map(node => node.outerHTML.slice(0, 120))")
        assert found == [], name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(tab, pages, scheme):
    tab.open(pages / "live.html", scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    tab.settle()
    assert tab.evaluate(CONTRAST) == []


ROWS = "[...document.querySelector({table!r}).tBodies[0].rows].map(row => row.cells[{column}].textContent)"
QUESTION = "document.querySelector('#picker [data-part=question]').textContent"


@pytest.fixture(scope="module")
def data(small_page) -> dict:
    return json.loads(re.search(r'id="questions-data">(.*?)</script>', small_page.html, re.S)[1])


def opened(tab, pages) -> None:
    tab.open(pages / "live.html")
    tab.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    tab.settle()


def column(tab, place: int, table: str = "#numbers .models") -> list[str]:
    return tab.evaluate(ROWS.format(table=table, column=place))


def test_next_and_previous_walk_all_questions(tab, pages, data):
    tab.open(pages / "live.html")
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


CARDS = "[...document.querySelectorAll('#picker [data-part=answers] .answer')]"


def test_a_question_opens_on_its_leaks_and_closes_the_graded_score(tab, pages):
    tab.open(pages / "live.html")
    closed = "document.querySelector('#picker [data-part=panels]').closest('details').open"
    first = f"{CARDS}[0].checkVisibility()"

    assert tab.evaluate(closed) is False
    assert tab.evaluate(first)
    assert "seed" in tab.evaluate(f"{CARDS}[0].textContent")


def test_the_filter_keeps_the_texts_that_hold_the_words(tab, pages):
    tab.open(pages / "live.html")
    typed = "((box) => {{ box.value = {!r}; box.dispatchEvent(new Event('input')); }})"
    find = "(document.querySelector('#picker [data-part=filter]'))"
    hidden = f"{CARDS}.filter(card => card.hidden).length"

    assert tab.evaluate(hidden) == 0
    tab.evaluate(typed.format("no answer says this") + find)
    assert tab.evaluate(hidden) == tab.evaluate(f"{CARDS}.length")
    tab.evaluate(typed.format("") + find)
    assert tab.evaluate(hidden) == 0


def test_a_picked_question_shows_every_model_with_its_own_numbers(tab, pages, data):
    tab.open(pages / "live.html")
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
    heights = (
        "[...document.querySelectorAll('#picker svg .bar')].map(bar => +bar.getAttribute('height'))"
    )
    assert min(tab.evaluate(heights)) > 0


def test_every_table_sorts_by_click(tab, pages):
    opened(tab, pages)
    before = column(tab, 0)
    values = [float(value) for value in column(tab, 1)]
    tab.click("#numbers .models th.n .sort")
    assert [float(value) for value in column(tab, 1)] == sorted(values)
    tab.click("#numbers .models th.n .sort")
    assert [float(value) for value in column(tab, 1)] == sorted(values, reverse=True)
    assert (
        tab.evaluate(
            "document.querySelector('#numbers .models th[aria-sort]').getAttribute('aria-sort')"
        )
        == "descending"
    )
    tab.click("#numbers .models th.n .sort")
    assert column(tab, 0) == before
    tables = tab.evaluate(
        "[...document.querySelectorAll('table')].filter(t => !t.querySelector('.sort')).length"
    )
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


def test_numbers_sort_as_numbers_and_what_is_missing_comes_last(tab, pages):
    tab.open(pages / "live.html")
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


def test_without_a_script_the_page_is_whole(tab, pages):
    tab.open(pages / "dumb.html")
    assert tab.evaluate("document.querySelector('[data-part=unpicked]').checkVisibility()")
    assert tab.evaluate("document.querySelectorAll('[data-part=unpicked] svg').length") == 4
    assert tab.evaluate("document.querySelectorAll('#questions tbody tr').length") == 3
    assert any("Content Security Policy" in str(entry) for entry in tab.logged)
