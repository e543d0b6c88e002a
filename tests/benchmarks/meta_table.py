"""The headline numbers of one or more finished meta-evaluations side by side, as Markdown.

``python -m tests.benchmarks.meta_table meta-authors meta-authors-1 --write docs/meta-evaluation.md`` reads
data/meta/NAME/result.json below this folder, or below ``--folder``, and replaces what stands between ``<!-- runs -->`` and
``<!-- end runs -->``. Every sentence is one that the pages of the runs print.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from lethe.evaluation.meta_evaluation import MetaResult
from lethe.io.schema import read_artifact
from lethe.report.meta_page import COLUMNS, claim_sentence, sentences
from lethe.statistics.bound import coverage
from lethe.text import number
from tests.benchmarks import marks
from tests.benchmarks.study_tables import markdown

SHOWN = ("AUC", "AUC per question", "robustness", "prediction: leaks", "prediction: mean", "seconds per model")


def known(value: Any) -> Any:
    """JSON's null is a number without a value here."""
    if isinstance(value, dict):
        return {key: known(own) for key, own in value.items()}
    if isinstance(value, list):
        return [known(own) for own in value]
    return math.nan if value is None else value


def read(place: Path) -> tuple[MetaResult, dict[str, Any]]:
    """A finished meta-evaluation, and all of its file."""
    kept = read_artifact(place / "result.json")
    return TypeAdapter(MetaResult).validate_python(known(kept)), kept


def table(results: dict[str, MetaResult], headline: Sequence[str]) -> str:
    """A row per headline number, in the order of its mean AUC; in each cell the runs, one below the other."""
    by_name = [{one.name: one for one in result.worth} for result in results.values()]
    names = [name for name in headline if all(name in worth for worth in by_name)]
    order = {name: statistics.fmean(worth[name].auc.value for worth in by_name) for name in names}
    names.sort(key=lambda name: (math.isnan(order[name]), -order[name]))
    columns = [next(column for column in COLUMNS if column.title == title) for title in SHOWN]
    rows = [
        [f"`{name}`", *("<br>".join(column.text(worth[name]) for worth in by_name) for column in columns)]
        for name in names
    ]
    return markdown(["number", *SHOWN], rows)


def agreement(results: dict[str, MetaResult], headline: Sequence[str]) -> str:
    """How far the AUC of the first two runs differ."""
    first, second = ({one.name: one.auc.value for one in result.worth} for result in list(results.values())[:2])
    apart = {name: abs(first[name] - second[name]) for name in headline if name in first and name in second}
    apart = {name: value for name, value in apart.items() if not math.isnan(value)}
    most = max(apart, key=lambda name: apart[name])
    middle, largest = number(statistics.median(apart.values())), number(apart[most])
    return (
        f"Between the first two runs the AUC of {len(apart)} headline numbers differs by {middle} in the median, at most by "
        f"{largest} (`{most}`)."
    )


def claims(results: dict[str, MetaResult]) -> str:
    """A row per claim: its verdict in each run."""
    rows = [
        [f"{own[0].text} (`{own[0].better}` beside `{own[0].than}`)", *(one.verdict for one in own)]
        for own in zip(*(result.claims for result in results.values()), strict=True)
    ]
    return markdown(["claim", *results], rows)


def text_of(results: dict[str, MetaResult], kept: Sequence[dict[str, Any]]) -> str:
    """Tables, the sentences of each run, and where the numbers come from."""
    first = next(iter(results.values()))
    headline = kept[0]["settings"]["headline"]
    parts = [
        claims(results),
        f"In each cell of the next table the runs {' and '.join(f'`{name}`' for name in results)}, one below the other. "
        f"Each interval holds with probability {coverage(first.alpha)} by itself, over models like those of the pools, if "
        "the models of a pool (AUC) or whole methods (robustness, prediction) are independent draws. Seconds are processor "
        "seconds per model.",
        table(results, headline),
    ]
    if len(results) > 1:
        parts.append(agreement(results, headline))
    for (name, result), own in zip(results.items(), kept, strict=True):
        made = own["provenance"]
        pools = f"{sum(result.knows.values())} models that know, {sum(result.lacks.values())} that lack, "
        parts.append(
            f"**`{name}`** (seed {own['settings']['seed']}, {pools}{sum(result.unlearned.values())} unlearned, "
            f"{result.questions} forget questions; revision {made['revision']}, {made['machine']['processor']}, "
            f"instruction set: {made['machine']['instruction set']}):"
        )
        said = [
            *sentences(result),
            *(f"{one.text}: {one.verdict}. {claim_sentence(one)}" for one in result.claims),
        ]
        parts.append("\n".join(f"- {sentence}" for sentence in said))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="data/meta/NAME")
    parser.add_argument("--folder", type=Path, default=Path(), help="the pipeline's folder")
    parser.add_argument("--write", type=Path, help="the page that takes the text between its marks")
    options = parser.parse_args(arguments)
    found = {name: read(options.folder / "data/meta" / name) for name in options.names}
    text = text_of({name: one for name, (one, _) in found.items()}, [kept for _, kept in found.values()])
    print(text)
    if options.write:
        marks.write(options.write, "runs", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
