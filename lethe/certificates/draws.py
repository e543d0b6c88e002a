"""The draws behind a bound: which samples leaked, and the root of a tree over all of them (`lethe.certificates.merkle`).

The counts of a file are the lengths of its lists of leaks, and the root commits to every text without telling one. The leaf
hashes go to verifiers only: the hash of an answer confirms a guess of it.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.certificates import merkle
from lethe.certificates.envelope import canonical
from lethe.certificates.merkle import Leaf
from lethe.errors import BadFile, shortened
from lethe.io.artifacts import PROMPT, SAMPLE, joined_parts
from lethe.io.files import Json, atomic_file, read_json

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "lethe-draws/1"
MEDIA_TYPE = "application/vnd.lethe.draws+json"
COLUMNS = ("text", "tokens", "finish_reason")
REMEDY = "Ask its author for the file as it was written."


@dataclass(frozen=True)
class QuestionDraws:
    """Which of the answers to a question leaked.

    Attributes
    ----------
    id
        The id of the question.
    n
        The number of answers, numbered 0 to ``n - 1``.
    leaks_at
        The sorted numbers of those that leaked.
    first
        The number of answers that bounds by a fixed number count; None: all.
    """

    id: str
    n: int
    leaks_at: tuple[int, ...]
    first: int | None = None

    @property
    def at_first(self) -> int:
        """The number of answers that bounds by a fixed number count."""
        return self.n if self.first is None else self.first

    def leaks(self, n: int) -> int:
        """The number of leaks among the first ``n`` answers."""
        return bisect_left(self.leaks_at, n)

    def as_json(self) -> dict[str, Json]:
        """The entry of the file."""
        value: dict[str, Json] = {"id": self.id, "n": self.n, "leaks_at": list(self.leaks_at)}
        if self.first is not None:
            value["first"] = self.first
        return value


@dataclass(frozen=True)
class Draws:
    """The draws of all questions.

    Attributes
    ----------
    questions
        In the order of the leaves of the tree.
    root
        The root of the tree, in hexadecimals.
    seed
        Of the draws; None where the run states none.
    leaves
        The hashes of the leaves, 32 bytes each; empty in a file that was read.
    audit
        The key of the audit of a certificate whose draws these are; None: they are those of a run.
    kernels
        What computed the draws.
    """

    questions: tuple[QuestionDraws, ...]
    root: str
    seed: int | None
    leaves: bytes = b""
    audit: str | None = None
    kernels: str | None = None

    @property
    def size(self) -> int:
        """The number of all draws, and of leaves."""
        return sum(question.n for question in self.questions)

    def with_first(self, n_of_question: Mapping[str, int]) -> Draws:
        """The draws with the numbers of answers that bounds by a fixed number count."""
        questions = []
        for question in self.questions:
            first = n_of_question[question.id]
            questions.append(replace(question, first=first if first < question.n else None))
        return replace(self, questions=tuple(questions))

    @cached_property
    def by_id(self) -> Mapping[str, QuestionDraws]:
        """The draws of each question by its id."""
        return {question.id: question for question in self.questions}

    def as_json(self) -> dict[str, Json]:
        """The content of the file."""
        value: dict[str, Json] = {
            "schema": SCHEMA,
            "tree": merkle.NAME,
            "root": self.root,
            "size": self.size,
            "seed": self.seed,
            "questions": [question.as_json() for question in self.questions],
        }
        for name in ("audit", "kernels"):
            if getattr(self, name) is not None:
                value[name] = getattr(self, name)
        return value

    @property
    def content(self) -> bytes:
        """The bytes of the file, whose hash a statement holds."""
        return canonical(self.as_json())

    def write(self, path: Path, leaves: Path) -> None:
        """Write the file, and the leaf hashes beside it, 32 bytes each."""
        for place, content in ((path, self.content), (leaves, self.leaves)):
            with atomic_file(place) as temporary:
                temporary.write_bytes(content)


def draws_of(
    generations: Path,
    scores: Path,
    scorer: str,
    n_of_question: Mapping[str, int],
    seed: int | None,
) -> Draws:
    """The first sampled answers to each question, from the tables of a run.

    Parameters
    ----------
    generations, scores
        The tables of the forget set.
    scorer
        The column of the verdicts, 1 or 0; a missing one counts as a leak.
    n_of_question
        How many answers to each question, in the order of the result.
    seed
        The seed of the run.

    Raises
    ------
    BadFile
        If the table has fewer answers than that, or other samples.
    """
    leaves_of: dict[str, list[Leaf]] = {}
    for part in joined_parts(generations, scores, [*COLUMNS, scorer], to_the_word=True):
        drawn = part[part[SAMPLE] >= 0]
        for question, rows in drawn.groupby(PROMPT, sort=False):
            if question in n_of_question:
                n = n_of_question[str(question)]
                leaves_of[str(question)] = _leaves(rows.sort_values(SAMPLE).head(n), scorer)

    for question, n in n_of_question.items():
        leaves = leaves_of.get(question, [])
        if [leaf.sample for leaf in leaves] != list(range(n)):
            problem = f"does not hold the answers 0 to {n - 1} to question {shortened(question)}"
            raise BadFile(generations, problem, "Run again from the stage sample on.")
    return of_leaves({question: leaves_of[question] for question in n_of_question}, seed)


def of_leaves(leaves_of: Mapping[str, Sequence[Leaf]], seed: int | None) -> Draws:
    """The draws of questions in this order, each from sample 0 on."""
    questions = []
    hashes = []
    for question, leaves in leaves_of.items():
        leaks_at = tuple(leaf.sample for leaf in leaves if leaf.score)
        questions.append(QuestionDraws(question, len(leaves), leaks_at))
        hashes += [leaf.hash() for leaf in leaves]
    return Draws(tuple(questions), merkle.root(hashes).hex(), seed, b"".join(hashes))


def files_beside(place: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The files of the draws and of their leaf hashes beside a certificate or a statement."""
    path = Path(place)
    return path.with_name(f"{path.stem}.draws.json"), path.with_name(f"{path.stem}.leaves.bin")


