"""Leak-k's generations: JSON lines, one question per line, with all answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.errors import BadRow
from lethe.io.logs._json import lines
from lethe.io.logs._log import SAME_TEXTS, Log, Table, copies, greedy, number

NAME = "leak-k"
HOLDS = "Leak-k generations (.json of JSON lines, also _evaluated and _llm_judge)"
FOLDER = re.compile(r"temperature=([0-9.]+?)top_p=([0-9.]+)")
PLANNED = re.compile(r"generations_n([0-9]{1,9})(?:_|\.|$)")
JUDGED_TOGETHER = 20  # the judge collects replies in groups of this size, in order of arrival


def recognises(first: Mapping[str, object]) -> bool:
    """Whether the first members of a file identify this format."""
    return isinstance(first.get("responses"), list) and "prompt" in first


def read(path: Path) -> Log:
    """Read the file. Lines have no names, so `prompt_id` counts the lines from 0, as the tool's own files do."""
    table = Table(path)
    place, judged_late, blank_entailed = -1, False, False
    for place, (line, row) in enumerate(lines(path)):
        responses = row.get("responses")
        if not isinstance(responses, list) or not isinstance(row.get("prompt"), str):
            raise BadRow(path, line, "expected `prompt`, a text, and `responses`, a list")
        table.prompt(str(place), row["prompt"], scores=_of_the_question(row))
        for sample, response in enumerate(responses, start=1):
            text, scores = _answer(path, line, response)
            if text is None:
                table.problem(str(place), sample, "no response")
            table.answer(str(place), sample, text or "", scores)
            blank_entailed |= "ES" in scores and not (text or "").strip()
        judged_late |= len(responses) > JUDGED_TOGETHER and "LLM_judge" in responses[0]
    stated = PLANNED.search(path.name)
    if stated and table.most() == int(stated[1]):  # otherwise the file was renamed, or every question was cut
        for question in range(place + 1):
            table.prompt(str(question), planned=table.most())
    tables = table.finish()
    sampling = _sampling(path)
    reason = greedy(sampling)
    warnings = [SAME_TEXTS] if table.equal_texts() and not reason else []
    if judged_late:
        warnings.append(
            f"LLM_judge: the tool collects verdicts in groups of {JUDGED_TOGETHER} as they finish, so with more answers a "
            "verdict may belong to another answer"
        )
    if blank_entailed:
        warnings.append("ES: the tool puts an empty answer first in its batch, so labels near it may be shifted")
    return Log(
        path=path,
        format=NAME,
        tool="Leak-k",
        sampling=sampling,
        draws="copies" if reason and table.most() > 1 else "sampled" if sampling else "unknown",
        refusal=copies(f"{reason}, in the folder's name", table.most()) if reason and table.most() > 1 else None,
        warnings=tuple(warnings),
        notes=tuple(_notes(sampling, tables["scores"])),
        **tables,
    )


def _answer(path: Path, line: int, response: Any) -> tuple[str | None, dict[str, float]]:
    text = response.get("response") if isinstance(response, dict) else 0
    if not (text is None or isinstance(text, str)):
        raise BadRow(path, line, "expected in `responses` objects with a text `response`")
    return text, {name: number(value) for name, value in response.items() if name != "response"}


def _of_the_question(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers about all answers of a line; the best answer is a copy, not a further answer."""
    numbers = {name: number(value) for name, value in row.items() if isinstance(value, (int, float))}
    best = row.get("best_answer")
    if isinstance(best, dict) and isinstance(best.get("rougeL_recall"), (int, float)):
        numbers["best_answer.rougeL_recall"] = number(best["rougeL_recall"])
    return numbers


def _sampling(path: Path) -> dict[str, float]:
    """Read the settings, which the tool writes only to the name of the folder."""
    stated = FOLDER.search(path.absolute().parent.name)
    try:
        return {"temperature": float(stated[1]), "top_p": float(stated[2])} if stated else {}
    except ValueError:
        return {}


def _notes(sampling: Mapping[str, float], scores: tuple[str, ...]) -> list[str]:
    notes = []
    if sampling:
        notes.append("top_k is not stated: the tool leaves it at its library's default, 50 in transformers")
    else:
        notes.append(
            "temperature and top_p appear only in the tool's own folder name, and this folder has another name"
        )
    if {"CS", "ES", "LLM_judge"} & set(scores):
        notes.append(
            "the tool drops a failing line, so a line's number may differ from its number in the generations"
        )
    if "LLM_judge" in scores:
        notes.append("LLM_judge: an unreadable reply is a 0, the same as a no")
    return notes
