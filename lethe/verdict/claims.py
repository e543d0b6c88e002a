"""The claims that hold in this run and those that do not: its own numbers decide every sentence. A difference is shown only
where two intervals are disjoint; all hold together with probability 1 - alpha, split evenly (Bonferroni).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lethe.config.schema import EvaluationParams, Params
from lethe.measure.answers import answer_parts, enough, scored
from lethe.measure.run import Question, Run, RunModel
from lethe.statistics import many_prompts
from lethe.statistics.answer_tree import EXACTLY, Masses, Remainder, Rounding, pooled_leak
from lethe.statistics.bound import Bound, Interval
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from lethe.statistics.leak_trees import Certificates
from lethe.text import label, listing, shares
from lethe.verdict.claim import Claim, Claims, ModelOutcome, Outcome

METHOD = "answer trees, Poisson sample of the rest"
EXACT_BOUNDS = "exact bounds"  # marks an interval of exact bounds, as opposed to one of samples
MORE_THAN_RETRAIN = "Unlearning left more leakage than Retrain has by chance"
Measure = Callable[[RunModel, float], Interval | None]
Pairs = list[tuple[RunModel, RunModel]]


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


def share_that_leaks(model: RunModel, scorer: str, alpha: float, exactly: bool) -> Interval | None:
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
    leaks = []
    sampled = 0
    for masses, remainder in questions:
        leaks.append(masses.leak + remainder.leaks / first.rho)
        sampled += remainder.sampled
    mean = math.fsum(leaks) / m
    certain = math.fsum(lowers) / m
    lower = min(pooled.upper, max(pooled.lower_sampled, certain))
    return Interval(
        value=min(pooled.upper, max(lower, mean)),
        lower=lower,
        upper=pooled.upper,
        n=sampled,
        alpha=alpha,
        method=METHOD,
        assumes=pooled.assumes,
    )


def _joined(model: RunModel, exact: Certificates) -> bool:
    """Whether the exact bounds are about the questions that were sampled, with the probabilities of the model itself."""
    if exact.how.note:  # the bounds are of probabilities as one machine computes them
        return False
    if model.stale_exact:
        return False
    if not all(tree.rho for tree in exact.trees):
        return False
    asked: set[str] = set()
    for part in answer_parts(model.answers, "forget", ()):
        asked.update(part["prompt_id"].unique())
    walked = {tree.id for tree in exact.trees}
    return walked == asked - set(model.unjudged)


@dataclass(frozen=True)
class ClaimedQuantity:
    """What a claim measures, in words, and how.

    ``measure(model, alpha)`` returns an interval, or None if the model's artifacts do not allow one. ``show`` makes texts
    of both ends of the interval, each rounded outward.
    """

    words: str
    measure: Measure
    show: Callable[[Bound, Bound], Iterable[str]]

    def worded(self, interval: Interval) -> str:
        """Both ends of an interval as text."""
        lower, upper = interval.bounds()
        return " to ".join(self.show(lower, upper))


def leak_share(
    scorer: str, exactly: bool = False, answers: str = "forget answers"
) -> ClaimedQuantity:
    """The probability that a forget answer leaks, by a 0/1 scorer, averaged over the questions that it can judge.

    ``exactly``: bounds of answer trees narrow the interval where they are about the same answers.
    """

    def measure(model: RunModel, alpha: float) -> Interval | None:
        return share_that_leaks(model, scorer, alpha, exactly)

    words = f"share of sampled {answers} with {label(scorer)}"
    if exactly:
        words += f", narrowed by {EXACT_BOUNDS} where there are any"
    return ClaimedQuantity(words, measure, shares)


def mean_score(split: str, scorer: str, answers: str = "") -> ClaimedQuantity:
    """The expected score of a sampled answer, in [0, 1], averaged over the questions of a split."""
    measured = answers or f"{split} answers"
    words = f"mean {label(scorer)} of sampled {measured}"
    return ClaimedQuantity(words, _measure(split, scorer, many_prompts.mean_interval), _numbers)


def spread(scorer: str, question: str = "forget question") -> ClaimedQuantity:
    """The standard deviation of a score within a forget question, as root mean square over questions.

    Its intervals are of the mean variance; the ends that are shown are their square roots.
    """
    words = f"standard deviation of {label(scorer)} within a {question}, root mean square over questions"
    measure = _measure("forget", scorer, many_prompts.within_variance_interval)
    return ClaimedQuantity(words, measure, _roots)


def diversity(split: str) -> ClaimedQuantity:
    """The expected number of distinct answers per answer drawn, for the questions of a split."""

    def measure(model: RunModel, alpha: float) -> Interval | None:
        if model.refused or split not in model.answers:
            return None
        distinct: list[int] = []
        size: list[int] = []
        for part in answer_parts(model.answers, split, ["text"]):
            sampled = part[part["sample"] >= 0]
            drawn = sampled.groupby("prompt_id", sort=False)["text"]
            distinct += drawn.nunique().tolist()
            size += drawn.size().tolist()
        if not size:
            return None
        return many_prompts.distinct_share_interval(distinct, size, alpha)

    words = f"expected distinct answers for each answer drawn to a {split} question"
    return ClaimedQuantity(words, measure, shares)


def _measure(
    split: str, scorer: str, interval: Callable[[many_prompts.Groups, float], Interval]
) -> Measure:
    """The interval of the scores of a split; None where they are too few, or nothing is claimed of the answers."""

    def measure(model: RunModel, alpha: float) -> Interval | None:
        groups = scored(model.answers, split, scorer)
        if model.refused or not enough(groups):
            return None
        return interval(groups, alpha)

    return measure


def _numbers(*ends: Bound) -> Iterable[str]:
    return map(Bound.number, ends)


def _roots(*ends: Bound) -> Iterable[str]:
    """The square roots of ends, such as standard deviations of ends of a variance."""
    for end in ends:
        root = replace(end, value=math.sqrt(end.value))
        yield root.number()


class _Question(NamedTuple):
    """A claim before the measurement: ``expected`` is the outcome that the claim predicts for the first of each pair."""

    key: str
    title: str
    quantity: ClaimedQuantity
    expected: many_prompts.Outcome
    pairs: Pairs


def findings(run: Run) -> Claims:
    """Every claim that the models of this run can test."""
    # `Run.missing` names the models without answers, and the verdicts those whose answers carry no claim.
    claimable = [model for model in run.models if model.answers and not model.refused]
    sampled = replace(run, models=claimable)
    questions = []
    comparisons = 0
    for question in _questions(sampled):
        if question.pairs:
            questions.append(question)
            comparisons += len(question.pairs)
    alpha = run.params.metrics.alpha
    level = alpha
    if comparisons:
        level = alpha / (2 * comparisons)  # a comparison has two intervals (Bonferroni)

    claims = []
    hidden_leaks = _hidden_claim(sampled)
    if hidden_leaks:
        claims.append(hidden_leaks)
    for question in questions:
        rows = []
        for left, right in question.pairs:
            rows.append(_compared(question, left, right, level))
        claims.append(Claim(question.key, question.title, question.quantity.words, rows))
    return Claims(claims, alpha, comparisons, level)


def _questions(run: Run) -> Iterator[_Question]:
    """The claims that can be asked of a run, in the order of the page; some have no pair of models."""
    metrics = run.params.metrics
    base = run.role("base")
    beside_base = _against(base, run.subjects)
    asked_base = base  # Base of an evaluation answers what is to be kept alone
    if base is not None and "forget" not in base.answers:
        asked_base = None
    beside_retrain = _against(run.role("retrain"), run.subjects)
    entropy = matched_pairs(run)
    adaptive = adaptive_pairs(run)
    leak, _ = judged_by(run)
    graded = mean_score("forget", metrics.leak, run.words.answers)
    width = spread(metrics.leak, run.words.forget_question)
    title = MORE_THAN_RETRAIN
    yield _Question("more_than_retrain", title, leak, "higher", beside_retrain)
    title = "Unlearning lowered the leakage of Base"
    yield _Question("less_than_base", title, leak, "lower", _against(asked_base, run.subjects))
    title = "Entropy optimisation narrows the leakage, against its matched control"
    yield _Question("entropy_narrows", title, width, "lower", entropy)
    title = "Entropy optimisation lowers the mean leakage, likewise"
    yield _Question("entropy_lowers", title, graded, "lower", entropy)
    title = "Adaptive temperature narrows the leakage"
    yield _Question("adaptive_narrows", title, width, "lower", adaptive)
    title = "Adaptive temperature lowers the mean leakage"
    yield _Question("adaptive_lowers", title, graded, "lower", adaptive)
    for split in ("retain", "world"):
        title = f"Adaptive temperature costs diversity on {split} questions"
        yield _Question(f"adaptive_costs_{split}", title, diversity(split), "lower", adaptive)
    plain = [model for model in run.subjects if model.adaptive_threshold is None]
    title = "Unlearning costs diversity on retain questions"
    plain_beside_base = _against(run.role("base"), plain)
    yield _Question("costs_diversity", title, diversity("retain"), "lower", plain_beside_base)
    utility = mean_score("retain", metrics.utility_scorer)
    title = "Unlearning costs utility on retain questions"
    yield _Question("costs_utility", title, utility, "lower", beside_base)


def judged_by(run: Run) -> tuple[ClaimedQuantity, bool]:
    """The quantity that measures leakage: the share of leaking answers under a 0/1 scorer (True), else the mean score."""
    if not run.binary:
        return mean_score("forget", run.params.metrics.leak, run.words.answers), False
    exactly = judged_exactly(run.params) and any(map(_has_samples_of_trees, run.models))
    return leak_share(run.binary, exactly, run.words.answers), True


def _has_samples_of_trees(model: RunModel) -> bool:
    """Whether the rest of one of the model's answer trees was sampled."""
    if not model.exact or model.stale_exact:
        return False
    return any(tree.rho for tree in model.exact.trees)


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