def read_leaves(draws: Draws, path: Path) -> list[bytes]:
    """The leaf hashes of draws from their file. Raises `BadFile` where they have another root."""
    if not path.is_file():
        remedy = "Its author gives it to verifiers, beside the file of the draws."
        raise BadFile(path, "is no file", remedy)
    content = path.read_bytes()
    starts = range(0, len(content), merkle.SIZE)
    hashes = [content[start : start + merkle.SIZE] for start in starts]
    if len(hashes) != draws.size or merkle.root(hashes).hex() != draws.root:
        raise BadFile(path, "does not have the root of the file of draws beside it", REMEDY)
    return hashes


def _leaves(rows: pd.DataFrame, scorer: str) -> list[Leaf]:
    """The leaf of each answer of a table, in its order."""
    leaves = []
    for row in rows.to_dict("records"):
        score = _whole(row[scorer])
        leaf = Leaf(
            question=str(row[PROMPT]),
            sample=int(row[SAMPLE]),
            text=_text(row["text"]),
            tokens=_whole(row["tokens"]),
            finish_reason=_text(row["finish_reason"]),
            score=1 if score is None else score,
        )
        leaves.append(leaf)
    return leaves


def _text(value: object) -> str | None:
    """A text of a table; None for a missing one."""
    return value if isinstance(value, str) else None


def _whole(value: Json) -> int | None:
    """A whole number of a table; None for a missing one."""
    return None if value is None or value != value else int(value)


def read_draws(path: Path) -> Draws:
    """Read the file of a statement's draws. Raises `BadFile` for another file."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise BadFile(path, f"is no file of draws ({SCHEMA})", REMEDY)
    try:
        questions = tuple(_question(entry) for entry in value["questions"])
        draws = Draws(
            questions=questions,
            root=str(value["root"]),
            seed=value["seed"],
            audit=value.get("audit"),
            kernels=value.get("kernels"),
        )
        is_whole = draws.size == value["size"]
    except (KeyError, TypeError, ValueError):
        raise BadFile(path, "is a broken file of draws", REMEDY) from None
    if not is_whole or len(draws.by_id) != len(questions):
        raise BadFile(path, "has another number of draws than it states", REMEDY)
    return draws


def _question(entry: Mapping[str, Json]) -> QuestionDraws:
    """The draws of a question from its entry of the file; raises `ValueError` for one that is broken."""
    leaks_at = tuple(entry["leaks_at"])
    question = QuestionDraws(str(entry["id"]), entry["n"], leaks_at, entry.get("first"))

    # `type`, as true and false are instances of int.
    numbers = [question.n, question.at_first, *leaks_at]
    are_whole = all(type(number) is int and number >= 0 for number in numbers)
    is_sorted = list(leaks_at) == sorted(set(leaks_at))
    if not are_whole or not is_sorted or max(leaks_at, default=-1) >= question.n:
        raise ValueError("leaks_at must be sorted sample numbers below n")
    if question.at_first > question.n:
        raise ValueError("first must be at most n")
    return question
