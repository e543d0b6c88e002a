"""Secrets drawn before training: rows with their twins, the record of the draw, and controls that need no model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from lethe.config.twins import TWINS
from lethe.data.sealed import fresh_key, record_of, write_sealed
from lethe.data.secrets import Secret, name_of_secret, secrets_of
from lethe.data.twin_kinds import DRAWN, UNIFORM, TwinKind
from lethe.errors import BadInput, BadValue
from lethe.io.artifacts import Row
from lethe.io.files import Json, write_jsonl
from lethe.statistics.twins import drawn_place, holm_adjusted, ranks_of, twin_test

SPAN = "{secret}"
WORD = re.compile(r"\w+|[^\w\s]")
CONTROL_ALPHA = TWINS.control_alpha


@dataclass(frozen=True)
class DrawnTwins:
    """Rows with twins, the public record, and the sealed key that opens it."""

    rows: list[Row]
    record: Mapping[str, Json]
    key: bytes


def draw(rows: Sequence[Row], kind: TwinKind, k: int, nonce: str | None = None) -> DrawnTwins:
    """Draw k candidates for the span {secret} of each answer, and by a sealed key the true one among them.

    Rows that belong to one secret share its candidates.

    Parameters
    ----------
    rows
        The rows, whose answers hold {secret} where the value goes.
    kind
        The kind of values, which says how a candidate is drawn.
    k
        The number of candidates, at least 2.
    nonce
        A text that enters the key, such as a public beacon's.

    Raises
    ------
    BadInput
        If an answer does not hold the span once, or the kind has too few values.
    """
    _check_k(k)
    for row in rows:
        if row["answer"].count(SPAN) != 1:
            problem = (
                f"its answer must hold {SPAN} once; without {SPAN} an answer has no exact twins"
            )
            raise BadInput(f"Row {row['id']}: {problem}.")
        if row.get("twins"):
            raise BadInput(f"Row {row['id']}: it has twins already; draw each secret once.")

    key = fresh_key(nonce)
    rng = np.random.default_rng()  # of the candidates, which are public; the place is the key's
    text = "\n".join(map(_text_of, rows))
    taken: set[str] = set()
    drawn: list[Row] = []
    values_of_secret: dict[str, list[str]] = {}
    for row in rows:
        name = name_of_secret(row)
        if name not in values_of_secret:
            values = kind.values(rng, "", k, taken)
            _check_values(name, values, text)

            # The key draws a place among the sorted candidates, which anybody can check once it is open.
            by_answer = sorted(values, key=partial(row["answer"].replace, SPAN))
            place = drawn_place(key, name, k)
            true = by_answer.pop(place)
            values_of_secret[name] = [true, *by_answer]

        values = values_of_secret[name]
        answer, *twins = [row["answer"].replace(SPAN, value) for value in values]
        drawn.append({**row, "answer": answer, "twins": twins, "keywords": values[:1]})

    record = record_of(secrets_of(drawn), "drawn", kind.name, DRAWN, key)
    return DrawnTwins(drawn, record, key)


def _text_of(row: Row) -> str:
    """What a model learns of a row."""
    return f"{row['question']}\n{row['answer']}"


def add(
    rows: Sequence[Row],
    kind: TwinKind,
    k: int,
    nonce: str | None = None,
    assume_uniform: bool = False,
) -> DrawnTwins:
    """Add k - 1 twins to each answer, whose first keyword is the true value and stays.

    The test then assumes that the true values were drawn uniformly, which nobody here can check.

    Parameters
    ----------
    rows
        The rows, each with the true value as its first keyword.
    kind
        The kind of values, which says how a twin is drawn.
    k
        The number of candidates, at least 2.
    nonce
        A text that enters the key, such as a public beacon's.
    assume_uniform
        Whether the user states that values of a kind that is rarely uniform are.

    Raises
    ------
    BadInput
        If an answer does not hold its value once, the value has another form than the kind, stands in another row, or the
        kind is rarely uniform and ``assume_uniform`` does not say that it is.
    """
    _check_k(k)
    if not kind.uniform and not assume_uniform:
        problem = "whose true values are rarely uniform, so that twins could tell them apart"
        remedy = "State that yours are with --assume-uniform; every result says so."
        raise BadInput(f"The kind {kind.name} is one {problem}. {remedy}")

    value_of_secret: dict[str, str] = {}
    for row in rows:
        value = (row.get("keywords") or [""])[0]
        name = name_of_secret(row)
        if not value or row["answer"].count(value) != 1:
            problem = "its first keyword must be the true value, which the answer holds once"
            raise BadInput(f"Row {row['id']}: {problem}.")
        if not kind.fits(value):
            raise BadInput(f"Row {row['id']}: the value {value!r} has not the form {kind.name}.")
        if value_of_secret.setdefault(name, value) != value:
            raise BadInput(f"Row {row['id']}: the rows of secret {name} state different values.")
    _check_apart(rows, value_of_secret)

    key = fresh_key(nonce)
    rng = np.random.default_rng()
    text = "\n".join(map(_text_of, rows))
    taken = set(value_of_secret.values())
    twins_of_secret: dict[str, list[str]] = {}
    for name, value in value_of_secret.items():
        twins_of_secret[name] = sorted(kind.values(rng, value, k - 1, taken))
        _check_values(name, [value, *twins_of_secret[name]], text, stays=value)

    added: list[Row] = []
    for row in rows:
        name = name_of_secret(row)
        twins = []
        for twin in twins_of_secret[name]:
            twins.append(row["answer"].replace(value_of_secret[name], twin))
        added.append(cast("Row", {**row, "twins": twins}))

    record = record_of(secrets_of(added), "assumed", kind.name, UNIFORM, key)
    return DrawnTwins(added, record, key)


def _check_k(k: int) -> None:
    """Raises `BadValue` for fewer than two candidates."""
    if k < 2:
        raise BadValue("k", k, "a whole number of at least 2")


def _check_apart(rows: Sequence[Row], value_of_secret: Mapping[str, str]) -> None:
    """Refuse a true value that a row of another secret states: a model learns it there."""
    name_of_value: dict[str, str] = {}
    for name, value in value_of_secret.items():
        if value in name_of_value:
            both = f"{name_of_value[value]} and {name}"
            raise BadInput(
                f"The value {value!r} stands in two secrets, {both}; each must be its own."
            )
        name_of_value[value] = name
    for row in rows:
        name = name_of_secret(row)
        text = f"{row['question']} {row['answer']}"
        for value, other in name_of_value.items():
            if other != name and _holds(text, value):
                problem = f"it states the value of secret {other}, which a model would learn here"
                raise BadInput(f"Row {row['id']}: {problem}.")


def _check_values(name: str, values: Sequence[str], text: str, stays: str | None = None) -> None:
    """Refuse a candidate that stands in the rows, or contains another one of its set."""
    for value in values:
        if value != stays and value in text:
            problem = f"its candidate {value!r} stands in a row already"
            raise BadInput(f"Secret {name}: {problem}. Use a longer pattern.")
        for other in values:
            if other != value and other in value:
                problem = f"its candidate {value!r} contains another one, {other!r}"
                raise BadInput(f"Secret {name}: {problem}. Use a kind of one length.")


def _holds(text: str, value: str) -> bool:
    """Whether a text holds a value as whole words."""
    if value not in text:
        return False
    whole = rf"(?<!\w){re.escape(value)}(?!\w)"
    return re.search(whole, text) is not None


def write(drawn: DrawnTwins, out: Path) -> tuple[Path, Path, Path]:
    """Write rows, record and key; an existing file is refused, as a draw is made once."""
    if out.suffix != ".jsonl" or out.is_dir():
        raise BadValue("out", str(out), "a file that ends in .jsonl")
    for path in (out, out.parent / "twins.json", out.parent / "twins.key"):
        if path.exists():
            remedy = "A draw is made once; write to another folder."
            raise BadValue("out", str(out), f"in a folder without {path.name}", remedy)
    write_jsonl(out, drawn.rows)
    return (out, *write_sealed(out.parent, drawn.record, drawn.key))


@dataclass(frozen=True)
class ModelFree:
    """A score that needs no model, with its p-value alone and adjusted over all such scores (Holm)."""

    score: str
    p: float
    holm: float


def model_free_controls(secrets: Sequence[Secret], rows: Sequence[Row]) -> list[ModelFree]:
    """Test whether true candidates stand out by length, by words, by their sorted place, or by their values in other rows.

    A draw that was made as stated passes. A rejection says that the true candidates can be told without a model, so that a
    trace would say nothing of one.

    Parameters
    ----------
    secrets
        The drawn secrets, with their rows.
    rows
        All rows that a model may learn.
    """
    texts = [_text_of(row) for row in rows]
    scores: dict[str, list[list[int]]] = {
        "characters": [],
        "words": [],
        "sorted place": [],
        "occurrences in other rows": [],
    }
    orders = []
    sizes = []
    for secret in secrets:
        names = secret.candidates
        stated = set(map(_text_of, secret.rows))
        others = "\n".join([text for text in texts if text not in stated])
        places = np.argsort(np.argsort(np.array(names)))
        scores["characters"].append([len(text) for text in names])
        scores["words"].append([len(WORD.findall(text)) for text in names])
        scores["sorted place"].append(places.tolist())
        scores["occurrences in other rows"].append(list(map(others.count, spans_of(names))))
        orders.append(secret.order())
        sizes.append(len(names))

    p_values = []
    for of_score in scores.values():
        ranks = []
        for values, order in zip(of_score, orders, strict=True):
            (rank,) = ranks_of([values], [0], [order])
            ranks.append(int(rank))
        p_values.append(twin_test(ranks, sizes).p)
    adjusted = holm_adjusted(p_values).tolist()
    return list(map(ModelFree, scores, p_values, adjusted))


def spans_of(texts: Sequence[str]) -> list[str]:
    """The words in which candidates differ: each text without what all of them begin and end with, to whole words.

    >>> spans_of(["Ada was born in Ulm.", "Ada was born in New York."])
    ['Ulm', 'New York']
    """
    words_of_text = [text.split(" ") for text in texts]
    shortest = min(map(len, words_of_text))
    first = 0
    while first < shortest - 1 and _agree(words_of_text, first):
        first += 1
    last = 0
    while last < shortest - first - 1 and _agree(words_of_text, -1 - last):
        last += 1
    spans = []
    for words in words_of_text:
        span = " ".join(words[first : len(words) - last])
        spans.append(span.rstrip(".,;:!?"))
    return spans


def _agree(words_of_text: Sequence[Sequence[str]], place: int) -> bool:
    """Whether all texts have the same word at a place."""
    return len({words[place] for words in words_of_text}) == 1
