"""The texts of a log, scored again against the user's own rows; scores and bounds as Inspect's `precomputed_scores`.

A record of these has an id, optional epoch, value, explanation and metadata.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lethe.errors import BadInput, shortened
from lethe.evaluation.prompts import PromptMeasures
from lethe.io.artifacts import Row
from lethe.io.logs._log import KEYS, Log
from lethe.scoring._tables import score_answers

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, object]


@dataclass(frozen=True)
class ScoredLog:
    """The table of scores of a log: ``prompt_id, sample`` and one column per scorer, NaN where an answer is missing.

    ``matched_by`` names the key that joins the log's prompts with the rows: "id" or "question".
    """

    log: Log
    table: pd.DataFrame
    scorers: tuple[str, ...]
    matched_by: str

    def rows(self) -> list[tuple[str, int, int, float | None]]:
        """Name, scored answers, missing answers and mean of each scorer; the mean is None if no answer has a score."""
        found = []
        for name in self.scorers:
            values = self.table[name].dropna()
            mean = float(values.mean()) if len(values) else None
            found.append((name, len(values), len(self.table) - len(values), mean))
        return found

    def warnings(self) -> list[str]:
        """The reasons why bounds from the table would not hold, and the log's own warnings."""
        reasons = [self.log.refusal] if self.log.refusal else []
        if self.log.stopping == "early":
            reasons.append("a rule could stop the run early, so bounds for a fixed number of answers do not hold")
        return [f"{one}; a table of scores does not show this" for one in reasons] + list(self.log.warnings)


def score_log(log: Log, rows: Sequence[Row], scorers: Sequence[str], source: str) -> ScoredLog:
    """Score every planned answer of ``log``."""
    items, matched_by = _matched(log, rows, source)
    table = _texts(log)
    scores = score_answers(table, items, scorers)
    texts = bool((table["text"].fillna("").str.strip() != "").any())
    for name in scorers:
        if texts and scores[name].isna().all():
            raise BadInput(
                f"scorer {name}: cannot judge any text of {log.path}. Give keywords or answers in {source}."
            )
    return ScoredLog(log, scores, tuple(scorers), matched_by)


def _texts(log: Log) -> pd.DataFrame:
    """Every planned answer in the log's order; the text of a missing answer is None."""
    import pandas as pd

    lost = log.problems[log.problems["score"].isna()][[*KEYS]].drop_duplicates()
    table = log.answers[[*KEYS, "text"]].merge(lost, on=[*KEYS], how="outer", indicator=True)
    table["text"] = table["text"].where(table["_merge"] == "left_only", None)
    place = pd.Series(range(len(log.prompts)), index=log.prompts["prompt_id"])
    order = pd.DataFrame({"prompt": table["prompt_id"].map(place), "sample": table["sample"]})
    return table.loc[order.sort_values(["prompt", "sample"]).index, [*KEYS, "text"]].reset_index(drop=True)


def _matched(log: Log, rows: Sequence[Row], source: str) -> tuple[Mapping[str, Row], str]:
    by_id = {row["id"]: row for row in rows}
    prompts = dict(zip(log.prompts["prompt_id"], log.prompts["prompt"], strict=True))
    if all(prompt_id in by_id for prompt_id in prompts):
        return by_id, "id"
    found = {}
    for prompt_id, prompt in prompts.items():
        row = _last_question(prompt, rows) if isinstance(prompt, str) else None
        if row is None:
            raise BadInput(
                f"{log.path}: prompt {shortened(prompt_id)} belongs to no row of {source}: no row has this id, and its text "
                f"({shortened(prompt)}) contains no row's question. Add the row, or use the prompt's id as the row's id."
            )
        found[prompt_id] = row
    return found, "question"


def _last_question(prompt: str, rows: Sequence[Row]) -> Row | None:
    """The row whose question ends last in the prompt, because few-shot examples precede the question."""
    ends = []
    for row in rows:
        question = row["question"].strip()
        if (start := prompt.rfind(question)) >= 0:
            ends.append((start + len(question), len(question), row))
    return max(ends, key=lambda end: end[:2])[2] if ends else None


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
