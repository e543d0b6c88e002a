"""The claims that hold in this run and those that do not: its own numbers decide every sentence. A difference is shown only
where two intervals are disjoint; all hold together with probability 1 - alpha, split evenly (Bonferroni).
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from lethe.config.schema import EvaluationParams, Params
from lethe.measure.answers import answer_parts, enough, scored
from lethe.measure.run import Model, Question, Run
from lethe.statistics import many_prompts
from lethe.statistics.answer_tree import EXACTLY, Masses, Remainder, Rounding, pooled_leak
from lethe.statistics.bound import Bound, Interval
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from lethe.statistics.leak_trees import Certificates
from lethe.text import label, listing, shares

METHOD = "answer trees, Poisson sample of the rest"
EXACT_BOUNDS = "exact bounds"  # marks an interval of exact bounds, as opposed to one of samples
MORE_THAN_RETRAIN = "Unlearning left more leakage than Retrain has by chance"
Measure = Callable[[Model, float], Interval | None]
Verdict = Literal["holds", "the opposite holds", "did not show"]
VERDICTS: tuple[Verdict, ...] = ("holds", "the opposite holds", "did not show")
Pairs = list[tuple[Model, Model]]


def judged_exactly(params: EvaluationParams | Params) -> bool:
    """Whether exact bounds and sampled answers have the same scorer and prompts, so that they can be joined."""
    exact = getattr(params, "exact", None)
    if exact is None or exact.scorer != params.metrics.binary:
        return False
    # With parts, samples are about the answer after the thinking, with a language about all its prompts, with cut-off answers
    # missing about whole answers, and exact bounds about one prompt's text within the token limit.
    if params.score.parts is not None or params.sample.language is not None:
        return False
    if params.sample.truncated != "counts":
        return False
    # A scorer with its own parameters, which is no name in the list, may judge differently from the exact bounds.
    return exact.scorer in params.score.scorers


def share_that_leaks(model: Model, scorer: str, alpha: float, exactly: bool) -> Interval | None:
    """The probability that an answer leaks, averaged over the questions that the scorer can judge.

    If a judge's error was measured, the interval covers the true leak probability and comes from samples. Samples and exact
    bounds together take half the level each, and the ends that both allow hold together: no rule chooses between them.
    """
    groups = scored(model.answers, "forget", scorer, model.unjudged)
    exact = model.exact
    if model.refused or not enough(groups):
        return None
    if model.calibration:
        return judged_interval(groups, model.calibration, alpha)
    if not exactly or exact is None or not _joined(model, exact):
        return many_prompts.share_interval(groups, alpha)
    questions = [(tree.masses, tree.remainder) for tree in exact.trees]
    lowers = [tree.lower for tree in exact.trees]
    certain = mean_leak_interval(questions, lowers, alpha / 2, exact.rounding)
    sampled = many_prompts.share_interval(groups, alpha / 2)
    return _both(sampled, certain, alpha)


def _both(sampled: Interval, certain: Interval, alpha: float) -> Interval:
    """The ends that both intervals allow."""
    lower = min(max(sampled.lower, certain.lower), certain.upper)
    upper = max(min(sampled.upper, certain.upper), lower)
    assumes = f"{sampled.assumes}; {certain.assumes}"
    return replace(certain, lower=lower, upper=upper, n=sampled.n, alpha=alpha, assumes=assumes)


def judged_interval(
    groups: many_prompts.Groups, calibration: Calibration, alpha: float
) -> Interval | None:
    """The average true leak probability over questions, each end at alpha / 2; None where the calibration does not fit."""
    verdicts = np.stack([np.asarray(group, dtype=np.float64) for group in groups])
    called = (verdicts == 1).sum(axis=1)
    missing = np.isnan(verdicts).sum(axis=1)
    band = Rate.of(called, verdicts.shape[1], missing, calibration).average(alpha / 2)
    ends = band.bounds()
    if ends is None:
        return None
    lower, upper = ends
    return Interval(
        value=float(band.estimate[0]),
        lower=lower.value,
        upper=upper.value,
        n=verdicts.size,
        alpha=alpha,
        method=band.method,
        assumes=band.assumes,
    )


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
    m = len(questions)
    _, first = questions[0]
    seen = math.fsum(masses.leak + remainder.leaks / first.rho for masses, remainder in questions)
    certain = math.fsum(lowers) / m
    lower = min(pooled.upper, max(pooled.lower_sampled, certain))
    value = min(pooled.upper, max(lower, seen / m))
    n = sum(remainder.sampled for _, remainder in questions)
    return Interval(value, lower, pooled.upper, n, alpha, METHOD, pooled.assumes)


def _joined(model: Model, exact: Certificates) -> bool:
    """Whether the exact bounds are about the questions that were sampled, with the probabilities of the model itself."""
    if exact.how.note or not all(tree.rho for tree in exact.trees):
        return False  # a note: the bounds are of probabilities as one machine computes them
    asked: set[str] = set()
    for part in answer_parts(model.answers, "forget", ()):
        asked.update(part["prompt_id"].unique())
    return {tree.id for tree in exact.trees} == asked - set(model.unjudged)


@dataclass(frozen=True)
class Quantity:
    """``measure(model, alpha)`` returns an interval, or None if the model's artifacts do not allow one."""

    words: str
    measure: Measure
    show: Callable[[Bound, Bound], Iterable[str]]  # both ends of the interval, each rounded outward

    def worded(self, interval: Interval) -> str:
        return " to ".join(self.show(*interval.bounds()))


