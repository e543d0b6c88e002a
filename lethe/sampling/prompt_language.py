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

In place of the parts a file may have ``kinds``, each with parts and a weight: a draw takes a kind, then a production of
that kind. ``rows`` gives rows further keys by their ids, such as paraphrases (`lethe.sampling.paraphrases` writes them).

``share`` asks for a second sample: some random prompts with several answers each, for the share of prompts whose leak
exceeds a threshold.

No language tells a row's answer: where the words of a choice hold the answer or a keyword of a row, and the row's question
does not, that row goes without the choice, and of several examples without the example. Words that a key of the row brings
are the row's.

The package has languages of its own in the folder ``languages``; a name without a folder and a suffix is one of them.
"""

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
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
from lethe.errors import BadFile, BadValue
from lethe.io.artifacts import Reference, Row
from lethe.io.files import Json, doubled
from lethe.io.yaml import read_yaml
from lethe.scoring.keyword import keyword_form, keywords_of, occurs

PARTS = ("system", "shots", "wording", "prefix", "turns")
PLAIN = {"system": "", "shots": "", "wording": "{question}", "prefix": "", "turns": ""}
KEY = re.compile(r"\{([a-z_][a-z0-9_]*)\}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
MOST = 10_000  # productions per question
MARKS = " \t\n.,;:!?\"'"  # around an answer; without them another text says it too
PACKAGED = Path(__file__).with_name("languages")
ROW_KEYS = {"id", "question", "answer", "keywords"}  # what a row says itself


class Choice(NamedTuple):
    """One choice of a part; ``answer``: what a wording asks for, empty where that is the answer of the row."""

    name: str = ""
    text: str = ""
    weight: float = 1.0
    examples: tuple[tuple[str, str], ...] = ()
    optional: bool = False
    answer: str = ""
    followups: tuple[str, ...] = ()
    reveals: bool = False  # its words hold the answer of the row


def _name(name: str) -> str:
    """The name; raises ``ValueError`` where it would not be plain in a table."""
    if not NAME.fullmatch(name):
        raise ValueError("at most 40 letters, digits, blanks, '.', '_' and '-'")
    return name


class _Example(Section):
    """An answered example."""

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
    """A choice that is a text: a system prompt, or the start of the answer."""

    text: str | None = None

    def _content(self) -> Choice:
        return Choice(text=self.text or "")


class _Wording(_Plain):
    """A choice of how the question is asked."""

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
    """A choice of answered examples."""

    content_key: ClassVar[str] = "examples"

    examples: list[_Example] | None = None

    def _content(self) -> Choice:
        examples = []
        for pair in self.examples or ():
            examples.append((pair.question, pair.answer))
        return Choice(examples=tuple(examples))


def _as_list(value: object) -> object:
    """A list stays; a single text stands for a list of it."""
    if isinstance(value, list):
        return value
    return [value]


class _Turns(_Entry):
    """A choice of the questions that follow."""

    content_key: ClassVar[str] = "followups"

    followups: Annotated[list[Text], BeforeValidator(_as_list)] | None = None

    def _content(self) -> Choice:
        return Choice(followups=tuple(self.followups or ()))


def _short(key: str, *kinds: type) -> BeforeValidator:
    """A value of these kinds, or null, stands for a choice with this key."""

    def as_entry(value: object) -> object:
        if isinstance(value, kinds):
            return {key: value}
        if value is None:
            return {}
        return value

    return BeforeValidator(as_entry)


C = TypeVar("C", bound=_Entry)
Choices = Annotated[list[Annotated[C, _short("text", str)]], Field(min_length=1)]


class Share(Section):
    """The second sample: ``prompts`` random prompts over all questions, ``answers`` to each, and the threshold ``tau``."""

    prompts: Draws
    answers: Draws
    tau: Annotated[Real, Field(gt=0, lt=1)]


class _Parts(Section):
    """The choices of each part; a part that the file lacks was filled in with the plain choice."""

    system: Choices[_Plain]
    shots: Annotated[list[Annotated[_Shots, _short("examples")]], Field(min_length=1)]
    wording: Choices[_Wording]
    prefix: Choices[_Plain]
    turns: Annotated[list[Annotated[_Turns, _short("followups", str, list)]], Field(min_length=1)]

    def read(self, path: str | os.PathLike, key: str = "") -> Mapping[str, tuple[Choice, ...]]:
        """The choices of each part; raises `BadFile` where two have one name. ``key`` stands before a part in errors."""
        parts: dict[str, tuple[Choice, ...]] = {}
        for part in PARTS:
            entries: list[_Entry] = getattr(self, part)
            choices = [entry.choice(part, number) for number, entry in enumerate(entries, start=1)]
            names = [choice.name for choice in choices]
            twice = doubled(names)
            if twice is not None:
                raise BadFile(path, f"key {key}{part}: the name {twice!r} appears twice")
            parts[part] = tuple(choices)
        return parts

    @property
    def has_turns(self) -> bool:
        return any(entry.followups for entry in self.turns)


class _Kind(_Parts):
    """A kind of prompts, as the file writes it."""

    weight: Positive = Field(1, strict=True)


def _by_text(value: object) -> object:
    """YAML reads an id of digits as a number."""
    if not isinstance(value, dict):
        return value
    return {str(key): content for key, content in value.items()}


def _key(key: str) -> str:
    """The key; raises ``ValueError`` where no wording could name it, or a row has it."""
    if not re.fullmatch("[a-z_][a-z0-9_]*", key) or key in ROW_KEYS:
        legal = "small letters, digits and '_', and none of the keys"
        raise ValueError(f"{legal} {', '.join(sorted(ROW_KEYS))}")
    return key


Named = Annotated[str, AfterValidator(_name)]
Texts = Annotated[list[Text], Field(min_length=1), BeforeValidator(_as_list)]
TextsOfRows = Annotated[
    dict[str, dict[Annotated[str, AfterValidator(_key)], Texts]], BeforeValidator(_by_text)
]
OF_SHARE = "share asks one question in each prompt; leave out share or turns"


class _File(_Parts):
    """A file that declares a language of prompts by its parts."""

    share: Share | None = None
    rows: TextsOfRows = Field(default_factory=dict)

    @model_validator(mode="after")
    def _the_second_sample_has_one_turn(self) -> Self:
        if self.share is not None and self.has_turns:
            raise ValueError(OF_SHARE)
        return self


class _Kinds(Section):
    """A file that declares a language of prompts by kinds of prompts."""

    kinds: Annotated[dict[Named, _Kind], Field(min_length=1)]
    share: Share | None = None
    rows: TextsOfRows = Field(default_factory=dict)

    @model_validator(mode="after")
    def _the_second_sample_has_one_turn(self) -> Self:
        has_turns = any(kind.has_turns for kind in self.kinds.values())
        if self.share is not None and has_turns:
            raise ValueError(OF_SHARE)
        return self


@dataclass(frozen=True)
class PromptKind:
    """The choices of each part of one kind of prompts; the only kind of a file of parts has no name."""

    parts: Mapping[str, tuple[Choice, ...]]
    name: str = ""
    weight: float = 1.0

    @property
    def varied(self) -> list[str]:
        """The parts with more than one choice; the name of a production lists its choices of these parts."""
        return [part for part in PARTS if len(self.parts[part]) > 1]

    def title(self, part: str, choice: str) -> str:
        """A choice for people: with its kind, or with its part."""
        return f"{self.name or part}: {choice}"


@dataclass(frozen=True)
class Language:
    """The kinds of prompts; ``path`` is the file or the packaged name, for errors, and ``rows`` has further keys of rows."""

    path: str
    kinds: tuple[PromptKind, ...]
    share: Share | None = None
    rows: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)

    @property
    def varied(self) -> list[str]:
        """What a table compares: the kinds, or without kinds the parts with more than one choice."""
        if self.kinds[0].name:
            return ["kind"]
        return self.kinds[0].varied


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


def packaged() -> list[str]:
    """The names of the packaged languages."""
    return sorted(path.stem for path in PACKAGED.glob("*.yaml"))


def place_of(language: str | os.PathLike) -> Path:
    """The file of a language, which is a path or the name of a packaged language.

    Raises
    ------
    BadValue
        If there is no such file.
    """
    name = str(language)
    names = packaged()
    if name in names:
        return PACKAGED / f"{name}.yaml"
    path = Path(name)
    if not path.is_file():
        legal = f"a file that exists, or one of the packaged {', '.join(names)}"
        raise BadValue("language", name, legal)
    return path


def read_language(path: str | os.PathLike) -> Language:
    """Read a language of prompts, a file or a packaged one; a part that the file lacks has the plain choice.

    Raises
    ------
    BadParam
        A key or value that is not legal.
    BadFile
        Two choices of a part with one name.
    BadValue
        No such file.
    """
    content = read_yaml(place_of(path))
    plain = {part: [text or None] for part, text in PLAIN.items()}
    if "kinds" not in content:
        file = _checked(_File, plain | content, path)
        return Language(str(path), (PromptKind(file.read(path)),), file.share, file.rows)

    declared = content["kinds"]
    if isinstance(declared, dict):
        whole = {}
        for name, kind in declared.items():
            whole[name] = plain | kind if isinstance(kind, dict) else kind
        content = content | {"kinds": whole}
    by_kind = _checked(_Kinds, content, path)
    kinds = []
    for name, entry in by_kind.kinds.items():
        parts = entry.read(path, f"kinds.{name}.")
        kinds.append(PromptKind(parts, name, float(entry.weight)))
    return Language(str(path), tuple(kinds), by_kind.share, by_kind.rows)


F = TypeVar("F", bound=Section)


def _checked(model: type[F], content: dict[str, object], path: str | os.PathLike) -> F:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise bad_param(error, content, str(path), model) from None


def as_json(language: Language, rows: Sequence[Row]) -> dict[str, Json]:
    """The language as an artifact, with mean probabilities over ``rows``; ``references``: other answers than the row's;
    ``left_out``: the number of rows that go without a choice, because its words hold their answer."""
    entry_of_production: dict[str, Json] = {}
    references: dict[str, dict[str, dict[str, str]]] = {}
    left_out = Counter[str]()
    for row in rows:
        left_out.update(revealing(language, row))
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
    share = language.share.model_dump() if language.share else None
    return {
        "path": language.path,
        "varied": language.varied,
        "productions": list(entry_of_production.values()),
        "references": references,
        "left_out": dict(left_out),
        "share": share,
    }


def revealing(language: Language, row: Row) -> list[str]:
    """The choices that ``row`` goes without, because their words hold its answer."""
    names = []
    for kind in language.kinds:
        for part in PARTS:
            for choice in _filled(language, kind, part, row):
                if choice.reveals:
                    names.append(kind.title(part, choice.name))
    return names


def productions(language: Language, row: Row) -> list[Production]:
    """Every way to ask the question of ``row``, with probabilities that sum to 1, in the order of the file."""
    choices_of_kinds = []
    count = 0
    for kind in language.kinds:
        choices_of_part = {}
        for part in PARTS:
            filled = _filled(language, kind, part, row)
            choices_of_part[part] = [choice for choice in filled if not choice.reveals]
        n_productions = math.prod(map(len, choices_of_part.values()))
        count += n_productions
        if n_productions:
            choices_of_kinds.append((kind, choices_of_part))
    _check_productions(language, row, count)
    weight_of_kinds = sum(kind.weight for kind, _ in choices_of_kinds)
    made: list[Production] = []
    for kind, choices_of_part in choices_of_kinds:
        made += _of_kind(kind, choices_of_part, kind.weight / weight_of_kinds, row)
    return made


def _of_kind(
    kind: PromptKind, choices_of_part: Mapping[str, Sequence[Choice]], probability: float, row: Row
) -> Iterator[Production]:
    """Every production of a kind, whose probabilities sum to ``probability``."""
    total_weight = 1.0
    varied = []
    for part, choices in choices_of_part.items():
        weights = [choice.weight for choice in choices]
        total_weight *= sum(weights)
        if len(choices) > 1 or part in kind.varied:
            varied.append(part)

    for combination in itertools.product(*choices_of_part.values()):
        system, shots, wording, prefix, turns = combination
        names = {part: choice.name for part, choice in zip(PARTS, combination, strict=True)}
        weight = math.prod([choice.weight for choice in combination])
        if kind.name:
            title = ": ".join(filter(None, [kind.name, ", ".join(names[part] for part in varied)]))
            names["kind"] = kind.name
        else:
            title = ", ".join(f"{part}: {names[part]}" for part in varied) or "plain"
        yield Production(
            name=title,
            probability=probability * weight / total_weight,
            system=system.text,
            shots=shots.examples,
            question=wording.text,
            prefix=prefix.text,
            choices=tuple(names.items()),
            answer=wording.answer,
            followups=turns.followups or tuple(row.get("followups") or ()),
        )


def _check_productions(language: Language, row: Row, count: int) -> None:
    """Raises `BadFile` where a question has no production, or too many."""
    if not count:
        problem = (
            f"every choice of a part is left out for row {row['id']!r} of the dataset: the row lacks the keys of optional "
            "choices, or the words of a choice hold the row's answer"
        )
        raise BadFile(language.path, problem, "Add a choice that every row has.")
    if count > MOST:
        problem = f"gives {count:,} productions for {row['id']!r}; must be at most {MOST:,}"
        raise BadFile(language.path, problem)


def _filled(language: Language, kind: PromptKind, part: str, row: Row) -> Iterator[Choice]:
    """Yield the choices of a part with the keys of the row filled in; lists multiply the choices."""
    brought = language.rows.get(row["id"], {})
    values: Mapping[str, object] = {**row, **brought}
    secrets = _secrets(row, keywords_of(row), row["answer"])
    for choice in kind.parts[part]:
        templates = " ".join((choice.text, choice.answer, *choice.followups))
        keys = list(dict.fromkeys(KEY.findall(templates)))
        lacks_a_key = any(values.get(key) in (None, "", []) for key in keys)
        if choice.optional and lacks_a_key:
            continue
        texts_of_keys = [_texts(language, part, choice, key, values) for key in keys]
        combinations = list(itertools.product(*texts_of_keys))
        examples = [pair for pair in choice.examples if not _reveals(pair, secrets)]
        for number, texts in enumerate(combinations, start=1):
            name = choice.name
            if len(combinations) > 1:
                name = f"{choice.name} {number}"
            text_of_key = dict(zip(keys, texts, strict=True))
            followups = [_with_values(turn, text_of_key) for turn in choice.followups]
            answer = _with_values(choice.answer, text_of_key)
            hidden = _secrets(row, (), answer) if answer else secrets
            # What the row brings is the row's, and stands for a blank here.
            told = {key: text if key in brought else "\n" for key, text in text_of_key.items()}
            words = [_with_values(template, told) for template in (choice.text, *choice.followups)]
            yield Choice(
                name=name,
                text=_with_values(choice.text, text_of_key),
                weight=choice.weight / len(combinations),
                examples=tuple(examples),
                answer=answer,
                followups=tuple(followups),
                reveals=_reveals(words, hidden) or len(examples) < min(1, len(choice.examples)),
            )


def reveals_answer(text: str, row: Row) -> bool:
    """Whether a text holds the row's answer or a keyword that its question does not hold."""
    return _reveals([text], _secrets(row, keywords_of(row), row["answer"]))


