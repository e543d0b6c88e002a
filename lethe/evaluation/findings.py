"""The claims that hold in this run and those that do not: this run's own numbers decide every sentence.

A difference counts as shown only where two confidence intervals are disjoint. All intervals of all comparisons hold
together with probability 1 - alpha: alpha is split evenly among them (Bonferroni), which assumes nothing about their
dependence.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lethe.config.schema import EvaluationParams, Params
from lethe.evaluation.answers import answer_parts, enough, scored, unjudged
from lethe.evaluation.run import Model, Run
from lethe.statistics.answer_tree import EXACTLY, Masses, Remainder, Rounding, pooled_leak
from lethe.statistics.bound import Bound
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from lethe.statistics.many_prompts import (
    Groups,
    Interval,
    Outcome,
    compare,
    distinct_share_interval,
    mean_interval,
    share_interval,
    within_variance_interval,
)
from lethe.text import label, listing

METHOD = "answer trees, Poisson sample of the rest"


def judged_exactly(params: EvaluationParams | Params) -> bool:
    """Whether exact bounds and sampled answers have the same scorer and prompts, so that they can be joined."""
    exact, score = getattr(params, "exact", None), params.score
    if exact is None or exact.scorer != params.metrics.binary:
        return False
    if score.parts is not None:
        return False  # the samples are about the answer after the thinking, the exact bounds about the whole text
    if params.sample.language is not None:
        return False  # the samples average over the prompts of a language, the exact bounds are of one prompt
    # A scorer with its own parameters may judge differently from the exact bounds.
    return exact.scorer in score.scorers


def share_that_leaks(model: Model, scorer: str, alpha: float, exactly: bool) -> Interval | None:
    """The probability that an answer leaks, averaged over the questions that the scorer can judge.

    If a judge's error was measured, the interval covers the true leak probability and comes from samples.
    """
    groups = scored(model, "forget", scorer, unjudged(model))
    if not enough(groups):
        return None
    if model.calibration:
        return judged_interval(groups, model.calibration, alpha)
    if not exactly or not _joined(model):
        return share_interval(groups, alpha)
    assert model.exact is not None
    trees = model.exact.trees
    known = [(tree.masses, tree.remainder) for tree in trees]
    exact = mean_leak_interval(known, [tree.lower for tree in trees], alpha / 2, model.exact.rounding)
    return _both(share_interval(groups, alpha / 2), exact, alpha)


def judged_interval(groups: Groups, calibration: Calibration, alpha: float) -> Interval | None:
    """The average true leak probability over questions, each end at alpha / 2; None where the calibration does not fit."""
    verdicts = np.stack([np.asarray(group, dtype=np.float64) for group in groups])
    called, missing = (verdicts == 1).sum(axis=1), np.isnan(verdicts).sum(axis=1)
    band = Rate.of(called, verdicts.shape[1], missing, calibration).average(alpha / 2)
    ends = band.bounds()
    if ends is None:
        return None
    lower, upper = (end.value for end in ends)
    return Interval(float(band.estimate[0]), lower, upper, verdicts.size, alpha, band.method, band.assumes)


def mean_leak_interval(
    questions: Sequence[tuple[Masses, Remainder]],
    lowers: Sequence[float],
    alpha: float,
    rounding: Rounding = EXACTLY,
) -> Interval:
    """The mean of P(leak) over questions that share one rate, by exact bounds; both ends together at ``alpha``.

    Each sampled end takes alpha / 2 (Garwood 1936); the larger of the certain and the sampled lower end costs nothing.
    ``lowers`` are the certain lower ends, and ``rounding`` is the largest error of the masses.
    """
    pooled = pooled_leak(questions, alpha / 2, rounding)
    m, rho = len(questions), questions[0][1].rho
    seen = math.fsum(masses.leak + remainder.leaks / rho for masses, remainder in questions) / m
    lower = min(pooled.upper, max(pooled.lower_sampled, math.fsum(lowers) / m))
    value, n = min(pooled.upper, max(lower, seen)), sum(remainder.sampled for _, remainder in questions)
    return Interval(value, lower, pooled.upper, n, alpha, METHOD, pooled.assumes)


def _joined(model: Model) -> bool:
    """Whether the exact bounds are about the questions that were sampled, with the probabilities of the model itself."""
    if model.exact is None or model.exact.how.note or not all(tree.rho for tree in model.exact.trees):
        return False  # a note: the bounds are of probabilities as one machine computes them
    asked = {prompt for part in answer_parts(model.answers, "forget", ()) for prompt in part["prompt_id"].unique()}
    return {tree.id for tree in model.exact.trees} == asked - set(unjudged(model))


def _both(sampled: Interval, exact: Interval, alpha: float) -> Interval:
    """The ends that both intervals allow; they hold together at the sum of the two levels."""
    lower = min(max(sampled.lower, exact.lower), exact.upper)
    upper = max(min(sampled.upper, exact.upper), lower)
    assumes = f"{sampled.assumes}; {exact.assumes}"
    return replace(exact, lower=lower, upper=upper, n=sampled.n, alpha=alpha, assumes=assumes)


Measure = Callable[[Model, float], Interval | None]
EXACTLY_TOLD = "exact bounds"  # marks an interval of exact bounds, as opposed to one of samples


@dataclass(frozen=True)
class Quantity:
    """A quantity: ``measure(model, alpha)`` returns an interval, or None if the model's artifacts do not allow one."""

    words: str
    measure: Measure
    show: Callable[[Bound], str]  # one end of the interval, which rounds itself

    def told(self, interval: Interval) -> str:
        ends = " to ".join(map(self.show, interval.bounds()))
        return f"{ends} (with {EXACTLY_TOLD})" if interval.method == METHOD else ends