def leak_share(scorer: str, exactly: bool = False, answers: str = "forget answers") -> Quantity:
    """The probability that a forget answer leaks, by a 0/1 scorer, averaged over the questions that it can judge."""
    narrowed = f", narrowed by {EXACT_BOUNDS} where there are any" if exactly else ""
    words = f"share of sampled {answers} with {label(scorer)}{narrowed}"
    return Quantity(
        words, lambda model, alpha: share_that_leaks(model, scorer, alpha, exactly), shares
    )


def mean_score(split: str, scorer: str, answers: str = "") -> Quantity:
    """The expected score of a sampled answer, averaged over the questions of a split."""
    words = f"mean {label(scorer)} of sampled {answers or f'{split} answers'}"
    return Quantity(words, _measure(split, scorer, many_prompts.mean_interval), _numbers)


def spread(scorer: str, question: str = "forget question") -> Quantity:
    """The standard deviation of a score within a forget question, as root mean square over questions."""
    words = f"standard deviation of {label(scorer)} within a {question}, root mean square over questions"
    return Quantity(
        words, _measure("forget", scorer, many_prompts.within_variance_interval), _roots
    )


def diversity(split: str) -> Quantity:
    """The expected number of distinct answers per answer drawn, for the questions of a split."""

    def measure(model: Model, alpha: float) -> Interval | None:
        if model.refused or split not in model.answers:
            return None
        distinct: list[int] = []
        size: list[int] = []
        for part in answer_parts(model.answers, split, ["text"]):
            drawn = part[part["sample"] >= 0].groupby("prompt_id", sort=False)["text"]
            distinct += drawn.nunique().tolist()
            size += drawn.size().tolist()
        return many_prompts.distinct_share_interval(distinct, size, alpha) if size else None

    words = f"expected distinct answers for each answer drawn to a {split} question"
    return Quantity(words, measure, shares)


def _measure(
    split: str, scorer: str, interval: Callable[[many_prompts.Groups, float], Interval]
) -> Measure:
    def measure(model: Model, alpha: float) -> Interval | None:
        groups = scored(model.answers, split, scorer)
        return interval(groups, alpha) if enough(groups) and not model.refused else None

    return measure


def _numbers(*ends: Bound) -> Iterable[str]:
    return map(Bound.number, ends)


def _roots(*ends: Bound) -> Iterable[str]:
    """The square roots of ends, such as standard deviations of ends of a variance."""
    for end in ends:
        yield replace(end, value=math.sqrt(end.value)).number()


@dataclass(frozen=True)
class Row:
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
        """In how many models the claim came out how."""
        counts = Counter(row.verdict for row in self.rows)
        parts = []
        for verdict in VERDICTS:
            if counts[verdict]:
                parts.append(f"{verdict} in {counts[verdict]} of {len(self.rows)}")
        return "; ".join(parts) + "."


