"""Inspect's logs: an .eval archive or one .json, one sample per question and epoch."""

from __future__ import annotations

import itertools
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeGuard

from lethe.errors import BadFile, plural, shortened
from lethe.io.answer_ends import ERROR, NOT_STATED, missing_kind
from lethe.io.column_names import DEEPEST
from lethe.io.facts import is_cached, named
from lethe.io.files import Json
from lethe.io.logs._json import (
    as_list,
    as_object,
    conversation,
    is_integer,
    list_at,
    number,
    object_at,
    objects_at,
    text_at,
)
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings, stated_in
from lethe.io.logs._table import Table
from lethe.io.logs._untrusted import Archive, JsonFile, checked, requests_among
from lethe.io.row_ends import kind_of

HEADER = "header.json"
START = "_journal/start.json"
# An id may contain "/" or end in "_epoch_2". The names therefore show only which entries are samples, whole or in chunks.
WHOLE = re.compile(r"samples/.+_epoch_\d+\.json", re.DOTALL)
CHUNKED = re.compile(r"samples/.+_epoch_\d+/sample\.json", re.DOTALL)
EVENTS = re.compile(r"(samples/.+_epoch_\d+)/events/\d+\.json", re.DOTALL)
UNFINISHED = ("started", "cancelled", "error")
SETTINGS = (
    "temperature top_p top_k max_tokens seed stop_seqs frequency_penalty presence_penalty repetition_penalty logit_bias "
    "num_choices best_of reasoning_effort reasoning_tokens cache"
).split()
# Providers that set the seed when they load the model.
SEEDED_ONCE = ("hf", "transformer_lens", "nnterp")
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
# What Inspect writes where a provider states no end, and for an end that it does not know.
NO_END = (None, "unknown")
# Why an answer is missing, by the member of a sample.
REASONS = {"error": "error", "limit": "limit", "invalidation": "withdrawn"}


def recognises(first: Mapping[str, Json]) -> bool:
    """Whether an object is the header of a log of Inspect."""
    spec = first.get("eval")
    return isinstance(spec, dict) and "task" in spec and "model" in spec


def read(source: JsonFile | Path) -> Log:
    """Read a log, the path of an archive or a JSON document; `BadFile` names the member or entry that is wrong."""
    if isinstance(source, Path):
        with Archive(source) as archive:
            return _log(source, _header(archive), _samples(archive))
    path = source.path
    listed = checked(path, "`samples`", source.object.pop("samples", None) or [], list)
    samples = (
        Sample.of(path, f"item {place} of `samples`", value)
        for place, value in enumerate(listed, start=1)
    )
    return _log(path, source.object, samples)


FORMAT = Format("inspect", "Inspect logs (.eval or .json)", recognises, read)


def _header(archive: Archive) -> dict[str, Json]:
    entries = {entry.filename: entry for entry in archive.entries}
    if HEADER in entries:
        return checked(archive.path, f"its {HEADER}", archive.value(entries[HEADER]))
    if START in entries:
        content = checked(archive.path, f"its {START}", archive.value(entries[START]))
        return {**content, "status": "started"}
    problem = f"is a zip archive without {HEADER} and {START}, so the file is not a log of Inspect"
    raise BadFile(archive.path, problem)


def _samples(archive: Archive) -> Iterator[Sample]:
    events_of: dict[str, list[zipfile.ZipInfo]] = {}  # by the folder of a sample
    for entry in archive.entries:
        found = EVENTS.fullmatch(entry.filename)
        if found:
            events_of.setdefault(found[1], []).append(entry)
    for entry in archive.entries:
        if WHOLE.fullmatch(entry.filename) or CHUNKED.fullmatch(entry.filename):
            where = f"its entry {entry.filename[:100]!r}"
            value = archive.value(entry)
            chunks = events_of.get(entry.filename.rpartition("/")[0], ())
            if isinstance(value, dict) and CHUNKED.fullmatch(entry.filename) and chunks:
                events = [requests_among(archive.value(chunk)) for chunk in chunks]
                value["events"] = list(itertools.chain(*events))
            yield Sample.of(archive.path, where, value)


