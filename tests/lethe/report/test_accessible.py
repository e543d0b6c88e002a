"""The requirements of axe-core (`axe` of the benchmarks) as rules that need no axe-core, with and without the
page's script."""

import pytest

from tests.lethe.report import chromium

pytestmark = pytest.mark.skipif(chromium.found() is None, reason="no chromium: install the package of that name")

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