def hidden(model: RunModel) -> Hidden | None:
    """The hidden leaks of a model; None where no question has sampled and greedy answers."""
    leaks = []
    for question in model.questions:
        sampled = question.numbers.estimate("leak", "sampled")
        greedy = question.numbers.estimate("leak", "greedy")
        if sampled is None or greedy is None:
            continue
        share = sampled
        # Where the judge's error was measured, a verdict alone does not prove a leak: the true share must exceed 0.
        proved = _proved(question)
        if proved is not None:
            share = proved
        leaks.append(share > 0 and greedy == 0)
    if not leaks:
        return None
    return Hidden(leaking=sum(leaks), questions=len(leaks))


def _proved(question: Question) -> float | None:
    """The lower end of the true leak probability; None where no judge's error was measured."""
    for row in question.numbers.series("leak", "judged"):
        if row.lower is not None:
            return row.lower
    return None


def _against(reference: RunModel | None, models: list[RunModel]) -> Pairs:
    """Each model with the reference; no pair without one."""
    if reference is None:
        return []
    return [(model, reference) for model in models]


def _compared(question: _Question, left: RunModel, right: RunModel, alpha: float) -> ModelOutcome:
    """What the intervals of two models, each at ``alpha``, say of a claim on the first."""
    quantity = question.quantity
    interval_of_left = quantity.measure(left, alpha)
    interval_of_right = quantity.measure(right, alpha)
    lacking = []
    if interval_of_left is None:
        lacking.append(left.name)
    if interval_of_right is None:
        lacking.append(right.name)
    if interval_of_left is None or interval_of_right is None:
        sentence = f"{left.name}: cannot be decided without such answers of {listing(lacking)}."
        return ModelOutcome(left.name, "did not show", sentence)
    of_left = quantity.worded(interval_of_left)
    of_right = quantity.worded(interval_of_right)
    sentence = f"{left.name} {of_left}, {right.name} {of_right}."
    outcome = many_prompts.compare(interval_of_left, interval_of_right)
    shown: Outcome = "the opposite holds"
    if outcome == "not shown":
        shown = "did not show"
    elif outcome == question.expected:
        shown = "holds"
    return ModelOutcome(left.name, shown, sentence, interval_of_left, interval_of_right)


