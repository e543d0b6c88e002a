"""Kinds of secrets: what redraws the characters of a value, uniformly over its form.

A kind draws a value from its generator. Sets of candidates share no value, so that given all candidates each choice of one
a set was equally likely.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np

from lethe.errors import BadFile, BadInput, BadValue
from lethe.io.files import read_text

CHARACTERS = {
    "#": string.digits,
    "A": string.ascii_uppercase,
    "a": string.ascii_lowercase,
    "X": "0123456789ABCDEF",
}
CHECKS = ("luhn", "iban")
USAGE = {
    "pattern": "pattern PATTERN",
    "number": "number FIRST LAST",
    "date": "date FIRST LAST FORMAT",
    "list": "list FILE",
    "email": "email",
    "canary": "canary TEMPLATE",
}
KINDS = tuple(USAGE)
CHECKED = "*"  # stands in a pattern where check digits go
UNIFORM = "that the redrawn characters were assigned uniformly at random, independently of whatever else a model can know"
DRAWN = "nothing but the draw itself: each true candidate was drawn by the sealed key"
MOST_TRIES = 1000  # per value, before the generator counts as too small


@dataclass(frozen=True)
class TwinKind:
    """A generator of values: ``draw`` makes one, ``size`` is the number of its values, ``name`` as it is recorded."""

    name: str
    size: int
    # of a generator and the true value, which says what stays, such as a domain
    draw: Callable[[np.random.Generator, str], str]
    fits: Callable[[str], bool]  # whether a value has the form
    uniform: bool  # whether true values of this kind are plausibly uniform

    def values(self, rng: np.random.Generator, true: str, n: int, taken: set[str]) -> list[str]:
        """Return ``n`` new values, none of them ``taken``; adds them there. Raises `BadInput` for too few values."""
        values: list[str] = []
        for _ in range(n * MOST_TRIES):
            if len(values) == n:
                return values
            value = self.draw(rng, true)
            if value not in taken:
                taken.add(value)
                values.append(value)
        problem = f"The kind {self.name} has {self.size:,} values, too few for all candidates"
        raise BadInput(f"{problem}. Use a longer pattern or list, or a smaller k.")


def kind_of(text: str, check: str | None = None) -> TwinKind:
    """Return a kind from its words: its name, then what it needs.

    >>> kind_of("pattern AA-##").size
    67600
    >>> kind_of("date 2000-01-01 2000-12-31 %d.%m.%Y").size
    366

    Raises
    ------
    BadValue
        If the name or what follows it is none of `USAGE`.
    """
    name, _, rest = text.strip().partition(" ")
    if name not in KINDS:
        remedy = "A free text without such a form has no exact twins."
        raise BadValue("kind", text, f"one of {', '.join(USAGE.values())}", remedy)
    if check is not None and name != "pattern":
        raise BadValue("check", check, "left out unless the kind is pattern")
    words = rest.split(maxsplit=2)
    if name in ("pattern", "canary") and words:
        return _pattern(rest, check, name)
    if name == "list" and words:
        return _list(Path(rest.strip()))
    if name == "number" and len(words) == 2:
        return _number(*words)
    if name == "date" and len(words) == 3:
        return _date(*words)
    if name == "email" and not words:
        return _email()
    raise BadValue("kind", text, USAGE[name])


def _pattern(pattern: str, check: str | None, kind: str) -> TwinKind:
    """Each character of `CHARACTERS` is drawn, each other one stays; a backslash keeps the character after it."""
    parts = _parts(pattern)
    size = 1
    for part in parts:
        size *= len(part)
    if size < 2:
        raise BadValue("kind", pattern, "a pattern with # A a or X, which are drawn")
    if check is not None and (check not in CHECKS or CHECKED not in pattern):
        legal = f"{' or '.join(CHECKS)}, with {CHECKED} in the pattern where the check digits go"
        raise BadValue("check", check, legal)

    def draw(rng: np.random.Generator, true: str) -> str:
        characters = [part[int(rng.integers(len(part)))] for part in parts]
        return _with_check("".join(characters), check)

    smallest = [part[0] for part in parts]
    _with_check("".join(smallest), check)  # refuses a form without check digits

    def fits(value: str) -> bool:
        unchecked = _without_check(value, parts, check)
        return unchecked is not None and _with_check(unchecked, check) == value

    return TwinKind(f"{kind} {pattern}", size, draw, fits, uniform=True)


def _without_check(value: str, parts: Sequence[str], check: str | None) -> str | None:
    """A value with the mark in place of its check digits; None where it is not of the pattern."""
    if len(value) != len(parts):
        return None
    characters = []
    for character, part in zip(value, parts, strict=True):
        if part == CHECKED and check is not None:
            characters.append(CHECKED)
        elif character in part:
            characters.append(character)
        else:
            return None
    return "".join(characters)


def _parts(pattern: str) -> list[str]:
    """The characters that may stand at each place of a pattern."""
    parts = []
    kept = False
    for character in pattern:
        if character == "\\" and not kept:
            kept = True
            continue
        parts.append(character if kept else CHARACTERS.get(character, character))
        kept = False
    return parts


def _with_check(text: str, check: str | None) -> str:
    """The text with its check digits in place of the mark."""
    if check is None:
        return text
    if check == "luhn":
        return text.replace(CHECKED, _luhn(text), 1)
    country = text[:2]
    marks = CHECKED * 2
    if not country.isalpha() or text[2:4] != marks:
        legal = f"a pattern that begins with a country and {marks}, as DE{marks} #### ####"
        raise BadValue("kind", text, legal)
    account = text[4:]
    moved = re.sub(r"\W", "", account) + country + "00"
    digits = [str(int(character, 36)) for character in moved]
    check_digits = 98 - int("".join(digits)) % 97  # ISO 13616, ISO 7064 MOD 97-10
    return f"{country}{check_digits:02d}{account}"


def _luhn(text: str) -> str:
    """The digit that makes the digits of a text pass Luhn's test (ISO/IEC 7812-1); the mark must come last."""
    digits = [int(character) for character in text if character.isdigit()]
    if not text.rstrip().endswith(CHECKED) or text.count(CHECKED) != 1:
        raise BadValue("kind", text, f"a pattern that ends in one {CHECKED}, the check digit")
    total = 0
    for place, digit in enumerate(reversed(digits)):
        if place % 2 == 0:
            digit = 2 * digit
        if digit > 9:
            digit -= 9
        total += digit
    return str(-total % 10)


