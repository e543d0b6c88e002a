"""promptfoo's results: one JSON document or JSON lines, one row per provider, prompt, test and repeat."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lethe.errors import BadFile, plural
from lethe.io.logs._log import SAME_TEXTS, Format, Log, Table, as_list, as_object, as_text, number
from lethe.io.logs._untrusted import Source

ERROR = 2  # of `failureReason`; 0 is a pass, 1 a failed assertion, which also fills `error`
KEYS = {"promptIdx", "vars"}  # of a row
EVERY_CACHED = "cached: true in every row: the answers come from an earlier run and are no new draws"


class _Row(NamedTuple):
    place: int
    text: str | None
    scores: dict[str, float]
    problem: str | None
    cached: bool
    provider: str | None
    prompt: str | None


@dataclass
class _Test:
    """A test, and its rows by prompt; ``first`` orders the tests as in the user's file."""

    first: int
    repeat: Any
    metrics: dict[str, None] = field(default_factory=dict)
    rows: dict[int, list[_Row]] = field(default_factory=dict)


def read(source: Source) -> Log:
    """Read the rows, which are in order of completion. The rows of one prompt, variables and test case are the repeats."""
    path, tests = source.path, dict[str, _Test]()
    head: Mapping[str, Any] = {} if source.first.keys() >= KEYS else source.object
    if head and not isinstance(as_object(head.get("results")).get("results"), list):
        raise BadFile(path, "`results.results` must be a list")
    rows: Iterable[Any] = head["results"]["results"] if head else (row for _, row in source.lines())
    for count, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not isinstance(row.get("promptIdx"), int):
            raise BadFile(path, f"result {count}: expected an object with an integer `promptIdx`")
        key = json.dumps([row.get("vars"), row.get("testCase")], sort_keys=True)
        place = row["testIdx"] if isinstance(row.get("testIdx"), int) else count
        case = as_object(row.get("testCase"))
        test = tests.setdefault(key, _Test(place, as_object(case.get("options")).get("repeat")))
        test.first = min(test.first, place)
        test.metrics |= dict.fromkeys([*_metrics(case), *as_object(row.get("namedScores"))])
        test.rows.setdefault(row["promptIdx"], []).append(_row(place, row))
    return _log(path, head, sorted(tests.values(), key=lambda test: test.first))


def _recognises(first: Mapping[str, Any]) -> bool:
    rows = as_list(as_object(first.get("results")).get("results"))
    return any(isinstance(row, dict) and row.keys() >= KEYS for row in (first, *rows[:1]))


FORMAT = Format("promptfoo", "promptfoo results (.json or .jsonl)", _recognises, read)


def _metrics(case: Any) -> Iterator[str]:
    """Yield the named metrics of a test case, also those inside a set of assertions."""
    for one in as_list(as_object(case).get("assert")):
        if isinstance(as_object(one).get("metric"), str):
            yield one["metric"]
        yield from _metrics(one)


def _row(place: int, row: Mapping[str, Any]) -> _Row:
    response = as_object(row.get("response"))
    output, problem = response.get("output"), None
    if output is None or row.get("failureReason") == ERROR:
        problem = "error" if response.get("error") or output is not None else "no output"
    scores = as_object(row.get("namedScores")) | {name: row.get(name) for name in ("success", "score")}
    text = (
        output if isinstance(output, str) else None if output is None else json.dumps(output, ensure_ascii=False)
    )
    provider = as_object(row.get("provider"))
    return _Row(
        place,
        text,
        {name: number(value) for name, value in scores.items()},
        problem,
        response.get("cached") is True,
        as_text(provider.get("label")) or as_text(provider.get("id")),
        as_text(as_object(row.get("prompt")).get("raw")),
    )


def _log(path: Path, head: Mapping[str, Any], tests: list[_Test]) -> Log:
    table = Table(path, more=["model"])
    rows = [row for test in tests for each in test.rows.values() for row in each]
    cached = sum(row.cached for row in rows)
    every = cached == len(rows)  # then the log is refused as a whole
    of_the_run = as_object(head.get("runtimeOptions")).get("repeat")
    for rank, test in enumerate(tests):
        for prompt, repeats in sorted(test.rows.items()):
            name, repeat = f"{prompt}/{rank}", test.repeat or of_the_run
            planned = -(-len(repeats) // repeat) * repeat if isinstance(repeat, int) and repeat > 0 else None
            table.prompt(name, repeats[0].prompt, planned)
            table.judge(name, ["success", "score", *test.metrics])
            if all(row.cached for row in repeats) and not every:
                table.problem(name, 1, "cached")
            for sample, row in enumerate(sorted(repeats, key=lambda row: row.place), start=1):
                if row.cached and not every:
                    table.excuse(name, sample)
                elif row.problem:
                    table.problem(name, sample, row.problem)
                else:
                    scores = dict.fromkeys(test.metrics, math.nan) | row.scores
                    table.answer(name, sample, row.text or "", scores, model=row.provider)
    warnings = [SAME_TEXTS] if table.equal_texts() and not every else []
    if cached:
        warnings.append(f"cached: true in {plural(cached, 'row')}, which are no new draws and are not counted")
    return Log(
        path=path,
        format=FORMAT.name,
        tool=f"promptfoo {as_object(head.get('metadata')).get('promptfooVersion', '')}".strip(),
        task=as_text(as_object(head.get("config")).get("description")),
        model=", ".join(dict.fromkeys(row.provider for row in rows if row.provider)) or None,
        sampling={"repeat": of_the_run} if isinstance(of_the_run, int) else {},
        draws="copies" if every else "unknown",
        refusal=EVERY_CACHED if every else None,
        warnings=tuple(warnings),
        notes=("success and score are those of the assertions: 1 is a pass", "temperature is not stated"),
        stated=as_object(as_object(head.get("results")).get("stats")),
        **table.finish(["success", "score", *dict.fromkeys(name for test in tests for name in test.metrics)]),
    )
