"""Bounds on P(leak) from next-token probabilities: a certain lower bound, and an upper bound at level alpha.

`enumerate_answers` takes two looks at every question. The first look measures the number of different answers and
grows a tree that a guide leads towards the keywords. Leaks in this tree are certain, down to a probability of 1e-12. The
second look explores the heaviest answers, whatever their content, and samples the rest; one rate for all questions
makes the bound on their mean exact. No method gives a far smaller upper bound: a method that reads next-token
probabilities at N prefixes cannot tell a safe model from one that leaks at an unvisited prefix.
"""

import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field

from lethe.config.fields import Direct, Integer, Weight
from lethe.config.measuring import Exploring
from lethe.errors import BadValue
from lethe.io.files import restored
from lethe.progress import progress
from lethe.results.exact_bounds import tree_from, values_of
from lethe.sampling.answer_tree.automaton import Automaton
from lethe.sampling.answer_tree.enumeration import (
    HEAVIEST,
    Grown,
    Growth,
    Predictor,
    TreeQuestion,
    grow,
)
from lethe.sampling.draws import Law
from lethe.statistics.answer_tree import Masses, Remainder, Rounding, leak_interval
from lethe.statistics.leak_trees import AnswerTree, HeavyLeak
from lethe.statistics.streams import stream

FIRST_THETA = 0.05
ENOUGH = 0.6  # a growth that uses this share of its rows is the last
MOST_GROWTHS = 8
# Shares of the remaining rows: the planned size of a growth, and the size that stops it.
AIMED_AT = 0.6
ASTRAY = 1.5
WIDEST_STEP = 12.0  # largest ratio of rows to the previous growth: the power law fails beyond
FLATTEST, STEEPEST = 0.15, 1.0  # of the power: a level has at most 1 / theta prefixes of mass theta
STEEPEST_GUIDED = 3.0  # a guide lifts prefixes above their mass
FASTEST = 0.4  # of the power with which the unexplored mass falls
POINTS_A_DECADE = 8


@dataclass(frozen=True)
class PrefixCurve:
    """The number of prefixes with a priority of at least theta, and the mass left after exploring them.

    Below the last threshold both follow the power law of its last decade.

    Attributes
    ----------
    thetas
        (P,) the thresholds, falling.
    counts
        (P,) the prefixes of at least each.
    rests
        (P,) the mass left after exploring them, in [0, 1].
    """

    thetas: tuple[float, ...]
    counts: tuple[int, ...]
    rests: tuple[float, ...]

    def at(self, theta: float) -> float:
        """The count at any threshold; extrapolated by the power law below the last one."""
        if theta >= self.thetas[-1]:
            return self._between(theta, self.counts)
        return self.counts[-1] * (self.thetas[-1] / theta) ** self.power

    def rest(self, theta: float) -> float:
        """The mass left unexplored at any threshold."""
        if theta >= self.thetas[-1] or not self.rests[-1]:
            return self._between(max(theta, self.thetas[-1]), self.rests)
        power = 0.0
        if self._span:
            power = math.log(self.rests[-1 - self._decade] / self.rests[-1]) / self._span
        return self.rests[-1] * (theta / self.thetas[-1]) ** min(FASTEST, power)

    def _between(self, theta: float, values: Sequence[float]) -> float:
        """A value of the curve, linear in ln theta between thresholds."""
        depths = [-math.log(known) for known in self.thetas]
        return float(np.interp(-math.log(theta), depths, values))

    @property
    def power(self) -> float:
        """The power with which the counts grow as theta falls."""
        if self._decade == 0 or self.counts[-1] < 2:
            return 0.5
        decade_before = max(1, self.counts[-1 - self._decade])
        power = math.log(self.counts[-1] / decade_before) / self._span
        return min(STEEPEST, max(FLATTEST, power))

    @property
    def _decade(self) -> int:
        """The number of points in the last decade, or of all."""
        return min(POINTS_A_DECADE, len(self.thetas) - 1)

    @property
    def _span(self) -> float:
        """The width of the last decade in natural logarithms."""
        return math.log(self.thetas[-1 - self._decade] / self.thetas[-1])


def curve_of(grown: Grown, theta: float) -> PrefixCurve:
    """The curve down to the threshold of a growth, at `POINTS_A_DECADE` thresholds a decade."""
    points = max(2, 1 + math.ceil(POINTS_A_DECADE * max(0.0, -math.log10(theta))))
    thetas = np.geomspace(max(1.0, theta), theta, points)
    reached = grown.priorities >= thetas[:, None]
    rests = np.maximum(0.0, 1 - reached @ grown.decided)
    counts = reached.sum(axis=1)
    return PrefixCurve(tuple(thetas.tolist()), tuple(counts.tolist()), tuple(rests.tolist()))


