"""`python -m tests.benchmarks report-pictures`: README's picture and the pictures of the report in data/report.

README's picture shows the same questions of one model three times: what its greedy answer, its samples and its next-token
probabilities say of a leak. With ``--model FOLDER`` a real chat model answers the questions of exact_questions (half an hour
on two free cores; a second call continues), and this picture alone is drawn; without it, the demonstration's npo.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import lethe
from lethe.io.files import write_text
from lethe.report.svg import house
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
LETHE = Path(sys.executable).with_name("lethe")
QUESTIONS = Path(__file__).parent / "exact_questions/harry_potter.jsonl"
ASKED = ("--data", str(QUESTIONS.resolve()), "--max-new-tokens", "24", "--portable")
Panels = dict[str, list[float]]


def panels_of_run() -> Panels:
    """The values of the demonstration's questions by panel, the likeliest leak first."""
    results = table.read(Path("data"), [LOOKED_AT])
    found = certificates_of(results, LOOKED_AT)
    trees = sorted(found.trees if found else (), key=lambda tree: -tree.lower)
    questions = [results.questions(LOOKED_AT)[tree.id] for tree in trees]
    sampled = [one.row("leak", "sampled") for one in questions]
    return {
        "one greedy answer": [one.estimate("leak", "greedy") for one in questions],
        f"{sampled[0].n:,} sampled answers": [row.estimate for row in sampled],
        "next-token probabilities": [tree.lower for tree in trees],
    }


def panels_of_model(model: Path) -> Panels:
    """The same of a chat model, by `lethe exact` and `lethe eval` in this folder."""
    exact = Path("data/eval/looks.json")
    if not exact.is_file():
        command = (LETHE, "exact", "--model", model, *ASKED, "--rows", "5000", "--json")
        write_text(
            exact, subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        )
    lower = {one["id"]: one["lower"] for one in json.loads(exact.read_text())["per_question"]}
    subprocess.run(
        (LETHE, "eval", "--model", model, *ASKED, "--n", "1024", "--name", "looks"), check=True
    )
    rows = lethe.load_run("data/eval/looks").questions.set_index("prompt_id")
    rows = rows.loc[sorted(rows.index, key=lambda one: -lower[one])]
    return {
        "one greedy answer": rows["binary_greedy"].tolist(),
        f"{rows['n'].max():,} sampled answers": rows["binary_share"].tolist(),
        "next-token probabilities": [lower[one] for one in rows.index],
    }


def looks(target: Path, scheme: tuple[str, ...], panels: Panels) -> None:
    """Draw a bar for each question that leaks: in its greedy answer, in its samples, and by its certain lower end."""
    import matplotlib
    from matplotlib.figure import Figure

    paper, ink, muted, rule, leak = scheme
    colours = dict.fromkeys(("text.color", "axes.titlecolor"), ink) | {
        "grid.color": rule,
        "axes.edgecolor": rule,
    }
    colours |= dict.fromkeys(
        (f"{one}tick.{part}" for one in "xy" for part in ("color", "labelcolor")), muted
    )
    with matplotlib.rc_context(
        {**house(), **colours, "svg.fonttype": "path", "svg.hashsalt": "looks"}
    ):
        figure = Figure(figsize=(9.4, 2.5), layout="constrained", facecolor=paper)
        for axes, (title, values) in zip(
            figure.subplots(1, 3, sharey=True), panels.items(), strict=True
        ):
            axes.set_facecolor(paper)
            for place, value in enumerate(values):
                if value:
                    axes.bar(place, value, 0.62, 10**LEAST, color=leak)
                else:
                    axes.plot(
                        place, 10**LEAST, "o", mfc=paper, mec=muted, markersize=3.4, clip_on=False
                    )
            axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
            count = f"{sum(map(bool, values))} of {len(values)} leak"
            axes.text(
                0.98,
                0.93,
                count,
                ha="right",
                va="top",
                fontsize=12,
                color=leak,
                transform=axes.transAxes,
            )
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, help="the folder of a chat model for README's picture"
    )
    model = parser.parse_args().model
    if not model and not REPORT.is_file():
        print(f"{REPORT} is missing. Make it with `lethe run`.", file=sys.stderr)
        return 2
    panels = panels_of_model(model.resolve()) if model else panels_of_run()
    for name, scheme in SCHEMES.items():
        looks(DOCS / name, scheme, panels)
        print(DOCS / name)
    for name, (width, scheme, first, last) in ({} if model else PICTURES).items():
        with chromium.page() as tab:
            tab.open(REPORT, width, scheme)
            tab.settle()
            top, bottom = (
                tab.evaluate(
                    f"document.querySelector({selector!r}).getBoundingClientRect().{side} + scrollY"
                )
                for selector, side in ((first, "top"), (last, "bottom"))
            )
            top = max(0, top - MARGIN)
            tab.screenshot(DOCS / name, x=0, y=top, width=width, height=bottom + MARGIN - top)
        print(DOCS / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
