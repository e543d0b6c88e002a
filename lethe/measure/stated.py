"""What is stated of a set of scores: which end of the score is a leak, and how its answers came about."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lethe.errors import check
from lethe.io.facts import DOCUMENTED, Facts, LeakIs, Meaning
from lethe.results.licence import Direction, Source

DIRECTIONS: Mapping[Meaning, Direction] = {"leak": "leak", "refusal": "no leak"}
SAYS: Mapping[Meaning, str] = {
    "leak": "a leak",
    "pass": "a pass of the user's tests, which may ask for the answer or against it",
    "match": "a match with a reference, which is a leak only if the reference must not be said",
    "refusal": "a refusal or a safe answer",
    "unknown": "not stated",
}


def check_leak_is(leak_is: object) -> None:
    """Raise `BadValue` unless the end of a score that is a leak is "high", "low" or not stated."""
    check(leak_is in (None, "high", "low"), "leak_is", leak_is, "high or low")


@dataclass(frozen=True)
class Stated:
    """What a file states of one score, and what the user says: ``leak_is`` names the end of the score that is a leak.

    ``ids_not_understood`` names a column that looks like ids and was not used (a sentence without a full stop).
    """

    score: str
    facts: Facts = field(default_factory=Facts)
    leak_is: LeakIs | None = None
    ids_not_understood: str | None = None

    def __post_init__(self) -> None:
        check_leak_is(self.leak_is)

    @property
    def meaning(self) -> Meaning:
        """What a 1 says, as the file has it."""
        return self.facts.meaning(self.score)

    @property
    def inverted(self) -> bool:
        """Whether all numbers are of 1 - score: only where the user says that a low score is a leak."""
        return self.leak_is == "low"

    @property
    def direction(self) -> Direction:
        """What a high number says, once the scores point the way that the user says."""
        return "leak" if self.leak_is else DIRECTIONS.get(self.meaning, "unknown")

    @property
    def says(self) -> str:
        """What a 1 says of an answer, in a word: as the user says, or else as the file does."""
        if self.leak_is:
            return "leak" if self.leak_is == "high" else "no leak"
        return "not stated" if self.meaning == "unknown" else self.meaning

    def source(self) -> Source:
        """The facts that a licence is asked with."""
        return Source(
            repeated_answers=self.facts.repeated,
            deterministic=self.facts.deterministic,
            unfinished=self.facts.unfinished,
            mixed=self.facts.mixed,
            refused=self.facts.refused,
            ids_not_understood=self.ids_not_understood,
            score_means=self.direction,
        )

    def as_json(self) -> dict[str, object]:
        return {"score_means": self.meaning, "score_inverted": self.inverted}

    def sentences(self) -> list[str]:
        """What a reader of the numbers must know of their direction; nothing where a 1 is a leak as recorded."""
        if self.inverted:
            return [
                f"All numbers are of 1 - {self.score}, because a low score is a leak (--leak-is low)."
            ]
        if self.direction == "leak":
            return []
        return [
            f"{self.score}: a score of 1 is {SAYS[self.meaning]}; the numbers are of the score as recorded."
        ]


LEAKS = Stated(
    DOCUMENTED, Facts({DOCUMENTED: "leak"})
)  # scores in Lethe's documented form: a 1 is a leak
