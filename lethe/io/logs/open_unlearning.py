"""open-unlearning's evaluations (such as TOFU_EVAL.json): one block per metric, values by index."""

from collections.abc import Mapping
from pathlib import Path

from lethe.errors import BadFile
from lethe.io.facts import Meaning
from lethe.io.files import Json
from lethe.io.logs._json import as_object, number, text_at
from lethe.io.logs._log import OPEN_UNLEARNING, Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile, checked
from lethe.io.logs.responses import is_score

VALUES = "value_by_index"
TEXTS = ("input", "ground_truth", "generation")
Rows = dict[str, dict[str, Json]]  # of a metric of open-unlearning, by index


def _read_open_unlearning(source: JsonFile) -> Log:
    """Read the blocks with a `generation`; with several, one index is a different question in each."""
    path = source.path
    table = Table(path)
    rows_of_block: dict[str, Rows] = {}
    stated = {}
    for name, block in source.object.items():
        if isinstance(block, dict):
            rows_of_block[name] = _by_index(path, name, block)
            stated[name] = block.get("agg_value")
    generated = []
    for name, rows in rows_of_block.items():
        if any("generation" in row for row in rows.values()):
            generated.append(name)
    if not generated:
        problem = "holds no generations: its metrics judge the reference answers"
        raise BadFile(path, problem, "Evaluate with a ROUGE metric.")
    settings = RequestSettings()
    for name in generated:
        prefix = f"{name}/" if len(generated) > 1 else ""
        _add_generated(table, name, rows_of_block[name], prefix)
        of_block = {**source.object[name], VALUES: None}
        for index, row in rows_of_block[name].items():
            settings.add({**of_block, **row}, question=prefix + index)
    if len(generated) == 1:
        for name, rows in rows_of_block.items():
            if name not in generated:
                _add_scores_of_reference(table, name, rows)
    return table.log(
        OPEN_UNLEARNING,
        means=_means_of_open_unlearning,
        task=", ".join(generated),
        **settings.of_log(
            [
                "do_sample is not stated: the evaluator decodes greedily by default, one answer per question, so the answers "
                "carry no information on repeated draws"
            ]
        ),
        notes=(
            "probabilities, truth ratios and memorisation judge the reference answer, not the generation",
        ),
        stated=stated,
    )


def _add_generated(table: Table, name: str, rows: Rows, prefix: str) -> None:
    for index, row in rows.items():
        scores = {}
        for key, value in row.items():
            if key not in TEXTS and is_score(key):
                scores[f"{name}.{key}"] = number(value)
        table.prompt(prefix + index, text_at(row, "input"))
        table.note_end(prefix + index, 1, row)
        table.answer(prefix + index, 1, row.get("generation"), scores)


def _add_scores_of_reference(table: Table, name: str, rows: Rows) -> None:
    for index, row in rows.items():
        scores = {}
        for key, value in row.items():
            if value is None or isinstance(value, (int, float)):
                scores[f"{name}.{key}"] = number(value)
        if row:
            table.prompt(index, scores=scores)


def _means_of_open_unlearning(score: str) -> Meaning:
    """A score of the forget set says how much of a forgotten answer was given; of other sets, that the model still knows."""
    if score.startswith("forget"):
        return "leak"
    return "match"


def _by_index(path: Path, name: str, block: Mapping[str, Json]) -> Rows:
    """Return the rows of a metric; a metric with only an aggregate, such as forget quality, has no rows.

    A null in place of a row is a row that holds nothing.
    """
    values = checked(path, f"{name[:80]!r}: `{VALUES}`", block.get(VALUES, {}))
    return {
        index: as_object(row)
        for index, row in values.items()
        if row is None or isinstance(row, dict)
    }


FORMAT = Format(
    OPEN_UNLEARNING,
    "open-unlearning evaluations (*_EVAL.json)",
    lambda first: bool(first) and all("agg_value" in as_object(block) for block in first.values()),
    _read_open_unlearning,
)
