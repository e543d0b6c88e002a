"""A language of prompts: a declared distribution of the ways in which a user asks a question.

A language is a file of up to five parts. Each part lists choices, and a production takes one choice of every part,
independently and with probabilities proportional to the weights:

- ``system``: a system prompt,
- ``shots``: answered examples before the question,
- ``wording``: the question itself; ``{question}`` is the question of the row, ``{KEY}`` any other key of the row, such as
  a translation. A key with a list of texts gives one choice per text, and the choices share the weight of the entry. A row
  that lacks the key of an ``optional`` choice goes without that choice, and its other choices share the weight. A choice
  with ``answer`` asks for that answer (a text with keys, as in a reverse query) in place of the row's,
- ``prefix``: the start of the answer, which the model continues ("Sure, here is"),
- ``turns``: the questions that follow, each asked after the sampled answer to the one before; null is the row's
  ``followups``.

``share`` asks for a second sample: some random prompts with several answers each, for the share of prompts whose leak
exceeds a threshold.
"""

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, NamedTuple, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from lethe.config.fields import Draws, Positive, Real, Section, bad_param
from lethe.data.rows import Text
from lethe.errors import BadFile
from lethe.io.artifacts import Reference, Row
from lethe.io.files import Json
from lethe.io.yaml import read_yaml

