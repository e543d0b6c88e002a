"""The word on a trace: whether a model knows anything of secrets that were drawn, without a Retrain.

    trace           the ranks of the true candidates are refuted as uniform at the model's level;
    no trace found  they are not, the controls hold, and a model that knows a small share of the secrets would be found;
    open            they are not, and the test is too weak for *no trace found*;
    none            a control rejects.

The models under test share alpha evenly: a false *trace* of any of them has probability at most alpha. *No trace
found* has no error probability. It says what it excludes, for an attacker who has the candidates and trusts this
score.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from lethe.config.twins import TWINS, Twins
from lethe.errors import plural
from lethe.io.files import Json
from lethe.results.table import Numbers, Result, Rows
from lethe.statistics import twins
from lethe.statistics.bound import Bound, Covers, both_ends, significant
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.twins import TwinTest, Way

Word = Literal["trace", "no trace found", "open", "none"]
GIVEN = "given answers"  # the basis that decides the word where it exists
SAMPLED = "sampled"
BASES = (GIVEN, SAMPLED)
STATED = "each true candidate was drawn uniformly among its candidates, apart from all else that the model saw"
SAMPLE = "these secrets are a random sample of secrets like them"
PURE = "epsilon-differential privacy (pure) of replacing a secret's draw, and drawn candidates"
LOOK = 1  # a model's test is read once; other scores are a new test with its own alpha
MOST_SECRETS = 1 << 16  # of a plan for a test that is too weak
MORE_CANDIDATES = (5, 10, 20, 50, 100, 1000)
RANKS = {
    "preferred": "too high",
    "avoided": "too low",
    "either": "too low or too high",
}


@dataclass(frozen=True)
class Control:
    """A model that cannot know the draws, tested with the same candidates. It sees only what the test sees."""

    model: str
    p: float
    alpha: float
    direction: Way

    @property
    def holds(self) -> bool:
        return self.p > self.alpha

    @property
    def refusal(self) -> str:
        """Why no model has a word."""
        ends = {"preferred": "first", "avoided": "last", "either": "first or last"}
        return (
            f"The generator is not exchangeable: {self.model}, which cannot know the draws, "
            f"ranks the true candidates {ends[self.direction]} (p {p_text(self.p)})."
        )


@dataclass(frozen=True)
class Lift:
    """The nats by which every true candidate must be moved to be found; infinite where no move is found."""

    up: float
    down: float


@dataclass(frozen=True)
class OfGroup:
    """The test of one author's or one request's secrets; ``holm`` is adjusted over all of them."""

    author: str
    p: float
    holm: float


@dataclass(frozen=True)
class Design:
    """How the true candidates were drawn: natively, by a sealed key, as assumed of given values, or as stated."""

    kind: Literal["native", "drawn", "assumed", "stated"] = "stated"
    assumes: str = STATED
    commitment: str | None = None


@dataclass(frozen=True)
class Trace:
    """The twin test of one model with everything that is said with its word.

    ``alpha`` is shared by ``models`` models under test; ends of shares and of epsilon fail with ``alpha`` each. ``secrets``
    names each secret, in the order of the ranks. ``controls`` are models that cannot know; ``lift`` needs scores in nats.
    """

    test: TwinTest
    secrets: tuple[str, ...]
    alpha: float
    models: int = 1
    settings: Twins = TWINS
    controls: tuple[Control, ...] = ()
    lift: Lift | None = None
    authors: tuple[OfGroup, ...] = ()
    design: Design = Design()
    basis: str = GIVEN

    @property
    def level(self) -> float:
        """The level of this model's word."""
        return self.alpha / self.models

    @property
    def failed_control(self) -> Control | None:
        for control in self.controls:
            if not control.holds:
                return control
        return None

    @cached_property
    def smallest_known(self) -> int | None:
        """How few secrets, ranked first for certain, would be found; None where even all would not be."""
        return twins.smallest_known(self.test.candidates, self.level, self.settings.power)

    @property
    def word(self) -> Word:
        if self.failed_control:
            return "none"
        if self.test.p <= self.level:
            return "trace"
        if self._is_enough(self.smallest_known, len(self.secrets)):
            return "no trace found"
        return "open"

    def _is_enough(self, known: int | None, m: int) -> bool:
        return known is not None and known <= self.settings.known * m

    def _would_do(self, m: int, k: int) -> bool:
        """Whether ``m`` secrets with ``k`` candidates each make *no trace found* possible."""
        known = twins.smallest_known([k] * m, self.level, self.settings.power)
        return self._is_enough(known, m)

    @property
    def first(self) -> int:
        """How many true candidates rank first."""
        return sum(rank == 1 for rank in self.test.ranks)

    @property
    def last(self) -> int:
        return sum(rank == k for rank, k in zip(self.test.ranks, self.test.candidates, strict=True))

    @property
    def by_chance(self) -> float:
        """How many would rank first, or last, by chance."""
        return math.fsum(1 / k for k in self.test.candidates)

    def sentence(self, name: str = "This model") -> str:
        """The word with its evidence, in one sentence or two."""
        failed = self.failed_control
        if failed:
            return f"{name}: no word on a trace. {failed.refusal}"
        m, k = len(self.secrets), min(self.test.candidates)
        p = p_text(self.test.p, self.test.log_p)
        if self.word == "trace":
            several = "at least " if k < max(self.test.candidates) else ""
            return (
                f"{name}: trace: its true secrets rank {RANKS[self.test.direction]} among {several}{k} candidates "
                f"(p {p}, level {self.level:.3g}); of {m}, {self.first} are first and {self.last} last, "
                f"by chance {self.by_chance:.3g}."
            )
        if self.word == "open":
            return f"{name}: open: p {p}, but the test is too weak to say that no trace was found. {self._plan()}"
        found = f"had it known {self.smallest_known} of the {plural(m, 'secret')}"
        if self.lift and math.isfinite(self.lift.up):
            found += f", or preferred each by {_nats(self.lift.up)} nats"
        power = f"this would have been found with probability {self.settings.power:g}"
        return f"{name}: no trace found: p {p}; {found}, {power}. By this score alone."

    def _plan(self) -> str:
        """What would make the test strong enough."""
        m, k = len(self.secrets), min(self.test.candidates)
        enough = self._enough_secrets(m, k)
        plans = []
        if enough is not None:
            plans.append(f"{enough:,} secrets with {k} candidates")
        for more in MORE_CANDIDATES:
            if more > k and self._would_do(m, more):
                plans.append(f"{more:,} candidates for each of the {plural(m, 'secret')}")
                break
        if not plans:
            return f"No number of candidates up to {MORE_CANDIDATES[-1]:,} is enough for {plural(m, 'secret')}."
        return f"Enough are {' or '.join(plans)}."

    def _enough_secrets(self, m: int, k: int) -> int | None:
        """The fewest secrets, more than ``m``, at which *no trace found* is possible."""
        too_few, enough = m, 2 * m
        while not self._would_do(enough, k):
            too_few, enough = enough, 2 * enough
            if enough > MOST_SECRETS:
                return None
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if self._would_do(middle, k):
                enough = middle
            else:
                too_few = middle
        return enough

    def rows(self, model: str) -> list[Result]:
        """Everything that is said, as rows of the table of results."""
        return [*measured_rows(model, self), *word_rows(model, self)]


