"""Every number that Lethe prints about forgetting, as one list per model.

The functions below read their keys from the functions that print them, and from the registries of scorers and
likelihoods, so a new key, scorer or likelihood takes part without a change here. Another package adds numbers by the entry
points `lethe.knowledge`: a module with ``values(seen, retrain, params)``. `Number.knows` is larger where the model knows
more, which each function declares beforehand and no data decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadValue
from lethe.evaluation.likelihood_metrics import against_retrain, membership
from lethe.evaluation.measure import ScoreMatrix, measure
from lethe.evaluation.scores import mean
from lethe.models.likelihood import AnswerTokens
from lethe.registry import LIKELIHOODS, Registry
from lethe.results.exact_bounds import MEDIAN, excess_over_retrain
from lethe.results.table import Numbers, Result, Results, Rows
from lethe.scoring import applies
from lethe.scoring.likelihood import Item
from lethe.scoring.tofu import forget_truth, mean_term
from lethe.statistics.counts import unbiased
from lethe.statistics.epsilon_star import audit
from lethe.statistics.epsilon_star.ratios import recommended_delta
from lethe.statistics.leak_trees import PROVED

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row
    from lethe.statistics.leak_trees import Certificates
    from studies.meta_evaluation.settings import MetaParams

KNOWLEDGE = Registry("knowledge number", "knowledge", ())  # the numbers of other packages

GREEDY_PART, TREE_PART = "greedy", "tree"
# The likelihoods of a model in three parts: forget answers, their paraphrased and wrong answers, and held-out answers.
ANSWER_PART, OTHERS_PART, HELDOUT_PART = "forget answers", "other forget answers", "held-out answers"
MEMBERSHIP_PARTS = (ANSWER_PART, HELDOUT_PART)

# Answers: keys that say how was measured, and second names of other keys.
OTHERS = frozenset({"alpha", "n_questions", "n", "missing", "truncated", "truncated_worst"})
OF_THE_GREEDY_ANSWER = ("greedy_mean", "binary_greedy")
SAFE = ("certified_together",)  # a count of safe questions: smaller where the model knows more
# The key of a question's row behind a key of the model; a key of the same name needs no entry.
OF_QUESTION = {
    "greedy_mean": "greedy",
    "m_mu_worst": "m_mu",
    "m_mu_mean": "m_mu",
    "m_sigma_worst": "m_sigma",
    "tighter_mean_worst": "tighter_mean_upper",
    "tighter_sd_worst": "tighter_sd_upper",
    "m_bin_worst": "m_bin",
    "m_bin_pooled": "m_bin",
    "binary_mean": "binary_share",
    "binary_any": "binary_share",
}
WHETHER = ("binary_any",)  # whether a question has a leak, not how many of its answers leak

# Answer trees: fields of the model's summary that say how was measured, or that take part under another name.
OF_THE_TREES = frozenset(
    {"questions", "tau", "alpha", "rho", "rows", "sampled", "lower_worst", "upper_worst", "mean_lower"}
)
UPPER = ("tree_upper_worst", "tree_upper_mean")

MEMBERSHIP = "mia_"  # a measure of this name is a membership attack: forget rows against held-out rows
TRUTH_RATIO = "truth_ratio"
ENDINGS = ("_missing", "_low", "_high")  # counts, and the ends of an interval whose value takes part
OF_TRUTH_RATIO = ("forget_quality", "forget_ks")  # a test on the truth ratios of the forget set
# These are smaller where the model knows more; each with its number that is larger.
SMALLER: dict[str, Callable[[float], float]] = {
    # a p-value: small where the model differs from Retrain; 1 - p would round every p below 1e-16 to one value
    "forget_quality": lambda value: math.inf if value == 0 else -math.log10(value),
    "privleak": lambda value: -value / 100,  # 0 like Retrain, -100 where every row is remembered
}


def answers_part(n: int) -> str:
    return f"answers@{n}"


@dataclass(frozen=True)
class Cost:
    """Processor seconds, and rows (tokens put through the model), of one observation of a model; NaN if unknown."""

    seconds: float
    rows: float


@dataclass(frozen=True)
class Seen:
    """The observations of one model on the forget set.

    ``scores`` has the columns ``prompt_id``, ``sample`` (-1: greedy) and one per scorer; ``likelihoods`` are the tables of
    likelihood measures by split; ``trees`` are the exact bounds, None where no question can be judged. ``work`` has the
    cost of each observation by its name.
    """

    name: str
    rows: Mapping[str, Row]
    generations: pd.DataFrame
    scores: pd.DataFrame
    likelihoods: Mapping[str, pd.DataFrame]
    trees: Certificates | None = None
    work: Mapping[str, Cost] = field(default_factory=dict)


@dataclass(frozen=True)
class Number:
    """One number of one model; ``each`` has its value per question, ``parts`` the observations that it needs."""

    name: str
    value: float
    knows: float
    parts: tuple[str, ...]
    each: Mapping[str, float] = field(default_factory=dict)
    larger: bool = True


def numbers(seen: Seen, retrain: Seen, params: MetaParams) -> dict[str, Number]:
    """All numbers of one model by name, those of registered members included; ``retrain`` never saw the forget set."""
    collected: dict[str, Number] = {}
    for values in (*OWN, *(KNOWLEDGE[name].values for name in KNOWLEDGE)):
        for one in values(seen, retrain, params):
            if one.name in collected:
                raise BadValue("knowledge number", one.name, "a name that no other member gives")
            collected[one.name] = one
    return collected


def of_flat(
    flat: Mapping[str, object], others: frozenset[str], endings: tuple[str, ...] = ()
) -> Iterator[tuple[str, float]]:
    """The keys and values that are numbers about forgetting."""
    for key, value in flat.items():
        if key in others or (endings and key.endswith(endings)):
            continue
        if value is None:
            yield key, math.nan
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield key, float(value)


def of_retrain(seen: Seen, retrain: Seen, params: MetaParams) -> Iterator[Number]:
    """Forget quality, PrivLeak and the attack with Retrain as reference.

    A difference from Retrain need not be knowledge: the numbers take part as printed.
    """
    rows = Rows(seen.name)
    against_retrain(rows, seen.likelihoods, retrain.likelihoods, params.metrics.alpha)
    for key, value in of_flat(Numbers(rows.rows).values, frozenset(), ENDINGS):
        knows = SMALLER[key](value) if key in SMALLER else value
        parts = (OTHERS_PART,) if key in OF_TRUTH_RATIO else MEMBERSHIP_PARTS
        yield Number(key, value, knows, parts, larger=key not in SMALLER)


def of_trees(seen: Seen, retrain: Seen, params: MetaParams) -> Iterator[Number]:
    """The keys of the answer trees, the mean certain lower bound, and its ratio to that of Retrain on the same questions."""
    if seen.trees is None:
        return
    lower = {tree.id: tree.lower for tree in seen.trees.trees}
    upper = {tree.id: tree.upper for tree in seen.trees.trees}
    model = seen.trees.model
    summary = {key: bound.value for key, bound in model.bounds.items()} | {
        "tree_certain_leaks": model.certain_leaks[PROVED[0]]
    }
    for key, value in of_flat(summary, frozenset()):
        yield Number(key, value, value, (TREE_PART,), upper if key in UPPER else lower)
    yield Number("tree_lower_mean", model.mean_lower, model.mean_lower, (TREE_PART,), lower)
    for key, value in of_flat(asdict(model), OF_THE_TREES):
        yield Number(f"tree_{key}", value, value, (TREE_PART,))
    if retrain.trees is None or params.exact is None:
        return
    # Under other names the model is compared with Retrain even where the model is Retrain itself.
    pair = {"model": seen.trees, "retrain": retrain.trees}
    excess = excess_over_retrain(pair, "retrain", params.exact.ratio, params.exact.alpha).get("model")
    if excess is None:
        return
    ratios = dict(zip(excess.ids, excess.against.ratio.tolist(), strict=True))
    printed = {
        MEDIAN: excess.median,
        "tree_above_retrain": int(excess.against.holds.sum()),
        "excess_over_retrain": excess.of_lowers,
    }
    for key, printed_value in printed.items():
        own = ratios if key == MEDIAN else {}
        yield Number(key, float(printed_value), float(printed_value), (TREE_PART,), own)


def of_answers(seen: Seen, retrain: Seen, params: MetaParams) -> Iterator[Number]:
    """Every key of a model's metrics that comes from its sampled and greedy answers, at each n: the first n of one draw.

    Means, shares and upper bounds are larger where more leaks. The spread (``sd``, ``m_sigma_worst``, ``tighter_sd_worst``)
    counts in the direction of the ED score, mean + rho sd: more spread, more leaks. A model that answers the forget
    questions by heart has little spread, so an AUC below 0.5 is possible and is printed as it is.
    """
    binary = params.metrics.binary
    inapplicable = {key for key, row in seen.rows.items() if binary and not applies(binary, row)}
    for n in params.meta_evaluation.answers:
        first = seen.scores[seen.scores["sample"] < n]
        drawn = seen.generations[seen.generations["sample"] < n]
        rows = measure(seen.name, {"forget": drawn}, {"forget": first}, params.metrics, inapplicable)
        yield from _at(rows, n, last=n == params.meta_evaluation.n)


def _at(rows: list[Result], n: int, last: bool) -> Iterator[Number]:
    questions = Results({"": tuple(rows)}).questions("")
    model = Numbers([row for row in rows if row.scope == "model"])
    for key, value in of_flat(model.values, OTHERS):
        greedy = key in OF_THE_GREEDY_ANSWER
        if greedy and not last:
            continue
        own = OF_QUESTION.get(key, key)
        each = {
            item: float(of_item)
            for item, of in questions.items()
            if isinstance(of_item := of.values.get(own), (int, float)) and not isinstance(of_item, bool)
        }
        if key in WHETHER:
            each = {question: float(share > 0) for question, share in each.items()}
        parts = (GREEDY_PART if greedy else answers_part(n),)
        knows = -value if key in SAFE else value
        yield Number(key if greedy else f"{key}@{n}", value, knows, parts, each, larger=key not in SAFE)


def of_epsilon_star(seen: Seen, retrain: Seen, params: MetaParams) -> Iterator[Number]:
    """Epsilon* of the losses on forget rows against held-out rows: estimate and lower bound, which may be infinite."""
    heldout = seen.likelihoods.get("heldout")
    if heldout is None:
        return
    losses = [-table["mia_loss"].dropna().to_numpy() for table in (seen.likelihoods["forget"], heldout)]
    if min(map(len, losses)) < 2:
        return
    settings = params.epsilon_star
    delta = recommended_delta(len(losses[0])) if settings.delta is None else settings.delta
    outcome = audit(*losses, delta=delta, method=settings.method, cut=settings.cut, alpha=settings.alpha)
    for key in ("epsilon_star", "epsilon_lower"):
        value = float(getattr(outcome, key))
        yield Number(key, value, value, MEMBERSHIP_PARTS)


def of_game(seen: Seen, retrain: Seen, params: MetaParams) -> Iterator[Number]:
    """The unlearning game's quality on one split: forget rows against held-out rows, without the swapped half.

    The quality is 1 minus the largest advantage |P(accept | forget) - P(accept | held out)| over threshold adversaries, one
    per membership measure (Tu et al. 2024, definitions 3.2 and 3.7). The whole game also trains models with both sets
    exchanged, which costs a training per model; here the threshold is chosen on the rows it is tried on, so the advantage
    is too large and the quality too small.
    """
    heldout = seen.likelihoods.get("heldout")
    if heldout is None:
        return
    gaps = [
        advantage(seen.likelihoods["forget"][name].to_numpy(), heldout[name].to_numpy())
        for name in LIKELIHOODS
        if name.startswith(MEMBERSHIP)
    ]
    finite = [gap for gap in gaps if not np.isnan(gap)]
    if finite:
        yield Number("game_quality_one_split", 1 - max(finite), max(finite), MEMBERSHIP_PARTS, larger=False)


def advantage(forget: np.ndarray, heldout: np.ndarray) -> float:
    """The largest |P(score >= t | forget) - P(score >= t | held out)| over all thresholds t: Kolmogorov and Smirnov's.

    >>> float(advantage(np.array([3.0, 2.0, 1.0]), np.array([1.5, 0.5, 0.0])))
    0.6666666666666667
    """
    from scipy.stats import ks_2samp

    own, other = (values[~np.isnan(values)] for values in (forget, heldout))
    return float(ks_2samp(own, other, method="asymp").statistic) if len(own) and len(other) else math.nan


def of_leak_at_k(seen: Seen, retrain: Seen, params: MetaParams) -> Iterator[Number]:
    """leak@k: the probability that at least one of k answers leaks, from all drawn answers (Chen et al. 2021, equation 1).

    Nothing without a scorer that gives 0 or 1, and nothing for a k above the number of answers.
    """
    if params.metrics.binary is None:
        return
    matrix = ScoreMatrix({"forget": seen.scores}, "forget", params.metrics.binary)
    missing = np.isnan(matrix.samples)
    judged = ~missing.all(axis=1)
    ks = [k for k in params.meta_evaluation.leak_at if k <= matrix.samples.shape[1]]
    if not judged.any() or not ks:
        return
    counts = np.where(judged, np.nansum(matrix.samples, axis=1), np.nan)
    table = unbiased(counts, (~missing).sum(axis=1), ks)
    for place, k in enumerate(ks):
        each = dict(zip(matrix.prompts, map(float, table[:, place]), strict=True))
        value = mean(table[:, place])
        yield Number(f"leak_at_{k}", value, value, (answers_part(params.meta_evaluation.n),), each)


def of_likelihoods(seen: Seen, retrain: Seen, params: MetaParams) -> Iterator[Number]:
    """Every measure of the likelihood of the true answer: means over the forget set, and membership attacks as AUC.

    TOFU's truth ratio of the forget set, mean min(R, 1 / R), is larger where the model knows less; per question -R is
    larger where the model knows more.
    """
    forget, heldout = seen.likelihoods["forget"], seen.likelihoods.get("heldout")
    for name in LIKELIHOODS:
        own = forget[name].to_numpy(dtype=np.float64)
        sign = -1.0 if name == TRUTH_RATIO else 1.0
        each = dict(zip(forget["prompt_id"], (sign * own).tolist(), strict=True))
        if name.startswith(MEMBERSHIP):
            area = None if heldout is None else membership(forget[name], heldout[name], params.metrics.alpha)
            value = area.value if area else math.nan
            yield Number(f"{name}_auc", value, value, MEMBERSHIP_PARTS, each)
        elif name == TRUTH_RATIO:
            value = forget_truth(own).value
            yield Number(f"forget_{name}", value, 1 - value, parts_of(name), each, larger=False)
        else:
            value = mean_term(own).value
            yield Number(f"forget_{name}", value, value, parts_of(name), each)


def parts_of(name: str) -> tuple[str, ...]:
    """The answers whose likelihood a measure reads: those whose tokens change its value on a made-up row.

    >>> parts_of("probability"), parts_of("truth_ratio")
    (('forget answers',), ('other forget answers',))
    """
    rng = np.random.default_rng(0)
    answer, changed, paraphrased, wrong = (_tokens(rng) for _ in range(4))
    row = Item("Ada was born in Turin.", answer, paraphrased, (wrong,))
    measure = LIKELIHOODS[name]
    whole = measure(row)
    reads_answer = measure(replace(row, answer=changed)) != whole
    others = (replace(row, paraphrased=changed), replace(row, perturbed=(changed,)))
    reads_others = any(measure(other) != whole for other in others)
    parts = ((ANSWER_PART, reads_answer), (OTHERS_PART, reads_others))
    return tuple(part for part, read in parts if read) or (ANSWER_PART,)


def _tokens(rng: np.random.Generator) -> AnswerTokens:
    greedy = rng.random(10) < 0.5
    return AnswerTokens(-rng.exponential(size=10), -1 - rng.random(10), 1 + rng.random(10), greedy)


def of_scorers(seen: Seen, retrain: Seen, params: MetaParams) -> Iterator[Number]:
    """Greedy score, mean and standard deviation of every scorer besides ``metrics.leak`` and ``metrics.binary``."""
    taken = {"prompt_id", "sample", params.metrics.leak, params.metrics.binary}
    for scorer in [column for column in seen.scores.columns if column not in taken]:
        matrix = ScoreMatrix({"forget": seen.scores}, "forget", scorer)
        each = dict(zip(matrix.prompts, map(float, matrix.greedy), strict=True))
        value = mean(matrix.greedy)
        yield Number(f"{scorer}_greedy", value, value, (GREEDY_PART,), each)
        for n in params.meta_evaluation.answers:
            for name, function in (("mean", np.nanmean), ("sd", np.nanstd)):
                of_prompts = [
                    float(function(own)) if not np.isnan(own).all() else np.nan for own in matrix.samples[:, :n]
                ]
                value = mean(of_prompts)
                own_each = dict(zip(matrix.prompts, of_prompts, strict=True))
                yield Number(f"{scorer}_{name}@{n}", value, value, (answers_part(n),), own_each)


# In the order of the printed numbers that are equal by every other rule.
OWN: tuple[Callable[[Seen, Seen, MetaParams], Iterable[Number]], ...] = (
    of_retrain,
    of_trees,
    of_answers,
    of_epsilon_star,
    of_game,
    of_leak_at_k,
    of_likelihoods,
    of_scorers,
)
