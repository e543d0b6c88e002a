"""Bounds on P(leak) from next-token probabilities: a certain lower bound, and an upper bound at level alpha.

`enumerate_answers` takes two looks at every question. The first look measures the number of different answers and
grows a tree that a guide leads towards the keywords. Leaks in this tree are certain, down to a probability of 1e-12. The
second look explores the heaviest answers, whatever their content, and samples the rest; one rate for all questions
makes the bound on their mean exact. No method gives a far smaller upper bound: a method that reads next-token
probabilities at N prefixes cannot tell a safe model from one that leaks at an unvisited prefix.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field

from lethe.config.evaluating import Exploring
from lethe.config.fields import Direct, Integer, Weight
from lethe.errors import BadValue
from lethe.io.json_files import restored
from lethe.progress import progress
from lethe.results.exact_bounds import tree_from
from lethe.sampling.answer_tree.automaton import WholeTexts
from lethe.sampling.answer_tree.enumeration import HEAVIEST, Sight, grow
from lethe.sampling.answer_tree.growth import (
    Grown,
    Growth,
    Outline,
    Predictor,
    Question,
    common_rho,
    curve_of,
    search,
)
from lethe.sampling.draws import Law
from lethe.statistics.answer_tree import Masses, Remainder, Rounding, leak_bands, leak_interval, queries_until
from lethe.statistics.leak_trees import AnswerTree, HeavyLeak

__all__ = [
    "AnswerTree",
    "Effort",
    "FirstLook",
    "Law",
    "Question",
    "enumerate_answers",
    "first_look",
    "second_look",
]

PILOT, SAMPLE, TRIAL = 0, 1, 2  # the purposes of a question's random streams
# The share of a question's rows with which a trial of the second look measures the cost of a sampled answer.
TRIED = 0.1
# The pilot and the trial must take only a part of a question's rows, also where these are few.
LEAST_PILOT = 16  # answers
ROWS_A_PILOT_ANSWER = 32  # rows of the question for each answer of its pilot
LEAST_TRIED = 8.0  # the rate of a trial: fewer answers measure nothing, and their levels cost as many passes
PLAIN = 2.0  # a threshold that no prefix reaches, so everything is sampled
NOTHING_FOUND = 1e-12
LAST_GUIDE = 40.0


class Effort(Direct, Exploring):
    """The effort per question.

    ``rows`` is the number of tokens put through the model, a third of them in the guided growth. ``guide`` and
    ``second_guide`` favour prefixes by exp(guide x share of a keyword read). The second look explores prefixes of at
    least theta and samples the rest at a rate rho with theta x rho = ``theta_rho``. ``target``, if set, determines the
    rate at any cost: a question without a sampled leak is then bounded by ``target``. ``exact_only`` draws no sample and
    gives only certain ends. A pilot of ``pilot`` answers, or fewer where ``rows`` is small, estimates their entropy and
    length. Above an entropy of ``most_entropy`` nats the second look only samples, because there are too many answers to
    explore.
    """

    second_guide: Weight = 12.0
    pilot: Annotated[Integer, Field(ge=LEAST_PILOT)] = 128
    most_entropy: Weight = 25.0

    def stream(self, question: Question, purpose: int) -> np.random.SeedSequence:
        """The random stream of a question and a purpose: draws for one pair do not affect another."""
        return np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(question.question_id.encode()), purpose))


@dataclass(frozen=True)
class FirstLook:
    """The result of the first look at a question; certain, except for ``entropy`` (nats, estimated)."""

    masses: Masses
    heaviest: tuple[HeavyLeak, ...]
    rows: int
    entropy: float
    outline: Outline


def first_look(question: Question, law: Law, predictor: Predictor, effort: Effort) -> FirstLook:
    """Measure the entropy of a question's answers, and grow the guided tree."""
    pilot = _pilot(question, law, predictor, effort)
    budget, sight = max(1, effort.rows // 3), Sight(question.automaton)
    growing = partial(grow, question, law, predictor, sight=sight)
    searched = search(growing, budget, effort.guide, effort.second_guide)
    rows, best, curve = pilot.rows + searched.rows, searched.best, curve_of(searched.grown, searched.theta)
    if best.masses.leak < NOTHING_FOUND and best.rest > 0 and effort.guide < LAST_GUIDE:
        again = search(growing, budget, LAST_GUIDE)
        rows += again.rows
        best = max(best, again.best, key=lambda grown: grown.masses.leak)
    # Answers of the rest share fewer prefixes than all answers do; half their length is a first guess.
    rows_a_sample = max(pilot.rows / max(1, pilot.remainder.sampled), pilot.length / 2)
    outline = Outline(curve, rows_a_sample, pilot.entropy <= effort.most_entropy)
    if outline.enumerable and not effort.exact_only and best.rest > 0:
        outline, tried = _tried(question, law, predictor, effort, outline, sight)
        rows += tried
    return FirstLook(best.masses, best.heaviest, rows, pilot.entropy, outline)


def _tried(
    question: Question, law: Law, predictor: Predictor, effort: Effort, outline: Outline, sight: Sight
) -> tuple[Outline, int]:
    """The outline with the cost of a sampled answer, as a small second look measures it, and the rows of that look.
    Its answers are discarded, so the rate may depend on it; where the rows allow only a few, the pilot's guess
    stays."""
    rho = common_rho([outline], TRIED * effort.rows, effort.theta_rho)
    if rho < LEAST_TRIED:
        return outline, 0
    growth = Growth(effort.theta_rho / rho, effort.second_guide, rho)
    trial = grow(question, law, predictor, growth, effort.stream(question, TRIAL), sight)
    if trial.remainder.sampled:
        outline = replace(outline, rows_a_sample=(trial.rows - trial.explored) / trial.remainder.sampled)
    return outline, trial.rows


def _pilot(question: Question, law: Law, predictor: Predictor, effort: Effort) -> Grown:
    """Sample a few answers without reading their texts, to estimate the number of different answers and their length."""
    # Fewer answers where so many would take most of the rows.
    answers = min(effort.pilot, max(LEAST_PILOT, effort.rows // ROWS_A_PILOT_ANSWER))
    blind = replace(
        question,
        automaton=WholeTexts(predictor.vocabulary),
        decode=lambda answers: [""] * len(answers),
        scores=lambda texts: np.zeros(len(texts), bool),
        seeds=(),
    )
    return grow(blind, law, predictor, Growth(PLAIN, rho=float(answers)), effort.stream(question, PILOT))


def second_look(
    question: Question,
    law: Law,
    predictor: Predictor,
    effort: Effort,
    first: FirstLook,
    rho: float,
    allowance: float = 0.0,
) -> AnswerTree:
    """Explore the heaviest answers, sample the rest at one rate, and combine both looks."""
    rounding = Rounding(allowance, law.max_new_tokens, law.temperature)
    notes = [question.note] if question.note else []
    if not first.outline.enumerable:
        notes.append(
            f"The answers have an entropy of about {first.entropy:.0f} nats, more than {effort.most_entropy:g}: too "
            f"many to explore, so that the second look {'only sampled' if rho else 'was skipped'}."
        )
    if rho:
        theta = effort.theta_rho / rho if first.outline.enumerable else PLAIN
        growth = Growth(theta, effort.second_guide, rho)
        grown = grow(question, law, predictor, growth, effort.stream(question, SAMPLE))
        rows = grown.rows
    elif not first.outline.enumerable:
        zeros = (0.0,) * law.max_new_tokens  # nothing is explored, and nothing sampled
        grown = Grown(Masses(zeros, zeros), Remainder(), 1.0, 0, 0, (), *np.zeros((2, 0)))
        theta, rows = PLAIN, 0
    else:
        growing = partial(grow, question, law, predictor, sight=Sight(question.automaton))
        searched = search(growing, 2 * effort.rows // 3 or 1, 0.0)
        grown, theta, rows = searched.grown, searched.theta, searched.rows
    own = leak_interval(grown.masses, grown.remainder, effort.alpha, rounding)
    guided = leak_interval(first.masses, replace(grown.remainder, rho=0.0), effort.alpha, rounding)
    # All of these except the sampled ends are certain, so the better of the two looks may be used.
    lower = max(own.lower, guided.lower)
    certain = max(lower, min(own.upper_certain, guided.upper_certain))
    upper = max(lower, min(own.upper, certain))
    source = first.masses if guided.lower > own.lower else grown.masses
    complete = source.leak + source.unconfirmed
    first_half, last_half = queries_until(np.array([upper, lower])).tolist()
    return AnswerTree(
        id=question.question_id,
        lower=lower,
        lower_confirmed_share=source.leak / complete if complete else 1.0,
        upper_certain=certain,
        upper=upper,
        lower_sampled=min(upper, max(lower, own.lower_sampled)),
        alpha=effort.alpha,
        leak_mass=grown.masses.leak,
        clean_mass=grown.masses.clean,
        blank_mass=grown.masses.blank,
        unscored_mass=grown.masses.unscored,
        rows=first.rows + rows,
        theta=theta,
        rho=rho,
        sampled=grown.remainder.sampled,
        sampled_leaks=grown.remainder.leaks,
        logit_allowance=allowance,
        entropy=first.entropy,
        queries_until_half=(first_half, last_half),
        leak_at=leak_bands(lower, upper, effort.queries),
        heaviest_leaks=_heaviest(first.heaviest, grown.heaviest),
        masses=grown.masses,
        note=" ".join(notes),
    )


def _heaviest(*found: Sequence[HeavyLeak]) -> tuple[HeavyLeak, ...]:
    """The heavy leaks of both looks, each text once with its larger probability."""
    best: dict[str, float] = {}
    for leak in (leak for leaks in found for leak in leaks):
        best[leak.text] = max(leak.probability, best.get(leak.text, 0.0))
    return tuple(HeavyLeak(*pair) for pair in sorted(best.items(), key=lambda pair: -pair[1])[:HEAVIEST])


def enumerate_answers(
    questions: Sequence[Question],
    law: Law,
    predictor: Predictor,
    effort: Effort | None = None,
    allowance: float = 0.0,
    kept: MutableMapping[str, dict] | None = None,
    label: str = "exact",
) -> Iterator[AnswerTree]:
    effort = effort or Effort()
    kept = {} if kept is None else kept
    names = [question.question_id for question in questions]
    if len(set(names)) < len(names):
        raise BadValue("question ids", names, "distinct names, since a question's sample depends on its name")
    looks: dict[str, FirstLook] = {}
    for question in progress(questions, f"{label}: first looks", "questions"):
        key = f"first {question.question_id}"
        if key not in kept:
            kept[key] = asdict(first_look(question, law, predictor, effort))
        looks[question.question_id] = restored(FirstLook, kept[key])
    rho = rate(list(looks.values()), effort)
    for question in progress(questions, f"{label}: second looks", "questions"):
        key = f"second {question.question_id} {rho!r}"
        if key not in kept:
            first = looks[question.question_id]
            kept[key] = second_look(question, law, predictor, effort, first, rho, allowance).as_json()
        yield tree_from(kept[key])


def rate(looks: Sequence[FirstLook], effort: Effort) -> float:
    """The one rate of all questions: from the target, or from the rows remaining after the first looks."""
    if effort.exact_only or not looks:
        return 0.0
    if effort.target is not None:
        return -float(np.log(effort.alpha)) / effort.target
    left = sum(max(effort.rows - look.rows, effort.rows // 2) for look in looks)
    return common_rho([look.outline for look in looks], left, effort.theta_rho)