def _log(path: Path, header: Mapping[str, Json], unread: Iterable[Sample]) -> Log:
    run = LoggedRun(path, header)
    samples = list(unread)  # after the header, whose errors come first
    table = Table(path)
    # In the data set's order. Inspect joins ids as text: 909 in the data set and "909" in a sample are one question.
    planned_names = dict.fromkeys(run.sample_ids)
    names = planned_names | dict.fromkeys(sample.name for sample in samples)
    for name in names:
        table.prompt(name, planned=run.epochs if name in planned_names else None)
    for stop in run.early_stops:
        if stop.name in names:
            table.excuse(stop.name, stop.epoch)
    states_ends = any(sample.stop not in NO_END for sample in samples)
    settings = RequestSettings()
    n_cached = 0
    for sample in samples:
        table.prompt(sample.name, sample.prompt)
        table.answered_by(sample.name, sample.model)
        settings.add({**run.further, **sample.asked_with}, question=sample.name)
        n_cached += sample.cached
        for reason in sample.problems(states_ends):
            table.problem(sample.name, sample.epoch, reason)
        table.answer(sample.name, sample.epoch, sample.text, sample.values())

    status = header.get("status")
    stopping = "fixed"
    unfinished = None
    notes = run.notes()
    if samples and not states_ends:
        notes.append("no answer has a stated end: every text is taken as an answer")
    if status in UNFINISHED:
        stopping = "unfinished"
        unfinished = f"The log says that its run did not end (status {status})"
        notes.append(
            f"status {status}: the run did not end, and the set of finished epochs depends on their durations"
        )
    if run.early_manager is not None:
        stopping = "early"
    repeats = None
    if n_cached:
        repeats = f"The log says that {plural(n_cached, 'answer')} came from a cache"
    return table.log(
        run.tool,
        means=named,
        greedy_by=settings.greedy_by,
        mixed=settings.mixed,
        selected=settings.chosen,
        repeats=repeats,
        may_repeat="; ".join(run.doubts()) or None,
        unfinished=unfinished,
        engine=run.provider,
        task=run.task,
        model=run.model,
        sampling=run.sampling,
        draws="sampled" if "temperature" in run.sampling else "unknown",
        stopping=stopping,
        warnings=run.warnings(),
        notes=notes + _notes(samples),
        stated=run.stated,
        scores=_columns(run, samples),
    )


def _columns(run: LoggedRun, samples: Sequence[Sample]) -> list[str]:
    """Return the score columns in the order of the run's scorers.

    A column of the name of its scorer, which holds one value, is dropped where the scorer has other columns and this one has
    only NaN: the scorer gave a dictionary or a list, but not of every answer.
    """
    columns_of_scorer: dict[str, dict[str, bool]] = {}  # whether a column is kept
    for sample in samples:
        for column, score in sample.scores.items():
            columns = columns_of_scorer.setdefault(score.scorer, {})
            is_empty = column == score.scorer and math.isnan(score.value)
            if not (is_empty and columns):
                columns[column] = not is_empty
    order: list[str] = []
    for scorer in dict.fromkeys([*run.scorers, *columns_of_scorer]):
        columns = columns_of_scorer.get(scorer, {})
        if len(columns) > 1 and not columns.get(scorer, True):
            del columns[scorer]
        order += columns
    return order


def _notes(samples: Sequence[Sample]) -> list[str]:
    notes = []
    for name, words in (
        ("retried", "came after a retry: a failed answer was drawn again"),
        ("cut", "were cut at the maximum number of tokens"),
        ("edited", "have scores that were edited after the run"),
        ("is_unread", "have non-numeric scores, which count as unscored"),
    ):
        count = sum(getattr(sample, name) for sample in samples)
        if count:
            notes.append(f"{count} answers {words}")
    return notes


class Stop(NamedTuple):
    """An epoch of a question that early stopping left out."""

    name: str
    epoch: int