def leak_share(scorer: str, exactly: bool = False, answers: str = "forget answers") -> Quantity:
    """The probability that a forget answer leaks, by a 0/1 scorer, averaged over the questions that it can judge."""

    def measure(model: Model, alpha: float) -> Interval | None:
        return share_that_leaks(model, scorer, alpha, exactly)

    words = f"share of sampled {answers} with {label(scorer)}"
    if exactly:
        words = f"{words}, narrowed by {EXACTLY_TOLD} where there are any"
    return Quantity(words, measure, _percent)


def mean_score(split: str, scorer: str, answers: str = "") -> Quantity:
    """The expected score of a sampled answer, averaged over the questions of a split."""
    words = f"mean {label(scorer)} of sampled {answers or f'{split} answers'}"
    return Quantity(words, _measure(split, scorer, mean_interval), _number)


def spread(scorer: str, question: str = "forget question") -> Quantity:
    """The standard deviation of a score within a forget question, as root mean square over questions."""
    words = f"standard deviation of {label(scorer)} within a {question}, root mean square over questions"
    return Quantity(words, _measure("forget", scorer, within_variance_interval), _root)


def diversity(split: str) -> Quantity:
    """The expected number of distinct answers per answer drawn, for the questions of a split."""

    def measure(model: Model, alpha: float) -> Interval | None:
        if split not in model.answers:
            return None
        distinct: list[int] = []
        size: list[int] = []
        for part in answer_parts(model.answers, split, ["text"]):
            drawn = part[part["sample"] >= 0].groupby("prompt_id", sort=False)["text"]
            distinct, size = [*distinct, *drawn.nunique().tolist()], [*size, *drawn.size().tolist()]
        return distinct_share_interval(distinct, size, alpha) if size else None

    return Quantity(f"expected distinct answers for each answer drawn to a {split} question", measure, _percent)


def _measure(split: str, scorer: str, interval: Callable[[Groups, float], Interval]) -> Measure:
    def measure(model: Model, alpha: float) -> Interval | None:
        groups = scored(model, split, scorer)
        return interval(groups, alpha) if enough(groups) else None

    return measure


def _root(variance: Bound) -> str:
    return dataclasses.replace(variance, value=math.sqrt(variance.value)).number()


def _number(end: Bound) -> str:
    return end.number()


def _percent(share: Bound) -> str:
    return share.percent(4 if share.method == METHOD else 2)  # exact bounds tell rarer leaks apart


Verdict = Literal["holds", "the opposite holds", "did not show"]
Pairs = list[tuple[Model, Model]]


@dataclass(frozen=True)
class Row:
    """One case of a claim, with the sentence that its numbers allow."""

    subject: str
    verdict: Verdict
    sentence: str


