"""A log of another tool whose texts are scored, by the rows of a dataset that its prompts ask."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.config.measuring import ScorerParams
from lethe.errors import BadFile, BadInput, shortened
from lethe.io import ids
from lethe.io.artifacts import Row
from lethe.io.facts import REFUSED_BECAUSE, STOPPED, reasons_in
from lethe.io.logs._log import EARLY, KEYS, Log
from lethe.io.tables import JUDGE
from lethe.measure.stated import Stated
from lethe.progress import tell
from lethe.registry import JUDGES, ROUGE
from lethe.results.licence import refusals

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ScoredLog:
    """The table of scores of a log: ``prompt_id, sample`` and one column per scorer, NaN where an answer is missing; prompts
    and rows are ``matched_by`` "id" or "question".
    """

    log: Log
    table: pd.DataFrame
    scorers: tuple[str, ...]
    matched_by: str

    def rows(self) -> list[tuple[str, int, int, float | None]]:
        """Name, scored answers, missing answers and mean of each scorer; the mean is None if no answer has a score."""
        rows = []
        for name in self.scorers:
            present = self.table[name].dropna()
            n_missing = len(self.table) - len(present)
            average = None
            if len(present):
                average = float(present.mean())
            rows.append((name, len(present), n_missing, average))
        return rows

    def warnings(self) -> list[str]:
        """The reasons why bounds from the table would not hold, and the log's own warnings."""
        reasons = list(reasons_in(self.table))
        if self.log.stopping == EARLY:
            reasons.append(
                "a rule could stop the run early, so bounds for a fixed number of answers do not hold"
            )
        return reasons + list(self.log.warnings)


def score_log(
    log: Log,
    rows: Sequence[Row],
    scorers: Sequence[str],
    source: str,
    params: Mapping[str, ScorerParams] | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> ScoredLog:
    """The scores of a log's texts by ``scorers``; ``rows`` are those of the file ``source``, one per question.

    ``params`` are the parameters of a scorer by its name. ``scratch`` is the folder in which a judge keeps its verdicts.

    Raises `BadInput` where a prompt belongs to no row, or where a scorer can judge no text.
    """
    from lethe.scoring.table import score_answers
    from lethe.scoring.text import rouge
    from lethe.scoring.verdicts import identity

    items, matched_by = _matched(log, rows, source)
    table = _texts(log)
    folder = None if scratch is None else Path(scratch)
    scores = score_answers(table, items, scorers, params, folder)
    for name in params or {}:
        if name in JUDGES:
            judge = JUDGES[name]((params or {})[name])
            judge.prepare(())  # it reads no answer
            scores = scores.assign(**{JUDGE: identity(judge)})
    if {*ROUGE, "above"} & {*scorers}:
        row_of_id = {}
        for prompt_id in log.prompts["prompt_id"]:
            row = items[prompt_id]
            row_of_id[row["id"]] = row
        for sentence in rouge.doubts(row_of_id.values()):
            tell(sentence)
    is_written = table["text"].fillna("").str.strip() != ""
    mute = [name for name in scorers if scores[name].isna().all()]
    if mute and is_written.any():
        problem = f"cannot judge any text of {log.path}. Give keywords or answers in {source}."
        raise BadInput(f"scorer {mute[0]}: {problem}")
    return ScoredLog(log, with_reasons(log, scores), tuple(scorers), matched_by)


def _matched(log: Log, rows: Sequence[Row], source: str) -> tuple[Mapping[str, Row], str]:
    """The row of each prompt, and by what it was found: its id, or the text of its question."""
    by_id = {row["id"]: row for row in rows}
    if set(log.prompts["prompt_id"]) <= by_id.keys():
        _tell_of_other_questions(log, by_id, source)
        return by_id, "id"
    found = ids.alike([*log.prompts["prompt_id"], *by_id])
    if found is not None:
        raise BadFile(log.path, f"{found.problem('id')} (in it and in {source})", ids.REMEDY)
    matched = {}
    for prompt_id, prompt in zip(log.prompts["prompt_id"], log.prompts["prompt"], strict=True):
        row = None
        if isinstance(prompt, str):
            row = _last_question(prompt, rows)
        if row is None:
            raise BadInput(
                f"{log.path}: prompt {shortened(prompt_id)} belongs to no row of {source}: no row has this id, and its text "
                f"({shortened(prompt)}) contains no row's question. Add the row, or use the prompt's id as the row's id."
            )
        matched[prompt_id] = row
    return matched, "question"


def _tell_of_other_questions(log: Log, by_id: Mapping[str, Row], source: str) -> None:
    """Tell a person of the first prompt whose id is that of one row, and whose text asks the question of another; and
    where no prompt holds the question of its row."""
    rows = list(by_id.values())
    asks_its_own = []
    others = []
    for prompt_id, prompt in zip(log.prompts["prompt_id"], log.prompts["prompt"], strict=True):
        if not isinstance(prompt, str):
            continue
        asks_its_own.append(by_id[prompt_id]["question"].strip() in prompt)
        asked = None if asks_its_own[-1] else _last_question(prompt, rows)
        if asked is not None:
            others.append(
                f"prompt {shortened(prompt_id)} asks that of the row {shortened(asked['id'])}"
            )
    if asks_its_own and not any(asks_its_own):
        tell(f"No prompt of {log.path} holds the question of the row of {source} with its id.")
    if others:
        tell(f"{log.path}: {others[0]} of {source}, and is scored by the row with its id.")


def _last_question(prompt: str, rows: Sequence[Row]) -> Row | None:
    """The row whose question ends last in the prompt, because few-shot examples precede the question."""
    last: Row | None = None
    last_place = (-1, -1)  # where the question ends, and its length, which decides among equal ends
    for row in rows:
        text = row["question"].strip()
        place = (prompt.rfind(text) + len(text), len(text))
        if text in prompt and place > last_place:
            last = row
            last_place = place
    return last


def _texts(log: Log) -> pd.DataFrame:
    """Every planned answer in the log's order; the text of a missing answer is None."""
    import pandas as pd

    lost = log.problems[log.problems["score"].isna()][[*KEYS]].drop_duplicates()
    table = log.answers[[*KEYS, "text"]].merge(lost, on=[*KEYS], how="outer", indicator=True)
    table["text"] = table["text"].where(table["_merge"] == "left_only", None)
    place = pd.Series(range(len(log.prompts)), index=log.prompts["prompt_id"])
    ordered = table.assign(prompt=table["prompt_id"].map(place)).sort_values(["prompt", "sample"])
    return ordered[[*KEYS, "text"]].reset_index(drop=True)


def with_reasons(log: Log, table: pd.DataFrame) -> pd.DataFrame:
    """A table made from a log, with a column that says why nothing can be claimed of the log, and one that says that a rule
    could stop it; neither where there is no reason. `bounds` and `compare` read both.
    """
    reasons = refusals(replace(Stated("", log.facts).source(), score_means="leak"))
    if log.refusal is not None:
        reasons.append(f"The table was made from a log that carries no claim: {log.refusal}.")
    if reasons:
        table = table.assign(**{REFUSED_BECAUSE: " ".join(reasons)})
    if log.stopping == EARLY:
        table = table.assign(**{STOPPED: True})
    return table
