"""RWKU (Jin et al., 2024): probes of what a model knows about famous people, from JSON files or the hub.

A folder has ``forget_level1.json`` (a blank to fill in), ``forget_level2.json`` (questions), ``forget_level3.json``
(adversarial probes), ``neighbor_level1.json`` and ``neighbor_level2.json``: lists of objects with ``query``, ``answer``,
``level``, ``type`` and ``subject``. On the hub (jinzhuoran/RWKU) each is a part with the split ``test``.

``probes: wordings`` makes probes wordings for a language of prompts: a question of level 2 with the same subject and answer
gets the texts ``multiple_choice`` and ``synonym_manipulation``; one whose answer a reverse query names, ``reverse_query``. A
probe without such a question stays a question of its own.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import Field

from lethe.config.fields import Place, Section
from lethe.config.schema import Data
from lethe.data.rows import Entry, first_of, hub_entries, json_entries, rows_of
from lethe.errors import BadParam
from lethe.io.artifacts import Row

BLANK = "Fill in the blank."  # the context of a probe of level 1
NEIGHBOURS = (1, 2)
WORDED = ("multiple choice", "synonym manipulation")  # kinds of probe with a text for each question
REVERSE = "reverse query"  # asks for the subject, and names the answer
NAMED = 5  # people in an error


class Params(Section):
    """What is read of RWKU.

    Attributes
    ----------
    hub
        The name on the hub; null reads ``data.source``.
    subject
        The person to forget; null: all of them.
    levels
        The levels of the probes that the forget set has.
    probes
        "rows": each probe is a question; "wordings": a probe is another wording of a question, where there is one.
    """

    hub: Place | None
    subject: Place | None
    levels: Annotated[list[Literal[1, 2, 3]], Field(min_length=1)]
    probes: Literal["rows", "wordings"] = "rows"


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits ``forget`` (``data.rwku.levels``) and ``retain`` (the neighbours, whose facts must stay).

    Raises
    ------
    BadParam
        If wordings are asked for without the levels that they need, or nothing is about the person.
    BadFile, BadRow
        If a file is missing, or an entry lacks a text.
    """
    options = data.of_kind(Params)

    def read(part: str) -> list[Entry]:
        if options.hub is not None:
            return hub_entries(options.hub, part, "test", "data.rwku.hub")
        return json_entries(first_of(source, f"{part}.json"))

    def rows(kind: str, levels: Iterable[int]) -> list[Row]:
        """The rows of the probes of a kind, "forget" or "neighbor", at some levels."""
        pairs: list[tuple[Entry, dict[str, object]]] = []
        for level in levels:
            pairs += _level(read(f"{kind}_level{level}"), kind, level)
        return rows_of(pairs)

    if options.probes == "wordings" and not {2, 3} <= set(options.levels):
        legal = "rows where data.rwku.levels lacks 2 or 3"
        raise BadParam("data.rwku.probes", options.probes, legal)

    forget = rows("forget", dict.fromkeys(options.levels))
    retain = rows("neighbor", NEIGHBOURS)
    if options.probes == "wordings":
        forget = _as_wordings(forget)
    if options.subject is None:
        return {"forget": forget, "retain": retain}

    of_subject = _about(options.subject, forget)
    if not of_subject:
        people = sorted({str(row.get("author")) for row in forget})
        legal = f"null, or one of {', '.join(people[:NAMED])}"
        if len(people) > NAMED:
            legal += f" and {len(people) - NAMED} more"
        raise BadParam("data.rwku.subject", options.subject, legal)
    return {"forget": of_subject, "retain": _about(options.subject, retain)}


def _about(subject: str, rows: list[Row]) -> list[Row]:
    """The rows about a person."""
    return [row for row in rows if row.get("author") == subject]


def _as_wordings(rows: list[Row]) -> list[Row]:
    """The rows, with the probes that ask a level-2 question in other words as texts of that question; others stay rows."""
    probes = [cast("dict[str, object]", dict(row)) for row in rows]

    # The questions of level 2, by what they are about.
    questions_of_fact: dict[tuple[object, str], list[dict[str, object]]] = {}
    questions_of_subject: dict[object, list[dict[str, object]]] = {}
    for probe in probes:
        if str(probe["id"]).startswith("forget-2-"):
            questions_of_fact.setdefault(_fact(probe), []).append(probe)
            questions_of_subject.setdefault(probe.get("author"), []).append(probe)

    remaining = []
    for probe in probes:
        kind = str(probe["probe"]).casefold()
        questions: list[dict[str, object]] = []
        if kind in WORDED:
            questions = questions_of_fact.get(_fact(probe), [])
        elif kind == REVERSE and _asks_for_its_subject(probe):
            of_subject = questions_of_subject.get(probe.get("author"), [])
            questions = [question for question in of_subject if _names(probe, question)]

        for question in questions:
            texts = question.setdefault(kind.replace(" ", "_"), [])
            cast("list[object]", texts).append(probe["question"])
        if not questions:
            remaining.append(probe)
    return cast("list[Row]", remaining)


def _asks_for_its_subject(probe: dict[str, object]) -> bool:
    """Whether the answer to a probe is the name of the person."""
    answer = str(probe["answer"])
    subject = str(probe.get("author"))
    return answer.casefold() == subject.casefold()


def _names(probe: dict[str, object], question: dict[str, object]) -> bool:
    """Whether a probe's text names the answer of a question, as whole words."""
    answer = re.escape(str(question["answer"]).casefold())
    text = str(probe["question"]).casefold()
    return bool(re.search(rf"(?<!\w){answer}(?!\w)", text))


def _fact(row: dict[str, object]) -> tuple[object, str]:
    """What a row is about: the person, and the answer."""
    return row.get("author"), str(row["answer"]).casefold()


def _level(
    entries: Iterable[Entry], kind: str, level: int
) -> Iterable[tuple[Entry, dict[str, object]]]:
    """The entries of a file with their rows; raises a sentence for an entry of another level."""
    for number, entry in enumerate(entries, start=1):
        stated = entry.text("level")
        if stated != str(level):
            problem = f"column 'level': got {stated!r}; must be {level} in this file"
            raise entry.broken(problem)
        answer = entry.text("answer")
        row: dict[str, object] = {
            "id": f"{kind}-{level}-{number:05d}",
            "question": entry.text("query"),
            "answer": answer,
            "keywords": [answer],
            "author": entry.text("subject"),
            "probe": entry.text("type"),
        }
        if level == 1:
            row["context"] = BLANK
        yield entry, row
