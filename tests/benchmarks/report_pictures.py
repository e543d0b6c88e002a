"""`python -m tests.benchmarks report-pictures`: pictures of the report in data/report, for README and docs."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.lethe.report import chromium

REPORT = Path("data/report/index.html")
DOCS = Path("docs")
MARGIN = 14  # pixels
# File name to width, scheme and the part to show: from the top of the page to the end of this element, or that part alone.
PICTURES = {
    "example.png": (1280, "light", "body", "#verdicts .covers"),
    "example-dark.png": (1280, "dark", "#question", "#picker [data-part=panels]"),
    "example-phone.png": (390, "light", "body", "#verdicts .covers"),
}


def main() -> int:
    if not REPORT.is_file():
        print(f"{REPORT} is missing. Make it with `lethe run`.", file=sys.stderr)
        return 2
    for name, (width, scheme, first, last) in PICTURES.items():
        with chromium.page() as tab:
            tab.open(REPORT, width, scheme)
            tab.settle()
            top, bottom = (
                tab.evaluate(f"document.querySelector({selector!r}).getBoundingClientRect().{side} + scrollY")
                for selector, side in ((first, "top"), (last, "bottom"))
            )
            top = max(0, top - MARGIN)
            tab.screenshot(DOCS / name, x=0, y=top, width=width, height=bottom + MARGIN - top)
        print(DOCS / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