class LoggedRun:
    """What a log, or a task before its run, states of the run. Format: Inspect's `EvalLog`."""

    def __init__(self, path: Path, header: Mapping[str, Json]):
        spec = header.get("eval")
        if not isinstance(spec, dict):
            raise BadFile(path, "has no object `eval`, so the file is not a log of Inspect")
        self.results = object_at(header, "results")
        self.task = text_at(spec, "task")
        self.model = text_at(spec, "model")
        version = text_at(object_at(spec, "packages"), "inspect_ai")
        self.tool = f"inspect_ai {version or ''}"
        epochs = object_at(spec, "config").get("epochs")
        if epochs is None:
            epochs = 1
        if not _is_count(epochs):
            got = shortened(epochs, 40)
            raise BadFile(path, f"`eval.config.epochs` must be an integer of at least 1, got {got}")
        self.epochs = epochs
        listed = list_at(object_at(spec, "dataset"), "sample_ids")
        self.sample_ids = [str(identity) for identity in listed if _is_id(identity)]
        scorers = [text_at(scorer, "name") for scorer in objects_at(spec, "scorers")]
        self.scorers = [name for name in scorers if name is not None]
        self.sampling = _sampling(spec, object_at(header, "plan"))
        # What is passed on to the provider or its server, beside the settings that Inspect knows.
        generating = object_at(spec, "model_generate_config") | object_at(
            object_at(header, "plan"), "config"
        )
        plan = object_at(header, "plan")
        arguments = object_at(spec, "task_args") | object_at(spec, "solver_args")
        self.further = stated_in({"params": arguments}) | _of_solvers(plan.get("steps"))
        self.further |= object_at(spec, "model_args") | object_at(generating, "extra_body")
        stopping = self.results.get("early_stopping")
        self.early_manager: str | None = None
        if stopping:
            self.early_manager = str(as_object(stopping).get("manager"))[:80]
        self.early_stops = _early_stops(as_object(stopping))

    @property
    def stated(self) -> dict[str, object]:
        """Return the totals of the run and the metrics of each scorer and reducer, over questions, not epochs."""
        totals: dict[str, Json] = {}
        for name in ("total_samples", "completed_samples"):
            if name in self.results:
                totals[name] = self.results[name]
        for score in objects_at(self.results, "scores"):
            metrics = object_at(score, "metrics")
            values = {name: object_at(metrics, name).get("value") for name in metrics}
            totals[f"{score.get('name')}/{score.get('reducer')}"] = values
        return totals

    @property
    def provider(self) -> str:
        return (self.model or "").split("/")[0]

    def doubts(self) -> list[str]:
        """The settings under which an epoch may repeat the answer of another one."""
        doubts = []
        if "seed" in self.sampling and self.epochs > 1 and self.provider not in SEEDED_ONCE:
            doubts.append(
                f"seed {self.sampling['seed']}: each request carries the seed, so a server that obeys the seed gives "
                "every epoch the same answer"
            )
        if object_at(self.sampling, "cache").get("per_epoch") is False:
            doubts.append("cache per_epoch false: later epochs may be copies from the cache")
        return doubts

    def warnings(self) -> list[str]:
        warnings = self.doubts()
        if self.provider == "mockllm":
            warnings.append("model mockllm: its answers come from a script, not from a model")
        return warnings

    def notes(self) -> list[str]:
        notes = []
        if "temperature" not in self.sampling:
            notes.append("temperature is not stated: the provider's default applied")
        if self.early_manager is not None:
            notes.append(
                f"early stopping by {self.early_manager}, which left out {len(self.early_stops)} epochs: only values that "
                "hold at any time are valid"
            )
        return notes


