"""Methods over seeds, attacks and sweeps of finished runs as Markdown, printed or written between the marks of a page.

``python -m tests.benchmarks.study_tables methods --folder RUN --write docs/evidence.md`` replaces what stands between
``<!-- methods -->`` and ``<!-- end methods -->``; ``attacks``, ``populations`` and ``sweeps`` likewise. ``attacks`` also
draws ``attacks.png`` and ``sweeps`` copies the figure of each sweep to the folder of the page. Bounds round themselves.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from lethe import config
from lethe.comparison.over_seeds import families
from lethe.errors import BadFile
from lethe.io.files import read_json
from lethe.measure.attack_counts import Curve, curves
from lethe.measure.run import Run, RunModel, load
from lethe.report.studies import leakage_against, studies
from lethe.report.svg import COLOURS, picture
from lethe.statistics.bound import Side
from lethe.text import NONE, number
from tests.benchmarks import marks

SWEEPS = ("fig-4a", "fig-4b", "fig-5a", "fig-5c")
REFERENCES = {"base": ("#1c1d1f", "--"), "retrain": ("#6b7280", ":")}
COLUMNS = 3
METHODS = {  # the columns of the methods
    "binary_mean": "sampled answers that leak",
    "ed_score": "ED",
    "m_bin_worst": "M_bin of the worst question",
    "retain_greedy": "greedy score on retain questions",
}
ATTACKED = ("model", "most", "excess over Retrain")
METHODS_NOTE = (
    "Each cell has the mean over the seeds, and in brackets the smallest and the largest value where they differ. All "
    "seeds start from one model. The mean of bounds is no bound."
)
TEST = " by permutations; a claim is tested at 0.05"  # of every sentence, said once below them


def run_of(folder: Path) -> Run:
    return load(config.load(folder / config.FILE), folder / "data", {})


def methods(folder: Path, page: Path | None) -> str:
    """The methods over seeds, below Base and Retrain, which have one."""
    return methods_of(run_of(folder))


def methods_of(run: Run) -> str:
    """A row per method: the mean over its seeds, the least and the greatest value; the guarantee of its bound."""
    model_of_name = {model.name: model for model in run.models}
    named = {}
    for family in families(run.params):
        named[family.name] = [model_of_name[name] for name in family.models]
    if not named:
        raise BadFile(
            "data/results",
            "holds no method with several seeds",
            "Run `lethe run --preset methods`.",
        )
    rows = [[name, *(spread_of(models, key) for key in METHODS)] for name, models in named.items()]
    first = next(model for model in run.models if model.values)
    note = (
        f"{first.values['n_questions']} forget questions, {first.values['n']} answers each. {METHODS_NOTE} M_bin is an upper "
        f"bound in each run by itself, {first.bounds['m_bin_worst'].guarantee('the forget questions')}."
    )
    return "\n\n".join([marks.markdown(["method", *METHODS.values()], rows), note])


def spread_of(models: Sequence[RunModel], key: str) -> str:
    """The mean over the models, and the least and the greatest value where there are several."""
    values = [value for model in models if (value := model.value(key)) is not None]
    if not values:
        return NONE
    side: Side | None = "upper" if key == "m_bin_worst" else None
    mean, least, greatest = (
        number(value, side=side) for value in (fmean(values), min(values), max(values))
    )
    return mean if least == greatest else f"{mean} ({least} to {greatest})"


def attacks(folder: Path, page: Path | None) -> str:
    """The rows, below the curves in one picture."""
    run = run_of(folder)
    text = attacks_of(run)
    if page is None:
        return text
    base, retrain = run.role("base"), run.role("retrain")
    place = page.parent / "attacks.png"
    draw(place, curves(run.attacks, base.path if base else None, retrain.path if retrain else None))
    return f"![Leakage against attack budget]({place.name})\n\n{text}"


def attacks_of(run: Run) -> str:
    """A row per attack and model that is compared with Retrain, and the guarantee of the bands."""
    found = studies(run)
    if not found.attacks:
        raise BadFile("data/attacks", "holds no attack", "Run `lethe run --preset attacks`.")
    rows = [
        [
            view.title.split(" (")[0] + rows_of(view.title),
            *(row[found.attack_head.index(key)] for key in ATTACKED),
        ]
        for view in found.attacks
        for row in view.rows
        if row[found.attack_head.index(ATTACKED[-1])] != NONE
    ]
    # A note begins with the budget of its attack; what follows is the same for all.
    notes = dict.fromkeys(
        re.sub("^[^;]*; each", "Each", note) for view in found.attacks for note in view.notes
    )
    return "\n\n".join([marks.markdown(["attack", *ATTACKED], rows), " ".join(notes)])


def draw(place: Path, found: Sequence[Curve]) -> None:
    """One panel per attack: each model with its band, Base dashed and Retrain dotted."""
    titles = list(dict.fromkeys(curve.result.title for curve in found))
    rows = -(-len(titles) // COLUMNS)
    subjects = list(dict.fromkeys(curve.result.path for curve in found if curve.role == "subject"))
    with picture(place, 9.0, 2.5 * rows + 0.3, nrows=rows, ncols=COLUMNS) as (figure, grid):
        for axes, title in zip(grid.flat, titles, strict=False):
            curves = [curve for curve in found if curve.result.title == title]
            for curve in curves:
                places = np.arange(len(curve.points))
                means = [point.mean for point in curve.points]
                if curve.role in REFERENCES:
                    colour, style = REFERENCES[curve.role]
                    axes.plot(
                        places,
                        means,
                        color=colour,
                        linestyle=style,
                        linewidth=1.1,
                        label=curve.role.title(),
                    )
                    continue
                colour = COLOURS[subjects.index(curve.result.path) % len(COLOURS)]
                sides = (
                    [getattr(point, side).value for point in curve.points]
                    for side in ("lower", "upper")
                )
                axes.fill_between(places, *sides, color=colour, alpha=0.2, linewidth=0)
                axes.plot(
                    places,
                    means,
                    color=colour,
                    marker="o",
                    markersize=3,
                    label=Path(curve.result.path).name,
                )
            leakage_against(axes, curves[0])
            axes.set_title(title.split(" (")[0] + rows_of(title))
        for axes in list(grid.flat)[len(titles) :]:
            axes.set_axis_off()
        named = grid.flat[0].get_legend_handles_labels()
        figure.legend(
            *named, loc="outside lower center", ncols=len(named[0]), frameon=False, fontsize=8
        )


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
        raise BadFile(
            folder / "data/sweeps",
            "holds no sweep of a preset",
            "Run `lethe sweep --preset fig-4a`.",
        )
    return "\n\n".join([*parts, f"Each p is{TEST}."])


POPULATION_HEAD = (
    "population",
    "goal",
    "attacks",
    "leak",
    "unproved",
    "share that succeeds",
    "traces",
)


def populations(folder: Path, page: Path | None) -> str:
    """A row per population with both ends of its share, its sentences below."""
    run = run_of(folder)
    if not run.populations:
        raise BadFile(
            "data/attacks",
            "holds no population",
            "Run `lethe run attack --preset attack-population`.",
        )
    rows = []
    told = []
    for name, result in run.populations.items():
        lower, upper = result.bounds
        counts = [len(result.tried), result.count("leaks"), result.count("open")]
        share = f"{lower.percent()} to {upper.percent()}"
        traces = f"{result.traced} of {len(result.tried)}" if result.tests_traces else NONE
        rows.append([name, f"{100 * result.goal:g}%", *map(str, counts), share, traces])
        told.append(f"- {result.sentence(name)} {result.before_sentence}")
    covers = next(iter(run.populations.values())).covers
    return "\n\n".join([marks.markdown(POPULATION_HEAD, rows), "\n".join(told), covers])


PARTS: dict[str, Callable[[Path, Path | None], str]] = {
    "methods": methods,
    "attacks": attacks,
    "populations": populations,
    "sweeps": sweeps,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = marks.parser_of(__doc__)
    parser.add_argument("part", choices=PARTS, help="what to print")
    options = parser.parse_args(arguments)
    marks.put(options.write, options.part, PARTS[options.part](options.folder, options.write))


if __name__ == "__main__":
    main()
