"""What holds in this run and what does not: every sentence is chosen by comparing this run's own numbers.

A comparison counts as shown only where two simultaneous confidence intervals do not meet. All intervals of all
comparisons hold together with probability 1 - alpha: alpha is split evenly among them (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stages.reporting.run import Model, Run
from stages.reporting.text import listing, number, percent, plural
from stages.statistics.comparison import (
    Interval,
    Outcome,
    compare,
    distinct_share_interval,
    mean_interval,
    within_variance_interval,
)

Verdict = Literal["holds", "the opposite holds", "did not show"]
Measure = Callable[[Model, float], Interval | None]


@dataclass(frozen=True)
class Row:
    """One case of a claim, with the sentence that its numbers allow."""

    subject: str
    verdict: Verdict
    sentence: str


@dataclass(frozen=True)
class Claim:
    title: str
    measured: str
    rows: list[Row]

    @property
    def summary(self) -> str:
        """One sentence that counts the cases, written from the rows alone."""
        groups = {verdict: [row.subject for row in self.rows if row.verdict == verdict] for verdict in VERDICTS}
        parts = [f"{words} {listing(groups[verdict])}" for verdict, words in VERDICTS.items() if groups[verdict]]
        return "; ".join(parts).capitalize() + "." if parts else "Nothing in this run can tell."


VERDICTS: dict[Verdict, str] = {
    "holds": "holds for",
    "the opposite holds": "the opposite holds for",
    "did not show": "did not show for",
}


@dataclass(frozen=True)
class _Question:
    """A claim before its intervals are drawn: which pairs, which measure, which direction the claim names."""

    title: str
    measured: str
    expected: Outcome
    measure: Measure
    show: Callable[[Interval], str]
    pairs: list[tuple[Model, Model]]


@dataclass(frozen=True)
class Findings:
    claims: list[Claim]
    alpha: float
    comparisons: int
    against_retrain: dict[str, Outcome]


def findings(run: Run) -> Findings:
    """Every claim that this run's models can tell something about."""
    alpha, questions = run.params.metrics.alpha, [question for question in _questions(run) if question.pairs]
    comparisons = sum(len(question.pairs) for question in questions)
    share = alpha / (2 * comparisons) if comparisons else alpha  # two intervals a comparison
    claims, against_retrain = [claim for claim in (_greedy_claim(run),) if claim.rows], {}
    for question in questions:
        rows = []
        for left, right in question.pairs:
            intervals = question.measure(left, share), question.measure(right, share)
            outcome = compare(*intervals) if all(intervals) else "not shown"
            rows.append(_row(question, left, right, intervals, outcome))
            if question is questions[0] and right.role == "retrain":
                against_retrain[left.name] = outcome
        claims.append(Claim(question.title, question.measured, rows))
    return Findings(claims, alpha, comparisons, against_retrain)


def matched_pairs(run: Run) -> list[tuple[Model, Model]]:
    """(with entropy, its control): methods equal in all but the entropy terms, sampled alike."""
    methods = run.params.unlearn.methods
    return [
        (model, control)
        for model in run.subjects
        for control in run.subjects
        if model.method and control.method
        if methods[model.method].entropy and not methods[control.method].entropy
        if methods[model.method].model_copy(update={"entropy": None}) == methods[control.method]
        if model.adaptive_threshold is None and control.adaptive_threshold is None
    ]


def adaptive_pairs(run: Run) -> list[tuple[Model, Model]]:
    """(with adaptive temperature, without): the same weights sampled in the two ways."""
    return [
        (model, plain)
        for model in run.models
        for plain in run.models
        if model.path == plain.path and model.adaptive_threshold is not None and plain.adaptive_threshold is None
    ]


def _questions(run: Run) -> Iterator[_Question]:
    base, retrain = run.role("base"), run.role("retrain")
    metrics, subjects = run.params.metrics, run.subjects
    drawn = [model for model in subjects if model.adaptive_threshold is None]

    def against(reference: Model | None, models: list[Model]) -> list[tuple[Model, Model]]:
        return [(model, reference) for model in models] if reference else []

    entropy, adaptive = matched_pairs(run), adaptive_pairs(run)
    # Intervals for a fixed n say nothing of answers whose number was chosen by looking at them.
    fixed = run.params.sample.stop == "fixed"
    binary, leak = (_mean("forget", scorer) if fixed else _untold for scorer in (metrics.binary, metrics.leak))
    spread = _spread(metrics.leak) if fixed else _untold
    leaking = f"share of sampled forget answers that {metrics.binary.replace('_', ' ')} marks"
    deviation = f"standard deviation of {metrics.leak} within a forget question (root mean square over questions)"
    average = f"mean {metrics.leak} of sampled forget answers"
    yield _Question(
        "Unlearning left more leakage than Retrain has by chance",
        leaking,
        "higher",
        binary,
        _percents,
        against(retrain, subjects),
    )
    yield _Question(
        "Unlearning lowered the leakage of Base", leaking, "lower", binary, _percents, against(base, subjects)
    )
    yield _Question(
        "Entropy optimisation narrows the distribution of leakage, against its matched control",
        deviation,
        "lower",
        spread,
        _deviations,
        entropy,
    )
    yield _Question(
        "Entropy optimisation lowers the mean leakage, against its matched control",
        average,
        "lower",
        leak,
        _numbers,
        entropy,
    )
    yield _Question(
        "Adaptive temperature narrows the distribution of leakage",
        deviation,
        "lower",
        spread,
        _deviations,
        adaptive,
    )
    yield _Question("Adaptive temperature lowers the mean leakage", average, "lower", leak, _numbers, adaptive)
    for split in ("retain", "world"):
        diversity = f"expected share of distinct answers to a {split} question"
        yield _Question(
            f"Adaptive temperature costs diversity on {split} questions",
            diversity,
            "lower",
            _diversity(split),
            _percents,
            adaptive,
        )
    yield _Question(
        "Unlearning costs diversity on retain questions, against Base",
        "expected share of distinct answers to a retain question",
        "lower",
        _diversity("retain"),
        _percents,
        against(base, drawn),
    )
    yield _Question(
        "Unlearning costs utility on retain questions, against Base",
        f"mean {metrics.leak} of sampled retain answers",
        "lower",
        _mean("retain", metrics.leak),
        _numbers,
        against(base, drawn),
    )


