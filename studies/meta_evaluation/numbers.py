"""Every number that Lethe prints about forgetting, as one list per model.

Keys come from the tables of results and the registries, so a new key, scorer or likelihood takes part without a change here.
Another package adds numbers by the entry points `lethe.knowledge`: a module with ``values(seen, retrain, params)``.
`Number.knows` is larger where the model knows more, which `SMALLER` declares beforehand and no data decides.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
from scipy.stats import ks_2samp

from lethe.errors import BadValue
from lethe.evaluation.likelihood_metrics import against_retrain, membership
from lethe.evaluation.measure import ScoreMatrix, measure
from lethe.evaluation.scores import mean
from lethe.registry import LIKELIHOODS, Registry
from lethe.results.exact_bounds import MEDIAN, excess_over_retrain
from lethe.results.quantities import MODEL, QUESTION
from lethe.results.table import Numbers, Results, Rows
from lethe.scoring import applies
from lethe.scoring.tofu import forget_truth, mean_term
from lethe.statistics.counts import unbiased
from lethe.statistics.epsilon_star import audit
from lethe.statistics.epsilon_star.ratios import recommended_delta
from lethe.statistics.leak_trees import PROVED
from studies.meta_evaluation import observing
from studies.meta_evaluation.workshop import MetaParams

KNOWLEDGE = Registry("knowledge number", "knowledge", ())  # the numbers of other packages

# Keys that say how was measured, and second names of other keys: of answers, and of a model's answer trees.
OTHERS = frozenset({"alpha", "n_questions", "n", "missing", "truncated", "truncated_worst"})
OF_THE_TREES = frozenset(
    {
        "questions",
        "tau",
        "alpha",
        "rho",
        "rows",
        "sampled",
        "lower_worst",
        "upper_worst",
        "mean_lower",
    }
)
ENDINGS = (
    "_missing",
    "_low",
    "_high",
)  # counts, and the ends of an interval whose value takes part
OF_THE_GREEDY_ANSWER = ("greedy_mean", "binary_greedy")
UPPER = ("tree_upper_worst", "tree_upper_mean")
_OF_ANSWERS = {(one.key, one.basis): one for one in QUESTION if one.more or one.unit == "deviation"}
# The name on a question's row behind that of a model: of the same quantity, or of the one whose worst the model's is.
OF_QUESTION = {"m_mu_mean": "m_mu", "binary_any": "binary_share"} | {
    name: question.names[end]
    for one in MODEL
    for end, name in enumerate(one.names)
    if one.basis in ("sampled", "greedy")
    and (question := _OF_ANSWERS.get((one.key.removesuffix("_worst"), one.basis)))
}
WHETHER = ("binary_any",)  # whether a question has a leak, not how many of its answers leak

MEMBERSHIP = (
    "mia_"  # a measure of this name is a membership attack: forget rows against held-out rows
)
MEMBERSHIP_PARTS = (observing.ANSWER_PART, observing.HELDOUT_PART)
OF_TRUTH_RATIO = ("forget_quality", "forget_ks")  # a test on the truth ratios of the forget set
# The answers whose likelihood a measure reads, where it reads more or others than the true answer.
READS = {
    "truth_ratio": (observing.OTHERS_PART,),
    "choice_probability": (observing.ANSWER_PART, observing.OTHERS_PART),
}
# These are smaller where the model knows more; each with its number that is larger.
SMALLER: dict[str, Callable[[float], float]] = {
    # a p-value: small where the model differs from Retrain; 1 - p would round every p below 1e-16 to one value
    "forget_quality": lambda value: math.inf if value == 0 else -math.log10(value),
    "privleak": lambda value: -value / 100,  # 0 like Retrain, -100 where every row is remembered
    "forget_truth_ratio": lambda value: 1 - value,  # TOFU's mean min(R, 1 / R)
    "game_quality_one_split": lambda value: 1 - value,
    "certified_together": lambda value: -value,  # a count of safe questions
}


@dataclass(frozen=True)
class Number:
    """One number of one model; ``each`` has its value per question, ``parts`` the observations that it needs."""

    name: str
    value: float
    knows: float
    parts: tuple[str, ...]
    each: Mapping[str, float] = field(default_factory=dict)
    larger: bool = True


def number(
    name: str, value: float, parts: tuple[str, ...], each: Mapping[str, float] | None = None
) -> Number:
    """A number in its declared direction, whatever number of answers its name ends in."""
    smaller = SMALLER.get(name.partition("@")[0])
    return Number(
        name, value, smaller(value) if smaller else value, parts, each or {}, smaller is None
    )


def numbers(seen: observing.Seen, retrain: observing.Seen, params: MetaParams) -> dict[str, Number]:
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
    for key, value in flat.items():
        if key in others or (endings and key.endswith(endings)):
            continue
        if value is None:
            yield key, math.nan
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield key, float(value)


def of_retrain(
    seen: observing.Seen, retrain: observing.Seen, params: MetaParams
) -> Iterator[Number]:
    """Forget quality, PrivLeak and the attack with Retrain as reference, as printed: a difference need not be knowledge."""
    rows = Rows(seen.name)
    against_retrain(rows, seen.likelihoods, retrain.likelihoods, params.metrics.alpha)
    for key, value in of_flat(Numbers(rows.rows).values, frozenset(), ENDINGS):
        yield number(
            key, value, (observing.OTHERS_PART,) if key in OF_TRUTH_RATIO else MEMBERSHIP_PARTS
        )


def of_trees(seen: observing.Seen, retrain: observing.Seen, params: MetaParams) -> Iterator[Number]:
    """The keys of the answer trees, the mean certain lower bound, and its ratio to that of Retrain on the same questions."""
    if seen.trees is None:
        return
    lower, upper = (
        {tree.id: getattr(tree, end) for tree in seen.trees.trees} for end in ("lower", "upper")
    )
    model = seen.trees.model
    values = {key: bound.value for key, bound in model.bounds.items()}
    values |= {
        "tree_certain_leaks": model.certain_leaks[PROVED[0]],
        "tree_lower_mean": model.mean_lower,
    }
    for key, value in of_flat(values, frozenset()):
        yield number(key, value, (observing.TREE_PART,), upper if key in UPPER else lower)
    for key, value in of_flat(asdict(model), OF_THE_TREES):
        yield number(f"tree_{key}", value, (observing.TREE_PART,))
    if retrain.trees is None or params.exact is None:
        return
    # Under other names the model is compared with Retrain even where the model is Retrain itself.
    pair = {"model": seen.trees, "retrain": retrain.trees}
    excess = excess_over_retrain(pair, "retrain", params.exact.ratio, params.exact.alpha).get(
        "model"
    )
    if excess is None:
        return
    ratios = dict(zip(excess.ids, excess.against.ratio.tolist(), strict=True))
    yield number(MEDIAN, float(excess.median), (observing.TREE_PART,), ratios)
    yield number("tree_above_retrain", float(excess.against.holds.sum()), (observing.TREE_PART,))
    yield number("excess_over_retrain", float(excess.of_lowers), (observing.TREE_PART,))


def of_answers(
    seen: observing.Seen, retrain: observing.Seen, params: MetaParams
) -> Iterator[Number]:
    """Every key of a model's metrics from its sampled and greedy answers, at each n: the first n of one draw.

    The spread (``sd``, ``m_sigma_worst``, ``tighter_sd_worst``) counts in the direction of the ED score: more spread, more
    leaks. A model that knows answers by heart has little spread, so an AUC below 0.5 is possible and is printed as it is.
    """
    binary = params.metrics.binary
    inapplicable = {key for key, row in seen.rows.items() if binary and not applies(binary, row)}
    for n in params.meta_evaluation.answers:
        first, drawn = (own[own["sample"] < n] for own in (seen.scores, seen.generations))
        rows = measure(
            seen.name, {"forget": drawn}, {"forget": first}, params.metrics, inapplicable
        )
        results = Results({"": tuple(rows)})
        questions = {item: own.values for item, own in results.questions("").items()}
        for key, value in of_flat(results.model("").values, OTHERS):
            greedy = key in OF_THE_GREEDY_ANSWER
            if greedy and n != params.meta_evaluation.n:
                continue
            own_key = OF_QUESTION.get(key, key)
            values = {
                item: own[own_key]
                for item, own in questions.items()
                if own.get(own_key) is not None
            }
            each = dict(of_flat(values, frozenset()))
            if key in WHETHER:
                each = {question: float(share > 0) for question, share in each.items()}
            parts = (observing.GREEDY_PART if greedy else observing.answers_part(n),)
            yield number(key if greedy else f"{key}@{n}", value, parts, each)


def of_membership(
    seen: observing.Seen, retrain: observing.Seen, params: MetaParams
) -> Iterator[Number]:
    """Epsilon* of the losses on forget rows against held-out rows, and the unlearning game's quality on one split.

    The quality is 1 minus the largest advantage over threshold adversaries, one per membership measure (Tu et al. 2024,
    definitions 3.2 and 3.7); chosen on the rows it is tried on, so the quality is too small, without a training per model.
    """
    forget, heldout = seen.likelihoods["forget"], seen.likelihoods.get("heldout")
    if heldout is None:
        return
    losses = [-table["mia_loss"].dropna().to_numpy() for table in (forget, heldout)]
    if min(map(len, losses)) >= 2:
        settings = params.epsilon_star
        delta = recommended_delta(len(losses[0])) if settings.delta is None else settings.delta
        outcome = audit(
            *losses, delta=delta, method=settings.method, cut=settings.cut, alpha=settings.alpha
        )
        for key in ("epsilon_star", "epsilon_lower"):
            yield number(key, float(getattr(outcome, key)), MEMBERSHIP_PARTS)
    measures = [name for name in LIKELIHOODS if name.startswith(MEMBERSHIP)]
    gaps = [advantage(forget[name].to_numpy(), heldout[name].to_numpy()) for name in measures]
    if finite := [gap for gap in gaps if not np.isnan(gap)]:
        yield number("game_quality_one_split", 1 - max(finite), MEMBERSHIP_PARTS)


def advantage(forget: np.ndarray, heldout: np.ndarray) -> float:
    """The largest |P(score >= t | forget) - P(score >= t | held out)| over all thresholds t: Kolmogorov and Smirnov's."""
    own, other = (values[~np.isnan(values)] for values in (forget, heldout))
    return (
        float(ks_2samp(own, other, method="asymp").statistic)
        if len(own) and len(other)
        else math.nan
    )