@dataclass(frozen=True)
class Claim:
    """A claim about the models of a run, with one row per case."""

    title: str
    measured: str
    rows: list[Row]

    @property
    def summary(self) -> str:
        """The number of cases per verdict, in words."""
        counts = Counter(row.verdict for row in self.rows)
        order: tuple[Verdict, ...] = ("holds", "the opposite holds", "did not show")
        parts = [f"{verdict} in {counts[verdict]} of {len(self.rows)}" for verdict in order if counts[verdict]]
        return "; ".join(parts).capitalize() + "."


@dataclass(frozen=True)
class Findings:
    """All claims of a run. The intervals behind them hold together with probability 1 - ``alpha``."""

    claims: list[Claim]
    alpha: float
    comparisons: int
    level: float  # the alpha of each interval
    against_retrain: dict[str, Outcome]  # model -> its leakage relative to Retrain's


@dataclass(frozen=True)
class _Question:
    """A claim before the measurement: ``expected`` is the outcome that the claim predicts for the first of each pair."""

    title: str
    quantity: Quantity
    expected: Outcome
    pairs: Pairs
    of_retrain: bool = False  # its outcomes are `Findings.against_retrain`


def findings(run: Run) -> Findings:
    """Every claim that the models of this run can test."""
    # `Run.missing` names the models without answers.
    sampled = dataclasses.replace(run, models=[model for model in run.models if model.answers])
    questions = [question for question in _questions(sampled) if question.pairs]
    comparisons, alpha = sum(len(question.pairs) for question in questions), run.params.metrics.alpha
    level = alpha / (2 * comparisons) if comparisons else alpha
    claims, against_retrain = [], {}
    if counted := _hidden_claim(run):
        claims.append(counted)
    for question in questions:
        rows = []
        for left, right in question.pairs:
            row, outcome = _compared(question, left, right, level)
            rows.append(row)
            if question.of_retrain:
                against_retrain[left.name] = outcome
        claims.append(Claim(question.title, question.quantity.words, rows))
    return Findings(claims, alpha, comparisons, level, against_retrain)


MORE_THAN_RETRAIN = "Unlearning left more leakage than Retrain has by chance"


def _questions(run: Run) -> Iterator[_Question]:
    metrics, subjects = run.params.metrics, run.subjects
    plain = [model for model in subjects if model.adaptive_threshold is None]
    entropy, adaptive = matched_pairs(run), adaptive_pairs(run)
    if (
        run.params.sample.stop == "fixed"
    ):  # otherwise n depends on the answers, and no interval for a fixed n holds
        graded, leak = mean_score("forget", metrics.leak, run.words.answers), judged_by(run)[0]
        width = spread(metrics.leak, run.words.forget_question)
        yield _Question(
            MORE_THAN_RETRAIN, leak, "higher", _against(run.role("retrain"), subjects), of_retrain=True
        )
        yield _Question(
            "Unlearning lowered the leakage of Base", leak, "lower", _against(run.role("base"), subjects)
        )
        yield _Question(
            "Entropy optimisation narrows the leakage, against its matched control", width, "lower", entropy
        )
        yield _Question("Entropy optimisation lowers the mean leakage, likewise", graded, "lower", entropy)
        yield _Question("Adaptive temperature narrows the leakage", width, "lower", adaptive)
        yield _Question("Adaptive temperature lowers the mean leakage", graded, "lower", adaptive)
    for split in ("retain", "world"):
        title = f"Adaptive temperature costs diversity on {split} questions"
        yield _Question(title, diversity(split), "lower", adaptive)
    kept, utility = diversity("retain"), mean_score("retain", metrics.kept)
    yield _Question(
        "Unlearning costs diversity on retain questions", kept, "lower", _against(run.role("base"), plain)
    )
    yield _Question(
        "Unlearning costs utility on retain questions", utility, "lower", _against(run.role("base"), subjects)
    )


def judged_by(run: Run) -> tuple[Quantity, bool]:
    """The quantity that measures leakage: the share of leaking answers under a 0/1 scorer (True), else the mean score."""
    if run.binary:
        trees = [tree for model in run.models if model.exact for tree in model.exact.trees]
        exactly = judged_exactly(run.params) and any(tree.rho for tree in trees)
        return leak_share(run.binary, exactly, run.words.answers), True
    return mean_score("forget", run.params.metrics.leak, run.words.answers), False