@dataclass(frozen=True)
class Findings:
    """All claims of a run. The intervals behind them hold together with probability 1 - ``alpha``."""

    claims: list[Claim]
    alpha: float
    comparisons: int
    level: float  # the alpha of each interval


class _Question(NamedTuple):
    """A claim before the measurement: ``expected`` is the outcome that the claim predicts for the first of each pair."""

    title: str
    quantity: Quantity
    expected: many_prompts.Outcome
    pairs: Pairs


def findings(run: Run) -> Findings:
    """Every claim that the models of this run can test."""
    # `Run.missing` names the models without answers, and the verdicts those whose answers carry no claim.
    claimable = [model for model in run.models if model.answers and not model.refused]
    sampled = replace(run, models=claimable)
    questions = [question for question in _questions(sampled) if question.pairs]
    comparisons = sum(len(question.pairs) for question in questions)
    alpha = run.params.metrics.alpha
    level = alpha / (2 * comparisons) if comparisons else alpha
    claims = []
    hidden_leaks = _hidden_claim(sampled)
    if hidden_leaks:
        claims.append(hidden_leaks)
    for question in questions:
        rows = [_compared(question, left, right, level) for left, right in question.pairs]
        claims.append(Claim(question.title, question.quantity.words, rows))
    return Findings(claims, alpha, comparisons, level)


def _questions(run: Run) -> Iterator[_Question]:
    """The claims that can be asked of a run, in the order of the page; some have no pair of models."""
    metrics = run.params.metrics
    beside_base = _against(run.role("base"), run.subjects)
    beside_retrain = _against(run.role("retrain"), run.subjects)
    entropy, adaptive = matched_pairs(run), adaptive_pairs(run)
    # With a stopping rule n depends on the answers, and no interval for a fixed n holds.
    if run.params.sample.stop == "fixed":
        leak, _ = judged_by(run)
        graded = mean_score("forget", metrics.leak, run.words.answers)
        width = spread(metrics.leak, run.words.forget_question)
        yield _Question(MORE_THAN_RETRAIN, leak, "higher", beside_retrain)
        yield _Question("Unlearning lowered the leakage of Base", leak, "lower", beside_base)
        title = "Entropy optimisation narrows the leakage, against its matched control"
        yield _Question(title, width, "lower", entropy)
        title = "Entropy optimisation lowers the mean leakage, likewise"
        yield _Question(title, graded, "lower", entropy)
        yield _Question("Adaptive temperature narrows the leakage", width, "lower", adaptive)
        yield _Question("Adaptive temperature lowers the mean leakage", graded, "lower", adaptive)
    for split in ("retain", "world"):
        title = f"Adaptive temperature costs diversity on {split} questions"
        yield _Question(title, diversity(split), "lower", adaptive)
    plain = [model for model in run.subjects if model.adaptive_threshold is None]
    title = "Unlearning costs diversity on retain questions"
    yield _Question(title, diversity("retain"), "lower", _against(run.role("base"), plain))
    utility = mean_score("retain", metrics.utility_scorer)
    yield _Question("Unlearning costs utility on retain questions", utility, "lower", beside_base)


def judged_by(run: Run) -> tuple[Quantity, bool]:
    """The quantity that measures leakage: the share of leaking answers under a 0/1 scorer (True), else the mean score."""
    if not run.binary:
        return mean_score("forget", run.params.metrics.leak, run.words.answers), False
    has_samples_of_trees = False
    for model in run.models:
        if model.exact and any(tree.rho for tree in model.exact.trees):
            has_samples_of_trees = True
    exactly = has_samples_of_trees and judged_exactly(run.params)
    return leak_share(run.binary, exactly, run.words.answers), True


def matched_pairs(run: Run) -> Pairs:
    """Pairs (model with entropy terms, its control): the methods agree in everything else, and the sampling is equal."""
    made_by = []
    for model in run.subjects:
        if model.adaptive_threshold is None and model.method:
            made_by.append((model, run.methods[model.method]))
    pairs = []
    for model, method in made_by:
        if not method.entropy:
            continue
        without_entropy = method.model_copy(update={"entropy": None})
        for control, other in made_by:
            if not other.entropy and other == without_entropy:
                pairs.append((model, control))
    return pairs


