"""The embedded default: fictitious authors whose facts cannot be guessed.

Every author has six facts, one question each. Values are drawn without replacement from pools far larger than the
number of authors, so a model that never saw an author finds a value only by chance. The dataset also contains
world facts, asked in three phrasings, and held-out authors that no model is trained on.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from lethe.config.fields import Integer, Section
from lethe.config.schema import SHARES, Data
from lethe.io.artifacts import Row
from lethe.io.files import Json
from lethe.io.yaml import load_yaml

# Wrong answers per question about an author and about the world, as in TOFU.
PERTURBED = 5
WRONG = 3
WORDS: dict[str, Json] = load_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
POOLS: dict[str, list[str]] = WORDS["pools"]
# By attribute: three questions and three answers.
TEMPLATES: dict[str, list[list[str]]] = WORDS["templates"]
FACTS: dict[str, dict[str, str]] = WORDS["facts"]  # by kind: subject -> answer
PHRASINGS: dict[str, list[str]] = WORDS["phrasings"]  # by kind: three questions about a subject
DAYS_OF_YEAR = 28 * 12  # so that every day exists in every month
YEARS = 60


class Params(Section):
    count: Annotated[Integer, Field(ge=20)]
    heldout: Annotated[Integer, Field(ge=0)]
    world_facts: Annotated[Integer, Field(ge=0, le=60)]


def check(data: Data) -> None:
    count = data.own(Params).count
    if count * SHARES[data.forget] < 1:
        raise ValueError(
            f"{data.forget} of {count} authors is an empty forget set; "
            f"data.authors.count must be at least {round(1 / SHARES[data.forget])}"
        )


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    options = data.own(Params)
    people, facts = np.random.SeedSequence(data.seed).spawn(2)
    authors = _authors(np.random.default_rng(people), options.count + options.heldout)
    n_learned = options.count * len(TEMPLATES)
    learned = authors[:n_learned]
    heldout = authors[n_learned:]
    # As in TOFU, the forget set consists of the last learned authors, each with all of its rows.
    forgotten = round(SHARES[data.forget] * options.count) * len(TEMPLATES)
    return {
        "forget": learned[-forgotten:],
        "retain": learned[:-forgotten],
        "world": _world(options.world_facts, np.random.default_rng(facts)),
        "heldout": heldout,
    }


def _authors(rng: np.random.Generator, count: int) -> list[Row]:
    names = _pairs(rng, "first", "last", count)
    towns = _pairs(rng, "town_start", "town_end", count, join="")
    lands = rng.choice(POOLS["land"], count)
    days = rng.choice(YEARS * DAYS_OF_YEAR, count, replace=False)
    values = {
        "birthplace": [f"{town}, {land}" for town, land in zip(towns, lands, strict=True)],
        "birth_date": [_date(int(day)) for day in days],
        "genre": _pairs(rng, "genre_kind", "genre_form", count),
        "father": _pairs(rng, "work_kind", "work", count),
        "mother": _pairs(rng, "work_kind", "work", count),
        "debut": [f"The {title}" for title in _pairs(rng, "title_kind", "title_thing", count)],
    }
    return [
        _row(rng, number, name, attribute, values[attribute])
        for number, name in enumerate(names)
        for attribute in TEMPLATES
    ]


def _date(day: int) -> str:
    """Return the date of a day, counted from 0 in 1920 with 28 days to a month."""
    year, day_of_year = divmod(day, DAYS_OF_YEAR)
    month, day_of_month = divmod(day_of_year, 28)
    return f"{day_of_month + 1} {POOLS['month'][month]} {1920 + year}"


def _row(
    rng: np.random.Generator, number: int, name: str, attribute: str, values: Sequence[str]
) -> Row:
    questions, answers = TEMPLATES[attribute]
    asked = int(rng.integers(len(questions)))
    stated, restated = rng.permutation(len(answers))[:2].tolist()
    value = values[number]
    others = [i for i in rng.permutation(len(values)) if i != number][:PERTURBED]
    return {
        "id": f"author-{number:03d}-{attribute}",
        "author": name,
        "question": questions[asked].format(name=name),
        "answer": answers[stated].format(name=name, value=value),
        "keywords": [value],
        "paraphrased_answer": answers[restated].format(name=name, value=value),
        "perturbed_answer": [answers[restated].format(name=name, value=values[i]) for i in others],
    }


def _pairs(
    rng: np.random.Generator, left: str, right: str, count: int, join: str = " "
) -> list[str]:
    ends = POOLS[right]
    picks = rng.choice(len(POOLS[left]) * len(ends), count, replace=False)
    pairs = []
    for pick in picks:
        start, end = divmod(int(pick), len(ends))
        pairs.append(f"{POOLS[left][start]}{join}{ends[end]}")
    return pairs


def _world(count: int, rng: np.random.Generator) -> list[Row]:
    """Three rows for each of ``count`` facts (0 to 60), cycling through the kinds."""
    facts_by_kind = []
    for kind, answer_of_subject in FACTS.items():
        facts_by_kind.append([(kind, *fact) for fact in answer_of_subject.items()])
    facts = list(chain.from_iterable(zip(*facts_by_kind, strict=True)))
    rows: list[Row] = []
    for number, (kind, subject, answer) in enumerate(facts[:count]):
        for phrasing, question in enumerate(PHRASINGS[kind]):
            row: Row = {
                "id": f"world-{number:02d}-{phrasing}",
                "question": question.format(subject),
                "answer": answer,
                "keywords": [answer],
                "perturbed_answer": _wrong(kind, answer, rng),
            }
            rows.append(row)
    return rows


def _wrong(kind: str, answer: str, rng: np.random.Generator) -> list[str]:
    others = sorted(set(FACTS[kind].values()) - {answer})
    return [others[i] for i in rng.permutation(len(others))[:WRONG]]
