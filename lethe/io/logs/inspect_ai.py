"""Inspect's logs: an .eval archive or one .json, one sample per question and epoch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lethe.errors import BadFile, shortened
from lethe.io.logs._archive import Archive
from lethe.io.logs._json import document
from lethe.io.logs._log import (
    SAME_TEXTS,
    Log,
    Table,
    as_object,
    as_text,
    chosen,
    conversation,
    copies,
    greedy,
    number,
)

NAME = "inspect"
HOLDS = "Inspect logs (.eval or .json)"
HEADER, START = "header.json", "_journal/start.json"
# An id may contain "/" or end in "_epoch_2". The names therefore show only which entries are samples, whole or in chunks.
WHOLE = re.compile(r"samples/.+_epoch_\d+\.json", re.DOTALL)
CHUNKED = re.compile(r"samples/.+_epoch_\d+/sample\.json", re.DOTALL)
HEAVY = frozenset({"events", "messages", "message_refs"})
KEPT = frozenset({"id", "epoch", "input", "output", "scores", "error", "error_retries", "limit", "invalidation"})
UNFINISHED = ("started", "cancelled", "error")
SETTINGS = (
    *("temperature", "top_p", "top_k", "max_tokens", "seed", "stop_seqs", "frequency_penalty", "presence_penalty"),
    *(
        "repetition_penalty",
        "logit_bias",
        "num_choices",
        "best_of",
        "reasoning_effort",
        "reasoning_tokens",
        "cache",
    ),
)
SEEDED_ONCE = ("hf", "transformer_lens", "nnterp")  # providers that set the seed when they load the model
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
ERRORED, LIMITED, WITHDRAWN = "error", "limit", "withdrawn"


def recognises(first: Mapping[str, object]) -> bool:
    """Whether the first members of a file identify this format."""
    spec = first.get("eval")
    return isinstance(spec, dict) and "task" in spec and "model" in spec


def read(path: Path) -> Log:
    """Read a log of Inspect."""
    with path.open("rb") as file:
        packed = file.read(2) == b"PK"
    if not packed:
        return _log(path, *_plain(path))
    with Archive(path) as archive:
        return _log(path, _header(archive), _samples(archive))


def _plain(path: Path) -> tuple[dict[str, Any], list[Sample]]:
    """Read a .json log sample by sample, because most of each sample are events that no reader keeps."""
    header: dict[str, Any] = {}
    samples: list[Sample] = []
    for key, value in document(path).members(frozenset({"samples"})):
        if key == "samples":
            if value is not None:
                samples.append(sample(path, f"item {len(samples) + 1} of `samples`", value))
        elif key != "reductions":
            header[key] = value
    return header, samples


def _header(archive: Archive) -> dict[str, Any]:
    """Return the header. Without a header the run is still going or was killed, and the journal holds its plan."""
    entries = {entry.filename: entry for entry in archive.entries}
    for name in (HEADER, START):
        if name in entries:
            content = archive.document(entries[name]).value()
            if not isinstance(content, dict):
                raise BadFile(archive.path, f"its {name} is {type(content).__name__}, expected an object")
            return content if name == HEADER else {**content, "status": "started"}
    raise BadFile(
        archive.path, f"is a zip archive without {HEADER} and {START}, so the file is not a log of Inspect"
    )


def _samples(archive: Archive) -> Iterator[Sample]:
    for entry in archive.entries:
        if WHOLE.fullmatch(entry.filename) or CHUNKED.fullmatch(entry.filename):
            members = archive.document(entry).members(HEAVY)
            content = {key: value for key, value in members if key in KEPT}
            yield sample(archive.path, f"its entry {entry.filename[:100]!r}", content)


def _log(path: Path, header: Mapping[str, Any], samples: Iterable[Sample]) -> Log:
    run = Run(path, header)
    read_samples = list(samples)
    names = _names(run, read_samples)
    table = Table(path)
    asked = set(run.sample_ids)
    for identity, name in names.items():
        table.prompt(name, planned=run.epochs if identity in asked else None)
    for identity, epoch in run.early_stops():
        if identity in names:
            table.excuse(names[identity], epoch)
    for one in read_samples:
        table.prompt(names[one.id], one.prompt)
        for reason in one.problems:
            table.problem(names[one.id], one.epoch, reason)
        table.answer(names[one.id], one.epoch, one.text, one.scores)
    tables = table.finish(_columns(run, read_samples))
    copied = run.greedy() if table.most() > 1 else None
    status = header.get("status")
    unfinished = status in UNFINISHED
    return Log(
        path=path,
        format=NAME,
        tool=run.tool,
        task=run.task,
        model=run.model,
        sampling=run.sampling,
        draws="copies" if copied else "sampled" if "temperature" in run.sampling else "unknown",
        stopping="early" if run.early_manager is not None else "unfinished" if unfinished else "fixed",
        refusal=copies(copied, table.most()) if copied else None,
        warnings=tuple(run.warnings() + ([SAME_TEXTS] if table.equal_texts() and not copied else [])),
        notes=tuple(_notes(run, status, read_samples, names)),
        stated=run.stated,
        **tables,
    )


def _names(run: Run, samples: Iterable[Sample]) -> dict[str | int, str]:
    """Map id to `prompt_id`, in the data set's order; where both the number 909 and the text "909" occur, quote the text."""
    ids = dict.fromkeys([*run.sample_ids, *(one.id for one in samples)])
    numbers = {str(identity) for identity in ids if isinstance(identity, int)}
    return {
        identity: f'"{identity}"' if isinstance(identity, str) and identity in numbers else str(identity)
        for identity in ids
    }


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