def adaptive_pairs(run: Run) -> Pairs:
    """Pairs (with adaptive temperature, without): the same weights, sampled in both ways."""
    plain = [model for model in run.models if model.adaptive_threshold is None]
    pairs = []
    for model in run.models:
        if model.adaptive_threshold is None:
            continue
        for other in plain:
            if other.path == model.path:
                pairs.append((model, other))
    return pairs


class Hidden(NamedTuple):
    """How many questions leak only in sampled answers, of those with sampled and greedy answers."""

    leaking: int
    questions: int


def hidden(model: Model) -> Hidden | None:
    """The hidden leaks of a model; None where no question has sampled and greedy answers."""
    leaks = []
    for question in model.questions:
        sampled = question.numbers.estimate("leak", "sampled")
        greedy = question.numbers.estimate("leak", "greedy")
        if sampled is None or greedy is None:
            continue
        # Where the judge's error was measured, a verdict alone does not prove a leak: the true share must exceed 0.
        proved = _proved(question)
        share = sampled if proved is None else proved
        leaks.append(share > 0 and greedy == 0)
    return Hidden(sum(leaks), len(leaks)) if leaks else None


def _proved(question: Question) -> float | None:
    """The lower end of the true leak probability; None where no judge's error was measured."""
    for row in question.numbers.series("leak", "judged"):
        if row.lower is not None:
            return row.lower
    return None


def _against(reference: Model | None, models: list[Model]) -> Pairs:
    return [(model, reference) for model in models] if reference else []


def _compared(question: _Question, left: Model, right: Model, alpha: float) -> Row:
    a = question.quantity.measure(left, alpha)
    b = question.quantity.measure(right, alpha)
    if a is None or b is None:
        lacking = [model.name for model, interval in ((left, a), (right, b)) if interval is None]
        sentence = f"{left.name}: cannot be decided without such answers of {listing(lacking)}."
        return Row(left.name, "did not show", sentence)
    worded = question.quantity.worded
    sentence = f"{left.name} {worded(a)}, {right.name} {worded(b)}."
    outcome = many_prompts.compare(a, b)
    if outcome == "not shown":
        return Row(left.name, "did not show", sentence)
    shown: Verdict = "holds" if outcome == question.expected else "the opposite holds"
    return Row(left.name, shown, sentence)


def _hidden_claim(run: Run) -> Claim | None:
    """The claim that sampling finds hidden leaks, beyond Retrain by Fisher's exact test over questions, Bonferroni."""
    words = run.words
    retrain = run.role("retrain")
    by_chance = hidden(retrain) if retrain else None
    level = run.params.metrics.alpha / max(1, len(run.subjects))
    rows = []
    for model in run.subjects:
        found = hidden(model)
        if found is None:
            continue
        sentence = f"{model.name} in {found.leaking} of {found.questions} {words.question}s"
        if retrain and by_chance:
            sentence += f", {retrain.name} in {by_chance.leaking} of {by_chance.questions}"
        shown: Verdict = "holds" if _has_more(found, by_chance, level) else "did not show"
        rows.append(Row(model.name, shown, f"{sentence}."))
    if not rows:
        return None
    title = f"Samples show {words.leakage} that greedy answers do not"
    if by_chance:
        title = f"More {words.question}s {words.asked_leak} in samples alone than with Retrain"
    hides = f"{words.question}s whose greedy answer does not {words.leak} while"
    measured = f"{hides} a sampled answer does (counted, not estimated)"
    questions = itertools.chain.from_iterable(model.questions for model in run.subjects)
    if any(_proved(question) is not None for question in questions):
        measured = f"{hides} the bound with the judge’s error proves {words.proved}"
    return Claim(title, measured, rows)


def _has_more(found: Hidden, by_chance: Hidden | None, level: float) -> bool:
    """Whether a model has hidden leaks, and beside a Retrain in a larger share of questions (Fisher's exact test)."""
    if not found.leaking or not by_chance:
        return found.leaking > 0
    from scipy.stats import fisher_exact

    table = [[counts.leaking, counts.questions - counts.leaking] for counts in (found, by_chance)]
    return bool(fisher_exact(table, alternative="greater").pvalue <= level)
