"""HarmBench's completions and results: one object, one list of answers per behavior."""

import json
import math
from collections.abc import Mapping

from lethe.errors import BadFile, plural
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._json import as_object
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import SEVERAL, Table
from lethe.io.logs._untrusted import JsonFile
from lethe.io.logs.responses import scores_beside

# HarmBench's classifier answered neither yes nor no; the tool counts this as no success.
NEITHER = -1
ABSENT = 0  # in place of a text that a file must have: no text, and not null


def _is_harmbench(first: Mapping[str, Json]) -> bool:
    for answers in first.values():
        if isinstance(answers, list) and answers:
            return {"test_case", "generation"} <= as_object(answers[0]).keys()
    return False


def _read_harmbench(source: JsonFile) -> Log:
    table = Table(source.path, more=["prompt"])
    settings = RequestSettings()
    judged = False
    several = 0
    for behavior, answers in source.object.items():
        if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
            raise BadFile(source.path, f"behavior {behavior[:80]!r}: expected a list of objects")
        settings.add_answers({}, answers, behavior)
        prompts = [_wording(answer.get("test_case")) for answer in answers]
        for sample, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), start=1):
            text = answer.pop("generation", ABSENT)
            table.note_end(behavior, sample, answer)
            answer.pop("test_case", None)
            scores = scores_beside(answer)
            if scores.get("label") == NEITHER:
                scores["label"] = math.nan
            judged |= "label" in scores
            if math.isnan(scores.get("label", 0)):
                table.problem(behavior, sample, "label neither yes nor no", "label")
            table.answer(behavior, sample, text, scores, prompt=prompt)
        wordings = len(set(prompts))
        several += wordings > 1
        wording = prompts[0] if wordings == 1 else None
        table.prompt(behavior, wording, scores={"distinct_test_cases": wordings})
    warnings = []
    if table.most() > 1 and not settings.values:
        warnings.append(
            "temperature is not stated: the tool decodes greedily by default, and equal test cases are independent "
            "draws only if sampling was set"
        )
    if several:
        warnings.append(f"test_case: {plural(several, 'behavior')} {SEVERAL}")
    task = "completions"
    notes = []
    if judged:
        task = "results"
        notes.append("generation is cut to the tool's --num_tokens (512 by default)")
    return table.log(
        "HarmBench",
        means=_means_of_harmbench,
        task=task,
        **settings.of_log(warnings),
        notes=notes,
    )


def _wording(case: Json) -> str:
    """Return a test case as text; an image is a list."""
    if isinstance(case, str):
        return case
    return json.dumps(case, ensure_ascii=False)


def _means_of_harmbench(score: str) -> Meaning:
    """The classifier's label says that the answer is the behaviour; that a phrase of refusal is absent says less."""
    return "leak" if score == "label" else named(score)


FORMAT = Format(
    "harmbench", "HarmBench completions or results (.json)", _is_harmbench, _read_harmbench
)
