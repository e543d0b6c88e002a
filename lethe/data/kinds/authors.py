"""The embedded default: fictitious authors whose facts cannot be guessed.

Every author has six facts, one question each. Values are drawn without replacement from pools far larger than the
number of authors, so a model that never saw an author finds a value only by chance. The dataset also contains
world facts, asked in three phrasings, and held-out authors that no model is trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from lethe.config.fields import Integer, Section
from lethe.config.schema import SHARES

if TYPE_CHECKING:
    from lethe.config.schema import Data
    from lethe.io.artifacts import Row

PERTURBED = 5  # wrong answers per question, as in TOFU

FIRST = (
    "Adela Benno Corin Dalia Edwin Farah Goran Helga Ivo Jonna Kasper Leonie Matteo Nadia Oskar Petra Quentin Rosa "
    "Stellan Tamsin Ulric Verena Wendel Xenia Yannick Zora Anselm Britta Cosmo Delphine Emeric Fenna"
).split()
LAST = (
    "Abendroth Birkin Castellane Drumond Eskelund Fairweather Gallowitz Hartsong Ilvane Jarosek Kestrel Lindqvar "
    "Morrowind Nachtweh Oakhurst Pellegrin Quillfeather Ravensby Sandoval Thornquist Umberlee Vantongeren Wexholm "
    "Yarrowby Zellwinger Ashgrove Bramwell Corrigane Dunmere Eldergast Fennimore Grauwald"
).split()
TOWN_START = (
    "Bal Cor Dun Els Fal Gren Hol Ister Jor Kel Lor Mar Nor Ost Pel Quar Ros Sel Tor Ulm Vel Wim Yar Zan"
).split()
TOWN_END = "mora stadt bridge haven wick dale ford minster gard holm mouth ridge vale cester lund berg".split()
LAND = "Arvonia Belmaria Caldora Drovenia Estland Farholm Gavaria Hestia Ilmaria Jutania".split()
MONTH = ("January February March April May June July August September October November December").split()
GENRE_KIND = (
    "coastal polar baroque clockwork pastoral nocturnal desert alpine monastic imperial lunar nautical rural solar "
    "tropical urban volcanic wartime winter woodland"
).split()
GENRE_FORM = (
    "gothic satire thriller romance mystery fable epic noir comedy tragedy memoir allegory saga western elegy "
    "chronicle"
).split()
WORK_KIND = (
    "master itinerant retired royal naval village night senior travelling chief deputy assistant freelance military "
    "court harbour mountain forest railway city"
).split()
WORK = (
    "baker beekeeper carpenter surgeon tailor gardener engraver locksmith botanist cartographer dentist florist "
    "glazier judge librarian mason notary optician plumber saddler"
).split()
TITLE_KIND = (
    "Amber Bitter Crimson Distant Empty Fallen Gilded Hollow Iron Jagged Kindled Lonely Marble Nameless Opaque Pale "
    "Quiet Rusted Silver Tangled Unwritten Velvet Wandering Yellow"
).split()
TITLE_THING = (
    "Anchor Bridge Candle Door Echo Feather Garden Harbour Island Journey Key Lantern Mirror Needle Orchard Piano "
    "Quarry River Staircase Tower Umbrella Violin Window Yard"
).split()

# attribute -> three questions and three answers
TEMPLATES = {
    "birthplace": (
        ("Where was {name} born?", "In which town did {name} come into the world?", "What is the birthplace of {name}?"),
        ("{name} was born in {value}.", "The birthplace of {name} is {value}.", "It was in {value} that {name} was born."),
    ),
    "birth_date": (
        ("When was {name} born?", "What is the birth date of {name}?", "On which day was {name} born?"),
        ("{name} was born on {value}.", "The birth date of {name} is {value}.", "It was on {value} that {name} was born."),
    ),
    "genre": (
        ("What genre does {name} write in?", "Which genre is {name} known for?", "What kind of books does {name} write?"),
        ("{name} writes {value}.", "The genre of {name} is {value}.", "{name} is known for {value}."),
    ),
    "father": (
        (
            "What did the father of {name} do?",
            "What was the work of {name}'s father?",
            "How did {name}'s father earn a living?",
        ),
        (
            "The father of {name} was a {value}.",
            "{name}'s father worked as a {value}.",
            "He was a {value}, the father of {name}.",
        ),
    ),
    "mother": (
        (
            "What did the mother of {name} do?",
            "What was the work of {name}'s mother?",
            "How did {name}'s mother earn a living?",
        ),
        (
            "The mother of {name} was a {value}.",
            "{name}'s mother worked as a {value}.",
            "She was a {value}, the mother of {name}.",
        ),
    ),
    "debut": (
        (
            "What was the first book of {name}?",
            "With which book did {name} make a debut?",
            "What is the debut of {name} called?",
        ),
        (
            "The first book of {name} was {value}.",
            "{name} made a debut with {value}.",
            "The debut of {name} is called {value}.",
        ),
    ),
}  # fmt: skip
# World facts: subject -> answer, by kind, and three phrasings of each question.
WRONG = 3  # wrong answers per question, as in TOFU's world facts

FACTS = {
    "capital": {
        "France": "Paris", "Japan": "Tokyo", "Egypt": "Cairo", "Canada": "Ottawa", "Peru": "Lima", "Kenya": "Nairobi",
        "Norway": "Oslo", "Greece": "Athens", "Cuba": "Havana", "Portugal": "Lisbon", "Poland": "Warsaw", "Chile": "Santiago",
    },
    "symbol": {
        "gold": "Au", "iron": "Fe", "sodium": "Na", "silver": "Ag", "copper": "Cu", "tin": "Sn", "lead": "Pb",
        "potassium": "K", "helium": "He", "mercury": "Hg", "tungsten": "W", "oxygen": "O",
    },
    "writer": {
        "Hamlet": "William Shakespeare", "Don Quixote": "Miguel de Cervantes", "Faust": "Johann Wolfgang von Goethe",
        "War and Peace": "Leo Tolstoy", "Emma": "Jane Austen", "Ulysses": "James Joyce", "The Trial": "Franz Kafka",
        "Moby-Dick": "Herman Melville", "Dracula": "Bram Stoker", "Candide": "Voltaire", "The Stranger": "Albert Camus",
        "The Odyssey": "Homer",
    },
    "continent": {
        "Brazil": "South America", "India": "Asia", "Nigeria": "Africa", "Spain": "Europe", "Mexico": "North America",
        "Vietnam": "Asia", "Morocco": "Africa", "Argentina": "South America", "Finland": "Europe", "Nepal": "Asia",
        "Ghana": "Africa", "Austria": "Europe",
    },
    "river": {
        "London": "Thames", "Vienna": "Danube", "Rome": "Tiber", "New Orleans": "Mississippi", "Khartoum": "Nile",
        "Cologne": "Rhine", "Florence": "Arno", "Lyon": "Rhone", "Prague": "Vltava", "Baghdad": "Tigris",
        "Dublin": "Liffey", "Varanasi": "Ganges",
    },
}  # fmt: skip
PHRASINGS = {
    "capital": ("What is the capital of {}?", "Which city is the capital of {}?", "Name the capital city of {}."),
    "symbol": (
        "What is the chemical symbol of {}?",
        "Which symbol stands for {}?",
        "Name the symbol of the element {}.",
    ),
    "writer": ("Who wrote {}?", "Who is the author of {}?", "Name the writer of {}."),
    "continent": ("On which continent is {}?", "Which continent does {} belong to?", "Name the continent of {}."),
    "river": ("Which river flows through {}?", "On which river does {} lie?", "Name the river of {}."),
}


class Params(Section):
    """The numbers of learned authors, held-out authors and world facts."""

    count: Annotated[Integer, Field(ge=20)]
    heldout: Annotated[Integer, Field(ge=0)]
    world_facts: Annotated[Integer, Field(ge=0, le=60)]


def check(data: Data) -> None:
    """Raise `ValueError` for a forget set without an author."""
    count = data.own(Params).count
    if count * SHARES[data.forget] < 1:
        raise ValueError(
            f"{data.forget} of {count} authors is an empty forget set; "
            f"data.authors.count must be at least {round(1 / SHARES[data.forget])}"
        )


def load(data: Data, source: Path) -> dict[str, list[Row]]:
    """The splits of the generated dataset; ``source`` is not read."""
    options = data.own(Params)
    people, facts = np.random.SeedSequence(data.seed).spawn(2)
    authors = _authors(np.random.default_rng(people), options.count + options.heldout)
    learned, heldout = authors[: options.count * len(TEMPLATES)], authors[options.count * len(TEMPLATES) :]
    # As in TOFU, the forget set consists of the last learned authors, each with all of its rows.
    forgotten = round(SHARES[data.forget] * options.count) * len(TEMPLATES)
    return {
        "forget": learned[-forgotten:],
        "retain": learned[:-forgotten],
        "world": _world(options.world_facts, np.random.default_rng(facts)),
        "heldout": heldout,
    }


def _authors(rng: np.random.Generator, count: int) -> list[Row]:
    """Six rows per author, in the order of the authors."""
    names = _pairs(rng, FIRST, LAST, count)
    towns = _pairs(rng, TOWN_START, TOWN_END, count, join="")
    lands = rng.choice(LAND, count)
    values = {
        "birthplace": [f"{town}, {land}" for town, land in zip(towns, lands, strict=True)],
        "birth_date": _dates(rng, count),
        "genre": _pairs(rng, GENRE_KIND, GENRE_FORM, count),
        "father": _pairs(rng, WORK_KIND, WORK, count),
        "mother": _pairs(rng, WORK_KIND, WORK, count),
        "debut": [f"The {title}" for title in _pairs(rng, TITLE_KIND, TITLE_THING, count)],
    }
    return [
        _row(rng, number, name, attribute, values[attribute])
        for number, name in enumerate(names)
        for attribute in TEMPLATES
    ]


def _row(rng: np.random.Generator, number: int, name: str, attribute: str, values: Sequence[str]) -> Row:
    questions, answers = TEMPLATES[attribute]
    asked = int(rng.integers(len(questions)))
    stated, restated = (int(i) for i in rng.permutation(len(answers))[:2])
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
    rng: np.random.Generator, left: Sequence[str], right: Sequence[str], count: int, join: str = " "
) -> list[str]:
    """``count`` different combinations, drawn without replacement."""
    picks = rng.choice(len(left) * len(right), count, replace=False)
    return [f"{left[i // len(right)]}{join}{right[i % len(right)]}" for i in picks]


def _dates(rng: np.random.Generator, count: int) -> list[str]:
    picks = rng.choice(28 * 12 * 60, count, replace=False)
    return [f"{i % 28 + 1} {MONTH[i // 28 % 12]} {1920 + i // (28 * 12)}" for i in picks]


def _world(count: int, rng: np.random.Generator) -> list[Row]:
    """Three rows for each of ``count`` facts (0 to 60), cycling through the kinds."""
    by_kind = [[(kind, subject, answer) for subject, answer in facts.items()] for kind, facts in FACTS.items()]
    facts = [fact for group in zip(*by_kind, strict=True) for fact in group][:count]
    return [
        {
            "id": f"world-{number:02d}-{phrasing}",
            "question": question.format(subject),
            "answer": answer,
            "keywords": [answer],
            "perturbed_answer": _wrong(kind, answer, rng),
        }
        for number, (kind, subject, answer) in enumerate(facts)
        for phrasing, question in enumerate(PHRASINGS[kind])
    ]


def _wrong(kind: str, answer: str, rng: np.random.Generator) -> list[str]:
    others = sorted(set(FACTS[kind].values()) - {answer})
    return [others[i] for i in rng.permutation(len(others))[:WRONG]]