def of_leak_at_k(
    seen: observing.Seen, retrain: observing.Seen, params: MetaParams
) -> Iterator[Number]:
    """leak@k for each k up to the number of answers, where a scorer gives 0 or 1 (Chen et al. 2021, equation 1)."""
    if params.metrics.binary is None:
        return
    matrix = ScoreMatrix({"forget": seen.scores}, "forget", params.metrics.binary)
    missing = np.isnan(matrix.samples)
    judged = ~missing.all(axis=1)
    ks = [k for k in params.meta_evaluation.leak_at if k <= matrix.samples.shape[1]]
    if not judged.any() or not ks:
        return
    counts = np.where(judged, np.nansum(matrix.samples, axis=1), np.nan)
    for k, column in zip(ks, unbiased(counts, (~missing).sum(axis=1), ks).T, strict=True):
        each = dict(zip(matrix.prompts, column.tolist(), strict=True))
        yield number(
            f"leak_at_{k}", mean(column), (observing.answers_part(params.meta_evaluation.n),), each
        )


def of_likelihoods(
    seen: observing.Seen, retrain: observing.Seen, params: MetaParams
) -> Iterator[Number]:
    """Every likelihood measure of the true answer: means, membership attacks as AUC; per question R counts as -R."""
    forget, heldout = seen.likelihoods["forget"], seen.likelihoods.get("heldout")
    for name in LIKELIHOODS:
        own, ratio = forget[name].to_numpy(dtype=np.float64), name == "truth_ratio"
        each = dict(zip(forget["prompt_id"], (-own if ratio else own).tolist(), strict=True))
        if name.startswith(MEMBERSHIP):
            area = (
                None
                if heldout is None
                else membership(forget[name], heldout[name], params.metrics.alpha)
            )
            yield number(f"{name}_auc", area.value if area else math.nan, MEMBERSHIP_PARTS, each)
        else:
            value = (forget_truth if ratio else mean_term)(own).value
            yield number(f"forget_{name}", value, READS.get(name, (observing.ANSWER_PART,)), each)


