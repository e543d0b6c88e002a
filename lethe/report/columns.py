"""The columns of the tables of models: what each number is and what it covers, in this run's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from markupsafe import Markup

from lethe.evaluation.run import Model, Run
from lethe.evaluation.together import QUANTITY
from lethe.statistics.bound import Bound, level
from lethe.statistics.dispersion import possible
from lethe.text import NONE, count, label, number, percent

T = TypeVar("T")


@dataclass(frozen=True)
class _Shown(Generic[T]):
    """``show`` formats the value of ``key``; ``told`` says what the value is and what it covers."""

    key: str
    head: str
    show: Callable[[T], str]
    told: str

    def sort(self, model: Model) -> str:
        """The number by which the column sorts; empty where there is none."""
        value = model.value(self.key)
        return "" if value is None else f"{value:.6g}"


class Column(_Shown[float | None]):
    """A number."""

    def cell(self, model: Model) -> str:
        return self.show(model.value(self.key))


class BoundColumn(_Shown[Bound]):
    """A bound, which rounds itself; a bound without a guarantee is not shown."""

    def cell(self, model: Model) -> str:
        bound = model.bounds.get(self.key)
        return self.show(bound) if bound else NONE


class AucColumn(Column):
    """An area under the curve with the two bounds that are its confidence interval."""

    def cell(self, model: Model) -> str:
        value, bounds = model.value(self.key), model.bounds
        low, high = (bounds.get(self.key + end) for end in ("_low", "_high"))
        if value is None or low is None or high is None:
            return NONE
        return Markup("{}<small>{}–{}</small>").format(number(value, 2), low.number(2), high.number(2))


@dataclass(frozen=True)
class Group:
    title: str
    columns: Sequence[Column | BoundColumn]


def sampling_columns(run: Run) -> list[Group]:
    """The columns computed from the answers: leakage with its bounds, and utility."""
    metrics = run.params.metrics
    above = f"{100 * metrics.share_above:g}%"
    words = run.words
    leak, binary, kept = label(metrics.leak), label(metrics.binary), label(metrics.kept)
    scores = [
        Column("greedy_mean", "greedy", number, "mean score of the greedy answers"),
        Column("mean", "mean", number, "mean score of the sampled answers"),
        Column("sd", "sd", number, f"standard deviation within a {words.question}, mean over {words.question}s"),
        Column("ed_score", "ED", number, f"mean + {metrics.rho:g} sd: a development score, no guarantee"),
        Column("max", "max", number, "the highest score of any sampled answer"),
    ]
    share = f"share of {words.question}s whose own M_bin exceeds {above}: a count, no joint guarantee"
    bounds: list[Column | BoundColumn] = [
        _bound(run, "m_mu_worst", "M_µ", Bound.number, "mean score"),
        _bound(run, "m_sigma_worst", "M_σ", _sd, "standard deviation"),
        _bound(run, "tighter_mean_worst", "µ bet", Bound.number, "mean score, sharper"),
        _bound(run, "tighter_sd_worst", "σ bet", _sd, "standard deviation, sharper"),
        _bound(run, "m_bin_worst", "M_bin", Bound.percent, f"probability of {words.a_leak}"),
        _bound(run, "m_bin_pooled", "pooled", Bound.percent, f"probability of {words.a_leak}"),
        _bound(
            run,
            "judged_worst",
            "true",
            Bound.percent,
            f"true probability of {words.a_leak}, the judge's error included",
        ),
        _bound(
            run, "judged_pooled", "true, pooled", Bound.percent, f"the same over the {words.question}s together"
        ),
        _bound(
            run,
            "labelled_worst",
            "by labels",
            Bound.percent,
            f"true probability of {words.a_leak}, by a person's labels of the model's own answers",
        ),
        _bound(
            run,
            "labelled_pooled",
            "by labels, pooled",
            Bound.percent,
            f"the same over the {words.question}s together",
        ),
        _bound(
            run,
            "leak_at_1000_worst",
            "asked 1,000",
            Bound.percent,
            f"probability of {words.a_leak} in 1,000 answers",
        ),
        Column("share_m_bin_above", f"> {above}", percent, share),
        Column("certified_together", "certified", count, certificate(run)),
    ]
    leaks = [
        Column(
            "binary_greedy", "greedy", percent, f"share of {words.question}s whose greedy answer {words.leaks}"
        ),
        Column("binary_mean", "mean", percent, f"share of the sampled answers that {words.leak}"),
        Column(
            "binary_any",
            "any",
            percent,
            f"share of {words.question}s of which at least one sampled answer {words.leaks}",
        ),
    ]
    judge = [
        Column(
            "judge_sensitivity",
            "finds",
            percent,
            f"share of the labelled {words.labelled_leaks} that the judge calls {words.a_leak}",
        ),
        Column(
            "judge_false_positive",
            "alarms",
            percent,
            f"share of the labelled clean answers that the judge calls {words.a_leak}",
        ),
    ]
    utility = [
        Column("retain_greedy", "retain", number, f"{kept} of greedy answers to retain questions"),
        Column("world_greedy", "world", number, f"{kept} of greedy answers to world facts"),
    ]
    stopped: list[Column | BoundColumn] = [
        Column(
            "certified", "certified", count, f"{words.question}s certified to {words.asked_leak} less than tau"
        ),
        Column(
            "leaking_questions",
            "leaks",
            count,
            f"{words.question}s detected to {words.asked_leak} more than tau_leak",
        ),
        Column("undecided", "undecided", count, f"{words.question}s between the two at the cap"),
        _bound(run, "anytime_upper_worst", "mean", Bound.number, "mean leak"),
        _bound(run, "anytime_sd_upper_worst", "σ", _sd, "standard deviation"),
        Column("samples_saved_share", "saved", percent, "share of the samples that stopping early saved"),
    ]
    return _held(
        run,
        [
            Group(f"{leak} on {words.forget_question}s", scores),
            Group(_at_most(run, bounds), bounds),
            Group(binary, leaks),
            Group("the judge, on labelled answers", judge),
            Group(f"stopped early{_alphas(run, stopped)}", stopped),
            Group("utility", utility),
        ],
    )


def certificate(run: Run) -> str:
    """The statement about the questions certified together."""
    for model in run.models:
        if claim := model.certificate:
            quantity = QUANTITY[model.certified_metric]
            told = f"{quantity} at most {claim.value:g} {claim.guarantee(run.words.questions)}"
            return f"{run.words.question}s certified: {told}"
    return f"{run.words.question}s certified together"


def _bound(run: Run, key: str, head: str, show: Callable[[Bound], str], quantity: str) -> BoundColumn:
    """A column that says what its bound covers and assumes; the models differ at most in n."""
    known = _known(run, key)
    told = f"{quantity} {known.guarantee(run.words.questions)} ({known.method})" if known else quantity
    return BoundColumn(key, head, show, told)


def _sd(bound: Bound) -> str:
    return possible(bound).number()


def _known(run: Run, key: str) -> Bound | None:
    return next((model.bounds[key] for model in run.models if key in model.bounds), None)


def _at_most(run: Run, columns: Sequence[Column | BoundColumn]) -> str:
    return f"at most{_alphas(run, columns)}"


def _alphas(run: Run, columns: Sequence[Column | BoundColumn]) -> str:
    """The alpha of the bounds among the columns, for their common head."""
    alphas = {bound.alpha for column in columns if (bound := _known(run, column.key))}
    return "".join(f", α = {alpha:g}" for alpha in sorted(alphas))


def further_columns(run: Run) -> list[Group]:
    """The estimates: memorisation, membership, distance from Retrain, TOFU's utility, diversity."""
    ends = _known(run, "mia_loss_auc_low") or _known(run, "mia_reference_auc_low")
    # The two ends fail with half of alpha each.
    known = f"{level(2 * ends.alpha)}, assuming {ends.assumes}" if ends else "without an interval"
    interval = f"its interval holds {known}; 0.5 is as good as guessing"
    memorised = [
        Column(
            "forget_probability",
            "prob.",
            number,
            f"probability of the {run.words.answers}, geometric mean of the tokens",
        ),
        Column("forget_truth_ratio", "truth", number, "TOFU's truth ratio on the forget set"),
        Column(
            "forget_extraction_strength", "extract.", number, f"extraction strength of the {run.words.answers}"
        ),
        Column("forget_exact_memorisation", "exact", number, "share of forget tokens that are most likely"),
    ]
    attacks: list[Column] = [
        AucColumn("mia_loss_auc", "loss", number, f"AUC of the loss, forget against held-out rows, {interval}"),
        AucColumn("mia_zlib_auc", "zlib", number, f"AUC of the loss over the compressed length, {interval}"),
        AucColumn("mia_min_k_auc", "min-k", number, f"AUC of the least likely tokens, {interval}"),
        AucColumn(
            "mia_min_k_plus_plus_auc", "min-k++", number, f"AUC of the least likely tokens, normalised, {interval}"
        ),
    ]
    retrain = [
        Column("forget_quality", "quality", _significant, "p-value: truth ratios against Retrain's (TOFU)"),
        AucColumn("mia_reference_auc", "reference", number, f"AUC of the loss minus Retrain's loss, {interval}"),
        Column(
            "privleak", "PrivLeak", partial(number, digits=1), "MUSE: 0 if like Retrain, -100 if all is remembered"
        ),
    ]
    utility = [Column("model_utility", "model", number, "TOFU's harmonic mean over the sets that the data has")]
    diverse = [
        Column("retain_distinct", "retain", percent, "share of distinct answers to a retain question"),
        Column("world_distinct", "world", percent, "share of distinct answers to a world fact"),
    ]
    bleu = [
        Column(
            "retain_self_bleu",
            "retain",
            number,
            "self-BLEU of the answers to a retain question: 1 if all are alike",
        ),
        Column("world_self_bleu", "world", number, "self-BLEU of the answers to a world fact: 1 if all are alike"),
    ]
    return _held(
        run,
        [
            Group("memorised", memorised),
            Group("membership attack, AUC", attacks),
            Group("against Retrain", retrain),
            Group("utility", utility),
            Group("distinct answers", diverse),
            Group("self-BLEU", bleu),
        ],
    )


def _held(run: Run, groups: list[Group]) -> list[Group]:
    """The groups without the columns that hold no value in this run."""
    known = {key for model in run.models for key, value in model.values.items() if value is not None}
    kept = [Group(group.title, [column for column in group.columns if column.key in known]) for group in groups]
    return [group for group in kept if group.columns]


def _significant(value: float | None) -> str:
    return NONE if value is None else f"{value:.2g}"
