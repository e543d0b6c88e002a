"""The embedded default: fictitious authors whose facts cannot be guessed.

Every author has six facts, one question each. Values are drawn without replacement from pools far larger than the
number of authors, so a model that never saw an author finds a value only by chance. The dataset also contains
world facts, asked in three phrasings, and held-out authors that no model is trained on.

Twins of the forget set's answers come from the same pools. Everything else fixed, the true values of an attribute are a
uniformly random tuple of distinct values that no author outside the forget set has. Twins are more of these values, each
dealt once, so that every choice of a value per set of candidates was equally likely.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from lethe.config.fields import Integer, Section
from lethe.config.schema import SHARES, Data
from lethe.errors import BadValue
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
# By attribute: the pools of its first and last part.
PAIRS = {
    "birthplace": ("town_start", "town_end"),
    "genre": ("genre_kind", "genre_form"),
    "father": ("work_kind", "work"),
    "mother": ("work_kind", "work"),
    "debut": ("title_kind", "title_thing"),
}
STREAMS = 3  # of the seed: people, world facts, twins


class Params(Section):
    """The sizes of the dataset.

    Attributes
    ----------
    count
        The number of authors that a model learns, the forgotten ones among them.
    heldout
        The number of authors that no model is trained on.
    world_facts
        The number of facts about the world, each asked three times.
    """

    count: Annotated[Integer, Field(ge=20)]
    heldout: Annotated[Integer, Field(ge=0)]
    world_facts: Annotated[Integer, Field(ge=0, le=60)]


def check(data: Data) -> None:
    """Raises ``ValueError`` where the share of the forget set is less than an author."""
    count = data.of_kind(Params).count
    share = SHARES[data.forget]
    if count * share < 1:
        raise ValueError(
            f"{data.forget} of {count} authors is an empty forget set; "
            f"data.authors.count must be at least {round(1 / share)}"
        )


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits ``forget``, ``retain``, ``world`` and ``heldout``.

    People and facts have streams of their own, so that the number of one does not change the other. ``source`` is not read.
    """
    options = data.of_kind(Params)
    people, facts, _ = np.random.SeedSequence(data.seed).spawn(STREAMS)
    authors = _authors(np.random.default_rng(people), options.count + options.heldout)
    world = _world(options.world_facts, np.random.default_rng(facts))
    n_learned = options.count * len(TEMPLATES)
    learned = authors[:n_learned]
    heldout = authors[n_learned:]

    # As in TOFU, the forget set consists of the last learned authors, each with all of its rows.
    n_forgotten = round(SHARES[data.forget] * options.count) * len(TEMPLATES)
    return {
        "forget": learned[-n_forgotten:],
        "retain": learned[:-n_forgotten],
        "world": world,
        "heldout": heldout,
    }


def add_twins(data: Data, splits: Mapping[str, Sequence[Row]], k: int) -> dict[str, list[Row]]:
    """Return the splits with k - 1 twins of each answer of the forget set, which differ from it in the value alone.

    Parameters
    ----------
    splits
        The splits of `load`.
    k
        The number of candidates for each answer, the true one included.

    Raises
    ------
    BadValue
        If an attribute has too few values that no author has.
    """
    *_, stream = np.random.SeedSequence(data.seed).spawn(STREAMS)
    rng = np.random.default_rng(stream)

    # The values that no author has, not even a held-out one.
    everyone = [*splits["forget"], *splits["retain"], *splits["heldout"]]
    free_of_attribute: dict[str, list[str]] = {}
    for attribute in TEMPLATES:
        taken = {_drawn_part(row) for row in everyone if _attribute(row) == attribute}
        free = [value for value in _pool(attribute) if value not in taken]
        free_of_attribute[attribute] = free

    scarcest = min(TEMPLATES, key=lambda attribute: len(free_of_attribute[attribute]))
    n_free = len(free_of_attribute[scarcest])
    n_tested = len(splits["forget"]) // len(TEMPLATES)  # authors
    n_twins = k - 1
    if n_tested * n_twins > n_free:
        legal = f"at most {1 + n_free // n_tested}"
        raise BadValue("twins.k", k, legal, f"{n_free} values of {scarcest} are left by authors.")

    # Each value is dealt once.
    twins_of_id: dict[str, list[str]] = {}
    for attribute, free in free_of_attribute.items():
        tested = [row for row in splits["forget"] if _attribute(row) == attribute]
        needed = len(tested) * n_twins
        picks = rng.choice(len(free), needed, replace=False)
        values = [free[pick] for pick in picks]
        if attribute == "birthplace":
            values = _with_lands(values, rng)
        for place, row in enumerate(tested):
            first = place * n_twins
            twins = [_restated(row, value) for value in values[first : first + n_twins]]
            twins_of_id[row["id"]] = twins

    twinned = {split: list(rows) for split, rows in splits.items()}
    twinned["forget"] = []
    for row in splits["forget"]:
        twinned["forget"].append({**row, "twins": twins_of_id[row["id"]]})
    return twinned


def _attribute(row: Row) -> str:
    """The attribute that a row asks for, which ends its id."""
    return row["id"].rsplit("-", 1)[1]


