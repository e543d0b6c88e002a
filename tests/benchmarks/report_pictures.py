"""`python -m tests.benchmarks report-pictures`: README's picture and the pictures of the report in data/report.

README's picture shows the same questions of one model three times: what its greedy answer, its samples and its next-token
probabilities say of a leak.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lethe.report.svg import STYLE
from lethe.results import table
from lethe.results.exact_bounds import certificates_of
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
# Paper, ink, muted ink, rule, and the colour of a leak: those of the report's style sheet.
SCHEMES = {
    "looks.svg": ("#fdfdfb", "#1c1d1f", "#5d6167", "#e1e1db", "#b42318"),
    "looks-dark.svg": ("#141619", "#e7e7e3", "#9da2a9", "#2d3136", "#ff8a7d"),
}
LEAST = -9  # the lowest power of ten on the axis
LOOKED_AT = "npo"


def looks(target: Path, scheme: tuple[str, ...]) -> None:
    """Draw a bar for each question that leaks: in its greedy answer, in its samples, and by its certain lower end."""
    import matplotlib
    from matplotlib.figure import Figure

    paper, ink, muted, rule, leak = scheme
    results = table.read(Path("data"), [LOOKED_AT])
    found = certificates_of(results, LOOKED_AT)
    trees = sorted(found.trees if found else (), key=lambda tree: -tree.lower)
    questions = [results.questions(LOOKED_AT)[tree.id] for tree in trees]
    sampled = [one.row("leak", "sampled") for one in questions]
    panels = {
        "one greedy answer": [one.estimate("leak", "greedy") for one in questions],
        f"{sampled[0].n:,} sampled answers": [row.estimate for row in sampled],
        "next-token probabilities": [tree.lower for tree in trees],
    }
    colours = dict.fromkeys(("text.color", "axes.titlecolor"), ink) | {"grid.color": rule, "axes.edgecolor": rule}
    colours |= dict.fromkeys((f"{one}tick.{part}" for one in "xy" for part in ("color", "labelcolor")), muted)
    with matplotlib.rc_context({**STYLE, **colours, "svg.fonttype": "path", "svg.hashsalt": "looks"}):
        figure = Figure(figsize=(9.4, 2.5), layout="constrained", facecolor=paper)
        for axes, (title, values) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
            axes.set_facecolor(paper)
            for place, value in enumerate(values):
                if value:
                    axes.bar(place, value, 0.62, 10**LEAST, color=leak)
                else:
                    axes.plot(place, 10**LEAST, "o", mfc=paper, mec=muted, markersize=3.4, clip_on=False)
            axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
            count = f"{sum(map(bool, values))} of {len(values)} leak"
            axes.text(0.98, 0.93, count, ha="right", va="top", fontsize=12, color=leak, transform=axes.transAxes)
            axes.set_yscale("log")
            axes.set(ylim=(10**LEAST, 1), xlim=(-0.7, len(values) - 0.3))
            axes.set_yticks([1e-9, 1e-6, 1e-3, 1], ["0", "1e-6", "0.001", "1"])
            axes.minorticks_off()
            axes.grid(False, axis="x")
            axes.set_xticks([])
            axes.set_xlabel(f"the same {len(values)} questions", color=muted)
        figure.axes[0].set_ylabel("probability of a leak", color=muted)
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})


def main() -> int:
    if not REPORT.is_file():
        print(f"{REPORT} is missing. Make it with `lethe run`.", file=sys.stderr)
        return 2
    for name, scheme in SCHEMES.items():
        looks(DOCS / name, scheme)
        print(DOCS / name)
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
