"""Logs of red teams: garak's report and promptfoo's results.

- garak: JSON lines, an attempt per prompt with several generations, and a list of scores per detector.
- promptfoo: one JSON document or JSON lines, one row per provider, prompt, test and repeat.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lethe.errors import BadFile, BadRow, plural
from lethe.io.answer_ends import missing_kind
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._log import (
    Format,
    Log,
    Table,
    as_list,
    as_object,
    as_text,
    conversation,
    greedy,
    number,
)
from lethe.io.logs._untrusted import Source

KINDS = (
    "start_run setup",
    "init",
    "attempt",
    "eval",
    "completion",
    "plugin_cache",
    "probe_summary",
    "digest",
)
HIT = 0.5  # the tool's default; the report does not hold `run.eval_threshold`
JUDGED = (
    2  # the status of an attempt's second line; the first line has the same answers and no scores
)
SETTINGS = ("run.seed", "run.generations")
ERROR = 2  # of `failureReason`; 0 is a pass, 1 a failed assertion, which also fills `error`
ROW_KEYS = {"promptIdx", "vars"}  # of a row
EVERY_CACHED = (
    "cached: true in every row: the answers come from an earlier run and are no new draws"
)
COUNTS = ("passed", "fails", "nones", "total", "total_evaluated", "total_processed")
DECODING = ("temperature", "top_k", "top_p", "do_sample")
OF_GENERATORS = (
    "plugins.generators",
    "plugins.target",
)  # what the keys of a generator's settings begin with


class _Report:
    def __init__(self, source: Source):
        self.path, self.table = source.path, Table(source.path)
        self.setup: dict[str, Json] = {}
        self.version, self.ended, self.repeated, self.copied, self.copies = "", False, 0, 0, 0
        self.aggregated = (
            False  # by garak.analyze.aggregate_reports: several reports, under one uuid
        )
        self.attempts: dict[
            str, dict[str, Json] | None
        ] = {}  # the first line, until the second one
        self.named: Counter[str] = Counter()
        self.values: dict[tuple[str, str], Counter[float]] = {}  # of a probe and a detector
        self.stated: dict[tuple[str, str], Counter[str]] = {}
        self.refused: dict[str, str] = {}
        for line, row in source.lines():
            if row.get("entry_type") == "start_run setup":
                self.setup, self.version = row, as_text(row.get("_config.version")) or self.version
                self.aggregated = "aggregation" in row
            elif row.get("entry_type") == "init":
                self.version = as_text(row.get("garak_version")) or self.version
            elif row.get("entry_type") == "attempt":
                self._attempt(line, row, str(row.get("uuid", line)))
            elif row.get("entry_type") == "eval":
                pair = str(row.get("probe")), str(row.get("detector")).removeprefix("detector.")
                counts = {name: row[name] for name in COUNTS if isinstance(row.get(name), int)}
                self.stated.setdefault(pair, Counter()).update(counts)
            self.ended |= row.get("entry_type") == "completion"

    def _attempt(self, line: int, row: dict[str, Json], uuid: str) -> None:
        if row.get("status") != JUDGED:
            self.attempts.setdefault(uuid, row)
            return
        if (
            self.aggregated
        ):  # its attempts have the uuid of the aggregate, and only their second lines
            uuid = f"{uuid}, line {line}"
        if self.attempts.get(uuid, row) is None:
            raise BadRow(self.path, line, f"the second line of attempt {uuid[:80]!r} appears twice")
        self.attempts[uuid] = None
        name, probe = self._prompt(row), str(row.get("probe_classname"))
        texts = [
            one.get("text") if isinstance(one, dict) else one for one in as_list(row.get("outputs"))
        ]
        if not all(text is None or isinstance(text, str) for text in texts):
            raise BadRow(
                self.path, line, "`outputs` must be a list of texts, objects with a text, or nulls"
            )
        results = as_object(row.get("detector_results"))
        self.table.judge(name, results)
        for detector, scores in results.items():
            if not isinstance(scores, list):
                raise BadRow(
                    self.path, line, f"detector {detector[:80]!r}: expected a list of scores"
                )
            self.values.setdefault((probe, detector), Counter()).update(map(number, scores))
            if len(scores) != len(texts):
                reason = f"line {line} has {plural(len(scores), 'result')} for {plural(len(texts), 'generation')}"
                self.refused.setdefault(
                    detector, f"{reason}, so no result belongs to a certain generation"
                )
        results = {
            detector: scores for detector, scores in results.items() if len(scores) == len(texts)
        }
        copies = self._copies(texts)
        for place, text in enumerate(texts or [None]):
            if text is None:
                self.table.problem(name, place + 1, "no generation")
            elif place not in copies:
                own = {detector: number(scores[place]) for detector, scores in results.items()}
                self.table.answer(name, place + 1, text, own)

    def _prompt(self, row: Mapping[str, Json]) -> str:
        """Add the prompt of an attempt, and return its name; a buff gives several attempts of a probe one place."""
        name = f"{row.get('probe_classname')}/{row.get('seq')}"
        self.named[name] += 1
        name += f"#{self.named[name]}" if self.named[name] > 1 else ""
        prompt = row.get("prompt")  # in old versions a text
        turns = map(as_object, as_list(as_object(prompt).get("turns")))
        pairs = [(turn.get("role"), as_object(turn.get("content")).get("text")) for turn in turns]
        self.table.prompt(
            name, prompt if isinstance(prompt, str) else conversation(pairs) if pairs else None
        )
        return name

    def _copies(self, texts: list[str | None]) -> set[int]:
        """Return the places of answers that repeat the first one, if a seed is set and all answers are the same."""
        places = [place for place, text in enumerate(texts) if text is not None]
        self.repeated += len(places) > 1
        if (
            self.setup.get("run.seed") is None
            or len(places) < 2
            or len({texts[place] for place in places}) > 1
        ):
            return set()
        self.copied, self.copies = self.copied + 1, self.copies + len(places) - 1
        return set(places[1:])

    def _compared(self) -> Iterator[str]:
        """Recount the hits: another number of results refuses the detector, another number of hits is a warning."""
        for (probe, detector), stated in self.stated.items():
            values = self.values.get((probe, detector), Counter())
            hits = sum(count for value, count in values.items() if value >= HIT)
            scored = sum(count for value, count in values.items() if not math.isnan(value))
            total = stated.get("total_evaluated", stated.get("total"))
            if total not in (None, scored, values.total()):
                reason = f"the report counts {plural(total, 'result')} on {probe}, and its attempts hold {scored}"
                self.refused.setdefault(detector, reason)
            elif (
                detector not in self.refused
                and total is not None
                and stated["passed"] + hits != total
            ):
                yield (
                    f"eval_threshold: {detector} on {probe} has {plural(hits, 'hit')} at {HIT}, and the report counts "
                    f"{total - stated['passed']}: the threshold of the run was another one"
                )

    def log(self) -> Log:
        for attempt in filter(None, self.attempts.values()):
            name = self._prompt(attempt)
            self.table.judge(
                name, [pair[1] for pair in self.values if pair[0] == attempt.get("probe_classname")]
            )
            for place in range(len(as_list(attempt.get("outputs"))) or 1):
                self.table.problem(name, place + 1, "not judged")
        warnings = list(self._compared())
        warnings += [
            f"{detector}: its scores are not read: {reason}"
            for detector, reason in self.refused.items()
        ]
        if self.copies:
            warnings.append(
                f"run.seed {self.setup['run.seed']}: each request has the seed, and {plural(self.copied, 'prompt')} got one "
                f"text each time; its {plural(self.copies, 'repeat')} are no independent draws and are not counted"
            )
        names = [
            name
            for name in dict.fromkeys(pair[1] for pair in self.values)
            if name not in self.refused
        ]
        repeats = None
        if self.copies:
            repeats = f"run.seed {self.setup['run.seed']} repeats the answers to {plural(self.copied, 'prompt')}"
        finished = self.ended or self.aggregated
        notes = () if finished else ("no line `completion`: the run did not end",)
        if self.aggregated:
            notes = (
                "an aggregate of several reports, which does not say whether their runs ended",
            )
        sampling = {key[4:]: self.setup[key] for key in SETTINGS if self.setup.get(key) is not None}
        return self.table.log(
            f"garak {self.version}",
            means=_means_of_garak,
            greedy_by=greedy(_decoding(self.setup)),
            repeats=repeats,
            unfinished=None
            if finished
            else "The report has no line `completion`, so its run did not end",
            engine=as_text(self.setup.get("plugins.target_type")),
            task=", ".join(dict.fromkeys(probe for probe, _ in self.values)),
            model=as_text(
                self.setup.get("plugins.target_name", self.setup.get("plugins.model_name"))
            ),
            sampling=sampling,
            draws="copies" if self.copied and self.copied == self.repeated else "unknown",
            stopping="fixed" if finished else "unfinished",
            warnings=warnings,
            notes=notes,
            refused=self.refused,
            stated={
                f"{probe}/{detector}": dict(counts)
                for (probe, detector), counts in self.stated.items()
            },
            scores=names,
        )


def _means_of_garak(score: str) -> Meaning:
    """A hit of a detector says that the answer holds what the probe asks for."""
    return "leak"


def _decoding(setup: Mapping[str, Json]) -> dict[str, Json]:
    """The settings of decoding that the setup states of its generator, nested or in a flat key."""
    found: dict[str, Json] = {}
    for key, value in setup.items():
        if not key.startswith(OF_GENERATORS):
            continue
        if key.rpartition(".")[2] in DECODING:
            found[key.rpartition(".")[2]] = value
        waiting = [value]
        while waiting:
            for name, inner in as_object(waiting.pop()).items():
                if name in DECODING:
                    found[name] = inner
                waiting.append(inner)
    return found


GARAK = Format(
    "garak",
    "garak reports (*.report.jsonl)",
    lambda first: first.get("entry_type") in KINDS,
    lambda source: _Report(source).log(),
)


def _read_promptfoo(source: Source) -> Log:
    """Read the rows, which are in order of completion. The rows of one prompt, variables and test case are the repeats."""
    path, tests = source.path, dict[str, list[_Row]]()
    head: Mapping[str, Json] = {} if source.first.keys() >= ROW_KEYS else source.object
    if head and not isinstance(as_object(head.get("results")).get("results"), list):
        raise BadFile(path, "`results.results` must be a list")
    rows: Iterable[Json] = (
        head["results"]["results"] if head else (row for _, row in source.lines())
    )
    for count, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not isinstance(row.get("promptIdx"), int):
            raise BadFile(path, f"result {count}: expected an object with an integer `promptIdx`")
        key = json.dumps([row.get("vars"), row.get("testCase")], sort_keys=True)
        place = row["testIdx"] if isinstance(row.get("testIdx"), int) else count
        tests.setdefault(key, []).append(_Row(place, row))
    # As in the user's file; sorting keeps the order of rows of one place.
    ordered = [sorted(test, key=lambda row: row.place) for test in tests.values()]
    return _log(path, head, sorted(ordered, key=lambda test: test[0].place))


class _Row:
    def __init__(self, place: int, row: Mapping[str, Json]):
        response, provider, case = (
            as_object(row.get(key)) for key in ("response", "provider", "testCase")
        )
        output, self.problem = response.get("output"), ""
        if output is None or row.get("failureReason") == ERROR:
            self.problem = "error" if response.get("error") or output is not None else "no output"
        elif kind := missing_kind(response.get("finishReason")):
            self.problem = kind
        self.text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        named = as_object(row.get("namedScores"))
        scores = named | {name: row.get(name) for name in ("success", "score")}
        self.scores = {name: number(value) for name, value in scores.items()}
        self.metrics = [*_metrics(case), *named]
        self.repeat = as_object(case.get("options")).get("repeat")
        self.decoding = as_object(case.get("options")) | as_object(
            as_object(row.get("prompt")).get("config")
        )
        named_by = (as_text(provider.get(key)) for key in ("id", "label"))
        self.names = {name for name in named_by if name}
        self.place, self.cached = place, response.get("cached") is True
        self.provider = as_text(provider.get("label")) or as_text(provider.get("id"))
        self.prompt_place, self.prompt = (
            row["promptIdx"],
            as_text(as_object(row.get("prompt")).get("raw")),
        )


def _recognises(first: Mapping[str, Json]) -> bool:
    rows = as_list(as_object(first.get("results")).get("results"))
    return any(isinstance(row, dict) and row.keys() >= ROW_KEYS for row in (first, *rows[:1]))


PROMPTFOO = Format("promptfoo", "promptfoo results (.json or .jsonl)", _recognises, _read_promptfoo)


def _metrics(case: Json) -> Iterator[str]:
    """Yield the named metrics of a test case, also those inside a set of assertions."""
    for one in as_list(as_object(case).get("assert")):
        if isinstance(as_object(one).get("metric"), str):
            yield one["metric"]
        yield from _metrics(one)


def _means_of_promptfoo(score: str) -> Meaning:
    """A pass of the user's assertions, which may ask for an answer (`contains`) or against it (`not-contains`).

    A named score has the user's own name, which may say that it is a leak.
    """
    meaning = named(score)
    return "pass" if meaning == "unknown" else meaning


def _decodings(head: Mapping[str, Json], rows: Iterable[_Row]) -> list[dict[str, Json]]:
    """The settings of decoding of each row: those of its provider, its test and its prompt, of which later ones win."""
    configured: dict[str, dict[str, Json]] = {}
    for provider in map(as_object, as_list(as_object(head.get("config")).get("providers"))):
        settings = as_object(provider.get("config"))
        for name in filter(None, (as_text(provider.get("id")), as_text(provider.get("label")))):
            configured[name] = settings
        if "id" not in provider:  # a provider may also be an object of its name
            configured |= {
                name: as_object(as_object(own).get("config")) for name, own in provider.items()
            }
    decodings = []
    for row in rows:
        settings = {}
        for name in sorted(row.names & configured.keys()):
            settings |= configured[name]
        decodings.append(settings | row.decoding)
    return decodings


def _log(path: Path, head: Mapping[str, Json], tests: list[list[_Row]]) -> Log:
    table = Table(path, more=["model"])
    rows = [row for test in tests for row in test]
    cached = sum(row.cached for row in rows)
    every = cached == len(rows)  # then the log is refused as a whole
    of_the_run = as_object(head.get("runtimeOptions")).get("repeat")
    for rank, test in enumerate(tests):
        metrics, repeat = (
            dict.fromkeys(name for row in test for name in row.metrics),
            test[0].repeat or of_the_run,
        )
        for prompt in sorted({row.prompt_place for row in test}):
            repeats, name = [row for row in test if row.prompt_place == prompt], f"{prompt}/{rank}"
            planned = (
                -(-len(repeats) // repeat) * repeat
                if isinstance(repeat, int) and repeat > 0
                else None
            )
            table.prompt(name, repeats[0].prompt, planned)
            table.judge(name, ["success", "score", *metrics])
            if all(row.cached for row in repeats) and not every:
                table.problem(name, 1, "cached")
            for sample, row in enumerate(repeats, start=1):
                if row.cached and not every:
                    table.excuse(name, sample)
                elif row.problem:
                    table.problem(name, sample, row.problem)
                else:
                    scores = dict.fromkeys(metrics, math.nan) | row.scores
                    table.answer(name, sample, row.text, scores, model=row.provider)
    said = f"cached: true in {plural(cached, 'row')}"
    skipped = f"{said}, which are no new draws and are not counted"
    decodings = _decodings(head, rows)
    notes = ["success and score are those of the assertions: 1 is a pass"]
    if not any("temperature" in settings for settings in decodings):
        notes.append("temperature is not stated")
    return table.log(
        f"promptfoo {as_object(head.get('metadata')).get('promptfooVersion', '')}",
        task=as_text(as_object(head.get("config")).get("description")),
        model=", ".join(dict.fromkeys(row.provider for row in rows if row.provider)) or None,
        sampling={"repeat": of_the_run} if isinstance(of_the_run, int) else {},
        means=_means_of_promptfoo,
        greedy_by=next(filter(None, map(greedy, decodings)), None),
        repeats=f"The log says {said}" if cached else None,
        engine=", ".join(sorted({name for row in rows for name in row.names})) or None,
        draws="copies" if every else "unknown",
        refusal=EVERY_CACHED if every else None,
        warnings=[skipped] if cached else [],
        notes=notes,
        stated=as_object(as_object(head.get("results")).get("stats")),
        scores=["success", "score", *dict.fromkeys(name for row in rows for name in row.metrics)],
    )