def _sampling(spec: Mapping[str, Json], plan: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings of the model, the plan and the generating steps, of which later ones win."""
    stated = [object_at(spec, "model_generate_config"), object_at(plan, "config")]
    for step in objects_at(plan, "steps"):
        if step.get("solver") == "generate":
            stated.append(object_at(step, "params"))
    sampling = {}
    for settings in stated:
        for name in SETTINGS:
            if settings.get(name) is not None:
                sampling[name] = settings[name]
    return sampling


def _of_solvers(steps: Json, depth: int = DEEPEST) -> dict[str, Json]:
    """The settings that solvers were given, also those that lie in the lists of other solvers."""
    stated: dict[str, Json] = {}
    for step in map(as_object, as_list(steps)):
        stated |= stated_in({"params": step.get("params")})
        for inner in object_at(step, "params").values():
            if isinstance(inner, list) and depth:
                stated |= _of_solvers(inner, depth - 1)
    return stated


def _early_stops(stopping: Mapping[str, Json]) -> list[Stop]:
    stops = []
    for stop in as_list(stopping.get("early_stops") or stopping.get("stopped_samples")):
        identity = as_object(stop).get("id")
        epoch = as_object(stop).get("epoch")
        if _is_id(identity) and isinstance(epoch, int):
            stops.append(Stop(str(identity), epoch))
    return stops


def _is_id(value: Json) -> TypeGuard[int | str]:
    return isinstance(value, str) or is_integer(value)


def _is_count(value: Json) -> TypeGuard[int]:
    return is_integer(value) and value >= 1


@dataclass(frozen=True)
class Score:
    """A score of an answer: NaN where the scorer's value is no number, which is ``unread`` unless it is missing."""

    scorer: str
    value: float
    unread: bool


@dataclass(frozen=True)
class Sample:
    """One sample: an answer to a question in an epoch. Id and epoch come from the sample, never from the name of an entry.

    Format: Inspect's `EvalSample`. ``stop`` is the stated end of the answer, and ``lost`` says why the answer is missing
    whatever its end. ``model`` gave the answer, to a request ``asked_with`` these settings, or out of a cache (``cached``).
    """

    name: str
    epoch: int
    prompt: str | None
    text: str
    scores: dict[str, Score]  # by column
    stop: Json
    lost: list[str]
    retried: bool
    edited: bool
    model: str | None
    asked_with: dict[str, Json]
    cached: bool

    @classmethod
    def of(cls, path: Path, where: str, value: Json) -> Sample:
        """Return the sample that a value of JSON holds; a `BadFile` names ``where`` it stands in the file."""
        value = checked(path, where, value)
        identity = value.get("id")
        epoch = value.get("epoch")
        if not _is_id(identity):
            problem = f"`id` is {type(identity).__name__}, expected a text or an integer"
            raise BadFile(path, f"{where}: {problem}")
        if not _is_count(epoch):
            got = shortened(epoch, 40)
            raise BadFile(path, f"{where}: `epoch` must be an integer of at least 1, got {got}")
        output = checked(path, f"{where}: `output`", value.get("output") or {})
        scores = checked(path, f"{where}: `scores`", value.get("scores") or {})
        choice = as_object(next(iter(list_at(output, "choices")), None))
        text: str = checked(path, f"{where}: `output.completion`", _completion(output), str)

        lost = [reason for member, reason in REASONS.items() if value.get(member)]
        beside = {"metadata": output.get("metadata")}
        if output.get("error"):
            lost.append(ERROR)
        elif kind_of(beside):
            lost.append(str(kind_of(beside)))
        event = _event_of(value, text)
        config = object_at(event, "config")
        return cls(
            str(identity),
            epoch,
            _prompt(value.get("input")),
            text,
            _scores(scores),
            choice.get("stop_reason"),
            lost,
            retried=bool(value.get("error_retries")),
            edited=any(object_at(scores, scorer).get("history") for scorer in scores),
            model=text_at(output, "model"),
            asked_with=config | object_at(config, "extra_body"),
            cached=event.get("cache") == "read" or is_cached(beside),
        )

    def problems(self, states_ends: bool) -> list[str]:
        """Why the answer is missing; a log that ``states_ends`` of some answers states one of each that a model ended."""
        kind = NOT_STATED if self.stop is None else missing_kind(self.stop)
        if self.text and not states_ends:
            kind = None
        if kind is None or ERROR in self.lost:
            return self.lost
        return [*self.lost, kind]

    @property
    def cut(self) -> bool:
        return self.stop == "max_tokens"

    def values(self) -> dict[str, float]:
        return {column: score.value for column, score in self.scores.items()}

    @property
    def is_unread(self) -> bool:
        return any(score.unread for score in self.scores.values())


def _content(content: Json) -> Json:
    """Join the texts of a list of parts as Inspect does; reasoning is not part of the answer."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    texts = []
    for part in map(as_object, content):
        text = text_at(part, "text")
        if part.get("type") == "text" and text is not None:
            texts.append(text)
    return "\n".join(texts)


def _prompt(asked: Json) -> str | None:
    """Return the question: a text unchanged; several messages as JSON of their roles and texts."""
    if isinstance(asked, str):
        return asked
    if not isinstance(asked, list):
        return None
    messages = []
    for message in asked:
        if isinstance(message, dict):
            messages.append((message.get("role"), _content(message.get("content"))))
    return conversation(messages)


def _event_of(sample: Mapping[str, Json], text: str) -> dict[str, Json]:
    """The event of the request that brought a sample's answer; empty where none is logged. A judge's bring other texts."""
    found: dict[str, Json] = {}
    for event in objects_at(sample, "events"):
        if event.get("event") == "model" and _completion(object_at(event, "output")) == text:
            found = event
    return found


def _completion(output: Mapping[str, Json]) -> str | None:
    """The text of an output; versions without the field `completion` have it in the first choice's message."""
    choice = as_object(next(iter(list_at(output, "choices")), None))
    text = output.get("completion")
    if text is None:
        text = _content(object_at(choice, "message").get("content"))
    return text


def _scores(value_of_scorer: Mapping[str, Json]) -> dict[str, Score]:
    """Return one column per scorer, or one column `scorer.key` per key of a dictionary and per place of a list."""
    scores = {}
    for scorer in value_of_scorer:
        value = object_at(value_of_scorer, scorer).get("value")
        if isinstance(value, list):
            value = dict(enumerate(value))
        if not isinstance(value, dict):
            scores[scorer] = _score(scorer, value)
            continue
        for key, part in value.items():
            scores[f"{scorer}.{key}"] = _score(scorer, part)
    return scores


def _score(scorer: str, stated: Json) -> Score:
    value = score_value(stated)
    is_number = stated is None or isinstance(stated, (int, float))
    return Score(scorer, value, unread=math.isnan(value) and not is_number)


def score_value(value: object) -> float:
    """Convert a score as Inspect's reducers do: letters, words, and numbers written as text; NaN for anything else."""
    if not isinstance(value, str):
        return number(value)
    if value in LETTERS:
        return LETTERS[value]
    if value.lower() in WORDS:
        return WORDS[value.lower()]
    if "_" in value:  # which Python reads between digits
        return math.nan
    try:
        return number(float(value))
    except ValueError:
        return math.nan
