"""Leak-k's generations: JSON lines, one question per line, with all answers."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lethe.errors import BadRow
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._decoding import greedy
from lethe.io.logs._json import as_object, number, object_at
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile
from lethe.io.logs.responses import scores_beside

FOLDER = re.compile(r"temperature=([0-9.]+?)top_p=([0-9.]+)")
PLANNED = re.compile(r"generations_n([0-9]{1,9})(?:_|\.|$)")
JUDGED_TOGETHER = 20  # the judge collects replies in groups of this size, in order of arrival
ROUGE_RECALL = "rougeL_recall"  # the score that Leak-k writes beside every answer
SCORES_OF_LEAK_K = (ROUGE_RECALL, "exact_match", "CS", "ES", "LLM_judge")


def _is_leak_k(first: Mapping[str, Json]) -> bool:
    """Whether an object has answers as Leak-k writes them: objects, each with its ROUGE-L recall."""
    responses = first.get("responses")
    if not isinstance(responses, list) or "prompt" not in first:
        return False
    scored = [response for response in map(as_object, responses) if ROUGE_RECALL in response]
    return len(responses) == 0 or bool(scored)


def _read_leak_k(source: JsonFile) -> Log:
    """Read the file. Lines have no names, so `prompt_id` counts the lines from 0, as the tool's own files do."""
    path = source.path
    table = Table(path)
    questions: list[str] = []
    settings = RequestSettings()
    judged_late = blank_entailed = False
    for line, row in source.lines():
        responses = row.get("responses")
        objects = isinstance(responses, list) and all(isinstance(item, dict) for item in responses)
        if not objects or not isinstance(row.get("prompt"), str):
            problem = "expected `prompt`, a text, and `responses`, a list of objects"
            raise BadRow(path, line, problem)
        question = str(len(questions))
        questions.append(question)
        table.prompt(question, row["prompt"], scores=_of_the_question(row))
        settings.add_answers(row, row["responses"], question)
        for sample, response in enumerate(row["responses"], start=1):
            text = response.pop("response", None)
            if text is not None and not isinstance(text, str):
                raise BadRow(path, line, "expected in `responses` objects with a text `response`")
            scores = scores_beside(response)
            table.note_end(question, sample, response)
            table.answer(question, sample, text, scores, "no response")
            if "ES" in scores and not (text or "").strip():
                blank_entailed = True
        if len(row["responses"]) > JUDGED_TOGETHER and "LLM_judge" in row["responses"][0]:
            judged_late = True
    planned = PLANNED.search(path.name)
    most = table.most()
    if planned and int(planned[1]) == most:  # else the file was renamed, or every question was cut
        for question in questions:
            table.prompt(question, planned=most)
    warnings = []
    if judged_late:
        warnings.append(
            f"LLM_judge: the tool collects verdicts in groups of {JUDGED_TOGETHER} as they finish, so with more answers a "
            "verdict may belong to another answer"
        )
    if blank_entailed:
        warnings.append(
            "ES: the tool puts an empty answer first in its batch, so labels near it may be shifted"
        )
    of_folder = _sampling(path)
    greedy_by = greedy(of_folder)
    if greedy_by:
        greedy_by += ", in the folder's name"
    sampling = {**of_folder, **settings.sampling}
    log = table.log(
        "Leak-k",
        means=_means_of_leak_k,
        sampling=sampling,
        greedy_by=greedy_by or settings.greedy_by,
        repeats=settings.repeats,
        may_repeat=settings.may_repeat,
        mixed=settings.mixed,
        draws="sampled" if of_folder else "unknown",
        warnings=(*warnings, *settings.warnings),
    )
    return replace(log, notes=tuple(_notes_on_leak_k(of_folder, log.scores)))


def _means_of_leak_k(score: str) -> Meaning:
    """The tool asks the questions of a forget set, and each of its scores says how much of the answer was given."""
    return "leak" if score in SCORES_OF_LEAK_K else named(score)


def _of_the_question(row: Mapping[str, Json]) -> dict[str, float]:
    """Return the numbers of a line, which are scores of the question as a whole."""
    scores = _numbers(row)
    best = object_at(row, "best_answer").get("rougeL_recall")
    if isinstance(best, (int, float)):
        scores["best_answer.rougeL_recall"] = number(best)
    return scores


def _numbers(row: Mapping[str, Json]) -> dict[str, float]:
    scores = {}
    for name, value in row.items():
        if isinstance(value, (int, float)):
            scores[name] = number(value)
    return scores


def _sampling(path: Path) -> dict[str, float]:
    """Read the settings, which the tool writes only to the name of the folder."""
    stated = FOLDER.search(path.absolute().parent.name)
    if not stated:
        return {}
    try:
        return {"temperature": float(stated[1]), "top_p": float(stated[2])}
    except ValueError:
        return {}


def _notes_on_leak_k(sampling: Mapping[str, float], scores: tuple[str, ...]) -> list[str]:
    notes = []
    if sampling:
        notes.append(
            "top_k is not stated: the tool leaves it at its library's default, 50 in transformers"
        )
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


FORMAT = Format(
    "leak-k",
    "Leak-k generations (.json of JSON lines, also _evaluated and _llm_judge)",
    _is_leak_k,
    _read_leak_k,
)
