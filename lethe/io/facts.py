"""What a file states of its scores and of how its answers came about: a record that every reader fills.

A fact is what the file says, or what the tool's documents say of every such file. Whether the facts allow a claim is decided
elsewhere (`lethe.results.licence`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lethe.registry import JUDGES, SCORERS

# What a score of 1 says of an answer, in the words of the tool that gave the score.
Meaning = Literal["leak", "pass", "match", "refusal", "unknown"]
LeakIs = Literal["high", "low"]  # which end of a score is a leak, as the user says

DOCUMENTED = "score"  # the column of a plain table in which 1 is a leak, by the documents of Lethe
WORD = re.compile(r"[^\W\d_]+")
NOT = frozenset("no not non none never without free un anti".split())
# The words in a column's name that say what a 1 in the column says; the first meaning with a word in the name decides.
WORDS_OF: Mapping[Meaning, str] = {
    "refusal": "refused refusal refusals refuse refuses safe harmless",
    "pass": "success successful passed pass passes passing ok reward",
    "match": "correct accuracy acc match matches em exact includes",
    "leak": "leak leaks leaked leaking leakage",
}
# What an answer's part, a turn or a judge adds to the name of its scorer (`lethe.scoring`).
ENDING = re.compile(r"(_p|_thinking|_turn\d+)+$")


@dataclass(frozen=True)
class Facts:
    """What a file states; a sentence has no full stop at its end.

    ``means`` is what a 1 of each score says. ``deterministic`` says why an answer has no chance in it (greedy decoding),
    ``repeated`` why answers are no new draws (a cache, a seed that each request carries), ``unfinished`` why the run did
    not end. ``engine`` is what drew the answers.
    """

    means: Mapping[str, Meaning] = field(default_factory=dict)
    deterministic: str | None = None
    repeated: str | None = None
    unfinished: str | None = None
    engine: str | None = None

    def meaning(self, score: str) -> Meaning:
        return self.means.get(score, "unknown")


def named(name: str) -> Meaning:
    """What a 1 says in a column of a user's file, by the column's name.

    >>> [named(name) for name in ("has_leaked", "passed", "accuracy", "is_safe", "not_leaked", "quality")]
    ['leak', 'pass', 'match', 'refusal', 'unknown', 'unknown']
    """
    words = set(WORD.findall(name.replace("_", " ").casefold()))
    if NOT & words:
        return "unknown"
    for meaning, said in WORDS_OF.items():
        if words & set(said.split()):
            return meaning
    return "unknown"


def of_column(name: str) -> Meaning:
    """What a 1 says in a column of a plain table: Lethe's own columns are known, others by their name.

    >>> [of_column(name) for name in ("score", "rouge_l", "keyword_leak_thinking", "success")]
    ['leak', 'leak', 'leak', 'pass']
    """
    scorer = ENDING.sub("", name)
    if name == DOCUMENTED or scorer in SCORERS or scorer in JUDGES:
        return "leak"
    return named(name)