@dataclass(frozen=True)
class Searched:
    """The result of a search.

    Attributes
    ----------
    grown
        The last growth.
    theta
        Its threshold.
    best
        The growth that found the largest mass of leaks.
    rows
        The rows of all growths.
    """

    grown: Grown
    theta: float
    best: Grown
    rows: int


def search(
    grow: Callable[[Growth], Grown], rows: int, guide: float, counted_guide: float = 0.0
) -> Searched:
    """Grow deeper and deeper from the start, without a sample, until about ``rows`` rows went through the model.

    Each threshold is chosen by how the last growths grew.

    Parameters
    ----------
    grow
        Grows the tree of a question to an extent.
    rows
        The rows to spend.
    guide
        That of the growths.
    counted_guide
        The one under which they count prefixes, of the growth that is planned next.
    """
    theta = theta_before = FIRST_THETA
    spent = 0
    growths: list[Grown] = []
    while True:
        left = max(1, round(rows - spent))
        # The limit only stops badly wrong guesses: it cuts off the deepest prefixes, where keywords end.
        most_explored = round(ASTRAY * left)
        growth = Growth(theta, guide, most_explored=most_explored, counted_guide=counted_guide)
        grown = grow(growth)
        spent += grown.rows
        growths.append(grown)
        if grown.rest == 0 or spent >= ENOUGH * rows or len(growths) == MOST_GROWTHS:
            most_leaking = max(growths, key=lambda grown: grown.masses.leak)
            return Searched(grown, theta, most_leaking, spent)

        # The curve counts under another guide, so the rows of two growths predict better than the curve does.
        power = curve_of(grown, theta).power
        if len(growths) > 1 and 0 < growths[-2].rows < grown.rows:
            slope = math.log(grown.rows / growths[-2].rows) / math.log(theta_before / theta)
            power = min(STEEPEST_GUIDED, max(FLATTEST, slope))
        wanted = min(WIDEST_STEP * grown.rows, AIMED_AT * (rows - spent))
        theta_before = theta
        theta *= min(0.5, (grown.rows / wanted) ** (1 / power))


@dataclass(frozen=True)
class Outline:
    """The facts about a question before its rate is fixed.

    Attributes
    ----------
    curve
        The prefixes that are explored by the threshold, under the second growth's guide.
    rows_a_sample
        The cost of a sampled answer, in rows of the model.
    enumerable
        Whether exploring pays: whether the answers are few enough.
    """

    curve: PrefixCurve
    rows_a_sample: float
    enumerable: bool

    def rows(self, rho: float, theta_rho: float) -> float:
        """The approximate number of rows of a growth at the rate ``rho`` and the threshold theta_rho / rho."""
        if not self.enumerable:
            return rho * self.rows_a_sample
        theta = theta_rho / rho
        return self.curve.at(theta) + rho * self.curve.rest(theta) * self.rows_a_sample


def common_rho(outlines: Sequence[Outline], rows: float, theta_rho: float) -> float:
    """The rate at which the growths of all questions take about ``rows`` rows in total, at least 1.

    The rows grow with the rate, so a bisection finds it.

    Raises
    ------
    BadValue
        If there is no question.
    """
    if not outlines:
        raise BadValue("questions", 0, "at least one")
    low, high = 1.0, 1e12

    def taken(rho: float) -> float:
        """The rows of all growths at a rate."""
        return sum(outline.rows(rho, theta_rho) for outline in outlines)

    if taken(low) >= rows:
        return low
    for _ in range(60):
        middle = math.sqrt(low * high)
        if taken(middle) < rows:
            low = middle
        else:
            high = middle
    return low


PILOT, SAMPLE, TRIAL = "pilot", "sample", "trial"  # the purposes of a question's random streams
# The share of a question's rows with which a trial of the second look measures the cost of a sampled answer.
TRIED = 0.1
# The pilot and the trial must take only a part of a question's rows, also where these are few.
LEAST_PILOT = 16  # answers
ROWS_A_PILOT_ANSWER = 32  # rows of the question for each answer of its pilot
# The rate of a trial: fewer answers measure nothing, and their levels cost as many passes.
LEAST_TRIED = 8.0
PLAIN = 2.0  # a threshold that no prefix reaches, so everything is sampled
NEGLIGIBLE = 1e-12
LAST_GUIDE = 40.0