def measured_rows(model: str, trace: Trace) -> list[Result]:
    """The rows that do not depend on other models: ranks, p-value, capital, ends of shares and of epsilon."""
    rows, test, basis = Rows(model), trace.test, trace.basis
    p_values = twins.secret_p_values(test.ranks, test.candidates)
    for place, secret in enumerate(trace.secrets):
        rank, k = test.ranks[place], test.candidates[place]
        rows.add("question", "twin_rank", basis, rank, item=secret, split="forget", at=k)
        rows.add("question", "twin_p", basis, p_values[place], item=secret, split="forget")
    m = len(trace.secrets)
    evidence: dict[str, Json] = {
        "totals": test.totals,
        "log_p": test.log_p,
        "log_p_of_way": test.log_p_of_way,
        "p_way": _p_way(test),
        "direction": test.direction,
        "secrets": list(trace.secrets),
        "ranks": list(test.ranks),
        "candidates": list(test.candidates),
    }
    rows.add("model", "trace_p", basis, test.p, n=m, evidence=evidence)
    capitals = test.log_capitals.tolist()
    e = math.exp(min(test.log_e, 700.0))  # beyond, a float has no room; the capital has
    rows.add(
        "model", "trace_e", basis, e, n=m, evidence={"log_e": test.log_e, "capitals": capitals}
    )
    for quantity, count in (("ranked_first", trace.first), ("ranked_last", trace.last)):
        lower = float(binary_lower(count, m, trace.alpha))
        upper = float(binary_upper(count, m, trace.alpha))
        guarantee = (trace.alpha, Covers.POPULATION, SAMPLE, "Clopper-Pearson", m)
        counts = {"count": count, "by_chance": trace.by_chance}
        ends = both_ends(lower, upper, *guarantee)
        rows.add("model", quantity, basis, count / m, *ends, n=m, evidence=counts)
    epsilon = twins.epsilon_lower(test.ranks, test.candidates, trace.alpha)
    method = "guesses of the first or the last, Clopper-Pearson"
    bound = Bound(epsilon, "lower", trace.alpha, Covers.RUN, PURE, method, m)
    rows.add("model", "trace_epsilon", basis, None, bound)
    return rows.rows


def word_rows(model: str, trace: Trace) -> list[Result]:
    """The rows of the word, which depends on how many models share alpha, and on the controls."""
    rows, basis = Rows(model), trace.basis
    facts: dict[str, Json] = {
        "alpha": trace.alpha,
        "level": trace.level,
        "models": trace.models,
        "look": LOOK,
        "settings": trace.settings.model_dump(),
        "controls": [vars(control) for control in trace.controls],
        "authors": [vars(author) for author in trace.authors],
        "lift": vars(trace.lift) if trace.lift else None,
        "design": vars(trace.design),
    }
    rows.add("model", "trace", basis, evidence=facts, text=trace.word)
    rows.add("model", "smallest_known", basis, trace.smallest_known, n=len(trace.secrets))
    if trace.lift:
        nats = vars(trace.lift)
        rows.add("model", "smallest_lift", basis, trace.lift.up, evidence=nats)
    for control in trace.controls:
        rows.add("model", "twin_control_p", basis, control.p, item=control.model)
    return rows.rows


