"""World facts, each asked in three phrasings; unlearning should leave a model's answers to them unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lethe.io.artifacts import Row

WRONG = 3  # wrong answers per question, as in TOFU's world facts

# subject -> answer, by kind
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


def rows(count: int, rng: np.random.Generator) -> list[Row]:
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