def scored(model: Model, split: str, scorer: str) -> list[np.ndarray]:
    """Scores of the sampled answers, an array a question in drawing order; empty where the scorer tells nothing."""
    table = model.answers.get(split)
    if table is None or scorer not in table:
        return []
    table = table[table["sample"] >= 0]
    if table[scorer].isna().all():
        return []
    return [
        group.to_numpy(dtype=np.float64, na_value=np.nan)
        for _, group in table.groupby("prompt_id", sort=False)[scorer]
    ]


def _mean(split: str, scorer: str) -> Measure:
    def measure(model: Model, alpha: float) -> Interval | None:
        groups = _fixed(scored(model, split, scorer))
        return mean_interval(np.stack(groups), alpha) if groups else None

    return measure


def _untold(model: Model, alpha: float) -> None:
    return None


def _spread(scorer: str) -> Measure:
    def measure(model: Model, alpha: float) -> Interval | None:
        groups = _fixed(scored(model, "forget", scorer))
        return within_variance_interval(groups, alpha) if groups and len(groups[0]) >= 4 else None

    return measure


def _diversity(split: str) -> Measure:
    def measure(model: Model, alpha: float) -> Interval | None:
        table = model.answers.get(split)
        if table is None:
            return None
        drawn = table[table["sample"] >= 0].groupby("prompt_id", sort=False)["text"]
        return (
            distinct_share_interval(drawn.nunique().tolist(), drawn.size().tolist(), alpha) if len(drawn) else None
        )

    return measure


def _fixed(groups: list[np.ndarray]) -> list[np.ndarray]:
    """The groups, if each question has the same n >= 2, so that the pooled mean weighs all questions alike."""
    return groups if len({len(group) for group in groups}) == 1 and len(groups[0]) > 1 else []


def _row(
    question: _Question, left: Model, right: Model, intervals: tuple[Interval | None, ...], outcome: Outcome
) -> Row:
    if not all(intervals):
        lacking = listing(
            [model.name for model, interval in zip((left, right), intervals, strict=True) if not interval]
        )
        return Row(
            left.name, "did not show", f"Cannot be told: no answers of fixed n with this score for {lacking}."
        )
    a, b = map(question.show, intervals)
    if outcome == "not shown":
        return Row(left.name, "did not show", f"{left.name} {a}, {right.name} {b}: the intervals meet.")
    verdict: Verdict = "holds" if outcome == question.expected else "the opposite holds"
    return Row(left.name, verdict, f"{left.name} {a} lies {_PLACE[outcome]} {right.name} {b}.")


_PLACE = {"higher": "above", "lower": "below"}


def _numbers(interval: Interval) -> str:
    return f"{number(interval.lower, 3, 'down')} to {number(interval.upper, 3, 'up')}"


def _percents(interval: Interval) -> str:
    return f"{percent(interval.lower, 1, 'down')} to {percent(interval.upper, 1, 'up')}"


def _deviations(interval: Interval) -> str:
    low, high = math.sqrt(interval.lower), math.sqrt(interval.upper)
    return f"{number(low, 3, 'down')} to {number(high, 3, 'up')}"


def _greedy_claim(run: Run) -> Claim:
    """Counts over the questions that were asked: facts of this run, so no interval is needed."""
    retrain = run.role("retrain")
    chance = hidden(retrain) if retrain else None
    rows = []
    for model in run.subjects:
        found = hidden(model)
        if found is None:
            continue
        several, total = found
        sentence = (
            f"{model.name}: {several} of {plural(total, 'question')} leak in samples and not in the greedy answer"
        )
        if several == 0:
            verdict: Verdict = "did not show"
        elif chance and several / total <= chance[0] / chance[1]:
            verdict = "did not show"
        else:
            verdict = "holds"
        beside = f", against {chance[0]} of {chance[1]} in {retrain.name}, which never saw them" if chance else ""
        rows.append(Row(model.name, verdict, f"{sentence}{beside}."))
    return Claim(
        "Sampling finds leakage that greedy decoding hides, in more questions than chance gives Retrain",
        "questions whose greedy answer does not leak while at least one sampled answer does; a count, not an estimate",
        rows,
    )


def hidden(model: Model) -> tuple[int, int] | None:
    """(questions that leak only in samples, questions with a binary score)."""
    known = [row for row in model.questions if row.get("keyword_share") is not None]
    known = [row for row in known if row.get("keyword_greedy") is not None]
    if not known:
        return None
    return sum(row["keyword_share"] > 0 and row["keyword_greedy"] == 0 for row in known), len(known)
