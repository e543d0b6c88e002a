"""A language of prompts: a declared distribution of the ways in which a user asks a question.

A language is a file of up to four parts. Each part lists choices, and a production takes one choice of every part,
independently and with probabilities proportional to the weights:

- ``system``: a system prompt,
- ``shots``: answered examples before the question,
- ``wording``: the question itself; ``{question}`` is the question of the row, ``{KEY}`` any other key of the row, such as
  a translation. A key with a list of texts gives one choice per text, and the choices share the weight of the entry. A row
  that lacks the key of an ``optional`` choice goes without that choice, and its other choices share the weight. A choice
  with ``answer`` asks for that answer (a text with keys, as in a reverse query) in place of the row's,
- ``prefix``: the start of the answer, which the model continues ("Sure, here is").

``share`` asks for a second sample: some random prompts with several answers each, for the share of prompts whose leak
exceeds a threshold.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lethe.config.yaml import read_yaml
from lethe.errors import BadFile, shortened
from lethe.io.artifacts import Reference, Row

PARTS = ("system", "shots", "wording", "prefix")
PLAIN = {"system": "", "shots": "", "wording": "{question}", "prefix": ""}
KEY = re.compile(r"\{([a-z_][a-z0-9_]*)\}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,39}")
MOST = 10_000  # productions per question


@dataclass(frozen=True)
class Choice:
    """One choice of a part.

    ``examples`` are the question-answer pairs of a choice of ``shots``. ``answer`` is what a wording asks for, empty where
    that is the answer of the row.
    """

    name: str
    text: str
    weight: float
    examples: tuple[tuple[str, str], ...] = ()
    optional: bool = False
    answer: str = ""


@dataclass(frozen=True)
class Share:
    """The second sample: ``prompts`` random prompts over all questions, ``answers`` to each, and the threshold ``tau``."""

    prompts: int
    answers: int
    tau: float


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
    """One way to ask one question: its probability, its texts, and the choice of each part.

    ``answer`` is the answer that the wording asks for, empty where that is the answer of the row.
    """

    name: str
    probability: float
    system: str
    shots: tuple[tuple[str, str], ...]
    question: str
    prefix: str
    choices: tuple[tuple[str, str], ...]
    answer: str = ""


def read_language(path: str | os.PathLike) -> Language:
    """Read and check a language; raise `BadFile` with the key of a mistake."""
    value = read_yaml(path)
    for key in value:
        if key not in (*PARTS, "share"):
            raise BadFile(path, f"key {key}: unknown; must be one of {', '.join((*PARTS, 'share'))}")
    parts = {part: tuple(_choices(path, part, value.get(part, [PLAIN[part]]))) for part in PARTS}
    return Language(str(path), parts, _share(path, value.get("share")))


def _choices(path: str | os.PathLike, part: str, entries: object) -> Iterator[Choice]:
    if not isinstance(entries, list) or not entries:
        raise BadFile(path, f"key {part}: got {shortened(entries)}; must be a list of at least one choice")
    seen: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        key = f"{part}, choice {number}"
        whole = {_content(part): entry} if entry is None or isinstance(entry, str) else entry
        choice = _choice(path, part, key, whole, number)
        if choice.name in seen:
            raise BadFile(path, f"{key}: the name {choice.name!r} appears twice in {part}")
        seen.add(choice.name)
        yield choice


def _content(part: str) -> str:
    """The key that holds the content of a choice of this part."""
    return "examples" if part == "shots" else "text"


def _choice(path: str | os.PathLike, part: str, key: str, entry: object, number: int) -> Choice:
    content = _content(part)
    legal = ["name", content, "weight", "optional", *(["answer"] if part == "wording" else [])]
    if not isinstance(entry, dict) or set(entry) - set(legal):
        text_or = "" if part == "shots" else "a text, "
        raise BadFile(
            path, f"{key}: got {shortened(entry)}; must be {text_or}null, or the keys {', '.join(legal)}"
        )
    # A choice with a name other than "plain" must have content.
    if content not in entry and entry.get("name", "plain") != "plain":
        raise BadFile(
            path,
            f"{key}: got {shortened(entry)}, which has no {content}; must have the key {content}, null for a choice "
            "that says nothing",
        )
    weight, text = entry.get("weight", 1), (entry.get("text") or "")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise BadFile(path, f"{key}, weight: got {shortened(weight)}; must be a number above 0")
    if not isinstance(text, str):
        raise BadFile(path, f"{key}: got {shortened(text)}; must be text")
    if part == "wording" and not KEY.search(text):
        raise BadFile(
            path, f"{key}: got {text!r}, which names no key of the row; must have {{question}} or another key"
        )
    examples = _examples(path, key, entry.get("examples")) if part == "shots" else ()
    plain = text == PLAIN[part] and not examples
    name = entry.get("name", "plain" if plain else f"{part} {number}")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadFile(
            path,
            f"{key}, name: got {shortened(name)}; must be at most 40 letters, digits, blanks, '.', '_' and '-'",
        )
    optional = entry.get("optional", False)
    if not isinstance(optional, bool):
        raise BadFile(path, f"{key}, optional: got {shortened(optional)}; must be true or false")
    answer = entry.get("answer", "")
    if not isinstance(answer, str) or ("answer" in entry and not answer.strip()):
        raise BadFile(
            path, f"{key}, answer: got {shortened(answer)}; must be a text, which may name keys of the row"
        )
    return Choice(name, text, float(weight), examples, optional, answer)


def _examples(path: str | os.PathLike, key: str, examples: object) -> tuple[tuple[str, str], ...]:
    pairs = []
    for example in examples if isinstance(examples, list) else [examples] if examples else []:
        pair = tuple(example.get(name) for name in ("question", "answer")) if isinstance(example, dict) else ()
        if len(pair) != 2 or not all(isinstance(text, str) and text.strip() for text in pair):
            raise BadFile(path, f"{key}, examples: got {shortened(example)}; must have a question and an answer")
        pairs.append((str(pair[0]), str(pair[1])))
    return tuple(pairs)


def _share(path: str | os.PathLike, value: object) -> Share | None:
    if value is None:
        return None
    keys = ("prompts", "answers", "tau")
    if not isinstance(value, dict) or set(value) != set(keys):
        raise BadFile(path, f"key share: got {shortened(value)}; must have the keys {', '.join(keys)}, or be null")
    for key in keys[:2]:
        if isinstance(value[key], bool) or not isinstance(value[key], int) or not 1 <= value[key] <= 1_000_000:
            raise BadFile(
                path, f"key share.{key}: got {shortened(value[key])}; must be a whole number from 1 to 1000000"
            )
    tau = value["tau"]
    if isinstance(tau, bool) or not isinstance(tau, int | float) or not 0 < tau < 1:
        raise BadFile(path, f"key share.tau: got {shortened(tau)}; must be a number above 0 and below 1")
    return Share(value["prompts"], value["answers"], float(tau))


def as_json(language: Language, rows: Sequence[Row]) -> dict[str, object]:
    """The language as an artifact: each production's mean probability over ``rows``, its choices, and the share.

    ``references`` has the productions that ask for another answer than that of their row, by question.
    """
    entries: dict[str, dict[str, Any]] = {}
    references: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        for production in productions(language, row):
            if production.answer:
                wording = dict(production.choices)["wording"]
                reference = Reference(wording, production.question, production.answer)
                references.setdefault(row["id"], {})[production.name] = asdict(reference)
            entry = entries.setdefault(
                production.name, {"name": production.name, "probability": 0.0, "choices": dict(production.choices)}
            )
            entry["probability"] += production.probability / len(rows)
    share = language.share
    return {
        "path": language.path,
        "varied": language.varied,
        "productions": list(entries.values()),
        "references": references,
        "share": None if share is None else {"prompts": share.prompts, "answers": share.answers, "tau": share.tau},
    }


def productions(language: Language, row: Row) -> list[Production]:
    """Every way to ask the question of ``row``, with probabilities that sum to 1, in the order of the file."""
    options = [list(_filled(language, part, row)) for part in PARTS]
    for part, choices in zip(PARTS, options, strict=True):
        if not choices:
            raise BadFile(
                language.path,
                f"{part}: every choice is optional, and row {row['id']!r} of the dataset has the keys of none",
                "Add a choice that every row has.",
            )
    if math.prod(map(len, options)) > MOST:
        raise BadFile(
            language.path,
            f"gives {math.prod(map(len, options)):,} productions for {row['id']!r}; must be at most {MOST:,}",
        )
    whole = math.prod(sum(choice.weight for choice in part) for part in options)
    varied = [
        part for part, choices in zip(PARTS, options, strict=True) if len(choices) > 1 or part in language.varied
    ]
    return [_production(taken, varied, whole) for taken in itertools.product(*options)]


def _production(taken: Sequence[Choice], varied: Sequence[str], whole: float) -> Production:
    system, shots, wording, prefix = taken
    choices = tuple((part, choice.name) for part, choice in zip(PARTS, taken, strict=True))
    return Production(
        name=", ".join(f"{part}: {name}" for part, name in choices if part in varied) or "plain",
        probability=math.prod(choice.weight for choice in taken) / whole,
        system=system.text,
        shots=shots.examples,
        question=wording.text,
        prefix=prefix.text,
        choices=choices,
        answer=wording.answer,
    )


def _filled(language: Language, part: str, row: Mapping[str, object]) -> Iterator[Choice]:
    """Yield the choices of a part with the keys of the row filled in; lists multiply the choices."""
    for choice in language.parts[part]:
        keys = list(dict.fromkeys(KEY.findall(f"{choice.text} {choice.answer}")))
        if choice.optional and any(row.get(key) in (None, "", []) for key in keys):
            continue
        texts = [_texts(language, part, choice, key, row) for key in keys]
        every = list(itertools.product(*texts))
        for number, values in enumerate(every, start=1):
            values_by_key = dict(zip(keys, values, strict=True))
            text, answer = (
                KEY.sub(lambda found, known=values_by_key: known[found[1]], one)  # type: ignore[misc]
                for one in (choice.text, choice.answer)
            )
            name = choice.name if len(every) == 1 else f"{choice.name} {number}"
            yield Choice(name, text, choice.weight / len(every), choice.examples, answer=answer)


def _texts(language: Language, part: str, choice: Choice, key: str, row: Mapping[str, object]) -> list[str]:
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
