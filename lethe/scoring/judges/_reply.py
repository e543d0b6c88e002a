"""Which of a few choices a reply of a judge is. A reply that is not clearly one of them is no verdict, with a reason."""

import json
import math
import re
from collections.abc import Mapping, Sequence

from lethe.models.endpoint_reply import ROUNDING

NEITHER = "no choice in the reply"
SEVERAL = "several choices in the reply"
NO_JSON = "not the JSON that was asked for"
NOT_STATED = "no log-probabilities"
AS_LIKELY = "two choices as likely"
KEY = "verdict"  # of the reply as JSON
BEFORE = re.compile(r"^[\W_]+")  # what models put before a word, such as the marks of bold type


class NoVerdict(Exception):
    """A reply that is none of the choices; its text is the reason that is counted, in words of this file alone."""


def of_text(reply: str, choices: Sequence[str]) -> int:
    """Return the number of the choice with which a reply begins, if no other one stands in it.

    >>> choices = ["yes", "no"]
    >>> of_text("Yes.", choices), of_text("**no** - it says nothing of it", choices)
    (0, 1)
    >>> of_text("Not sure, yes", choices)
    Traceback (most recent call last):
    lethe.scoring.judges._reply.NoVerdict: no choice in the reply

    Raises
    ------
    NoVerdict
        If the reply begins with no choice as a whole word, or holds another one too.
    """
    text = BEFORE.sub("", reply.casefold())
    named = [place for place, choice in enumerate(choices) if _stands_in(text, choice)]
    begun = [place for place in named if _whole(choices[place]).match(text)]
    if not begun:
        raise NoVerdict(NEITHER)
    if len(named) > 1:
        raise NoVerdict(SEVERAL)
    return begun[0]


def _stands_in(text: str, choice: str) -> bool:
    return _whole(choice).search(text) is not None


def _whole(choice: str) -> re.Pattern[str]:
    """The choice as a whole word."""
    word = re.escape(choice.casefold())
    return re.compile(rf"(?<!\w){word}(?!\w)")


def schema(choices: Sequence[str]) -> dict[str, object]:
    """The JSON schema of a reply that is one of the choices."""
    return {
        "type": "object",
        "properties": {KEY: {"type": "string", "enum": list(choices)}},
        "required": [KEY],
        "additionalProperties": False,
    }


def of_json(reply: str, choices: Sequence[str]) -> int:
    """Return the number of the choice that a reply states as `schema` says; raises `NoVerdict` for any other reply."""
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        raise NoVerdict(NO_JSON) from None
    if not isinstance(value, dict) or set(value) != {KEY}:
        raise NoVerdict(NO_JSON)
    if value[KEY] not in choices:
        raise NoVerdict(NEITHER)
    return choices.index(value[KEY])


def shares(stated: Mapping[str, float] | None, choices: Sequence[str]) -> list[float]:
    """Return the probabilities of the choices, which add up to 1, from the log-probabilities of the first token.

    A token counts for the only choice that begins with it; case and space around it do not count.

    Raises
    ------
    NoVerdict
        If nothing is stated, or the likeliest token begins no choice, or more than one.
    """
    if not stated:
        raise NoVerdict(NOT_STATED)
    masses = [0.0] * len(choices)
    place_of_token = {}
    for token, log_probability in stated.items():
        begun = token.strip().casefold()
        places = []
        for place, choice in enumerate(choices):
            if begun and choice.casefold().startswith(begun):
                places.append(place)
        place_of_token[token] = places
        if len(places) == 1:
            masses[places[0]] += math.exp(min(log_probability, ROUNDING))
    likeliest = max(stated, key=stated.__getitem__)
    total = math.fsum(masses)
    if len(place_of_token[likeliest]) != 1 or total == 0:
        raise NoVerdict(NEITHER)
    return [mass / total for mass in masses]


def of_shares(probabilities: Sequence[float]) -> int:
    """Return the number of the likeliest choice; raises `NoVerdict` where two are equally likely."""
    largest = max(probabilities)
    places = [place for place, share in enumerate(probabilities) if share == largest]
    if len(places) > 1:
        raise NoVerdict(AS_LIKELY)
    return places[0]