def _number(first: str, last: str) -> TwinKind:
    """Whole numbers from ``first`` to ``last``, as wide as a ``first`` that begins with 0."""
    got = f"{first} {last}"
    try:
        low = int(first)
        high = int(last)
    except ValueError:
        raise BadValue("kind", got, "two whole numbers, the first and the last") from None
    if not 0 <= low < high:
        raise BadValue("kind", got, "two whole numbers from 0, the second one larger")
    width = len(first) if first.startswith("0") else 0

    def draw(rng: np.random.Generator, true: str) -> str:
        return f"{int(rng.integers(low, high + 1)):0{width}d}"

    def fits(value: str) -> bool:
        return value.isascii() and value.isdigit() and low <= int(value) <= high

    return TwinKind(f"number {first} {last}", high - low + 1, draw, fits, uniform=True)


def _date(first: str, last: str, form: str) -> TwinKind:
    """Days from ``first`` to ``last``, written in a format of `datetime.strftime`."""
    try:
        start = date.fromisoformat(first)
        end = date.fromisoformat(last)
    except ValueError:
        legal = "two days as YYYY-MM-DD, then a format such as %d.%m.%Y"
        raise BadValue("kind", f"{first} {last}", legal) from None
    days = (end - start).days + 1
    if days < 2:
        raise BadValue("kind", f"{first} {last}", "two days, the second one later")

    def draw(rng: np.random.Generator, true: str) -> str:
        later = timedelta(days=int(rng.integers(days)))
        return (start + later).strftime(form)

    def fits(value: str) -> bool:
        try:
            day = datetime.strptime(value, form).date()
        except ValueError:
            return False
        return start <= day <= end and day.strftime(form) == value

    return TwinKind(f"date {first} {last} {form}", days, draw, fits, uniform=False)


def _list(path: Path) -> TwinKind:
    """The different lines of a file."""
    lines = map(str.strip, read_text(path).splitlines())
    values = list(dict.fromkeys(filter(None, lines)))
    if len(values) < 2:
        raise BadFile(path, f"has {len(values)} values", "Give a value on each of many lines.")

    def draw(rng: np.random.Generator, true: str) -> str:
        return values[int(rng.integers(len(values)))]

    known = frozenset(values)
    name = f"list of {len(values)} values"
    return TwinKind(name, len(values), draw, lambda value: value in known, uniform=False)


def _email() -> TwinKind:
    """Letters and digits before the domain are redrawn, each by one of its class."""

    def draw(rng: np.random.Generator, true: str) -> str:
        local, at, domain = true.partition("@")
        if not (local and at and domain):
            raise BadValue("value of the kind email", true, "an address with @")
        drawn = []
        for character in local:
            alike = _class_of(character)
            drawn.append(alike[int(rng.integers(len(alike)))])
        return "".join([*drawn, at, domain])

    return TwinKind("email", 10**6, draw, lambda value: "@" in value.strip("@"), uniform=False)


def _class_of(character: str) -> str:
    """The digits, small letters or capitals, whichever a character is of; else the character alone."""
    for characters in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
        if character in characters:
            return characters
    return character
