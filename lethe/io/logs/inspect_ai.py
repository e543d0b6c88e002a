"""Inspect's logs: an .eval archive or one .json, one sample per question and epoch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

from lethe.errors import BadFile, shortened
from lethe.io.answer_ends import missing_kind
from lethe.io.facts import named
from lethe.io.files import Json
from lethe.io.logs._log import (
    Format,
    Log,
    Table,
    as_list,
    as_object,
    as_text,
    chosen,
    conversation,
    number,
)
from lethe.io.logs._untrusted import Archive, Source, checked

HEADER, START = "header.json", "_journal/start.json"
# An id may contain "/" or end in "_epoch_2". The names therefore show only which entries are samples, whole or in chunks.
WHOLE = re.compile(r"samples/.+_epoch_\d+\.json", re.DOTALL)
CHUNKED = re.compile(r"samples/.+_epoch_\d+/sample\.json", re.DOTALL)
UNFINISHED = ("started", "cancelled", "error")
SETTINGS = (
    "temperature top_p top_k max_tokens seed stop_seqs frequency_penalty presence_penalty repetition_penalty logit_bias "
    "num_choices best_of reasoning_effort reasoning_tokens cache"
).split()
SEEDED_ONCE = (
    "hf",
    "transformer_lens",
    "nnterp",
)  # providers that set the seed when they load the model
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
REASONS = {
    "error": "error",
    "limit": "limit",
    "invalidation": "withdrawn",
}  # by the member of a sample


def recognises(first: Mapping[str, Json]) -> bool:
    spec = first.get("eval")
    return isinstance(spec, dict) and "task" in spec and "model" in spec


def read(source: Source | Path) -> Log:
    if isinstance(source, Path):
        with Archive(source) as archive:
            return _log(source, _header(archive), _samples(archive))
    samples = checked(source.path, "`samples`", source.object.pop("samples", None) or [], list)
    places = enumerate(samples, start=1)
    samples = (Sample(source.path, f"item {place} of `samples`", value) for place, value in places)
    return _log(source.path, source.object, samples)


FORMAT = Format("inspect", "Inspect logs (.eval or .json)", recognises, read)


def _header(archive: Archive) -> dict[str, Json]:
    entries = {entry.filename: entry for entry in archive.entries}
    for name in (HEADER, START):
        if name in entries:
            content = checked(archive.path, f"its {name}", archive.value(entries[name]))
            return content if name == HEADER else {**content, "status": "started"}
    problem = f"is a zip archive without {HEADER} and {START}, so the file is not a log of Inspect"
    raise BadFile(archive.path, problem)


def _samples(archive: Archive) -> Iterator[Sample]:
    for entry in archive.entries:
        if WHOLE.fullmatch(entry.filename) or CHUNKED.fullmatch(entry.filename):
            yield Sample(archive.path, f"its entry {entry.filename[:100]!r}", archive.value(entry))


def _log(path: Path, header: Mapping[str, Json], samples: Iterable[Sample]) -> Log:
    run = Run(path, header)
    read_samples = list(samples)
    table = Table(path)
    asked = set(run.sample_ids)
    # In the data set's order. Inspect joins ids as text: 909 in the data set and "909" in a sample are one question.
    for name in dict.fromkeys([*run.sample_ids, *(one.name for one in read_samples)]):
        table.prompt(name, planned=run.epochs if name in asked else None)
    known = asked | {one.name for one in read_samples}
    for name, epoch in run.early_stops:
        if name in known:
            table.excuse(name, epoch)
    for one in read_samples:
        table.prompt(one.name, one.prompt)
        for reason in one.problems:
            table.problem(one.name, one.epoch, reason)
        table.answer(one.name, one.epoch, one.text, one.scores)
    status = header.get("status")
    unfinished = status in UNFINISHED
    stopping = "unfinished" if unfinished else "fixed"
    if run.early_manager is not None:
        stopping = "early"
    return table.log(
        run.tool,
        means=named,
        may_repeat="; ".join(run.doubts()) or None,
        unfinished=f"The log says that its run did not end (status {status})"
        if unfinished
        else None,
        engine=run.provider,
        task=run.task,
        model=run.model,
        sampling=run.sampling,
        draws="sampled" if "temperature" in run.sampling else "unknown",
        stopping=stopping,
        warnings=run.warnings(),
        notes=_notes(run, status, read_samples),
        stated=run.stated,
        scores=_columns(run, read_samples),
    )


def _columns(run: Run, samples: Iterable[Sample]) -> list[str]:
    """Return the score columns in the order of the run's scorers; a column of only NaN is dropped if others exist."""
    seen: dict[str, dict[str, None]] = {}
    for one in samples:
        for column, scorer in one.columns.items():
            if column != scorer or not math.isnan(one.scores[column]) or scorer not in seen:
                seen.setdefault(scorer, {})[column] = None
    for scorer, columns in seen.items():
        parts = [column for column in columns if column != scorer]
        if parts and all(math.isnan(one.scores.get(scorer, math.nan)) for one in samples):
            columns.pop(scorer, None)
    order = [name for name in run.scorers if name in seen]
    return [column for scorer in dict.fromkeys([*order, *seen]) for column in seen[scorer]]


