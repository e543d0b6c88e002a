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
from typing import Annotated, ClassVar, NamedTuple, Self, TypeVar

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
from lethe.io.files import Json, doubled
from lethe.io.yaml import read_yaml

PARTS = ("system", "shots", "wording", "prefix", "turns")
PLAIN = {"system": "", "shots": "", "wording": "{question}", "prefix": "", "turns": ""}
KEY = re.compile(r"\{([a-z_][a-z0-9_]*)\}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
MOST = 10_000  # productions per question


class Choice(NamedTuple):
    """One choice of a part; ``answer``: what a wording asks for, empty where that is the answer of the row."""

    name: str = ""
    text: str = ""
    weight: float = 1.0
    examples: tuple[tuple[str, str], ...] = ()
    optional: bool = False
    answer: str = ""
    followups: tuple[str, ...] = ()


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError("at most 40 letters, digits, blanks, '.', '_' and '-'")
    return name


class _Pair(Section):
    question: Text
    answer: Text


class _Entry(Section):
    """A choice of a part, as the file writes it; one with a name other than "plain" must have content."""

    content_key: ClassVar[str] = "text"

    name: Annotated[str, AfterValidator(_name)] | None = None
    weight: Positive = Field(1, strict=True)
    optional: StrictBool = False

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        is_plain = self.name is None or self.name == "plain"
        if not is_plain and self.content_key not in self.model_fields_set:
            problem = f"it must have the key {self.content_key}"
            raise ValueError(f"{problem}, null for a choice that says nothing")
        return self

    def choice(self, part: str, number: int) -> Choice:
        """Return the entry, the ``number``-th of ``part``, as a choice; without a name it has its part's and number."""
        content = self._content()
        says_nothing = content.text == PLAIN[part] and not content.examples + content.followups
        name = self.name
        if not name:
            name = "plain" if says_nothing else f"{part} {number}"
        return content._replace(name=name, weight=float(self.weight), optional=self.optional)

    def _content(self) -> Choice:
        """Return a choice with the entry's texts alone; an entry of no part has none."""
        return Choice()


class _Plain(_Entry):
    text: str | None = None

    def _content(self) -> Choice:
        return Choice(text=self.text or "")


class _Wording(_Plain):
    answer: Text | None = None

    @model_validator(mode="after")
    def _names_a_key(self) -> Self:
        if not KEY.search(self.text or ""):
            raise ValueError(
                "its text names no key of the row; it must have {question} or another key"
            )
        return self

    def _content(self) -> Choice:
        return Choice(text=self.text or "", answer=self.answer or "")


class _Shots(_Entry):
    content_key: ClassVar[str] = "examples"

    examples: list[_Pair] | None = None

    def _content(self) -> Choice:
        pairs = self.examples or ()
        return Choice(examples=tuple((pair.question, pair.answer) for pair in pairs))


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


class _Turns(_Entry):
    content_key: ClassVar[str] = "followups"

    followups: Annotated[list[Text], BeforeValidator(_as_list)] | None = None

    def _content(self) -> Choice:
        return Choice(followups=tuple(self.followups or ()))


def _short(key: str, *kinds: type) -> BeforeValidator:
    """A value of these kinds, or null, stands for a choice with this key."""

    def as_entry(value: object) -> object:
        if isinstance(value, kinds):
            return {key: value}
        return {} if value is None else value

    return BeforeValidator(as_entry)


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
        if self.share is not None and any(entry.followups for entry in self.turns):
            raise ValueError("share asks one question in each prompt; leave out share or turns")
        return self


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
    """Read a language of prompts; a part that the file lacks has the plain choice.

    Raises
    ------
    BadParam
        A key or value that is not legal.
    BadFile
        Two choices of a part with one name.
    """
    plain = {part: [text or None] for part, text in PLAIN.items()}
    content = plain | read_yaml(path)
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise bad_param(error, content, str(path), _File) from None
    parts: dict[str, tuple[Choice, ...]] = {}
    for part in PARTS:
        entries: list[_Entry] = getattr(file, part)
        choices = [entry.choice(part, number) for number, entry in enumerate(entries, start=1)]
        twice = doubled(choice.name for choice in choices)
        if twice is not None:
            raise BadFile(path, f"key {part}: the name {twice!r} appears twice")
        parts[part] = tuple(choices)
    return Language(str(path), parts, file.share)


def as_json(language: Language, rows: Sequence[Row]) -> dict[str, object]:
    """The language as an artifact, with mean probabilities over ``rows``; ``references``: other answers than the row's."""
    entry_of_production: dict[str, Json] = {}
    references: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        for production in productions(language, row):
            choice_of_part = dict(production.choices)
            if production.answer:
                wording = choice_of_part["wording"]
                reference = Reference(wording, production.question, production.answer)
                references_of_row = references.setdefault(row["id"], {})
                references_of_row[production.name] = asdict(reference)
            unseen = {"name": production.name, "probability": 0.0, "choices": choice_of_part}
            entry = entry_of_production.setdefault(production.name, unseen)
            entry["probability"] += production.probability / len(rows)
    share = language.share
    return {
        "path": language.path,
        "varied": language.varied,
        "productions": list(entry_of_production.values()),
        "references": references,
        "share": None if share is None else share.model_dump(),
    }


def productions(language: Language, row: Row) -> list[Production]:
    """Every way to ask the question of ``row``, with probabilities that sum to 1, in the order of the file."""
    choices_of_part = {part: list(_filled(language, part, row)) for part in PARTS}
    _check_productions(language, row, choices_of_part)
    total_weight = 1.0
    varied = []
    for part, choices in choices_of_part.items():
        total_weight *= sum(choice.weight for choice in choices)
        if len(choices) > 1 or part in language.varied:
            varied.append(part)

    made = []
    for combination in itertools.product(*choices_of_part.values()):
        system, shots, wording, prefix, turns = combination
        names = {part: choice.name for part, choice in zip(PARTS, combination, strict=True)}
        production = Production(
            name=", ".join(f"{part}: {names[part]}" for part in varied) or "plain",
            probability=math.prod(choice.weight for choice in combination) / total_weight,
            system=system.text,
            shots=shots.examples,
            question=wording.text,
            prefix=prefix.text,
            choices=tuple(names.items()),
            answer=wording.answer,
            followups=turns.followups or tuple(row.get("followups") or ()),
        )
        made.append(production)
    return made


def _check_productions(
    language: Language, row: Row, choices_of_part: Mapping[str, Sequence[Choice]]
) -> None:
    for part, choices in choices_of_part.items():
        if not choices:
            problem = f"{part}: every choice is optional, and row {row['id']!r} of the dataset has the keys of none"
            raise BadFile(language.path, problem, "Add a choice that every row has.")
    count = math.prod(map(len, choices_of_part.values()))
    if count > MOST:
        problem = f"gives {count:,} productions for {row['id']!r}; must be at most {MOST:,}"
        raise BadFile(language.path, problem)


def _filled(language: Language, part: str, row: Mapping[str, object]) -> Iterator[Choice]:
    """Yield the choices of a part with the keys of the row filled in; lists multiply the choices."""
    for choice in language.parts[part]:
        templates = " ".join((choice.text, choice.answer, *choice.followups))
        keys = list(dict.fromkeys(KEY.findall(templates)))
        if choice.optional and any(row.get(key) in (None, "", []) for key in keys):
            continue
        texts_of_keys = [_texts(language, part, choice, key, row) for key in keys]
        combinations = list(itertools.product(*texts_of_keys))
        for number, texts in enumerate(combinations, start=1):
            text_of_key = dict(zip(keys, texts, strict=True))
            yield Choice(
                name=choice.name if len(combinations) == 1 else f"{choice.name} {number}",
                text=_with_values(choice.text, text_of_key),
                weight=choice.weight / len(combinations),
                examples=choice.examples,
                answer=_with_values(choice.answer, text_of_key),
                followups=tuple(_with_values(turn, text_of_key) for turn in choice.followups),
            )


def _with_values(template: str, text_of_key: Mapping[str, str]) -> str:
    return KEY.sub(lambda match: text_of_key[match[1]], template)


def _texts(
    language: Language, part: str, choice: Choice, key: str, row: Mapping[str, object]
) -> list[str]:
    value = row.get(key)
    texts = value if isinstance(value, list) else [value]
    are_texts = all(isinstance(text, str) and text.strip() for text in texts)
    if texts and are_texts:
        return list(texts)
    absence = "lacks" if value is None else "has no text for"
    raise BadFile(
        language.path,
        f"{part} {choice.name!r} names the key {key!r}, which row {row['id']!r} of the dataset {absence}",
        f"Add the key to every row of the forget set, or remove {{{key}}}.",
    )
