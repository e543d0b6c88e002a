"""`python -m tests.benchmarks report-pictures`: README's picture and the pictures of the report in data/report.

README's picture shows the same questions of one model three times: what its greedy answer, its samples and its next-token
probabilities say of a leak. Beside them stands a model that cannot know the answers, as any model puts some mass on any text.
The models are the demonstration's npo and retrain. With ``--model FOLDER --beside FOLDER`` two real chat models answer the
questions of exact_questions or of ``--questions FILE`` (half an hour each on two free cores; a second call continues), and
this picture alone is drawn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import lethe
from lethe.io.files import write_text
from lethe.report.svg import house
from lethe.results import table
from lethe.results.exact_bounds import certificates_of
from tests.lethe.report import chromium

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
BESIDE = "retrain"
LETHE = Path(sys.executable).with_name("lethe")
QUESTIONS = Path(__file__).parent / "exact_questions/harry_potter.jsonl"


@dataclass(frozen=True)
class Panels:
    """The probability of a leak of each question, by the title of a panel, in one order of the questions."""

    name: str
    of_title: dict[str, list[float]]
    questions: list[str]


def panels_of_run(name: str, order: list[str] | None = None) -> Panels:
    """The values of a model of the demonstration, in ``order`` or with the likeliest leak first."""
    results = table.read(Path("data"), [name])
    found = certificates_of(results, name)
    lower = {tree.id: tree.lower for tree in (found.trees if found else ())}
    names = order or sorted(lower, key=lambda question: -lower[question])
    questions = [results.questions(name)[question] for question in names]
    sampled = [question.row("leak", "sampled") for question in questions]
    of_title = {
        "one greedy answer": [question.estimate("leak", "greedy") for question in questions],
        f"{sampled[0].n:,} sampled answers": [row.estimate for row in sampled],
        "next-token probabilities": [lower[question] for question in names],
    }
    return Panels(name, of_title, names)


def panels_of_model(model: Path, questions: Path, order: list[str] | None = None) -> Panels:
    """The same of a chat model, by `lethe exact` and `lethe eval` in this folder."""
    asked = ("--data", str(questions.resolve()), "--max-new-tokens", "24", "--portable")
    name = f"looks-{model.name}"
    exact = Path(f"data/eval/{name}.json")
    if not exact.is_file():
        command = (LETHE, "exact", "--model", model, *asked, "--rows", "5000", "--json")
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        write_text(exact, done.stdout)
    found = json.loads(exact.read_text())["per_question"]
    lower = {question["id"]: question["lower"] for question in found}
    evaluate = (LETHE, "eval", "--model", model, *asked, "--n", "1024", "--name", name)
    subprocess.run(evaluate, check=True)
    rows = lethe.load_run(f"data/eval/{name}").questions.set_index("prompt_id")
    names = order or sorted(rows.index, key=lambda question: -lower[question])
    rows = rows.loc[names]
    of_title = {
        "one greedy answer": rows["binary_greedy"].tolist(),
        f"{rows['n'].max():,} sampled answers": rows["binary_share"].tolist(),
        "next-token probabilities": [lower[question] for question in names],
    }
    return Panels(model.name, of_title, names)


def looks(target: Path, scheme: tuple[str, ...], panels: Panels, beside: Panels) -> None:
    """Draw a bar for each question that leaks: in its greedy answer, in its samples, and by its certain lower end; and a
    ring for the same of the model beside."""
    import matplotlib
    from matplotlib.figure import Figure

    paper, ink, muted, rule, _ = scheme
    colours = dict.fromkeys(("text.color", "axes.titlecolor"), ink)
    colours |= {"grid.color": rule, "axes.edgecolor": rule}
    for axis in "xy":
        colours |= dict.fromkeys((f"{axis}tick.color", f"{axis}tick.labelcolor"), muted)
    style = {**house(), **colours, "svg.fonttype": "path", "svg.hashsalt": "looks"}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9.4, 2.6), layout="constrained", facecolor=paper)
        all_axes = figure.subplots(1, len(panels.of_title), sharey=True)
        for axes, title in zip(all_axes, panels.of_title, strict=True):
            (other,) = [name for name in beside.of_title if name.split()[-1] == title.split()[-1]]
            _panel(axes, scheme, title, panels, beside.of_title[other], beside.name)
        all_axes[0].set_ylabel("probability of a leak", color=muted)
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})


def _panel(
    axes: Axes,
    scheme: tuple[str, ...],
    title: str,
    panels: Panels,
    values_beside: list[float],
    name_beside: str,
) -> None:
    paper, _, muted, _, leak = scheme
    values = panels.of_title[title]
    axes.set_facecolor(paper)
    axes.bar(range(len(values)), [max(value, 0.0) for value in values], 0.62, color=leak)
    heights = [max(value, 10**LEAST) for value in values_beside]
    axes.plot(heights, "o", mfc=paper, mec=muted, markersize=3.4, clip_on=False, zorder=3)
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    counts = ((panels.name, values, leak, 0.97), (name_beside, values_beside, muted, 0.84))
    for name, of_model, colour, height in counts:
        text = f"{name}: {sum(value > 0 for value in of_model)} of {len(of_model)} leak"
        place = {"x": 0.98, "y": height, "ha": "right", "va": "top", "transform": axes.transAxes}
        axes.text(**place, s=text, fontsize=9.5, color=colour)
    axes.set_yscale("log")
    axes.set(ylim=(10**LEAST, 30), xlim=(-0.7, len(values) - 0.3))
    axes.set_yticks([1e-9, 1e-6, 1e-3, 1], ["0", "1e-6", "0.001", "1"])
    axes.minorticks_off()
    axes.grid(False, axis="x")
    axes.set_xticks([])
    axes.set_xlabel(f"the same {len(values)} questions", color=muted)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a chat model's folder, for README's picture")
    parser.add_argument("--beside", type=Path, help="the folder of one that cannot know")
    parser.add_argument("--questions", type=Path, default=QUESTIONS, help="what both are asked")
    options = parser.parse_args()
    model, beside = options.model, options.beside
    if (model is None) != (beside is None):
        parser.error("name both --model and --beside, or neither")
    if not model and not REPORT.is_file():
        print(f"{REPORT} is missing. Make it with `lethe run`.", file=sys.stderr)
        return 2
    if model:
        panels = panels_of_model(model.resolve(), options.questions)
        control = panels_of_model(beside.resolve(), options.questions, panels.questions)
    else:
        panels = panels_of_run(LOOKED_AT)
        control = panels_of_run(BESIDE, panels.questions)
    for name, scheme in SCHEMES.items():
        looks(DOCS / name, scheme, panels, control)
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