PARTS = ("system", "shots", "wording", "prefix", "turns")
PLAIN = {"system": "", "shots": "", "wording": "{question}", "prefix": "", "turns": ""}
KEY = re.compile(r"\{([a-z_][a-z0-9_]*)\}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
MOST = 10_000  # productions per question


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError("at most 40 letters, digits, blanks, '.', '_' and '-'")
    return name


class _Pair(Section):
    question: Text
    answer: Text


class _Entry(Section):
    """A choice of a part, as the file writes it; one with a name other than "plain" must have content."""

    name: Annotated[str, AfterValidator(_name)] | None = None
    weight: Positive = Field(1, strict=True)
    optional: StrictBool = False

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        content = next(
            (key for key in ("examples", "followups") if key in type(self).model_fields), "text"
        )
        if content not in self.model_fields_set and (self.name or "plain") != "plain":
            raise ValueError(f"it must have the key {content}, null for a choice that says nothing")
        return self


class _Plain(_Entry):
    text: str | None = None


class _Wording(_Plain):
    answer: Text | None = None

    @model_validator(mode="after")
    def _names_a_key(self) -> Self:
        if not KEY.search(self.text or ""):
            raise ValueError(
                "its text names no key of the row; it must have {question} or another key"
            )
        return self


class _Shots(_Entry):
    examples: list[_Pair] | None = None


class _Turns(_Entry):
    followups: (
        Annotated[list[Text], BeforeValidator(lambda own: own if isinstance(own, list) else [own])]
        | None
    ) = None


def _short(key: str, *kinds: type) -> BeforeValidator:
    """A value of these kinds, or null, stands for a choice with this key."""
    return BeforeValidator(
        lambda entry: {key: entry} if isinstance(entry, kinds) else {} if entry is None else entry
    )


C = TypeVar("C", bound=_Entry)
Choices = Annotated[list[Annotated[C, _short("text", str)]], Field(min_length=1)]


class Share(Section):
    """The second sample: ``prompts`` random prompts over all questions, ``answers`` to each, and the threshold ``tau``."""

    prompts: Draws
    answers: Draws
    tau: Annotated[Real, Field(gt=0, lt=1)]


class _File(Section):
    system: Choices[_Plain]
    shots: Annotated[list[Annotated[_Shots, _short("examples")]], Field(min_length=1)]
    wording: Choices[_Wording]
    prefix: Choices[_Plain]
    turns: Annotated[list[Annotated[_Turns, _short("followups", str, list)]], Field(min_length=1)]
    share: Share | None = None

    @model_validator(mode="after")
    def _the_second_sample_has_one_turn(self) -> Self:
        if self.share is not None and any(one.followups for one in self.turns):
            raise ValueError("share asks one question in each prompt; leave out share or turns")
        return self


class Choice(NamedTuple):
    """One choice of a part; ``answer``: what a wording asks for, empty where that is the answer of the row."""

    name: str
    text: str
    weight: float
    examples: tuple[tuple[str, str], ...] = ()
    optional: bool = False
    answer: str = ""
    followups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Language:
    """The choices of each part; ``path`` is the file, for errors."""

    path: str
    parts: Mapping[str, tuple[Choice, ...]]
    share: Share | None = None

    @property
    def varied(self) -> list[str]:
        """The parts with more than one choice; the name of a production lists its choices of these parts."""
        return [part for part in PARTS if len(self.parts[part]) > 1]


@dataclass(frozen=True)
class Production:
    """One way to ask one question: its probability, its texts and the choice of each part; ``answer``: see `Choice`."""

    name: str
    probability: float
    system: str
    shots: tuple[tuple[str, str], ...]
    question: str
    prefix: str
    choices: tuple[tuple[str, str], ...]
    answer: str = ""
    followups: tuple[str, ...] = ()


def read_language(path: str | os.PathLike) -> Language:
    content = {part: [text or None] for part, text in PLAIN.items()} | read_yaml(path)
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise bad_param(error, content, str(path), _File) from None
    parts: dict[str, tuple[Choice, ...]] = {}
    for part in PARTS:
        choices = [
            _choice(part, one, number) for number, one in enumerate(getattr(file, part), start=1)
        ]
        names = [choice.name for choice in choices]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise BadFile(path, f"key {part}: the name {twice!r} appears twice")
        parts[part] = tuple(choices)
    return Language(str(path), parts, file.share)


def _choice(part: str, entry: _Entry, number: int) -> Choice:
    text, answer = getattr(entry, "text", None) or "", getattr(entry, "answer", None) or ""
    examples = tuple(
        (pair.question, pair.answer) for pair in getattr(entry, "examples", None) or ()
    )
    followups = tuple(getattr(entry, "followups", None) or ())
    name = entry.name or (
        "plain" if text == PLAIN[part] and not examples + followups else f"{part} {number}"
    )
    return Choice(name, text, float(entry.weight), examples, entry.optional, answer, followups)


def as_json(language: Language, rows: Sequence[Row]) -> dict[str, object]:
    """The language as an artifact, with mean probabilities over ``rows``; ``references``: other answers than the row's."""
    entries: dict[str, Json] = {}
    references: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        for production in productions(language, row):
            if production.answer:
                wording = dict(production.choices)["wording"]
                reference = Reference(wording, production.question, production.answer)
                references.setdefault(row["id"], {})[production.name] = asdict(reference)
            entry = entries.setdefault(
                production.name,
                {"name": production.name, "probability": 0.0, "choices": dict(production.choices)},
            )
            entry["probability"] += production.probability / len(rows)
    share = language.share
    return {
        "path": language.path,
        "varied": language.varied,
        "productions": list(entries.values()),
        "references": references,
        "share": None if share is None else share.model_dump(),
    }


def productions(language: Language, row: Row) -> list[Production]:
    """Every way to ask the question of ``row``, with probabilities that sum to 1, in the order of the file."""
    options = [list(_filled(language, part, row)) for part in PARTS]
    for part, choices in zip(PARTS, options, strict=True):
        if not choices:
            problem = f"{part}: every choice is optional, and row {row['id']!r} of the dataset has the keys of none"
            raise BadFile(language.path, problem, "Add a choice that every row has.")
    if (count := math.prod(map(len, options))) > MOST:
        raise BadFile(
            language.path,
            f"gives {count:,} productions for {row['id']!r}; must be at most {MOST:,}",
        )
    whole = math.prod(sum(choice.weight for choice in part) for part in options)
    lengths = dict(zip(PARTS, map(len, options), strict=True))
    varied = [part for part in PARTS if lengths[part] > 1 or part in language.varied]
    every = []
    for taken in itertools.product(*options):
        system, shots, wording, prefix, turns = taken
        names = tuple((part, choice.name) for part, choice in zip(PARTS, taken, strict=True))
        name = ", ".join(f"{part}: {chosen}" for part, chosen in names if part in varied) or "plain"
        probability = math.prod(choice.weight for choice in taken) / whole
        asked = (system.text, shots.examples, wording.text, prefix.text)
        followups = turns.followups or tuple(row.get("followups") or ())
        every.append(Production(name, probability, *asked, names, wording.answer, followups))
    return every


def _filled(language: Language, part: str, row: Mapping[str, object]) -> Iterator[Choice]:
    """Yield the choices of a part with the keys of the row filled in; lists multiply the choices."""
    for choice in language.parts[part]:
        given = (choice.text, choice.answer, *choice.followups)
        keys = list(dict.fromkeys(KEY.findall(" ".join(given))))
        if choice.optional and any(row.get(key) in (None, "", []) for key in keys):
            continue
        texts = [_texts(language, part, choice, key, row) for key in keys]
        every = list(itertools.product(*texts))
        for number, values in enumerate(every, start=1):
            values_by_key = dict(zip(keys, values, strict=True))
            text, answer, *followups = (
                KEY.sub(lambda match, values=values_by_key: values[match[1]], one)  # type: ignore[misc]
                for one in given
            )
            name = choice.name if len(every) == 1 else f"{choice.name} {number}"
            weight = choice.weight / len(every)
            yield Choice(
                name, text, weight, choice.examples, answer=answer, followups=tuple(followups)
            )


def _texts(
    language: Language, part: str, choice: Choice, key: str, row: Mapping[str, object]
) -> list[str]:
    value = row.get(key)
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise BadFile(
            language.path,
            f"{part} {choice.name!r} names the key {key!r}, which row {row['id']!r} of the dataset "
            f"{'lacks' if value is None else 'has no text for'}",
            f"Add the key to every row of the forget set, or remove {{{key}}}.",
        )
    return list(texts)
