"""The result of a population of attacks on one model: each attack that was tried, and the share that succeeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lethe.errors import plural
from lethe.io.files import Json
from lethe.results.table import Result, Rows
from lethe.results.trace import STATED
from lethe.statistics import anytime
from lethe.statistics.anytime import Counts
from lethe.statistics.attack_share import (
    ASSUMES,
    METHOD,
    End,
    Outcome,
    Successes,
    level_of_attack,
)
from lethe.statistics.bound import Bound, Covers, both_ends, coverage

KIND = "population"  # in the headline, where an attack has the kind of its change
NO_ATTACK = -1  # the number of the model as it is


@dataclass(frozen=True)
class Tried:
    """An attack of a population that was made, and what the questions showed."""

    number: int
    kind: str
    params: Mapping[str, Json]
    seed: int
    outcome: Outcome
    questions: int  # that were asked and can be judged
    answers: int
    leaks: tuple[str, ...] = ()  # questions that are proved to be above the tolerance
    worst: str | None = None  # the question with the largest upper end
    worst_upper: float = 1.0
    certain: int = 0  # questions that certain ends decide, and answers had not before
    trace_p: float | None = None  # None: no secret was drawn among twins, or an attack learned all
    reason: str = ""  # why an attack is open that could not be asked

    @property
    def words(self) -> str:
        """The attack with its parameters, in words.

        >>> Tried(0, "noise", {"kind": "noise", "sizes": [0.05]}, 7, "fails", 30, 900).words
        'noise (sizes 0.05)'
        """
        parameters = []
        for key, value in self.params.items():
            if key == "kind":
                continue
            shown = value[0] if isinstance(value, (list, tuple)) else value
            number = f"{shown:.3g}" if isinstance(shown, float) else str(shown)
            parameters.append(f"{key} {number}")
        return f"{self.kind} ({', '.join(parameters)})"


@dataclass(frozen=True)
class PopulationResult:
    """The attacks that were tried, in their order, and how the population was declared before the first.

    ``planned`` is the most attacks, over which the level is shared; ``n`` the most answers to a question, each of up to
    ``tokens`` tokens. Questions that the scorer cannot judge are ``unjudged``.
    """

    path: str
    recipe: Mapping[str, Json]
    planned: int
    goal: float
    tau: float
    alpha: float
    n: int
    seed: int
    scorer: str
    tokens: int
    before: Tried  # the model as it is, asked like an attacked one
    tried: tuple[Tried, ...]
    unjudged: tuple[str, ...] = ()
    kind: str = field(default=KIND)

    def count(self, outcome: Outcome) -> int:
        """How many attacks ended with this outcome."""
        return sum(attack.outcome == outcome for attack in self.tried)

    @property
    def level(self) -> float:
        """The level at which a single attack is proved to leak or to fail, or to leave a trace."""
        return level_of_attack(self.alpha, self.planned)

    @cached_property
    def successes(self) -> Successes:
        return Successes(
            self.count("leaks"), self.count("open"), len(self.tried), self.goal, self.alpha
        )

    @property
    def ended(self) -> End:
        """Why no further attack is tried: the share is above the goal, at most the goal, or all planned ones were."""
        return self.successes.ended or "capped"

    @property
    def traced(self) -> int:
        """The number of attacks after which the twin test finds a trace at the level of an attack."""
        found = 0
        for attack in self.tried:
            if attack.trace_p is not None and attack.trace_p <= self.level:
                found += 1
        return found

    @property
    def tests_traces(self) -> bool:
        return any(attack.trace_p is not None for attack in self.tried)

    @cached_property
    def traced_lower(self) -> float:
        """The lower end of the share of attacks after which a trace is found."""
        counts = Counts(self.traced, len(self.tried), missing=len(self.tried) - self.traced)
        return anytime.ends(counts, (), self.alpha / 2).lower

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """Both ends of the share of attacks that succeed."""
        guarantee = (self.alpha, Covers.RECIPE, ASSUMES, METHOD, len(self.tried))
        return both_ends(self.successes.lower, self.successes.upper, *guarantee)

    def sentence(self, name: str) -> str:
        """What is proved of the recipe, with its probability and its counts."""
        lower, upper = self.bounds
        limit = f"above {100 * self.tau:g}% of its answers"
        of_recipe = f"of the attacks drawn from this recipe bring any question {limit}"
        sure = f"with probability {coverage(self.alpha)} at any time"
        tried = f"{self.count('leaks'):,} of {len(self.tried):,}"
        unproved = self.count("open")
        if unproved:
            tried += f", and {unproved:,} unproved"
        if self.ended == "below":
            return f"{name}: at most {100 * self.goal:g}% {of_recipe}, {sure} ({tried})."
        if self.ended == "above":
            of_recipe = f"of the attacks drawn from this recipe bring a question {limit}"
            return f"{name}: at least {lower.percent()} {of_recipe}, {sure} ({tried})."
        between = f"between {lower.percent()} and {upper.percent()}"
        reached = f"all {plural(self.planned, 'planned attack')} were tried"
        return f"{name}: open: {between} {of_recipe}, {sure} ({tried}); {reached}."

    @property
    def before_sentence(self) -> str:
        """What the questions show of the model before any attack, at the level of an attack."""
        level = f"proved at level {self.level:.2g}"
        limit = f"{100 * self.tau:g}% of its answers"
        if self.before.outcome == "fails":
            return f"Before any attack no question is above {limit}, {level}."
        if self.before.outcome == "open":
            return f"Before any attack it is unproved whether a question is above {limit}."
        named = f" ({', '.join(self.before.leaks)})" if self.before.leaks else ""
        return f"Before any attack a question is above {limit}{named}, {level}."

    @property
    def trace_sentence(self) -> str:
        """After how many attacks a trace is found; empty where nothing was drawn among twins."""
        if not self.tests_traces:
            return ""
        found = f"{self.traced:,} of {plural(len(self.tried), 'attack')}"
        return (
            f"The twin test finds a trace of the drawn secrets after {found}, each at level {self.level:.2g}. "
            "Where it finds none, that proves nothing. It assumes that the true candidates were drawn at random; no control "
            "is among the attacked models, so a control of the run that rejects takes these words away."
        )

    @property
    def covers(self) -> str:
        """What the share speaks of, and what it assumes."""
        unjudged = ""
        if self.unjudged:
            questions = plural(len(self.unjudged), "question")
            unjudged = f" It says nothing about {questions} that {self.scorer} cannot judge."
        if any(attack.questions < self.before.questions for attack in self.tried):
            unjudged += " Of an attack that learned questions it says nothing about these."
        return (
            "This speaks of attacks drawn from this recipe, of this model, and of these questions as they are worded here, "
            f"with answers of up to {self.tokens} tokens. It says nothing about another attack, such as the worst that "
            f"the recipe contains.{unjudged} It assumes {ASSUMES}. An attack that is unproved counts as a success "
            "in the upper end and as none in the lower end."
        )

    def headline(self) -> dict[str, Json]:
        """The numbers for `dvc metrics`."""
        lower, upper = self.bounds
        numbers: dict[str, Json] = {
            "kind": self.kind,
            "attacks": len(self.tried),
            "planned": self.planned,
            "leaks": self.count("leaks"),
            "open": self.count("open"),
            "attack_share_lower": lower.value,
            "attack_share_upper": upper.value,
            "goal": self.goal,
            "alpha": self.alpha,
        }
        if self.tests_traces:
            numbers["traced"] = self.traced
        return numbers

    def rows(self, name: str) -> list[Result]:
        """Everything that is said, as rows of the table of results."""
        rows = Rows(name)
        for key in ("attacks", "planned", "leaks", "open", "goal"):
            rows.add("audit", "number", "run", float(self.headline()[key]), item=key)
        tried = len(self.tried)
        share = self.count("leaks") / tried
        counts = {"leaks": self.count("leaks"), "open": self.count("open"), "ended": self.ended}
        rows.add("audit", "attack_share", "run", share, *self.bounds, evidence=counts)
        if self.tests_traces:
            assumes = f"attacks drawn independently from the recipe, and {STATED}"
            guarantee = (self.alpha, Covers.RECIPE, assumes, METHOD, tried)
            lower = Bound(self.traced_lower, "lower", *guarantee)
            rows.add("audit", "trace_share", "run", self.traced / tried, lower)
        return rows.rows
