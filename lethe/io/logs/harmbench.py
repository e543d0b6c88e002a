"""HarmBench's completions and results: one object, one list of answers per behavior."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, plural
from lethe.io.logs._json import document
from lethe.io.logs._log import SAME_TEXTS, Log, Table, number

NAME = "harmbench"
HOLDS = "HarmBench completions or results (.json)"
NEITHER = -1  # the classifier answered neither yes nor no; the tool counts this as no success


def recognises(first: Mapping[str, object]) -> bool:
    """Whether the first members of a file identify this format."""
    for answers in first.values():
        if isinstance(answers, list) and answers:
            return isinstance(answers[0], dict) and "test_case" in answers[0] and "generation" in answers[0]
    return False


def read(path: Path) -> Log:
    """Read HarmBench completions or results."""
    table = Table(path, more=["prompt"])
    results, several = False, 0
    for behavior, answers in document(path).members():
        if not isinstance(answers, list):
            raise BadFile(path, f"behavior {behavior[:80]!r}: got {type(answers).__name__}, expected a list")
        prompts = []
        for sample, answer in enumerate(answers, start=1):
            prompt, text, scores = _answer(path, behavior, sample, answer)
            prompts.append(prompt)
            results |= "label" in scores
            if text is None:
                table.problem(behavior, sample, "no generation")
            if "label" in scores and math.isnan(scores["label"]):
                table.problem(behavior, sample, "label neither yes nor no", "label")
            table.answer(behavior, sample, text or "", scores, prompt=prompt)
        wordings = len(set(prompts))
        several += wordings > 1
        table.prompt(behavior, prompts[0] if wordings == 1 else None, scores={"distinct_test_cases": wordings})
    tables = table.finish()
    warnings = []
    if table.most() > 1:
        warnings.append(
            "temperature is not stated: the tool decodes greedily by default, and equal test cases are independent "
            "draws only if sampling was set"
        )
    if several:
        warnings.append(
            f"test_case: {plural(several, 'behavior')} with several wordings, whose answers are not draws for one prompt"
        )
    if table.equal_texts():
        warnings.append(SAME_TEXTS)
    notes = ["generation is cut to the tool's --num_tokens (512 by default)"] if results else []
    return Log(
        path=path,
        format=NAME,
        tool="HarmBench",
        task="results" if results else "completions",
        warnings=tuple(warnings),
        notes=tuple(notes),
        **tables,
    )


def _answer(path: Path, behavior: str, sample: int, answer: Any) -> tuple[str, str | None, dict[str, float]]:
    text = answer.get("generation", 0) if isinstance(answer, dict) else 0
    if not (text is None or isinstance(text, str)):
        raise BadFile(path, f"behavior {behavior[:80]!r}, answer {sample}: no text `generation`")
    case = answer.get("test_case")
    prompt = case if isinstance(case, str) else json.dumps(case, ensure_ascii=False)  # an image is a list
    rest = {name: number(value) for name, value in answer.items() if name not in ("test_case", "generation")}
    if rest.get("label") == NEITHER:
        rest["label"] = math.nan
    return prompt, text, rest