def _notes(run: Run, status: Any, samples: list[Sample], names: Mapping[str | int, str]) -> list[str]:
    notes = run.notes()
    if status in UNFINISHED:
        notes.append(
            f"status {status}: the run did not end, and the set of finished epochs depends on their durations"
        )
    for count, words in (
        (sum(one.retried for one in samples), "answers came after a retry: a failed answer was drawn again"),
        (sum(one.cut for one in samples), "answers were cut at the maximum number of tokens"),
        (sum(one.edited for one in samples), "answers have scores that were edited after the run"),
        (
            sum(bool(one.unread) for one in samples),
            "answers have non-numeric scores, which count as unscored",
        ),
    ):
        if count:
            notes.append(f"{count} {words}")
    if any(isinstance(identity, str) and identity != name for identity, name in names.items()):
        notes.append("ids occur as a number and as a text: the text is quoted")
    return notes


class Run:
    """The header of a log; each part may be missing or have a wrong type."""

    def __init__(self, path: Path, header: Mapping[str, Any]):
        self.path = path
        spec = header.get("eval")
        if not isinstance(spec, dict):
            raise BadFile(path, "has no object `eval`, so the file is not a log of Inspect")
        self.spec = spec
        self.plan = as_object(header.get("plan"))
        self.results = as_object(header.get("results"))
        self.task, self.model = as_text(spec.get("task")), as_text(spec.get("model"))
        version = as_object(spec.get("packages")).get("inspect_ai")
        self.tool = f"inspect_ai {version}" if isinstance(version, str) else "inspect_ai"
        self.epochs = self._epochs()
        ids = as_object(spec.get("dataset")).get("sample_ids")
        self.sample_ids = [one for one in ids if _is_id(one)] if isinstance(ids, list) else []
        scorers = spec.get("scorers")
        named = [as_object(one).get("name") for one in scorers] if isinstance(scorers, list) else []
        self.scorers = [name for name in named if isinstance(name, str)]
        self.sampling = self._sampling()
        stopping = self.results.get("early_stopping")
        self.early_manager = str(as_object(stopping).get("manager"))[:80] if stopping else None

    def _epochs(self) -> int:
        epochs = as_object(self.spec.get("config")).get("epochs", 1)
        if epochs is None:
            return 1
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
            raise BadFile(
                self.path, f"`eval.config.epochs` must be an integer of at least 1, got {shortened(epochs, 40)}"
            )
        return epochs

    def _sampling(self) -> dict[str, Any]:
        """Merge the settings of the model, the plan and the generating step; later settings win."""
        merged: dict[str, Any] = {}
        for source in (self.spec.get("model_generate_config"), self.plan.get("config"), *self._steps()):
            for name in SETTINGS:
                if as_object(source).get(name) is not None:
                    merged[name] = as_object(source)[name]
        return merged

    def _steps(self) -> Iterator[Any]:
        steps = self.plan.get("steps")
        for step in steps if isinstance(steps, list) else []:
            if as_object(step).get("solver") == "generate":
                yield step.get("params")

    @property
    def stated(self) -> dict[str, object]:
        """Return the totals of the run and the metrics of each scorer and reducer, over questions, not epochs."""
        totals: dict[str, Any] = {
            name: self.results[name] for name in ("total_samples", "completed_samples") if name in self.results
        }
        scores = self.results.get("scores")
        for score in scores if isinstance(scores, list) else []:
            metrics = as_object(as_object(score).get("metrics"))
            name = f"{as_object(score).get('name')}/{as_object(score).get('reducer')}"
            totals[name] = {key: as_object(metric).get("value") for key, metric in metrics.items()}
        return totals

    def greedy(self) -> str | None:
        """Return the setting that makes the decoding greedy, or None."""
        return greedy(self.sampling)

    def early_stops(self) -> list[tuple[str | int, int]]:
        """Return (id, epoch) of every answer that the early-stopping manager skipped."""
        stopping = as_object(self.results.get("early_stopping"))
        stops = stopping.get("early_stops") or stopping.get("stopped_samples")
        skipped: list[tuple[str | int, int]] = []
        for stop in stops if isinstance(stops, list) else []:
            identity, epoch = as_object(stop).get("id"), as_object(stop).get("epoch")
            if isinstance(identity, (int, str)) and isinstance(epoch, int):
                skipped.append((identity, epoch))
        return skipped

    def warnings(self) -> list[str]:
        """Return the settings, by name, under which epochs may be dependent draws."""
        warnings = chosen(self.sampling)
        provider = (self.model or "").split("/")[0]
        if "seed" in self.sampling and self.epochs > 1 and provider not in SEEDED_ONCE:
            warnings.append(
                f"seed {self.sampling['seed']}: each request carries the seed, so a server that obeys the seed gives "
                "every epoch the same answer"
            )
        cache = self.sampling.get("cache")
        if isinstance(cache, dict) and cache.get("per_epoch") is False:
            warnings.append("cache per_epoch false: later epochs may be copies from the cache")
        if provider == "mockllm":
            warnings.append("model mockllm: its answers come from a script, not from a model")
        return warnings

    def notes(self) -> list[str]:
        """Return other useful facts about the run."""
        notes = []
        if "temperature" not in self.sampling:
            notes.append("temperature is not stated: the provider's default applied")
        if self.early_manager is not None:
            left = len(self.early_stops())
            notes.append(
                f"early stopping by {self.early_manager}, which left out {left} epochs: only values that hold at any "
                "time are valid"
            )
        return notes


