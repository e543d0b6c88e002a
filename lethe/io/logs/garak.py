"""garak's report: JSON lines, an attempt per prompt with several generations, and a list of scores per detector."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lethe.errors import BadRow, plural
from lethe.io.column_names import spread
from lethe.io.facts import Meaning
from lethe.io.files import Json
from lethe.io.logs._json import (
    as_object,
    as_text,
    conversation,
    list_at,
    number,
    object_at,
    objects_at,
    text_at,
)
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings, setting_of, stated_in
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import JsonFile

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
# The status of an attempt's second line; the first line has the same answers and no scores.
JUDGED = 2
SETTINGS = ("run.seed", "run.generations")
COUNTS = ("passed", "fails", "nones", "total", "total_evaluated", "total_processed")
# What the keys of a generator's settings begin with.
OF_GENERATORS = ("plugins.generators", "plugins.target")


class Judged(NamedTuple):
    """What a line `eval` counts: the results of a detector on the answers to a probe."""

    probe: str
    detector: str


class Report:
    """The lines of garak's report, as they were added: its setup, its attempts, and what it counts of them itself.

    Format: garak 0.12 to 0.17. An attempt has two lines with one uuid. Up to 0.12, an output is a text, and then an object
    with a `text`. From 0.14 on, a detector has one result per output, null for a lost one; before, the list may be shorter.
    """

    def __init__(self, path: Path):
        self.path = path
        self.table = Table(path)
        self.settings = RequestSettings()
        self.decoding: dict[str, Json] = {}
        self.setup: dict[str, Json] = {}
        self.version = ""
        self.ended = False
        self.aggregated = (
            False  # by garak.analyze.aggregate_reports: several reports under one uuid
        )
        self.unjudged: dict[str, dict[str, Json]] = {}  # attempts with a first line only
        self.judged: set[str] = set()
        self.attempts_of_prompt: Counter[str] = Counter()
        self.values: dict[Judged, Counter[float]] = {}
        self.stated: dict[Judged, Counter[str]] = {}
        self.refused: dict[str, str] = {}  # why a detector cannot be read
        self.repeated_prompts = 0
        self.copied_prompts = 0
        self.copies = 0

    def add(self, line: int, row: dict[str, Json]) -> None:
        kind = row.get("entry_type")
        if kind == "start_run setup":
            if self.setup:
                problem = (
                    "begins the report of a second run, whose model, settings and end are its own"
                )
                raise BadRow(self.path, line, problem, "Give a file for each run.")
            self.setup = row
            self.decoding = _decoding(row)
            self.version = text_at(row, "_config.version") or self.version
            self.aggregated = "aggregation" in row
        elif kind == "init":
            self.version = text_at(row, "garak_version") or self.version
        elif kind == "attempt":
            self._add_attempt(line, row)
        elif kind == "eval":
            self._add_counts(row)
        elif kind == "completion":
            self.ended = True

    def _add_counts(self, row: Mapping[str, Json]) -> None:
        detector = str(row.get("detector")).removeprefix("detector.")
        judged = Judged(str(row.get("probe")), detector)
        counts = {name: row[name] for name in COUNTS if isinstance(row.get(name), int)}
        self.stated.setdefault(judged, Counter()).update(counts)

    def _add_attempt(self, line: int, row: dict[str, Json]) -> None:
        uuid = str(row.get("uuid", line))
        if row.get("status") != JUDGED:
            if uuid not in self.judged:
                self.unjudged.setdefault(uuid, row)
            return
        if self.aggregated:  # attempts have the uuid of the aggregate, and only their second lines
            uuid = f"{uuid}, line {line}"
        if uuid in self.judged:
            raise BadRow(self.path, line, f"the second line of attempt {uuid[:80]!r} appears twice")
        self.judged.add(uuid)
        self.unjudged.pop(uuid, None)

        name = self._add_prompt(row)
        texts = self._texts(line, row)
        results = self._add_results(line, row, len(texts))
        self.table.judge(name, object_at(row, "detector_results"))
        copies = self._copies(texts)
        outputs = list_at(row, "outputs")
        beside = {**self.decoding, "notes": row.get("notes")}
        self.settings.add_answers(beside, outputs, name)
        for place, output in enumerate(outputs):
            self.table.note_end(name, place + 1, as_object(output))
        for place, text in enumerate(texts or [None]):
            if text is None:
                self.table.problem(name, place + 1, "no generation")
            elif place not in copies:
                scores = {detector: number(values[place]) for detector, values in results.items()}
                self.table.answer(name, place + 1, text, scores)

    def _add_prompt(self, row: Mapping[str, Json]) -> str:
        """Add the prompt of an attempt, and return its name; a buff gives several attempts of a probe one place."""
        name = f"{row.get('probe_classname')}/{row.get('seq')}"
        self.attempts_of_prompt[name] += 1
        attempt = self.attempts_of_prompt[name]
        if attempt > 1:
            name = f"{name}#{attempt}"
        prompt = as_text(row.get("prompt"))  # in old versions
        messages = []
        for turn in objects_at(object_at(row, "prompt"), "turns"):
            messages.append((turn.get("role"), object_at(turn, "content").get("text")))
        if messages:
            prompt = conversation(messages)
        self.table.prompt(name, prompt)
        return name

    def _texts(self, line: int, row: Mapping[str, Json]) -> list[str | None]:
        texts: list[str | None] = []
        for output in list_at(row, "outputs"):
            text = output.get("text") if isinstance(output, dict) else output
            if text is not None and not isinstance(text, str):
                problem = "`outputs` must be a list of texts, objects with a text, or nulls"
                raise BadRow(self.path, line, problem)
            texts.append(text)
        return texts

    def _add_results(self, line: int, row: Mapping[str, Json], n: int) -> dict[str, list[Json]]:
        """Add all results of an attempt, and return those of the detectors that have one for each of ``n`` answers."""
        probe = str(row.get("probe_classname"))
        aligned = {}
        for detector, scores in object_at(row, "detector_results").items():
            if not isinstance(scores, list):
                problem = f"detector {detector[:80]!r}: expected a list of scores"
                raise BadRow(self.path, line, problem)
            values = self.values.setdefault(Judged(probe, detector), Counter())
            values.update(map(number, scores))
            if len(scores) == n:
                aligned[detector] = scores
                continue
            reason = (
                f"line {line} has {plural(len(scores), 'result')} for {plural(n, 'generation')}"
            )
            reason += ", so no result belongs to a certain generation"
            self.refused.setdefault(detector, reason)
        return aligned

    def _copies(self, texts: list[str | None]) -> set[int]:
        """Return the places of answers that repeat the first one, if a seed is set and all answers are the same."""
        places = [place for place, text in enumerate(texts) if text is not None]
        if len(places) < 2:
            return set()
        self.repeated_prompts += 1
        distinct = {texts[place] for place in places}
        if self.setup.get("run.seed") is None or len(distinct) > 1:
            return set()
        self.copied_prompts += 1
        self.copies += len(places) - 1
        return set(places[1:])

    def _other_thresholds(self) -> Iterator[str]:
        """Recount the hits: another number of results refuses the detector, another number of hits is a warning."""
        for judged, stated in self.stated.items():
            total = stated.get("total_evaluated", stated.get("total"))
            if total is None:
                continue
            detector = judged.detector
            on_probe = f"on {judged.probe}"
            values = self.values.get(judged, Counter())
            scored = sum(count for value, count in values.items() if not math.isnan(value))
            if total not in (scored, values.total()):
                counted = f"the report counts {plural(total, 'result')} {on_probe}"
                reason = f"{counted}, and its attempts hold {scored}"
                self.refused.setdefault(detector, reason)
                continue
            hits = sum(count for value, count in values.items() if value >= HIT)
            stated_hits = total - stated["passed"]
            if hits != stated_hits and detector not in self.refused:
                yield (
                    f"eval_threshold: {detector} {on_probe} has {plural(hits, 'hit')} at {HIT}, and the report counts "
                    f"{stated_hits}: the threshold of the run was another one"
                )

    def _add_unjudged(self) -> None:
        for attempt in self.unjudged.values():
            name = self._add_prompt(attempt)
            probe = attempt.get("probe_classname")
            self.table.judge(name, [pair.detector for pair in self.values if pair.probe == probe])
            for place in range(len(list_at(attempt, "outputs")) or 1):
                self.table.problem(name, place + 1, "not judged")

    def log(self) -> Log:
        """Return the log of all lines; a detector whose results cannot be told apart is refused in it."""
        self._add_unjudged()
        warnings = list(self._other_thresholds())
        for detector, reason in self.refused.items():
            warnings.append(f"{detector}: its scores are not read: {reason}")

        seed = f"run.seed {self.setup.get('run.seed')}"
        prompts = plural(self.copied_prompts, "prompt")
        repeats = None
        if self.copies:
            repeats = f"{seed} repeats the answers to {prompts}"
            warnings.append(
                f"{seed}: each request has the seed, and {prompts} got one "
                f"text each time; its {plural(self.copies, 'repeat')} are no independent draws and are not counted"
            )
        draws = "unknown"
        if self.copied_prompts and self.copied_prompts == self.repeated_prompts:
            draws = "copies"

        notes = []
        stopping = "fixed"
        unfinished = None
        if self.aggregated:
            notes.append(
                "an aggregate of several reports, which does not say whether their runs ended"
            )
        elif not self.ended:
            notes.append("no line `completion`: the run did not end")
            stopping = "unfinished"
            unfinished = "The report has no line `completion`, so its run did not end"

        setup = self.setup
        probes = dict.fromkeys(judged.probe for judged in self.values)
        detectors = dict.fromkeys(judged.detector for judged in self.values)
        stated = {}
        for judged, counts in self.stated.items():
            stated[f"{judged.probe}/{judged.detector}"] = dict(counts)
        sampling = {}
        for key in SETTINGS:
            if setup.get(key) is not None:
                sampling[key.removeprefix("run.")] = setup[key]
        settings = self.settings
        return self.table.log(
            f"garak {self.version}",
            means=_means_of_garak,
            greedy_by=settings.greedy_by,
            mixed=settings.mixed,
            selected=settings.chosen,
            repeats=repeats or settings.repeats,
            unfinished=unfinished,
            engine=text_at(setup, "plugins.target_type"),
            task=", ".join(probes),
            model=as_text(setup.get("plugins.target_name", setup.get("plugins.model_name"))),
            sampling=sampling,
            draws=draws,
            stopping=stopping,
            warnings=warnings,
            notes=notes,
            refused=self.refused,
            stated=stated,
            scores=[name for name in detectors if name not in self.refused],
        )


def _means_of_garak(score: str) -> Meaning:
    """A hit of a detector says that the answer holds what the probe asks for."""
    return "leak"


def _decoding(setup: Mapping[str, Json]) -> dict[str, Json]:
    """The settings of decoding that the setup states of its generator, nested or in a flat key."""
    found: dict[str, Json] = {}
    for key, value in spread(setup).items():
        if not key.startswith(OF_GENERATORS):
            continue
        name = key.rpartition(".")[2]
        if setting_of(name) is not None and not isinstance(value, (dict, list)):
            found[name] = value
        if isinstance(value, str):  # the body of a request as JSON
            found |= stated_in({"request": value})
    return found


def _read_garak(source: JsonFile) -> Log:
    report = Report(source.path)
    for line, row in source.lines():
        report.add(line, row)
    return report.log()


FORMAT = Format(
    "garak",
    "garak reports (*.report.jsonl)",
    lambda first: first.get("entry_type") in KINDS,
    _read_garak,
)