def _notes(run: Run, status: Json, samples: list[Sample]) -> list[str]:
    notes = run.notes()
    if status in UNFINISHED:
        notes.append(
            f"status {status}: the run did not end, and the set of finished epochs depends on their durations"
        )
    for name, words in (
        ("retried", "came after a retry: a failed answer was drawn again"),
        ("cut", "were cut at the maximum number of tokens"),
        ("edited", "have scores that were edited after the run"),
        ("unread", "have non-numeric scores, which count as unscored"),
    ):
        if count := sum(bool(getattr(one, name)) for one in samples):
            notes.append(f"{count} answers {words}")
    return notes


class Run:
    def __init__(self, path: Path, header: Mapping[str, Json]):
        spec = header.get("eval")
        if not isinstance(spec, dict):
            raise BadFile(path, "has no object `eval`, so the file is not a log of Inspect")
        plan, self.results = as_object(header.get("plan")), as_object(header.get("results"))
        self.task, self.model = as_text(spec.get("task")), as_text(spec.get("model"))
        version = as_text(as_object(spec.get("packages")).get("inspect_ai"))
        self.tool = f"inspect_ai {version or ''}"
        epochs = as_object(spec.get("config")).get("epochs")
        self.epochs = 1 if epochs is None else epochs
        if not _is_count(self.epochs):
            got = shortened(epochs, 40)
            raise BadFile(path, f"`eval.config.epochs` must be an integer of at least 1, got {got}")
        listed = as_list(as_object(spec.get("dataset")).get("sample_ids"))
        self.sample_ids = [str(one) for one in listed if _is_id(one)]
        names = (as_object(one).get("name") for one in as_list(spec.get("scorers")))
        self.scorers = [name for name in names if isinstance(name, str)]
        steps = [as_object(step) for step in as_list(plan.get("steps"))]
        generating = [step.get("params") for step in steps if step.get("solver") == "generate"]
        self.sampling: dict[
            str, Json
        ] = {}  # of the model, the plan and the generating step; later settings win
        for settings in map(
            as_object, (spec.get("model_generate_config"), plan.get("config"), *generating)
        ):
            self.sampling |= {
                name: settings[name] for name in SETTINGS if settings.get(name) is not None
            }
        stopping = self.results.get("early_stopping")
        self.early_manager = str(as_object(stopping).get("manager"))[:80] if stopping else None
        stopping = as_object(stopping)
        stops = map(
            as_object, as_list(stopping.get("early_stops") or stopping.get("stopped_samples"))
        )
        skipped = ((stop.get("id"), stop.get("epoch")) for stop in stops)
        self.early_stops = [
            (str(one), epoch) for one, epoch in skipped if _is_id(one) and isinstance(epoch, int)
        ]

    @property
    def stated(self) -> dict[str, object]:
        """Return the totals of the run and the metrics of each scorer and reducer, over questions, not epochs."""
        names = ("total_samples", "completed_samples")
        totals: dict[str, Json] = {
            name: self.results[name] for name in names if name in self.results
        }
        for score in map(as_object, as_list(self.results.get("scores"))):
            metrics = as_object(score.get("metrics"))
            values = {key: as_object(metric).get("value") for key, metric in metrics.items()}
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
        if as_object(self.sampling.get("cache")).get("per_epoch") is False:
            doubts.append("cache per_epoch false: later epochs may be copies from the cache")
        return doubts

    def warnings(self) -> list[str]:
        warnings = chosen(self.sampling) + self.doubts()
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


