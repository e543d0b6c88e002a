"""`axe` of the benchmarks: what axe-core finds on every page, in light and dark, on a desk and on a phone, with
all details open.

The pages are those of a made-up run, game and comparison, and data/report where there is one. Exit status 1 where a
finding is serious.
"""

import json
import sys
import tempfile
from pathlib import Path

from lethe.measure.run import load
from lethe.report.page import render
from lethe.results import table
from tests.lethe.report import chromium, other_pages
from tests.lethe.report.synthetic import write_run

GRAVE = ("serious", "critical")
VIEWS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
OPEN = "document.querySelectorAll('details').forEach(node => { node.open = true; })"
RUN = """axe.run(document, {resultTypes: ['violations']}).then(found => JSON.stringify(found.violations.map(one => ({
  impact: one.impact, id: one.id, help: one.help, where: one.nodes.slice(0, 3).map(node => node.target.join(' ')),
  count: one.nodes.length}))))"""


def main(axe: Path) -> int:
    source = axe.read_text(encoding="utf-8")
    grave = 0
    with tempfile.TemporaryDirectory() as folder, chromium.page() as tab:
        for name, path in _pages(Path(folder)).items():
            for width, scheme in VIEWS:
                tab.open(path, width, scheme)
                tab.evaluate(OPEN)
                tab.settle()
                tab.evaluate(source)
                answer = tab.call(
                    "Runtime.evaluate", expression=RUN, awaitPromise=True, returnByValue=True
                )
                findings = json.loads(answer["result"]["value"])
                grave += sum(finding["impact"] in GRAVE for finding in findings)
                print(f"{name}, {width} pixels, {scheme}: {len(findings)} findings")
                for finding in findings:
                    places = "; ".join(finding["where"])
                    rule = f"{finding['id']}, {finding['help']} ({finding['count']})"
                    print(f"  {finding['impact']}: {rule}: {places}")
    return int(grave > 0)


def _pages(folder: Path) -> dict[str, Path]:
    settings = write_run(folder, 6, 64)
    provenance = {"revision": "made up", "python": "", "machine": {}, "packages": {}}
    path = folder / "index.html"
    data = folder / "data"
    run = load(settings, data, provenance)
    path.write_text(render(run, table.compared(data)).html, encoding="utf-8")
    found = {"a made-up run": path}
    for name, html in other_pages.pages().items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(html, encoding="utf-8")
    real = Path("data/report/index.html")
    return found | ({str(real): real} if real.is_file() else {})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
