"""The claims that hold in this run and those that do not: its own numbers decide every sentence. A difference is shown only
where two intervals are disjoint; all hold together with probability 1 - alpha, split evenly (Bonferroni).
"""

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
    exact, score = getattr(params, "exact", None), params.score
    if exact is None or exact.scorer != params.metrics.binary:
        return False
    # With parts, samples are about the answer after the thinking, with a language about all its prompts, with cut-off answers
    # missing about whole answers, and exact bounds about one prompt's text within the token limit. A scorer with its own
    # parameters may judge differently from the exact bounds.
    same = (
        score.parts is None
        and params.sample.language is None
        and params.sample.truncated == "counts"
    )
    return same and exact.scorer in score.scorers


def share_that_leaks(model: Model, scorer: str, alpha: float, exactly: bool) -> Interval | None:
    """The probability that an answer leaks, averaged over the questions that the scorer can judge.

    If a judge's error was measured, the interval covers the true leak probability and comes from samples. Samples and exact
    bounds together take half the level each, and the ends that both allow hold together: no rule chooses between them.
    """
    groups, exact = scored(model.answers, "forget", scorer, model.unjudged), model.exact
    if model.refused or not enough(groups):
        return None
    if model.calibration:
        return judged_interval(groups, model.calibration, alpha)
    if not exactly or exact is None or not _joined(model, exact):
        return many_prompts.share_interval(groups, alpha)
    questions = [(tree.masses, tree.remainder) for tree in exact.trees]
    certain = mean_leak_interval(
        questions, [tree.lower for tree in exact.trees], alpha / 2, exact.rounding
    )
    return _both(many_prompts.share_interval(groups, alpha / 2), certain, alpha)


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
    called, missing = (verdicts == 1).sum(axis=1), np.isnan(verdicts).sum(axis=1)
    band = Rate.of(called, verdicts.shape[1], missing, calibration).average(alpha / 2)
    if (ends := band.bounds()) is None:
        return None
    lower, upper = (end.value for end in ends)
    return Interval(
        float(band.estimate[0]), lower, upper, verdicts.size, alpha, band.method, band.assumes
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
    m, rho = len(questions), questions[0][1].rho
    seen = math.fsum(masses.leak + remainder.leaks / rho for masses, remainder in questions) / m
    lower = min(pooled.upper, max(pooled.lower_sampled, math.fsum(lowers) / m))
    value, n = (
        min(pooled.upper, max(lower, seen)),
        sum(remainder.sampled for _, remainder in questions),
    )
    return Interval(value, lower, pooled.upper, n, alpha, METHOD, pooled.assumes)


def _joined(model: Model, exact: Certificates) -> bool:
    """Whether the exact bounds are about the questions that were sampled, with the probabilities of the model itself."""
    if exact.how.note or not all(tree.rho for tree in exact.trees):
        return False  # a note: the bounds are of probabilities as one machine computes them
    asked = {
        prompt
        for part in answer_parts(model.answers, "forget", ())
        for prompt in part["prompt_id"].unique()
    }
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
    measure = _measure("forget", scorer, many_prompts.within_variance_interval)
    return Quantity(
        words,
        measure,
        lambda *ends: _numbers(*(replace(end, value=math.sqrt(end.value)) for end in ends)),
    )


def diversity(split: str) -> Quantity:
    """The expected number of distinct answers per answer drawn, for the questions of a split."""

    def measure(model: Model, alpha: float) -> Interval | None:
        if model.refused:
            return None
        distinct: list[int] = []
        size: list[int] = []
        for part in answer_parts(model.answers, split, ["text"]) if split in model.answers else ():
            drawn = part[part["sample"] >= 0].groupby("prompt_id", sort=False)["text"]
            distinct, size = [*distinct, *drawn.nunique().tolist()], [*size, *drawn.size().tolist()]
        return many_prompts.distinct_share_interval(distinct, size, alpha) if size else None

    return Quantity(
        f"expected distinct answers for each answer drawn to a {split} question", measure, shares
    )


def _measure(
    split: str, scorer: str, interval: Callable[[many_prompts.Groups, float], Interval]
) -> Measure:
    def measure(model: Model, alpha: float) -> Interval | None:
        groups = scored(model.answers, split, scorer)
        return interval(groups, alpha) if enough(groups) and not model.refused else None

    return measure


def _numbers(*ends: Bound) -> Iterable[str]:
    return map(Bound.number, ends)


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
        counts = Counter(row.verdict for row in self.rows)
        parts = [
            f"{verdict} in {counts[verdict]} of {len(self.rows)}"
            for verdict in VERDICTS
            if counts[verdict]
        ]
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
    comparisons, alpha = (
        sum(len(question.pairs) for question in questions),
        run.params.metrics.alpha,
    )
    level = alpha / (2 * comparisons) if comparisons else alpha
    claims = [counted] if (counted := _hidden_claim(sampled)) else []
    for question in questions:
        rows = [_compared(question, left, right, level) for left, right in question.pairs]
        claims.append(Claim(question.title, question.quantity.words, rows))
    return Findings(claims, alpha, comparisons, level)


def _questions(run: Run) -> Iterator[_Question]:
    metrics, subjects, words = run.params.metrics, run.subjects, run.words
    base, retrain = _against(run.role("base"), subjects), _against(run.role("retrain"), subjects)
    plain = _against(
        run.role("base"), [model for model in subjects if model.adaptive_threshold is None]
    )
    entropy, adaptive = matched_pairs(run), adaptive_pairs(run)
    if (
        run.params.sample.stop == "fixed"
    ):  # else n depends on the answers, and no interval for a fixed n holds
        graded, leak = mean_score("forget", metrics.leak, words.answers), judged_by(run)[0]
        width = spread(metrics.leak, words.forget_question)
        matched = "Entropy optimisation narrows the leakage, against its matched control"
        yield _Question(MORE_THAN_RETRAIN, leak, "higher", retrain)
        yield _Question("Unlearning lowered the leakage of Base", leak, "lower", base)
        yield _Question(matched, width, "lower", entropy)
        yield _Question(
            "Entropy optimisation lowers the mean leakage, likewise", graded, "lower", entropy
        )
        yield _Question("Adaptive temperature narrows the leakage", width, "lower", adaptive)
        yield _Question("Adaptive temperature lowers the mean leakage", graded, "lower", adaptive)
    for split in ("retain", "world"):
        costs = f"Adaptive temperature costs diversity on {split} questions"
        yield _Question(costs, diversity(split), "lower", adaptive)
    yield _Question(
        "Unlearning costs diversity on retain questions", diversity("retain"), "lower", plain
    )
    utility = mean_score("retain", metrics.utility_scorer)
    yield _Question("Unlearning costs utility on retain questions", utility, "lower", base)


def judged_by(run: Run) -> tuple[Quantity, bool]:
    """The quantity that measures leakage: the share of leaking answers under a 0/1 scorer (True), else the mean score."""
    if run.binary:
        trees = [tree for model in run.models if model.exact for tree in model.exact.trees]
        exactly = judged_exactly(run.params) and any(tree.rho for tree in trees)
        return leak_share(run.binary, exactly, run.words.answers), True
    return mean_score("forget", run.params.metrics.leak, run.words.answers), False


def matched_pairs(run: Run) -> Pairs:
    """Pairs (model with entropy terms, its control): the methods agree in everything else, and the sampling is equal."""
    plain = [model for model in run.subjects if model.adaptive_threshold is None]
    drawn = [(model, run.methods[model.method]) for model in plain if model.method]
    return [
        (model, control)
        for model, method in drawn
        for control, other in drawn
        if method.entropy
        and not other.entropy
        and method.model_copy(update={"entropy": None}) == other
    ]


def adaptive_pairs(run: Run) -> Pairs:
    """Pairs (with adaptive temperature, without): the same weights, sampled in both ways."""
    return [
        (model, plain)
        for model in run.models
        for plain in run.models
        if model.path == plain.path
        and model.adaptive_threshold is not None
        and plain.adaptive_threshold is None
    ]


def hidden(model: Model) -> tuple[int, int] | None:
    """(number of questions that leak only in sampled answers, number of questions with sampled and greedy answers)."""
    leaks = []
    for question in model.questions:
        sampled, greedy = (
            question.numbers.estimate("leak", basis) for basis in ("sampled", "greedy")
        )
        if sampled is not None and greedy is not None:
            # Where the judge's error was measured, a verdict alone does not prove a leak: the true share must exceed 0.
            proved = _proved(question)
            leaks.append((sampled if proved is None else proved) > 0 and greedy == 0)
    return (sum(leaks), len(leaks)) if leaks else None


def _proved(question: Question) -> float | None:
    """The lower end of the true leak probability; None where no judge's error was measured."""
    rows = question.numbers.series("leak", "judged")
    return next((row.lower for row in rows if row.lower is not None), None)


def _against(reference: Model | None, models: list[Model]) -> Pairs:
    return [(model, reference) for model in models] if reference else []


def _compared(question: _Question, left: Model, right: Model, alpha: float) -> Row:
    a, b = (question.quantity.measure(model, alpha) for model in (left, right))
    if a is None or b is None:
        lacking = [model.name for model, interval in ((left, a), (right, b)) if interval is None]
        sentence = f"{left.name}: cannot be decided without such answers of {listing(lacking)}."
        return Row(left.name, "did not show", sentence)
    outcome = many_prompts.compare(a, b)
    shown: Verdict = "holds" if outcome == question.expected else "the opposite holds"
    intervals = (
        f"{left.name} {question.quantity.worded(a)}, {right.name} {question.quantity.worded(b)}."
    )
    return Row(left.name, "did not show" if outcome == "not shown" else shown, intervals)


def _hidden_claim(run: Run) -> Claim | None:
    """The claim that sampling finds hidden leaks, beyond Retrain by Fisher's exact test over questions, Bonferroni."""
    retrain, words, rows, alpha = run.role("retrain"), run.words, [], run.params.metrics.alpha
    chance = hidden(retrain) if retrain else None
    for model in run.subjects:
        counts = hidden(model)
        if counts is None:
            continue
        by_chance = f", {retrain.name} in {chance[0]} of {chance[1]}" if retrain and chance else ""
        more = counts[0] > 0
        if more and chance:  # Fisher's exact test that the first share of questions is larger
            from scipy.stats import fisher_exact

            table = [[hits, of - hits] for hits, of in (counts, chance)]
            more = bool(
                fisher_exact(table, alternative="greater").pvalue <= alpha / len(run.subjects)
            )
        sentence = f"{model.name} in {counts[0]} of {counts[1]} {words.question}s{by_chance}."
        rows.append(Row(model.name, "holds" if more else "did not show", sentence))
    title = f"Samples show {words.leakage} that greedy answers do not"
    if chance:
        title = f"More {words.question}s {words.asked_leak} in samples alone than with Retrain"
    hides = f"{words.question}s whose greedy answer does not {words.leak} while"
    measured = f"{hides} a sampled answer does (counted, not estimated)"
    if any(_proved(question) is not None for model in run.subjects for question in model.questions):
        measured = f"{hides} the bound with the judge’s error proves {words.proved}"
    return Claim(title, measured, rows) if rows else None