def _hidden_claim(run: Run) -> Claim | None:
    """The claim that sampling finds hidden leaks, beyond Retrain by Fisher's exact test over questions, Bonferroni."""
    words = run.words
    by_chance = None
    in_retrain = ""
    retrain = run.role("retrain")
    if retrain:
        by_chance = hidden(retrain)
        if by_chance:
            in_retrain = f", {retrain.name} in {by_chance.leaking} of {by_chance.questions}"
    level = run.params.metrics.alpha / max(1, len(run.subjects))
    rows = []
    for model in run.subjects:
        found = hidden(model)
        if found is None:
            continue
        in_model = f"{model.name} in {found.leaking} of {found.questions} {words.question}s"
        shown: Outcome = "did not show"
        if _has_more(found, by_chance, level):
            shown = "holds"
        rows.append(ModelOutcome(model.name, shown, f"{in_model}{in_retrain}."))
    if not rows:
        return None

    title = f"Samples show {words.leakage} that greedy answers do not"
    if by_chance:
        title = f"More {words.question}s {words.asked_leak} in samples alone than with Retrain"
    hides = f"{words.question}s whose greedy answer does not {words.leak} while"
    measured = f"{hides} a sampled answer does (counted, not estimated)"
    if any(map(_has_proof, run.subjects)):
        measured = f"{hides} the bound with the judge’s error proves {words.proved}"
    return Claim("hidden_leaks", title, measured, rows)


def _has_proof(model: RunModel) -> bool:
    """Whether the judge's error was measured for one of the model's questions."""
    return any(_proved(question) is not None for question in model.questions)


def _has_more(found: Hidden, by_chance: Hidden | None, level: float) -> bool:
    """Whether a model has hidden leaks, and beside a Retrain in a larger share of questions (Fisher's exact test)."""
    if not found.leaking or not by_chance:
        return found.leaking > 0
    from scipy.stats import fisher_exact

    table = []
    for counts in (found, by_chance):
        table.append([counts.leaking, counts.questions - counts.leaking])
    return bool(fisher_exact(table, alternative="greater").pvalue <= level)