class Effort(Direct, Exploring):
    """The effort per question.

    Of `Exploring` it has ``rows``, the number of tokens put through the model, a third of them in the guided growth. The
    second look explores prefixes of at least theta and samples the rest at a rate rho with theta x rho = ``theta_rho``. A
    ``target`` determines the rate at any cost: a question without a sampled leak is then bounded by it. ``exact_only``
    draws no sample and gives only certain ends.

    Attributes
    ----------
    second_guide
        The guide of the second look, as ``guide`` is that of the first: prefixes are favoured by exp(guide x share of a
        keyword read).
    pilot
        The number of answers, fewer where ``rows`` is small, that estimate the entropy and the length of all.
    most_entropy
        In nats; above it the second look only samples, because there are too many answers to explore.
    """

    second_guide: Weight = 12.0
    pilot: Annotated[Integer, Field(ge=LEAST_PILOT)] = 128
    most_entropy: Weight = 25.0

    def stream(self, question: TreeQuestion, purpose: str) -> np.random.SeedSequence:
        """The random stream of a question and a purpose: draws for one pair do not affect another."""
        return stream(self.seed, f"answer tree, {purpose}", question.question_id)


@dataclass(frozen=True)
class FirstLook:
    """The result of the first look at a question; certain, except for ``entropy`` (nats, estimated).

    ``rows`` went through the model, and ``outline`` plans the second look.
    """

    masses: Masses
    heaviest: tuple[HeavyLeak, ...]
    rows: int
    entropy: float
    outline: Outline