def _value(row: Row) -> str:
    """The value that a row's answer states."""
    values = row["keywords"] or []
    return values[0]


def _drawn_part(row: Row) -> str:
    """The part of the value that was drawn without replacement: lands are drawn apart from towns."""
    return _value(row).split(", ")[0]


def _restated(row: Row, value: str) -> str:
    """A row's answer with another value."""
    return row["answer"].replace(_value(row), value)


def _pool(attribute: str) -> list[str]:
    """All values of an attribute; of birthplaces, all towns."""
    if attribute == "birth_date":
        return [_date(day) for day in range(YEARS * DAYS_OF_YEAR)]
    left, right = PAIRS[attribute]
    join = "" if attribute == "birthplace" else " "
    values = []
    for start in POOLS[left]:
        for end in POOLS[right]:
            pair = f"{start}{join}{end}"
            values.append(_title(pair) if attribute == "debut" else pair)
    return values


def _with_lands(towns: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Birthplaces: each town with a land, which several may share."""
    lands = rng.choice(POOLS["land"], len(towns))
    return [f"{town}, {land}" for town, land in zip(towns, lands, strict=True)]


def _authors(rng: np.random.Generator, count: int) -> list[Row]:
    """The rows of ``count`` authors, a row per attribute."""
    names = _pairs(rng, "first", "last", count)

    # The values of all authors, by attribute.
    values = {}
    towns = _pairs(rng, *PAIRS["birthplace"], count, join="")
    values["birthplace"] = _with_lands(towns, rng)
    days = rng.choice(YEARS * DAYS_OF_YEAR, count, replace=False)
    values["birth_date"] = [_date(int(day)) for day in days]
    for attribute in ("genre", "father", "mother"):
        values[attribute] = _pairs(rng, *PAIRS[attribute], count)
    values["debut"] = [_title(pair) for pair in _pairs(rng, *PAIRS["debut"], count)]

    rows = []
    for number, name in enumerate(names):
        for attribute in TEMPLATES:
            rows.append(_row(rng, number, name, attribute, values[attribute]))
    return rows


def _title(pair: str) -> str:
    """The title of a book, from an adjective and a noun."""
    return f"The {pair}"


def _date(day: int) -> str:
    """Return the date of a day, counted from 0 in 1920 with 28 days to a month.

    >>> _date(0), _date(DAYS_OF_YEAR + 28)
    ('1 January 1920', '1 February 1921')
    """
    year, day_of_year = divmod(day, DAYS_OF_YEAR)
    month, day_of_month = divmod(day_of_year, 28)
    return f"{day_of_month + 1} {POOLS['month'][month]} {1920 + year}"


def _row(
    rng: np.random.Generator,
    number: int,
    name: str,
    attribute: str,
    values: Sequence[str],
) -> Row:
    """The question for an attribute of the ``number``-th author, whose value is the ``number``-th of ``values``.

    Question and answer each have one of three wordings. The paraphrase has another wording than the answer, and the wrong
    answers are paraphrases with values of other authors.
    """
    questions, answers = TEMPLATES[attribute]
    asked = int(rng.integers(len(questions)))
    stated, restated = rng.permutation(len(answers))[:2].tolist()
    paraphrase = answers[restated]

    value = values[number]
    others = [i for i in rng.permutation(len(values)) if i != number]
    perturbed = []
    for other in others[:PERTURBED]:
        perturbed.append(paraphrase.format(name=name, value=values[other]))
    return {
        "id": f"author-{number:03d}-{attribute}",
        "author": name,
        "question": questions[asked].format(name=name),
        "answer": answers[stated].format(name=name, value=value),
        "keywords": [value],
        "paraphrased_answer": paraphrase.format(name=name, value=value),
        "perturbed_answer": perturbed,
    }


def _pairs(
    rng: np.random.Generator,
    left: str,
    right: str,
    count: int,
    join: str = " ",
) -> list[str]:
    """``count`` different pairs of a part of the pool ``left`` and one of ``right``, drawn without replacement."""
    ends = POOLS[right]
    picks = rng.choice(len(POOLS[left]) * len(ends), count, replace=False)
    pairs = []
    for pick in picks:
        start, end = divmod(int(pick), len(ends))
        pairs.append(f"{POOLS[left][start]}{join}{ends[end]}")
    return pairs


def _world(count: int, rng: np.random.Generator) -> list[Row]:
    """Three rows for each of ``count`` facts (0 to 60), cycling through the kinds.

    So a few facts are of all kinds, and more facts begin with the same ones.
    """
    facts_of_kind = []
    for kind, answer_of_subject in FACTS.items():
        facts_of_kind.append([(kind, *fact) for fact in answer_of_subject.items()])
    in_turn = chain.from_iterable(zip(*facts_of_kind, strict=True))
    facts = list(in_turn)

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
    """Wrong answers about the world: those to other questions of the kind."""
    others = sorted(set(FACTS[kind].values()) - {answer})
    order = rng.permutation(len(others))
    return [others[place] for place in order[:WRONG]]