def _secrets(row: Row, keywords: Sequence[str], answer: str) -> tuple[str, ...]:
    """What no prompt may tell: the keywords and the answer, but for what the question tells itself."""
    bare_answer = keyword_form(answer.strip(MARKS))
    forms = [form for form in (*keywords, bare_answer) if form]
    return tuple(form for form in forms if not occurs(row["question"], [form], "word"))


def _reveals(texts: Iterable[str], secrets: Sequence[str]) -> bool:
    return any(occurs(text, secrets, "word") for text in texts)


def _with_values(template: str, text_of_key: Mapping[str, str]) -> str:
    """The template with a text in place of each key in braces."""
    return KEY.sub(lambda match: text_of_key[match[1]], template)


def _texts(
    language: Language,
    part: str,
    choice: Choice,
    key: str,
    row: Mapping[str, object],
) -> list[str]:
    """The texts of a row's key; raises `BadFile` where there are none."""
    value = row.get(key)
    texts = value if isinstance(value, list) else [value]
    are_texts = all(isinstance(text, str) and text.strip() for text in texts)
    if texts and are_texts:
        return list(texts)
    absence = "has no text for"
    if value is None:
        absence = "lacks"
    problem = f"{part} {choice.name!r} names the key {key!r}, which row {row['id']!r} of the dataset {absence}"
    remedy = f"Add the key to every row of the forget set, or remove {{{key}}}."
    raise BadFile(language.path, problem, remedy)
