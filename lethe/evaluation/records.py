"""Scores and bounds as records for Inspect's `precomputed_scores`: id, optional epoch, value, explanation, metadata."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from lethe.errors import BadInput
from lethe.evaluation.log_texts import ScoredLog
from lethe.evaluation.prompts import PromptMeasures

Record = Mapping[str, object]


def score_records(found: ScoredLog) -> list[Record]:
    """Return one record per scored answer; a missing answer has no record, so Inspect leaves the answer unscored.

    With one scorer the value is a number. With several scorers the value is an object with one key per scorer, and
    Inspect's ``metrics`` must be an object too.
    """
    ids = inspect_ids(found.log.prompts["prompt_id"])
    records: list[Record] = []
    for row in found.table.to_dict("records"):
        values = {name: row[name] for name in found.scorers if not math.isnan(row[name])}
        if len(values) == len(found.scorers):
            value = values[found.scorers[0]] if len(values) == 1 else values
            records.append({"id": ids[row["prompt_id"]], "epoch": row["sample"], "value": value})
    return records


def bound_records(measures: PromptMeasures) -> list[Record]:
    """Return one record per prompt, for all its epochs: the value is the upper bound, ``explanation`` the guarantee."""
    ids = inspect_ids(prompt.prompt_id for prompt in measures.prompts)
    name = measures.metric
    records: list[Record] = []
    for prompt in measures.prompts:
        bounds = prompt.bounds()
        facts = {key: bound.value for key, bound in bounds.items()} | {"n": prompt.n, "missing": prompt.missing}
        records.append(
            {
                "id": ids[prompt.prompt_id],
                "value": bounds[name].value,
                "explanation": bounds[name].sentence(name),
                "metadata": facts,
            }
        )
    return records


def inspect_ids(prompt_ids: Iterable[str]) -> dict[str, str]:
    """The id of each prompt in Inspect, which compares ids as text; the log reader quotes a text that is also a number."""
    ids = {prompt_id: prompt_id for prompt_id in prompt_ids}
    for prompt_id in ids:
        bare = prompt_id[1:-1]
        if prompt_id.startswith('"') and prompt_id.endswith('"') and bare in ids:
            raise BadInput(
                f"The log has the id {bare} as a number and as text, which Inspect's precomputed scores cannot distinguish. "
                "Rename one in the dataset."
            )
    return ids