def matched_pairs(run: Run) -> Pairs:
    """Pairs (model with entropy terms, its control): the methods agree in everything else, and the sampling is equal."""
    methods = run.methods
    drawn = [
        (model, methods[model.method])
        for model in run.subjects
        if model.method and model.adaptive_threshold is None
    ]
    return [
        (model, control)
        for model, method in drawn
        for control, other in drawn
        if method.entropy and not other.entropy
        if method.model_copy(update={"entropy": None}) == other
    ]


def adaptive_pairs(run: Run) -> Pairs:
    """Pairs (with adaptive temperature, without): the same weights, sampled in both ways."""
    return [
        (model, plain)
        for model in run.models
        for plain in run.models
        if model.path == plain.path and model.adaptive_threshold is not None and plain.adaptive_threshold is None
    ]


def hidden(model: Model) -> tuple[int, int] | None:
    """(number of questions that leak only in sampled answers, number of questions with sampled and greedy answers)."""
    both = [
        # Where the judge's error was measured, a verdict alone does not prove a leak: the true share must exceed 0.
        (
            row.value("binary_share") if row.value("judged_lower") is None else row.value("judged_lower"),
            row.value("binary_greedy"),
        )
        for row in model.questions
        if row.value("binary_share") is not None and row.value("binary_greedy") is not None
    ]
    return (sum((share or 0) > 0 and greedy == 0 for share, greedy in both), len(both)) if both else None


def _against(reference: Model | None, models: list[Model]) -> Pairs:
    return [(model, reference) for model in models] if reference else []


def _compared(question: _Question, left: Model, right: Model, alpha: float) -> tuple[Row, Outcome]:
    a, b = (question.quantity.measure(model, alpha) for model in (left, right))
    if a is None or b is None:
        lacking = [model.name for model, interval in ((left, a), (right, b)) if interval is None]
        sentence = f"{left.name}: cannot be decided without such answers of {listing(lacking)}."
        return Row(left.name, "did not show", sentence), "not shown"
    outcome = compare(a, b)
    intervals = f"{left.name} {question.quantity.told(a)}, {right.name} {question.quantity.told(b)}."
    if outcome == "not shown":
        return Row(left.name, "did not show", intervals), outcome
    return Row(left.name, "holds" if outcome == question.expected else "the opposite holds", intervals), outcome


def _hidden_claim(run: Run) -> Claim | None:
    """The claim that sampling finds hidden leaks, beyond Retrain by Fisher's exact test over questions, Bonferroni."""
    retrain, words, rows, alpha = run.role("retrain"), run.words, [], run.params.metrics.alpha
    chance = hidden(retrain) if retrain else None
    for model in run.subjects:
        found = hidden(model)
        if found is None:
            continue
        by_chance = f", {retrain.name} in {chance[0]} of {chance[1]}" if retrain and chance else ""
        more = found[0] > 0 and (not chance or _more_often(found, chance, alpha / len(run.subjects)))
        sentence = f"{model.name} in {found[0]} of {found[1]} {words.question}s{by_chance}."
        rows.append(Row(model.name, "holds" if more else "did not show", sentence))
    judged = any(row.value("judged_lower") is not None for model in run.subjects for row in model.questions)
    title = f"Sampling finds {words.leakage} that greedy decoding hides" + (
        ", beyond what Retrain shows by chance" if chance else ""
    )
    hides = f"{words.question}s whose greedy answer does not {words.leak} while"
    measured = f"{hides} a sampled answer does (counted, not estimated)"
    if judged:
        measured = f"{hides} the bound with the judge’s error proves {words.proved}"
    return Claim(title, measured, rows) if rows else None


def _more_often(found: tuple[int, int], chance: tuple[int, int], alpha: float) -> bool:
    """Whether the first share of questions is proved to be larger: Fisher's exact test, one-sided."""
    from scipy.stats import fisher_exact

    table = [[hits, of - hits] for hits, of in (found, chance)]
    return bool(fisher_exact(table, alternative="greater").pvalue <= alpha)