def _is_id(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


@dataclass(frozen=True)
class Sample:
    """One sample. ``columns`` maps each score column to its scorer; ``unread`` lists scores without a numeric value."""

    id: str | int
    epoch: int
    prompt: str | None
    text: str
    scores: dict[str, float]
    columns: dict[str, str]
    unread: tuple[str, ...]
    problems: tuple[str, ...]
    retried: bool
    cut: bool
    edited: bool


def sample(path: Path, where: str, value: object) -> Sample:
    """Read a sample; errors name ``where``. Id and epoch come from the sample, never from the name of an entry."""
    if not isinstance(value, dict):
        raise BadFile(path, f"{where} is {type(value).__name__}, expected an object")
    identity, epoch = value.get("id"), value.get("epoch")
    if isinstance(identity, bool) or not isinstance(identity, (int, str)):
        raise BadFile(path, f"{where}: `id` is {type(identity).__name__}, expected a text or an integer")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
        raise BadFile(path, f"{where}: `epoch` must be an integer of at least 1, got {shortened(epoch, 40)}")
    output = value.get("output") or {}
    if not isinstance(output, dict):
        raise BadFile(path, f"{where}: `output` is {type(output).__name__}, expected an object")
    given = value.get("scores") or {}
    if not isinstance(given, dict):
        raise BadFile(path, f"{where}: `scores` is {type(given).__name__}, expected an object")
    scores, columns, unread = _scores(given)
    reasons = ((ERRORED, "error"), (LIMITED, "limit"), (WITHDRAWN, "invalidation"))
    return Sample(
        identity,
        epoch,
        _prompt(value.get("input")),
        _completion(path, where, output),
        scores,
        columns,
        unread,
        tuple(reason for reason, key in reasons if value.get(key)),
        bool(value.get("error_retries")),
        _choice(output).get("stop_reason") == "max_tokens",
        any(isinstance(score, dict) and bool(score.get("history")) for score in given.values()),
    )


def _choice(output: Mapping[str, Any]) -> dict[str, Any]:
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _completion(path: Path, where: str, output: Mapping[str, Any]) -> str:
    """Return the completion; versions without the field have the text in the message of the first choice."""
    text = output.get("completion")
    if text is None:
        message = _choice(output).get("message")
        text = _content(message.get("content")) if isinstance(message, dict) else ""
    if not isinstance(text, str):
        raise BadFile(path, f"{where}: `output.completion` is {type(text).__name__}, expected a text")
    return text


def _content(content: Any) -> Any:
    """Join the texts of a list of parts as Inspect does; reasoning is not part of the answer."""
    if not isinstance(content, list):
        return "" if content is None else content
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _prompt(given: Any) -> str | None:
    """Return the question: a text unchanged; several messages as JSON of their roles and texts."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        return None
    messages = [message for message in given if isinstance(message, dict)]
    return conversation([(message.get("role"), _content(message.get("content"))) for message in messages])


def _scores(given: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str], tuple[str, ...]]:
    """Return one column per scorer, or one column `scorer.key` per key of a dictionary and per place of a list."""
    scores: dict[str, float] = {}
    columns: dict[str, str] = {}
    unread = []
    for scorer, score in given.items():
        value = score.get("value") if isinstance(score, dict) else None
        if isinstance(value, dict):
            parts = {f"{scorer}.{key}": part for key, part in value.items()}
        elif isinstance(value, list):
            parts = {f"{scorer}.{place}": part for place, part in enumerate(value)}
        else:
            parts = {scorer: value}
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
