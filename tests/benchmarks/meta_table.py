"""The headline numbers of one or more finished meta-evaluations side by side, as Markdown.

``python -m tests.benchmarks.meta_table meta-authors meta-authors-1 --write docs/meta-evaluation.md`` reads
data/meta/NAME/result.json below this folder, or below ``--folder``, and replaces what stands between ``<!-- runs -->`` and
``<!-- end runs -->``; the picture lies beside that page. The pages of the runs have every number and sentence.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lethe.errors import BadInput
from lethe.io.files import read_artifact
from lethe.report.svg import LIGHT, picture
from lethe.text import number
from studies.meta_evaluation.work import COLUMNS, WHAT, draw, guarantee, target_of
from studies.meta_evaluation.worth import MetaResult, Worth
from tests.benchmarks import marks

MARKS = "dot: AUC; square: AUC per question; both with their intervals; diamond: rank correlation"
SHOWN = ("AUC", "AUC per question", "seconds per model")
# Beside the numbers of the claims; `numbers.parquet` and the page of a run have all.
FURTHER = ("forget_probability", "epsilon_star", "forget_truth_ratio", "sd@1024")


def known(value: Any) -> Any:
    """JSON's null is a number without a value here."""
    if isinstance(value, dict):
        return {key: known(own) for key, own in value.items()}
    if isinstance(value, list):
        return [known(own) for own in value]
    return math.nan if value is None else value


def read(place: Path) -> tuple[MetaResult, dict[str, Any]]:
    kept = read_artifact(place / "result.json")
    return TypeAdapter(MetaResult).validate_python(known(kept)), kept


def by_auc(results: dict[str, MetaResult], headline: Sequence[str]) -> dict[str, list[Worth]]:
    """The headline numbers with their worth in each run, in the order of their mean AUC, then of that per question."""
    by_name = [{one.name: one for one in result.worth} for result in results.values()]
    found = {
        name: [worth[name] for worth in by_name]
        for name in headline
        if all(name in worth for worth in by_name)
    }

    def order(name: str) -> list[float]:
        means = [
            statistics.fmean(estimate.value for estimate in estimates)
            for estimates in zip(*((one.auc, one.auc_each) for one in found[name]), strict=True)
        ]
        return [math.inf if math.isnan(mean) else -mean for mean in means]

    return {name: found[name] for name in sorted(found, key=order)}


def table(found: dict[str, list[Worth]], result: MetaResult) -> str:
    """A row per number of a claim and of `FURTHER`; in each cell the runs, one below the other."""
    columns = [next(column for column in COLUMNS if column.title == title) for title in SHOWN]
    names = {*FURTHER, *(name for claim in result.claims for name in (claim.better, claim.than))}
    rows = [
        [f"`{name}`", *("<br>".join(map(column.text, worth)) for column in columns)]
        for name, worth in found.items()
        if name in names
    ]
    return marks.markdown(["number", *SHOWN], rows)


def picture_of(place: Path, results: dict[str, MetaResult], found: dict[str, list[Worth]]) -> None:
    """One panel per run, as on its page, with the numbers of the table from above to below."""
    target = target_of([one for worth in found.values() for one in worth])
    height = 0.8 + 0.2 * max(1, len(found))
    with picture(
        place, 2.0 + 4.0 * len(results), height, ncols=len(results), sharex=True, sharey=True
    ) as (
        figure,
        grid,
    ):
        for axes, name, worth in zip(
            grid[0], results, zip(*found.values(), strict=True), strict=True
        ):
            draw(axes, worth, target, LIGHT["accent"], LIGHT["warm"], LIGHT["muted"])
            axes.set_title(name, loc="left", fontsize=9)
        figure.supxlabel(f"{MARKS} with {WHAT[target]}", fontsize=8)


def agreement(found: dict[str, list[Worth]]) -> str:
    apart = {name: abs(worth[0].auc.value - worth[1].auc.value) for name, worth in found.items()}
    apart = {name: value for name, value in apart.items() if not math.isnan(value)}
    most = max(apart, key=lambda name: apart[name])
    middle, largest = number(statistics.median(apart.values())), number(apart[most])
    return (
        f"Between the first two runs the AUC of {len(apart)} headline numbers differs by {middle} in the median, at most by "
        f"{largest} (`{most}`)."
    )


def claims(results: dict[str, MetaResult]) -> str:
    rows = [
        [f"{own[0].text} (`{own[0].better}` beside `{own[0].than}`)", *(one.verdict for one in own)]
        for own in zip(*(result.claims for result in results.values()), strict=True)
    ]
    return marks.markdown(["claim", *results], rows)


def text_of(
    results: dict[str, MetaResult], found: dict[str, list[Worth]], kept: Sequence[dict[str, Any]]
) -> str:
    """The tables, and where their numbers come from."""
    first = next(iter(results.values()))
    parts = [
        claims(results),
        f"In each cell of the next table the runs {' and '.join(f'`{name}`' for name in results)}, one below the other. "
        f"{guarantee(first)}",
        table(found, first),
    ]
    if len(results) > 1:
        parts.append(agreement(found))
    for (name, result), own in zip(results.items(), kept, strict=True):
        made = own["provenance"]
        pools = f"{sum(result.knows.values())} models that know, {sum(result.lacks.values())} that lack, "
        parts.append(
            f"`{name}`: seed {own['settings']['seed']}, {pools}{sum(result.unlearned.values())} unlearned, "
            f"{result.questions} forget questions; revision {made['revision']}, {made['machine']['processor']}, "
            f"instruction set: {made['machine']['instruction set']}."
        )
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument("names", nargs="+", help="data/meta/NAME")
    options = parser.parse_args(arguments)
    runs = {name: read(options.folder / "data/meta" / name) for name in options.names}
    results, kept = (
        {name: one for name, (one, _) in runs.items()},
        [own for _, own in runs.values()],
    )
    if len({repr(own["settings"] | {"seed": None}) for own in kept}) > 1:
        raise BadInput(
            f"{', '.join(results)} have other settings. Give runs that differ in meta_evaluation.seed alone."
        )
    found = by_auc(results, kept[0]["settings"]["headline"])
    text = text_of(results, found, kept)
    if options.write:
        place = options.write.with_suffix(".png")
        picture_of(place, results, found)
        text = f"![AUC, AUC per question and prediction of the headline numbers]({place.name})\n\n{text}"
    marks.put(options.write, "runs", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
