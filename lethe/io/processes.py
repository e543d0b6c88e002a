"""The counts of one process: everything that was ever drawn for a gate that may be tried at any time, kept in the folder.

A gate on an e-process may be asked again after more answers, with another seed and at another threshold, and a wrong answer
ever has probability at most alpha. That holds while nothing drawn is left out. So a process keeps the counts of every seed:
equal seeds are the same draws, of which the longer ones count, and the counts of different seeds add. A seed is written
before its first answer is drawn, so that draws that were begun and given up are not forgotten.

What makes a process is named by its key, which the file holds too: weights, tokenizer and drawing law, questions, scorer.
Without its file another seed is a new test.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from lethe.errors import BadFile
from lethe.identity import digest
from lethe.io.files import (
    SCHEMA_VERSION,
    make_folder,
    read_artifact,
    reader_of,
    restored,
    write_json,
)

FOLDER = Path(".lethe/processes")


@dataclass(frozen=True)
class QuestionCounts:
    """``leaks`` among ``n`` answers to a question, ``missing`` of them without a judgement."""

    leaks: int
    n: int
    missing: int = 0

    def __post_init__(self) -> None:
        if min(self.leaks, self.missing) < 0 or self.leaks + self.missing > self.n:
            raise ValueError(f"{self.leaks} leaks and {self.missing} missing of {self.n} answers")

    def __add__(self, other: QuestionCounts) -> QuestionCounts:
        return QuestionCounts(
            self.leaks + other.leaks, self.n + other.n, self.missing + other.missing
        )


NOTHING = QuestionCounts(0, 0)


@dataclass(frozen=True)
class Segment:
    """What one seed drew: counts by question, and what was ``begun`` and never counted, as the most answers to a question by
    the rule that stops them (empty: none does)."""

    counts: dict[str, QuestionCounts] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)

    def begins(self, most: int, rule: str) -> Segment:
        """The segment once a call will draw; answers that were counted before are no further ones."""
        fewest = min((drawn.n for drawn in self.counts.values()), default=0)
        if fewest >= most:
            return self
        return replace(self, begun={**self.begun, rule: max(most, self.begun.get(rule, 0))})

    def ends(self, counts: Mapping[str, QuestionCounts], most: int, rule: str) -> Segment:
        """The segment once the call has drawn: the longer counts, and what they hold is no longer only begun."""
        longer = dict(self.counts)
        for item, drawn in counts.items():
            if drawn.n > longer.get(item, NOTHING).n:
                longer[item] = drawn
        left = {}
        for name, begun in self.begun.items():
            is_drawn = begun <= most and rule in ("", name)
            if not is_drawn:
                left[name] = begun
        return Segment(longer, left)


@dataclass(frozen=True)
class Process:
    """The ``segments`` of a process by seed, and the largest ln e of each question by threshold (``largest``).

    ``kept`` says whether the folder keeps the file at ``path``; if not, the process knows this call's draws alone.
    """

    path: Path
    segments: dict[str, Segment] = field(default_factory=dict)
    largest: dict[str, dict[str, float]] = field(default_factory=dict)
    kept: bool = True

    def totals(self) -> dict[str, QuestionCounts]:
        """The counts of each question over all seeds."""
        totals: dict[str, QuestionCounts] = {}
        for segment in self.segments.values():
            for item, drawn in segment.counts.items():
                totals[item] = totals.get(item, NOTHING) + drawn
        return totals

    def unfinished(self) -> list[str]:
        """The seeds of which some answers were begun and never counted."""
        return [seed for seed, segment in self.segments.items() if segment.begun]

    def with_counts(
        self,
        seed: str,
        counts: Mapping[str, QuestionCounts],
        most: int,
        rule: str = "",
        drawn_as: str | None = None,
    ) -> Process:
        """The process after ``seed`` drew as `begin` was told; shorter draws change no count.

        ``drawn_as`` names the draws where only the call could say what they are, such as which engine drew them: equal names
        are the same draws, and the counts of different names add.
        """
        name = drawn_as or seed
        with self._newest() as process:
            left = process.segments.pop(seed, Segment())
            if name != seed:
                process._keep(seed, left.ends({}, most, rule))
                left = process.segments.pop(name, Segment())
            process._keep(name, left.ends(counts, most, rule))
            process.write()
        return process

    def _keep(self, name: str, segment: Segment) -> None:
        if segment != Segment():
            self.segments[name] = segment

    def with_evidence(self, threshold: float, log_e: Mapping[str, float]) -> Process:
        """The process after its counts had ``log_e`` of each question against ``threshold``; the largest ever are kept."""
        with self._newest() as process:
            largest = process.largest.setdefault(repr(threshold), {})
            for item, evidence in log_e.items():
                largest[item] = max(evidence, largest.get(item, evidence))
            process.write()
        return process

    @contextmanager
    def _newest(self) -> Iterator[Process]:
        """The process as its file has it now, held so that of two calls at once none loses the other's counts."""
        if not self.kept:
            yield replace(self)
            return
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield read(self.path)

    def write(self) -> None:
        if not self.kept:
            return
        segments = reader_of(dict[str, Segment]).dump_python(self.segments)
        value = {"schema": SCHEMA_VERSION, "key": self.path.stem}
        value |= {"segments": segments, "largest": self.largest}
        write_json(self.path, value)


def read(path: Path) -> Process:
    """The process of a file, empty where there is none; a damaged file is an error, since lost counts would open a gate."""
    if not path.is_file():
        return Process(path)
    value = read_artifact(path)
    try:
        segments = restored(dict[str, Segment], value["segments"])
        largest = restored(dict[str, dict[str, float]], value["largest"])
    except (KeyError, ValidationError):
        raise BadFile(
            path, "holds no process", "Restore it, or delete it: then a new test begins."
        ) from None
    if value.get("key") != path.stem:
        problem = f"holds the answers of another test ({value.get('key')!r})"
        raise BadFile(path, problem, "Restore it, or delete it: then a new test begins.")
    return Process(path, segments, largest)


def begin(
    tested: object,
    seed: str,
    most: int,
    folder: Path | None = None,
    rule: str = "",
) -> Process:
    """Write that ``seed`` will draw ``most`` answers to each question of what is ``tested``, and return the process.

    ``tested`` is a value that `digest` takes. ``rule`` names what may stop the draws before. The file lies in ``folder``, by
    default `FOLDER`.
    """
    path = (folder or FOLDER) / f"{digest(tested)}.json"
    try:
        make_folder(path.parent)
    except BadFile:
        return Process(path, kept=False)

    with Process(path)._newest() as process:
        segment = process.segments.get(seed, Segment())
        process.segments[seed] = segment.begins(most, rule)
        process.write()
    return process
