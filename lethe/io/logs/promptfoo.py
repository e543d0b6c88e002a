"""promptfoo's results: one JSON document or JSON lines, one row per provider, prompt, test and repeat."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lethe.errors import BadFile, plural
from lethe.io.answer_ends import missing_kind
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._json import as_object, list_at, number, object_at, objects_at, text_at
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile

ERROR = 2  # of `failureReason`; 0 is a pass, 1 a failed assertion, which also fills `error`
ROW_KEYS = {"promptIdx", "vars"}  # of a row
EVERY_CACHED = (
    "cached: true in every row: the answers come from an earlier run and are no new draws"
)


@dataclass(frozen=True)
class PromptfooAnswer:
    """One answer of promptfoo's results.

    Format: promptfoo 0.121, `results.results[]` of its JSON, or one such row a line. Rows stand in the order of completion
    and have no number of the repeat.

    Attributes
    ----------
    place
        The place of its test among the user's.
    prompt_place, prompt
        The place of the prompt among the user's, and its text.
    text
        The answer; an answer that is no text is JSON.
    problem
        Why it is missing; empty where it is not.
    cached
        Whether it comes from an earlier run.
    scores
        The named scores, and promptfoo's own two.
    metrics
        The named scores that the test asks for or the row has.
    repeat
        The number of repeats that the test asks for.
    provider, names
        Who answered, and all names of that provider.
    decoding
        The settings of decoding of the test and the prompt.
    """

    place: int
    prompt_place: int
    prompt: str | None
    text: str
    problem: str
    cached: bool
    scores: dict[str, float]
    metrics: list[str]
    repeat: Json
    provider: str | None
    names: set[str]
    decoding: dict[str, Json]

    @classmethod
    def of(cls, place: int, row: Mapping[str, Json]) -> "PromptfooAnswer":
        """Read a row of the results, which is of the test at ``place``."""
        response = object_at(row, "response")
        output = response.get("output")
        if isinstance(output, str):
            text = output
        else:
            text = json.dumps(output, ensure_ascii=False)

        case = object_at(row, "testCase")
        options = object_at(case, "options")
        prompt = object_at(row, "prompt")
        provider = object_at(row, "provider")
        provider_id = text_at(provider, "id")
        label = text_at(provider, "label")
        named_scores = object_at(row, "namedScores")
        scores = named_scores | {"success": row.get("success"), "score": row.get("score")}
        return cls(
            place,
            prompt_place=row["promptIdx"],
            prompt=text_at(prompt, "raw"),
            text=text,
            problem=_problem(response, row.get("failureReason")),
            cached=_is_cached(response),
            scores={name: number(value) for name, value in scores.items()},
            metrics=[*_metrics(case), *named_scores],
            repeat=options.get("repeat"),
            provider=label or provider_id,
            names=set(filter(None, (provider_id, label))),
            decoding=options | object_at(prompt, "config"),
        )


def _is_cached(response: Mapping[str, Json]) -> bool:
    """Whether an answer comes from an earlier run, by its mark or by its tokens, all of which older versions count so."""
    usage = object_at(response, "tokenUsage")
    counted = number(usage.get("cached"))
    return response.get("cached") is True or 0 < counted == number(usage.get("total"))


def _problem(response: Mapping[str, Json], failure: Json) -> str:
    """Why a row has no answer; empty where it has one."""
    if response.get("error") or failure == ERROR:
        return "error"
    if response.get("output") is None:
        return "no output"
    return missing_kind(response.get("finishReason")) or ""


def _metrics(case: Mapping[str, Json]) -> Iterator[str]:
    """Yield the named metrics of a test case, also those inside a set of assertions."""
    for assertion in objects_at(case, "assert"):
        metric = text_at(assertion, "metric")
        if metric is not None:
            yield metric
        yield from _metrics(assertion)


def _read_promptfoo(source: JsonFile) -> Log:
    """Read the rows, which are in order of completion. The rows of one prompt, variables and test case are the repeats."""
    path = source.path
    head: Mapping[str, Json] = {}
    rows: Iterable[Json] = (row for _, row in source.lines())
    if not source.first.keys() >= ROW_KEYS:
        head = source.object
        listed = object_at(head, "results").get("results")
        if not isinstance(listed, list):
            raise BadFile(path, "`results.results` must be a list")
        rows = listed

    tests: dict[str, list[PromptfooAnswer]] = {}
    for count, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not isinstance(row.get("promptIdx"), int):
            raise BadFile(path, f"result {count}: expected an object with an integer `promptIdx`")
        key = json.dumps([row.get("vars"), row.get("testCase")], sort_keys=True)
        place = row.get("testIdx")
        if not isinstance(place, int):
            place = count
        tests.setdefault(key, []).append(PromptfooAnswer.of(place, row))

    # As in the user's file; sorting keeps the order of rows of one place.
    ordered = [sorted(test, key=lambda row: row.place) for test in tests.values()]
    ordered.sort(key=lambda test: test[0].place)
    return _log(path, head, ordered)


def _recognises(first: Mapping[str, Json]) -> bool:
    rows = list_at(object_at(first, "results"), "results")
    return any(as_object(row).keys() >= ROW_KEYS for row in (first, *rows[:1]))


FORMAT = Format("promptfoo", "promptfoo results (.json or .jsonl)", _recognises, _read_promptfoo)


def _means_of_promptfoo(score: str) -> Meaning:
    """A pass of the user's assertions, which may ask for an answer (`contains`) or against it (`not-contains`).

    A named score has the user's own name, which may say that it is a leak.
    """
    meaning = named(score)
    if meaning == "unknown":
        return "pass"
    return meaning


def _decodings(head: Mapping[str, Json], rows: Iterable[PromptfooAnswer]) -> list[dict[str, Json]]:
    """The settings of decoding of each row: those of its provider, its test and its prompt, of which later ones win."""
    configured: dict[str, dict[str, Json]] = {}
    for provider in objects_at(object_at(head, "config"), "providers"):
        for key in ("id", "label"):
            name = text_at(provider, key)
            if name:
                configured[name] = object_at(provider, "config")
        if "id" not in provider:  # a provider may also be an object of its name
            for name, settings in provider.items():
                configured[name] = object_at(as_object(settings), "config")
    decodings = []
    default = object_at(object_at(object_at(head, "config"), "defaultTest"), "options")
    for row in rows:
        decoding: dict[str, Json] = dict(default)
        for name in sorted(row.names & configured.keys()):
            decoding |= configured[name]
        decodings.append(decoding | row.decoding)
    return decodings


def _log(path: Path, head: Mapping[str, Json], tests: list[list[PromptfooAnswer]]) -> Log:
    table = Table(path, more=["model"])
    rows = [row for test in tests for row in test]
    cached = sum(row.cached for row in rows)
    every_cached = cached == len(rows)  # then the log is refused as a whole
    repeat = object_at(head, "runtimeOptions").get("repeat")
    asked: list[tuple[str, PromptfooAnswer]] = []
    for rank, test in enumerate(tests):
        repeats_of_prompt: dict[int, list[PromptfooAnswer]] = {}
        for row in test:
            repeats_of_prompt.setdefault(row.prompt_place, []).append(row)
        metrics = dict.fromkeys(name for row in test for name in row.metrics)
        for prompt, repeats in sorted(repeats_of_prompt.items()):
            name = f"{prompt}/{rank}"
            asked += [(name, row) for row in repeats]
            planned = _planned(len(repeats), test[0].repeat or repeat)
            table.prompt(name, repeats[0].prompt, planned)
            table.judge(name, ["success", "score", *metrics])
            _add(table, name, repeats, metrics, skip_cached=not every_cached)

    decodings = _decodings(head, [row for _, row in asked])
    settings = RequestSettings()
    for (name, _), decoding in zip(asked, decodings, strict=True):
        settings.add(decoding, question=name)
    notes = ["success and score are those of the assertions: 1 is a pass"]
    if not any("temperature" in settings for settings in decodings):
        notes.append("temperature is not stated")
    repeats_said = None
    warnings = []
    if cached:
        count = f"cached: true in {plural(cached, 'row')}"
        repeats_said = f"The log says {count}"
        warnings.append(f"{count}, which are no new draws and are not counted")
    draws = "unknown"
    refusal = None
    if every_cached:
        draws = "copies"
        refusal = EVERY_CACHED
    sampling = {}
    if isinstance(repeat, int):
        sampling["repeat"] = repeat
    providers = dict.fromkeys(row.provider for row in rows if row.provider)
    engines = {name for row in rows for name in row.names}
    all_metrics = dict.fromkeys(name for row in rows for name in row.metrics)
    return table.log(
        f"promptfoo {object_at(head, 'metadata').get('promptfooVersion', '')}",
        task=text_at(object_at(head, "config"), "description"),
        model=", ".join(providers) or None,
        sampling=sampling,
        means=_means_of_promptfoo,
        greedy_by=settings.greedy_by,
        may_repeat=settings.may_repeat,
        mixed=settings.mixed,
        selected=settings.chosen,
        repeats=repeats_said,
        engine=", ".join(sorted(engines)) or None,
        draws=draws,
        refusal=refusal,
        warnings=warnings,
        notes=notes,
        stated=object_at(object_at(head, "results"), "stats"),
        scores=["success", "score", *all_metrics],
    )


def _planned(n: int, repeat: Json) -> int | None:
    """Return the answers that a prompt with ``n`` rows should have: whole rounds of ``repeat``."""
    if not isinstance(repeat, int) or repeat <= 0:
        return None
    rounds = -(-n // repeat)  # rounded up, without a float
    return rounds * repeat


def _add(
    table: Table,
    prompt_id: str,
    repeats: list[PromptfooAnswer],
    metrics: Iterable[str],
    *,
    skip_cached: bool,
) -> None:
    """Add the repeats of a prompt to the table; a cached one is no new draw, and is left out where others are drawn."""
    if skip_cached and all(row.cached for row in repeats):
        table.problem(prompt_id, 1, "cached")
    for sample, row in enumerate(repeats, start=1):
        if row.cached and skip_cached:
            table.excuse(prompt_id, sample)
        elif row.problem:
            table.problem(prompt_id, sample, row.problem)
        else:
            scores = dict.fromkeys(metrics, math.nan) | row.scores
            table.answer(prompt_id, sample, row.text, scores, model=row.provider)