def _is_id(value: Json) -> TypeGuard[int | str]:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def _is_count(value: Json) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class Sample:
    """One sample; errors name ``where``. Id and epoch come from the sample, never from the name of an entry."""

    def __init__(self, path: Path, where: str, value: Json):
        value = checked(path, where, value)
        identity: Json = value.get("id")
        self.epoch: Json = value.get("epoch")
        if not _is_id(identity):
            raise BadFile(
                path, f"{where}: `id` is {type(identity).__name__}, expected a text or an integer"
            )
        self.name = str(identity)
        if not _is_count(self.epoch):
            got = shortened(self.epoch, 40)
            raise BadFile(path, f"{where}: `epoch` must be an integer of at least 1, got {got}")
        output, given = value.get("output") or {}, value.get("scores") or {}
        for name, part in (("output", output), ("scores", given)):
            checked(path, f"{where}: `{name}`", part)
        choice = as_object(next(iter(as_list(output.get("choices"))), None))
        self.text = output.get("completion")
        if (
            self.text is None
        ):  # versions without the field have the text in the message of the first choice
            self.text = _content(as_object(choice.get("message")).get("content"))
        checked(path, f"{where}: `output.completion`", self.text, str)
        self.prompt, self.scores, self.columns, self.unread = (
            _prompt(value.get("input")),
            *_scores(given),
        )
        self.problems = [reason for key, reason in REASONS.items() if value.get(key)]
        stated = choice.get("stop_reason")
        if stated == "unknown":  # Inspect's own word where a provider states no end
            stated = None
        if kind := missing_kind(stated):
            self.problems.append(kind)
        self.retried, self.cut = (
            bool(value.get("error_retries")),
            choice.get("stop_reason") == "max_tokens",
        )
        self.edited = any(bool(as_object(score).get("history")) for score in given.values())


def _content(content: Json) -> Json:
    """Join the texts of a list of parts as Inspect does; reasoning is not part of the answer."""
    if not isinstance(content, list):
        return "" if content is None else content
    texts = [
        part.get("text")
        for part in content
        if isinstance(part, dict) and part.get("type") == "text"
    ]
    return "\n".join(text for text in texts if isinstance(text, str))


def _prompt(given: Json) -> str | None:
    """Return the question: a text unchanged; several messages as JSON of their roles and texts."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        return None
    messages = [message for message in given if isinstance(message, dict)]
    return conversation(
        [(message.get("role"), _content(message.get("content"))) for message in messages]
    )


def _scores(given: Mapping[str, Json]) -> tuple[dict[str, float], dict[str, str], tuple[str, ...]]:
    """Return one column per scorer, or one column `scorer.key` per key of a dictionary and per place of a list."""
    scores: dict[str, float] = {}
    columns: dict[str, str] = {}
    unread = []
    for scorer, score in given.items():
        value = as_object(score).get("value")
        if isinstance(value, list):
            value = dict(enumerate(value))
        parts = (
            {f"{scorer}.{key}": part for key, part in value.items()}
            if isinstance(value, dict)
            else {scorer: value}
        )
        for column, part in parts.items():
            scores[column] = score_value(part)
            columns[column] = scorer
            if math.isnan(scores[column]) and not isinstance(part, (int, float, type(None))):
                unread.append(column)
    return scores, columns, tuple(unread)


def score_value(value: object) -> float:
    """Convert a score as Inspect's reducers do: letters, words, and numbers written as text; NaN for anything else."""
    if not isinstance(value, str):
        return number(value)
    if value in LETTERS:
        return LETTERS[value]
    if value.lower() in WORDS:
        return WORDS[value.lower()]
    try:
        return number(float(value)) if "_" not in value else math.nan
    except ValueError:
        return math.nan