def first_look(question: TreeQuestion, law: Law, predictor: Predictor, effort: Effort) -> FirstLook:
    """Measure the entropy of a question's answers, and grow the guided tree.

    Where the tree finds next to no leak, another one follows a steeper guide.
    """
    pilot = _pilot(question, law, predictor, effort)
    budget = max(1, effort.rows // 3)
    growing = partial(grow, question, law, predictor)
    searched = search(growing, budget, effort.guide, effort.second_guide)
    rows = pilot.rows + searched.rows
    best = searched.best
    if best.masses.leak < NEGLIGIBLE and best.rest > 0 and effort.guide < LAST_GUIDE:
        again = search(growing, budget, LAST_GUIDE)
        rows += again.rows
        best = max(best, again.best, key=lambda grown: grown.masses.leak)

    # Answers of the rest share fewer prefixes than all answers do; half their length is a first guess.
    rows_a_sample = max(pilot.rows / max(1, pilot.remainder.sampled), pilot.length / 2)
    curve = curve_of(searched.grown, searched.theta)
    outline = Outline(curve, rows_a_sample, pilot.entropy <= effort.most_entropy)
    if outline.enumerable and not effort.exact_only and best.rest > 0:
        outline, tried = _tried(question, law, predictor, effort, outline)
        rows += tried
    return FirstLook(best.masses, best.heaviest, rows, pilot.entropy, outline)


def _tried(
    question: TreeQuestion,
    law: Law,
    predictor: Predictor,
    effort: Effort,
    outline: Outline,
) -> tuple[Outline, int]:
    """The outline with the cost of a sampled answer, as a small second look measures it, and the rows of that look.

    Its answers are discarded, so the rate may depend on it. Where the rows allow only a few, the pilot's guess stays.
    """
    rho = common_rho([outline], TRIED * effort.rows, effort.theta_rho)
    if rho < LEAST_TRIED:
        return outline, 0
    growth = Growth(effort.theta_rho / rho, effort.second_guide, rho)
    trial = grow(question, law, predictor, growth, effort.stream(question, TRIAL))
    if trial.remainder.sampled:
        rows_a_sample = (trial.rows - trial.explored) / trial.remainder.sampled
        outline = replace(outline, rows_a_sample=rows_a_sample)
    return outline, trial.rows


def _pilot(question: TreeQuestion, law: Law, predictor: Predictor, effort: Effort) -> Grown:
    """Sample a few answers without reading their texts, to estimate the number of different answers and their length."""
    # Fewer answers where so many would take most of the rows.
    answers = min(effort.pilot, max(LEAST_PILOT, effort.rows // ROWS_A_PILOT_ANSWER))
    blind = replace(
        question,
        automaton=Automaton(predictor.vocabulary),
        decode=lambda answers: [""] * len(answers),
        scores=lambda texts: np.zeros(len(texts), bool),
        seeds=(),
    )
    growth = Growth(PLAIN, rho=float(answers))
    return grow(blind, law, predictor, growth, effort.stream(question, PILOT))


def second_look(
    question: TreeQuestion,
    law: Law,
    predictor: Predictor,
    effort: Effort,
    first: FirstLook,
    rho: float,
    allowance: float = 0.0,
) -> AnswerTree:
    """The bounds of a question from both looks: the heaviest answers explored, the rest sampled.

    Parameters
    ----------
    first
        The result of the first look.
    rho
        The rate of the sample, in answers per unit of mass; 0: no sample is drawn.
    allowance
        The largest error of a logit, in nats.
    """
    rounding = Rounding(allowance, law.max_new_tokens, law.temperature)
    notes = [question.note] if question.note else []
    theta = PLAIN
    rows = 0
    if not first.outline.enumerable:
        done = "only sampled" if rho else "was skipped"
        notes.append(
            f"The answers have an entropy of about {first.entropy:.0f} nats, more than {effort.most_entropy:g}: too "
            f"many to explore, so that the second look {done}."
        )
    if rho:
        if first.outline.enumerable:
            theta = effort.theta_rho / rho
        growth = Growth(theta, effort.second_guide, rho)
        grown = grow(question, law, predictor, growth, effort.stream(question, SAMPLE))
        rows = grown.rows
    elif not first.outline.enumerable:
        zeros = (0.0,) * law.max_new_tokens  # nothing is explored, and nothing sampled
        grown = Grown(
            Masses(zeros, zeros),
            Remainder(),
            rest=1.0,
            rows=0,
            explored=0,
            heaviest=(),
            priorities=np.zeros(0),
            decided=np.zeros(0),
        )
    else:
        budget = max(1, 2 * effort.rows // 3)
        searched = search(partial(grow, question, law, predictor), budget, guide=0.0)
        grown = searched.grown
        theta = searched.theta
        rows = searched.rows

    explored = leak_interval(grown.masses, grown.remainder, effort.alpha, rounding)
    guided = leak_interval(first.masses, replace(grown.remainder, rho=0.0), effort.alpha, rounding)

    # All of these except the sampled ends are certain, so the better of the two looks may be used.
    lower = max(explored.lower, guided.lower)
    certain = max(lower, min(explored.upper_certain, guided.upper_certain))
    upper = max(lower, min(explored.upper, certain))
    sampled = min(upper, max(lower, explored.lower_sampled))

    source = first.masses if guided.lower > explored.lower else grown.masses
    complete = source.leak + source.unconfirmed
    return AnswerTree.of(
        question.question_id,
        replace(explored, lower=lower, upper_certain=certain, upper=upper, lower_sampled=sampled),
        grown.masses,
        grown.remainder,
        effort.queries,
        lower_confirmed_share=source.leak / complete if complete else 1.0,
        rows=first.rows + rows,
        theta=theta,
        logit_allowance=allowance,
        entropy=first.entropy,
        heaviest_leaks=_heaviest([*first.heaviest, *grown.heaviest]),
        note=" ".join(notes),
    )


def _heaviest(leaks: Sequence[HeavyLeak]) -> tuple[HeavyLeak, ...]:
    """The heavy leaks of both looks, each text once with its larger probability, which rounding can move."""
    best: dict[str, HeavyLeak] = {}
    for leak in leaks:
        known = best.get(leak.text, leak)
        best[leak.text] = max(known, leak, key=lambda leak: leak.probability)
    return tuple(sorted(best.values(), key=lambda leak: -leak.probability)[:HEAVIEST])


def enumerate_answers(
    questions: Sequence[TreeQuestion],
    law: Law,
    predictor: Predictor,
    effort: Effort | None = None,
    allowance: float = 0.0,
    store: MutableMapping[str, dict] | None = None,
    label: str = "exact",
) -> Iterator[AnswerTree]:
    """The bounds of each question in turn, once all had their first look.

    The rate of the samples is one for all questions, and follows from the first looks alone.

    Parameters
    ----------
    effort
        The rows per question, and what they are used for; None: the usual one.
    allowance
        The largest error of a logit, in nats.
    store
        Keeps finished looks, so that a killed call resumes.
    label
        Names the work in the display of progress.

    Raises
    ------
    BadValue
        If two questions have one id.
    """
    effort = effort or Effort()
    if store is None:
        store = {}
    names = [question.question_id for question in questions]
    if len(set(names)) < len(names):
        raise BadValue(
            "question ids", names, "distinct names, since a question's sample depends on its name"
        )

    looks: dict[str, FirstLook] = {}
    for question in progress(questions, f"{label}: first looks", "questions"):
        key = f"first {question.question_id}"
        if key not in store:
            store[key] = asdict(first_look(question, law, predictor, effort))
        looks[question.question_id] = restored(FirstLook, store[key])

    rho = rate(list(looks.values()), effort)
    for question in progress(questions, f"{label}: second looks", "questions"):
        key = f"second {question.question_id} {rho!r}"
        if key not in store:
            first = looks[question.question_id]
            tree = second_look(question, law, predictor, effort, first, rho, allowance)
            store[key] = values_of(tree)
        yield tree_from(store[key])


def rate(looks: Sequence[FirstLook], effort: Effort) -> float:
    """The one rate of all questions: from the target, or from the rows remaining after the first looks."""
    if effort.exact_only or not looks:
        return 0.0
    if effort.target is not None:
        return -float(np.log(effort.alpha)) / effort.target
    left = sum(max(effort.rows - look.rows, effort.rows // 2) for look in looks)
    return common_rho([look.outline for look in looks], left, effort.theta_rho)