def twin_test_of(numbers: Numbers, basis: str = GIVEN) -> TwinTest | None:
    """The twin test behind the rows of a model; None where there is none."""
    row = numbers.row("trace_p", basis)
    if row is None:
        return None
    return twins.twin_test(row.facts["ranks"], row.facts["candidates"])


def trace_of(numbers: Numbers) -> Trace | None:
    """The word of a model from its rows: that of its given answers where these exist, else of its counts."""
    for basis in BASES:
        word, test = numbers.row("trace", basis), twin_test_of(numbers, basis)
        if word is not None and test is not None:
            facts = word.facts
            return Trace(
                test,
                tuple(numbers.facts("trace_p", basis)["secrets"]),
                facts["alpha"],
                models=facts["models"],
                settings=Twins(**facts["settings"]),
                controls=tuple(Control(**control) for control in facts["controls"]),
                lift=Lift(**facts["lift"]) if facts["lift"] else None,
                authors=tuple(OfGroup(**author) for author in facts["authors"]),
                design=Design(**facts["design"]),
                basis=basis,
            )
    return None


def by_author(test: TwinTest, authors: Sequence[str]) -> tuple[OfGroup, ...]:
    """The test of each author's own secrets, adjusted over the authors (Holm); empty for fewer than two authors.

    ``authors`` names the author of each secret, in the order of the ranks.
    """
    places: dict[str, list[int]] = {}
    for place, author in enumerate(authors):
        places.setdefault(author, []).append(place)
    if len(places) < 2:
        return ()
    p_values = []
    for of_author in places.values():
        ranks = [test.ranks[place] for place in of_author]
        candidates = [test.candidates[place] for place in of_author]
        p_values.append(twins.twin_test(ranks, candidates).p)
    adjusted = twins.holm_adjusted(p_values).tolist()
    return tuple(map(OfGroup, places, p_values, adjusted))


def lift_of(
    scores: np.ndarray, level: float, rng: np.random.Generator, power: float = TWINS.power
) -> Lift:
    """The smallest lift of a model's own scores (m, k) in nats that the test would find, up and down."""
    up = twins.smallest_lift(scores, level, rng, power=power)
    return Lift(up, twins.smallest_lift(scores, level, rng, up=False, power=power))


def p_text(p: float, log_p: float | None = None) -> str:
    """A p-value with two digits, rounded up; a power of ten for one that no float can hold."""
    if p > 0:
        return f"{float(significant(p, 2, 'upper')):.2g}"
    if log_p is None:
        return "0"
    return f"1e{math.ceil(log_p / math.log(10))}"


def _nats(value: float) -> str:
    return f"{significant(value, 2, 'upper'):g}"


def document(rows: Sequence[Result]) -> dict[str, Json]:
    """The JSON of a model's trace: word, evidence and what the test would have found."""
    numbers = Numbers([row for row in rows if row.scope == "model"])
    trace = trace_of(numbers)
    if trace is None:
        return {}
    test = trace.test
    control: dict[str, Json] | None = None
    if trace.controls:
        shown = trace.failed_control or trace.controls[0]
        control = {"model": shown.model, "p": shown.p, "holds": shown.holds}
    return {
        "word": trace.word,
        "direction": test.direction,
        "p": test.p,
        "log_p": test.log_p,
        "p_way": _p_way(test),
        "e": numbers.estimate("trace_e", trace.basis),
        "alpha": trace.alpha,
        "level": trace.level,
        "look": LOOK,
        "basis": trace.basis,
        "secrets": len(trace.secrets),
        "ids": list(trace.secrets),
        "candidates": list(test.candidates),
        "ranks": list(test.ranks),
        "ranked_first": _share(numbers, "ranked_first", trace.basis),
        "ranked_last": _share(numbers, "ranked_last", trace.basis),
        "epsilon_lower": _lower(numbers, trace.basis),
        "smallest_known": trace.smallest_known,
        "smallest_lift": vars(trace.lift) if trace.lift else None,
        "authors": [vars(author) for author in trace.authors],
        "control": control,
        "design": trace.design.kind,
        "assumes": trace.design.assumes,
        "commitment": trace.design.commitment,
    }


def _p_way(test: TwinTest) -> dict[str, Json]:
    """The p-value of each way alone."""
    return {way: math.exp(log_p) for way, log_p in test.log_p_of_way.items()}


def _share(numbers: Numbers, quantity: str, basis: str) -> dict[str, Json]:
    row = numbers.row(quantity, basis)
    if row is None:
        return {}
    return {"count": row.facts["count"], "lower": row.lower, "upper": row.upper}


def _lower(numbers: Numbers, basis: str) -> float | None:
    row = numbers.row("trace_epsilon", basis)
    return None if row is None else row.lower
