"""Methods over seeds, attacks and sweeps of finished runs as Markdown, printed or written between the marks of a page.

``python -m tests.benchmarks.study_tables methods --folder RUN --write docs/evidence.md`` replaces what stands between
``<!-- methods -->`` and ``<!-- end methods -->``; ``attacks`` and ``sweeps`` likewise. ``attacks`` also draws
``attacks.png`` and ``sweeps`` copies the figure of each sweep to the folder of the page. Bounds round themselves.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lethe import config
from lethe.errors import BadFile
from lethe.evaluation.attack_counts import Curve, curves
from lethe.evaluation.run import Run, load
from lethe.io.json_files import read_json
from lethe.report.studies import leakage_against, studies
from lethe.report.svg import COLOURS, picture
from lethe.text import NONE
from tests.benchmarks import marks

SWEEPS = ("fig-4a", "fig-4b", "fig-5a", "fig-5c")
REFERENCES = {"base": ("#1c1d1f", "--"), "retrain": ("#6b7280", ":")}
COLUMNS = 3
METHODS = (
    "method",
    "sampled answers that leak",
    "M_bin of the worst question",
    "greedy score on retain questions",
)
ATTACKED = ("model", "most", "excess over Retrain")
TEST = " by permutations; a claim is tested at 0.05"  # of every sentence, said once below them


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def run_of(folder: Path) -> Run:
    """The finished run of a pipeline folder."""
    return load(config.load(folder / config.FILE), folder / "data", {})


def methods(folder: Path, page: Path | None) -> str:
    """The methods over seeds, below Base and Retrain, which have one."""
    run = run_of(folder)
    found = studies(run)
    if not found.methods:
        raise BadFile(
            folder / "data/results", "holds no method with several seeds", "Run `lethe run --preset methods`."
        )
    first = next(model for model in run.models if model.values).values
    drawn = f"{first['n_questions']} forget questions, {first['n']} answers each. {found.methods_note}"
    rows = chosen(found.methods_head, METHODS, [*found.references, *found.methods])
    return "\n\n".join([markdown(METHODS, rows), drawn])


def chosen(head: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Some columns of a table of the report, which has them all."""
    return [[row[list(head).index(column)] for column in columns] for row in rows]


def attacks(folder: Path, page: Path | None) -> str:
    """A row per attack and model that is compared with Retrain, the guarantee of the bands, the curves in one picture."""
    run = run_of(folder)
    found = studies(run)
    if not found.attacks:
        raise BadFile(folder / "data/attacks", "holds no attack", "Run `lethe run --preset attacks`.")
    rows = [
        [view.title.split(" (")[0] + rows_of(view.title), *row]
        for view in found.attacks
        for row in chosen(found.attack_head, ATTACKED, view.rows)
        if row[-1] != NONE
    ]
    parts = [markdown(["attack", *ATTACKED], rows)]
    # A note begins with the budget of its attack; what follows is the same for all.
    notes = dict.fromkeys(re.sub("^[^;]*; each", "Each", note) for view in found.attacks for note in view.notes)
    parts += [" ".join(notes)]
    if page is not None:
        base, retrain = run.role("base"), run.role("retrain")
        place = page.parent / "attacks.png"
        draw(place, curves(run.attacks, base.path if base else None, retrain.path if retrain else None))
        parts.insert(0, f"![Leakage against attack budget]({place.name})")
    return "\n\n".join(parts)


def draw(place: Path, found: Sequence[Curve]) -> None:
    """One panel per attack: each model with its band, Base dashed and Retrain dotted."""
    titles = list(dict.fromkeys(curve.title for curve in found))
    rows = -(-len(titles) // COLUMNS)
    subjects = list(dict.fromkeys(curve.path for curve in found if curve.role == "subject"))
    with picture(place, 9.0, 2.5 * rows + 0.3, nrows=rows, ncols=COLUMNS) as (figure, grid):
        for axes, title in zip(grid.flat, titles, strict=False):
            own = [curve for curve in found if curve.title == title]
            for curve in own:
                places = np.arange(len(curve.points))
                means = [point.mean for point in curve.points]
                if curve.role in REFERENCES:
                    colour, style = REFERENCES[curve.role]
                    axes.plot(
                        places, means, color=colour, linestyle=style, linewidth=1.1, label=curve.role.title()
                    )
                    continue
                colour = COLOURS[subjects.index(curve.path) % len(COLOURS)]
                sides = ([getattr(point, side).value for point in curve.points] for side in ("lower", "upper"))
                axes.fill_between(places, *sides, color=colour, alpha=0.2, linewidth=0)
                axes.plot(places, means, color=colour, marker="o", markersize=3, label=Path(curve.path).name)
            leakage_against(axes, own[0])
            axes.set_title(title.split(" (")[0] + rows_of(title))
        for axes in list(grid.flat)[len(titles) :]:
            axes.set_axis_off()
        named = grid.flat[0].get_legend_handles_labels()
        figure.legend(*named, loc="outside lower center", ncols=len(named[0]), frameon=False, fontsize=8)


def rows_of(title: str) -> str:
    """The rows that relearning trains on, for a short title."""
    found = re.search(r"rows (\w+)", title)
    return f" on {found[1].replace('_', ' ')} rows" if found else ""


def sweeps(folder: Path, page: Path | None) -> str:
    """The figure and the outcome of each claim of the sweeps that are there."""
    parts = []
    for name in SWEEPS:
        path = folder / "data/sweeps" / f"{name}.json"
        if not path.is_file():
            continue
        found = read_json(path)
        told = [f"`{name}`, {len(found['points'])} points, {len(found['failed'])} failed:"]
        told += [f"- {claim['sentence'].replace(TEST, '')}" for claim in found["claims"]]
        if page is not None:
            picture_of = path.with_suffix(".png")
            shutil.copy(picture_of, page.parent / picture_of.name)
            told.insert(0, f"![{found['figure']['title']}]({picture_of.name})\n")
        parts.append("\n".join(told))
    if not parts:
        raise BadFile(folder / "data/sweeps", "holds no sweep of a preset", "Run `lethe sweep --preset fig-4a`.")
    return "\n\n".join([*parts, f"Each p is{TEST}."])


PARTS: dict[str, Callable[[Path, Path | None], str]] = {"methods": methods, "attacks": attacks, "sweeps": sweeps}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS, help="what to print")
    parser.add_argument("--folder", type=Path, default=Path(), help="the pipeline folder of the run")
    parser.add_argument("--write", type=Path, help="the page between whose marks the text goes")
    options = parser.parse_args(arguments)
    text = PARTS[options.part](options.folder, options.write)
    if options.write:
        marks.write(options.write, options.part, text)
    print(text)


if __name__ == "__main__":
    main()