def of_scorers(
    seen: observing.Seen, retrain: observing.Seen, params: MetaParams
) -> Iterator[Number]:
    """Greedy score, mean and standard deviation of every scorer besides ``metrics.leak`` and ``metrics.binary``."""
    taken = {"prompt_id", "sample", params.metrics.leak, params.metrics.binary}
    for scorer in [column for column in seen.scores.columns if column not in taken]:
        matrix = ScoreMatrix({"forget": seen.scores}, "forget", scorer)
        columns = {f"{scorer}_greedy": ((observing.GREEDY_PART,), matrix.greedy)}
        for n in params.meta_evaluation.answers:
            for name, function in (("mean", np.nanmean), ("sd", np.nanstd)):
                own = [
                    function(row) if not np.isnan(row).all() else np.nan
                    for row in matrix.samples[:, :n]
                ]
                columns[f"{scorer}_{name}@{n}"] = ((observing.answers_part(n),), np.array(own))
        for name, (parts, values) in columns.items():
            yield number(
                name,
                mean(values),
                parts,
                dict(zip(matrix.prompts, map(float, values), strict=True)),
            )


# In the order of the printed numbers that are equal by every other rule.
OWN: tuple[Callable[[observing.Seen, observing.Seen, MetaParams], Iterable[Number]], ...] = (
    of_retrain,
    of_trees,
    of_answers,
    of_membership,
    of_leak_at_k,
    of_likelihoods,
    of_scorers,
)
