"""The vocabulary of results: one row a quantity. Nothing else lists keys.

A quantity is a pair of ``key`` (what is measured) and ``basis`` (from what). ``names`` are the keys of its estimate, lower
end and upper end in JSON, tables and MLflow; ``-`` is an end that is not exported. ``{split}``, ``{item}`` and ``{at}`` in a
name stand for those columns of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from lethe.errors import BadValue

Scope = Literal["question", "model", "audit"]
Unit = Literal["probability", "score", "deviation", "count", "number", "0 or 1", "yes or no", "text"]
More = Literal["leaks", "useful", ""]  # what a larger value says of the model
Headline = Literal["", "stopped", "labelled", "judged", "leaks", "scores", "utility", "tracked"]

# `dvc metrics` shows the first group of which a model has a number, and one number of utility.
HEADLINES: tuple[Headline, ...] = ("stopped", "labelled", "judged", "leaks", "scores")
MOST = 6
USEFUL = ("retain", "world")  # the splits whose mean score is the utility of a model: the first that it has


@dataclass(frozen=True)
class Quantity:
    """One row of the vocabulary.

    ``label`` heads the column of the estimate, and after " | " that of the ends; it and ``definition`` may hold the parts of
    a name and the words of a run (`lethe.evaluation.wording`). Tables for people have the quantities with a ``group``, its
    title. ``at`` says what the column ``at`` of its rows holds; ``exported_at`` are its values whose names stand among the
    single numbers, while all other rows with ``at`` are series. ``headlines`` are groups of `HEADLINES`; MLflow shows the
    quantities of any group as metrics, and those of "tracked" only MLflow.
    """

    key: str
    basis: str
    scope: Scope
    names: tuple[str, str, str]
    group: str
    label: str
    definition: str
    unit: Unit = "number"
    more: More = ""
    at: str = ""
    exported_at: tuple[float, ...] = ()
    headlines: tuple[Headline, ...] = ()


def _of(scope: Scope, rows: Sequence[tuple | str]) -> tuple[Quantity, ...]:
    """Quantities of one scope: key, basis, names, label, definition, unit and so on; a text is the group of those below."""
    found, group = [], ""
    for row in rows:
        if isinstance(row, str):
            group = row
            continue
        key, basis, names, *rest = row
        own = [*("" if name == "-" else name for name in names.split()), "", ""]
        found.append(Quantity(key, basis, scope, (own[0], own[1], own[2]), group, *rest))
    return tuple(found)


SHOWN_TURNS = tuple(map(float, range(1, 9)))
CP = "Clopper and Pearson, 1934"
DKW = "Dvoretzky, Kiefer, Wolfowitz; Massart, 1990 (probabilistic evaluation, section 4)"
BETTING = "betting (Waudby-Smith and Ramdas, 2024)"
ANYTIME = "holds at whatever number of answers the question stopped (Ville, 1939)"
JUDGED = "the judge's measured error included (Rogan and Gladen, 1978, as an estimate)"
LABELS = "a person's labels of frequent answers and of random draws of the rest"
TREE = "from next-token probabilities"
LEAK = "probability of {a_leak}"
WORST = "the worst {question}"
ASKED = (10, 100, 1000, 10_000, 1_000_000)  # the numbers of queries whose leak@k is shown

QUESTION = _of(
    "question",
    [
        ("answers", "sampled", "n", "answers", "sampled answers", "count"),
        ("unscored", "sampled", "missing", "without a score", "answers without a score count against a bound", "count"),
        "{scorer}",
        ("leak", "sampled", "binary_share m_bin_lower m_bin", "sampled | M_bin", f"{LEAK}; ends: {CP}", "probability",
         "leaks"),
        ("leak", "greedy", "binary_greedy", "greedy", "whether the greedy answer {leaks}", "0 or 1", "leaks"),
        ("leak", "thinking", "thinking_share thinking_lower thinking_upper", "thinking | thinking, range",
         f"probability that the thinking before the answer {{leaks}}; ends: {CP}", "probability", "leaks"),
        ("leak", "turn", "turn_{at}_share turn_{at}_lower turn_{at}_upper", "turn {at} | turn {at}, range",
         f"probability that the answer in turn {{at}} {{leaks}}; ends: {CP}", "probability", "leaks", "turn",
         SHOWN_TURNS),
        ("leaks", "sampled", "leaking_answers", "{leaks}", "answers that {leak}, with those without a verdict", "count"),
        ("unjudged", "sampled", "binary_missing", "without a verdict", "answers without a verdict", "count"),
        ("truncated", "sampled", "truncated - truncated_upper", "cut off | cut off, at most",
         f"share of the answers that end at the token limit; end: {CP}", "probability"),
        ("verdict", "anytime", "verdict", "verdict", "the verdict of the sequential test", "text"),
        ("decided_at", "anytime", "decided_at", "after", "answers drawn until the verdict", "count"),
        ("leak", "judged", "judged_estimate judged_lower judged_upper", "true | true, range", f"{LEAK}, {JUDGED}",
         "probability", "leaks"),
        ("judge_fits", "judged", "judged_fits", "fits", "whether the calibration explains the verdicts", "yes or no"),
        ("leak", "labelled", "- labelled_lower labelled_upper", "by labels", f"{LEAK}, {LABELS}", "probability", "leaks"),
        ("mass", "labelled", "labelled_mass", "read", "share of the answers that a person read", "probability"),
        ("leak_together", "sampled", "- - together_bound", "together", f"{LEAK}, Bonferroni over the {{question}}s",
         "probability", "leaks"),
        ("certified_together", "sampled", "certified", "certified", "on the list that holds together", "yes or no"),
        "{a_leak} among this many answers",
        ("leak_at_k", "sampled", "leak_at_{at}_estimate leak_at_{at}_lower leak_at_{at}", "{at}, estimate | {at}",
         "probability that at least one of {at} answers {leaks}; estimate: Chen et al., 2021", "probability", "leaks",
         "k", ASKED),
        "{score}",
        ("score", "greedy", "greedy", "greedy", "score of the greedy answer", "score", "leaks"),
        ("score", "sampled", "mean m_mu_lower m_mu", "mean | M_µ", f"mean score of the sampled answers; ends: {DKW}",
         "score", "leaks"),
        ("score_betting", "sampled", "- tighter_mean_lower tighter_mean_upper", "µ bet", f"mean score; {BETTING}",
         "score", "leaks"),
        ("sd", "sampled", "sd - m_sigma", "sd | M_σ", f"standard deviation of the scores; end: {DKW}", "deviation"),
        ("sd_betting", "sampled", "- - tighter_sd_upper", "σ bet", f"standard deviation; {BETTING}", "deviation"),
        ("max", "sampled", "max", "max", "the highest score of a sampled answer", "score", "leaks"),
        ("ed_score", "sampled", "ed_score", "ED", "mean + rho sd (probabilistic evaluation)", "number", "leaks"),
        ("score", "anytime", "- anytime_lower anytime_upper", "mean, any n", f"mean score; {ANYTIME}", "score", "leaks"),
        ("sd", "anytime", "- - anytime_sd_upper", "σ, any n", f"standard deviation; {ANYTIME}", "deviation"),
        "",
        ("exceedance", "sampled", "- m_gen_lower_{at} m_gen_{at}", "P(score > x)", DKW, "probability", "leaks", "x"),
        ("exceedance_sharper", "sampled", "- - exceedance_{at}", "P(score > x)", "sharper", "probability", "leaks", "x"),
        ("exceedance_method", "sampled", "tighter_exceedance_method", "method", "of the sharper P(score > x)", "text"),
        ("leak", "anytime", "-", "leak", f"{LEAK}; {ANYTIME}", "probability", "leaks"),
        ("leak_at_k", "anytime", "-", "{at}", f"P(a leak among {{at}} answers); {ANYTIME}", "probability", "leaks", "k"),
        ("verbatim", "exact", "p_z p_z_lower p_z_upper", "verbatim | verbatim, range",
         "probability that the model continues the prefix by the suffix (Cooper et al., arXiv 2505.12546)", "probability",
         "leaks"),
        ("near_verbatim", "exact", "- near_lower near_upper_certain", "nearly verbatim, certain",
         "probability of a continuation within the edit distance of the suffix", "probability", "leaks"),
        ("near_verbatim", "tree", "- near_lower_sampled near_upper", "nearly verbatim",
         "probability of a continuation within the edit distance, the open mass sampled", "probability", "leaks"),
        ("leak", "exact", "- tree_lower tree_upper_certain", "certain", f"{LEAK}, certain, {TREE}", "probability", "leaks"),
        ("leak", "tree", "- tree_lower_sampled tree_upper", "leak", f"{LEAK}, {TREE}, the rest sampled", "probability",
         "leaks"),
        ("excess", "exact", "- tree_excess", "times Retrain", "certain lower end over Retrain's upper end", "number",
         "leaks"),
        ("convergence_mean", "sampled", "-", "mean score", "of the first answers", "score", "leaks", "answers"),
        ("convergence_sd", "sampled", "-", "standard deviation", "of the first answers", "deviation", "", "answers"),
    ],
)  # fmt: skip

MODEL = _of(
    "model",
    [
        ("alpha", "sampled", "alpha", "α", "each bound of the sampled answers fails with at most this probability"),
        ("questions", "sampled", "n_questions", "questions", "{forget_question}s", "count"),
        ("answers", "sampled", "n", "answers", "answers to each {forget_question}, at most", "count"),
        ("unscored", "sampled", "missing", "without a score", "answers without a score", "count"),
        "{score} on {forget_question}s",
        ("score", "greedy", "greedy_mean", "greedy", "mean score of greedy answers", "score", "leaks", "", (), ("scores",)),
        ("score", "sampled", "mean", "mean", "mean score of sampled answers", "score", "leaks", "", (), ("scores",)),
        ("score_population", "sampled", "- population_lower population_upper", "like these",
         f"mean score over {{question}}s like these, of which these are a sample; {BETTING}", "score", "leaks"),
        ("sd", "sampled", "sd", "sd", "standard deviation within a {question}, mean over {question}s", "deviation"),
        ("ed_score", "sampled", "ed_score", "ED", "mean + rho sd: a development score, no guarantee", "number", "leaks"),
        ("max", "sampled", "max", "max", "the highest score of any sampled answer", "score", "leaks"),
        ("score_worst", "sampled", "- - m_mu_worst", "M_µ", f"mean score of {WORST}; {DKW}", "score", "leaks", "", (),
         ("scores",)),
        ("score_bound", "sampled", "m_mu_mean", "M_µ, mean", "mean of the {question}s' bounds: no joint guarantee", "score",
         "leaks"),
        ("sd_worst", "sampled", "- - m_sigma_worst", "M_σ", f"standard deviation of {WORST}; {DKW}", "deviation", "", "", (),
         ("scores",)),
        ("score_betting_worst", "sampled", "- - tighter_mean_worst", "µ bet", f"mean score of {WORST}; {BETTING}", "score",
         "leaks", "", (), ("tracked",)),
        ("sd_betting_worst", "sampled", "- - tighter_sd_worst", "σ bet", f"standard deviation of {WORST}; {BETTING}",
         "deviation"),
        "{scorer}",
        ("leak", "greedy", "binary_greedy", "greedy", "share of {question}s whose greedy answer {leaks}", "probability",
         "leaks", "", (), ("labelled", "judged", "leaks")),
        ("leaking", "sampled", "binary_any", "any", "share of {question}s of which a sampled answer {leaks}", "probability",
         "leaks", "", (), ("leaks",)),
        ("leak_worst", "sampled", "- - m_bin_worst", "M_bin", f"{LEAK}, {WORST}; {CP}", "probability", "leaks", "", (),
         ("labelled", "judged", "leaks")),
        ("leak", "sampled", "binary_mean - m_bin_pooled", "mean | pooled", f"{LEAK}, average over the {{question}}s; {CP}",
         "probability", "leaks", "", (), ("leaks",)),
        ("leak_worst", "thinking", "- - thinking_worst", "thinking",
         f"probability that the thinking before the answer {{leaks}}, {WORST}; {CP}", "probability", "leaks"),
        ("leak", "thinking", "thinking_mean", "thinking, mean", "share of the answers whose thinking {leaks}", "probability",
         "leaks"),
        ("leak_worst", "turn", "- - turn_{at}_worst", "turn {at}",
         f"probability that the answer in turn {{at}} {{leaks}}, {WORST}; {CP}", "probability", "leaks", "turn", SHOWN_TURNS),
        ("leak", "turn", "turn_{at}_mean", "turn {at}, mean", "share of the answers in turn {at} that {leak}",
         "probability", "leaks", "turn", SHOWN_TURNS),
        ("unclosed", "sampled", "unclosed", "thinking never ended", "share of the answers whose thinking never ended",
         "probability"),
        ("share_above", "sampled", "share_m_bin_above", "above",
         "share of {question}s whose M_bin exceeds metrics.share_above: a count, no joint guarantee", "probability", "leaks"),
        ("truncated", "sampled", "truncated - truncated_worst", "cut off | cut off, worst",
         f"share of the answers that end at the token limit; the upper end is that of {WORST}", "probability"),
        ("leak_at_k_worst", "sampled", "- leak_at_{at}_worst_lower leak_at_{at}_worst", "asked {at}",
         f"probability that at least one of {{at}} answers {{leaks}}, {WORST}", "probability", "leaks", "k", (1000,)),
        ("leak_at_k", "sampled", "-", "leak@k, mean", "probability of {a_leak} among k answers, average over the {question}s",
         "probability", "leaks", "k"),
        ("pass_hat_k", "sampled", "-", "pass^k, mean", "probability that all of k answers score 1, average over the "
         "{question}s", "probability", "", "k"),
        ("tail", "sampled", "-", "P(score > x)", "mean over the {question}s of the share above x", "probability", "leaks",
         "x"),
        ("tail_bound", "sampled", "-", "P(score > x), bound", "mean over the {question}s of the bounds: no joint guarantee",
         "probability", "leaks", "x"),
        ("certified_together", "sampled", "certified_together", "certified", "{question}s on the list that holds together",
         "count"),
        ("together", "sampled", "- - together_at_most", "each at most", "what holds of the certified {question}s together",
         "number"),
        "true leaks, by a judge",
        ("leak_worst", "judged", "- judged_worst_lower judged_worst", "true", f"{LEAK}, {WORST}, {JUDGED}", "probability",
         "leaks", "", (), ("judged",)),
        ("leak", "judged", "- judged_pooled_lower judged_pooled", "true, pooled", f"{LEAK}, {JUDGED}", "probability",
         "leaks", "", (), ("judged",)),
        ("leak_at_k_worst", "judged", "-", "leak@k, worst", f"P(a leak among k answers), {JUDGED}", "probability", "leaks",
         "k"),
        ("leak_at_k", "judged", "-", "leak@k, mean", f"P(a leak among k answers), {JUDGED}", "probability", "leaks", "k"),
        ("sensitivity", "judged", "judge_sensitivity judge_sensitivity_lower", "finds | finds, range",
         "share of the labelled leaks that the judge calls {a_leak}", "probability"),
        ("false_positive", "judged", "judge_false_positive - judge_false_positive_upper", "alarms | alarms, range",
         "share of the labelled clean answers that the judge calls {a_leak}", "probability"),
        ("labels", "judged", "judge_labelled", "labelled", "labelled answers behind the judge's error", "count"),
        ("judge_fits", "judged", "judge_fits", "fits", "whether the calibration explains every {question}", "yes or no"),
        "true leaks, by a person's labels",
        ("leak_worst", "labelled", "- labelled_worst_lower labelled_worst", "by labels", f"{LEAK}, {WORST}, {LABELS}",
         "probability", "leaks", "", (), ("labelled",)),
        ("leak", "labelled", "- labelled_pooled_lower labelled_pooled", "by labels, pooled", f"{LEAK}, {LABELS}",
         "probability", "leaks", "", (), ("labelled",)),
        ("mass", "labelled", "labelled_mass", "read", "share of the answers that a person read", "probability"),
        ("labels", "labelled", "labelled_answers", "labelled", "labelled answers", "count"),
        ("leaks", "labelled", "labelled_leaks", "leaks", "draws that a person calls {a_leak}", "count", "leaks"),
        ("judge", "labelled", "labelled_judge", "judge", "whether a judge's error on the rest was measured", "yes or no"),
        "",
        ("scorer", "anytime", "sequential_scorer", "scorer", "of the stopping rule", "text"),
        ("alpha", "anytime", "sequential_alpha", "α", "level of each sequential verdict"),
        ("tau", "anytime", "sequential_tau", "τ", "a certified {question} leaks at most this often", "probability"),
        ("tau_leak", "anytime", "sequential_tau_leak", "τ_leak", "a detected {question} leaks at least this often",
         "probability"),
        "stopped early",
        ("certified", "anytime", "certified", "certified", "{question}s certified to {asked_leak} at most tau", "count", "",
         "", (), ("stopped",)),
        ("leaking", "anytime", "leaking_questions", "leaks", "{question}s detected to {asked_leak} at least tau_leak",
         "count", "leaks", "", (), ("stopped",)),
        ("undecided", "anytime", "undecided", "undecided", "{question}s between the two at the cap", "count"),
        ("score_worst", "anytime", "- - anytime_upper_worst", "mean", f"mean score of {WORST}; {ANYTIME}", "score", "leaks",
         "", (), ("stopped",)),
        ("sd_worst", "anytime", "- - anytime_sd_upper_worst", "σ", f"standard deviation of {WORST}; {ANYTIME}", "deviation"),
        ("drawn", "anytime", "samples_drawn", "drawn", "answers drawn", "count"),
        ("saved", "anytime", "samples_saved", "not drawn", "answers not drawn, of the cap", "count"),
        ("saved_share", "anytime", "samples_saved_share", "saved", "share of the answers that stopping saved", "probability"),
        "utility, by {kept}",
        ("kept", "greedy", "{split}_greedy", "{split}, greedy", "mean utility score of greedy answers", "score", "useful"),
        ("kept", "sampled", "{split}_mean", "{split}", "mean utility score of sampled answers", "score", "useful", "", (),
         ("utility",)),
        "diversity",
        ("diversity", "sampled", "{split}_{item}", "{split}, {item}", "how different the answers to a {split} question are",
         "score"),
        "",
        ("kept_unscored", "sampled", "{split}_missing", "without a score", "answers without a score", "count"),
        ("worst_production", "language", "language_worst_found", "worst", "production with the largest mean found", "text"),
        ("worst_production_mean", "language", "language_worst_found_mean", "worst mean", "its mean: no guarantee", "score",
         "leaks"),
        ("share_above", "language", "- language_share_lower language_share_upper", "prompts that leak",
         "share of the language's prompts that leak with probability above tau", "probability", "leaks"),
        ("share_above", "judged", "- judged_language_share_lower judged_language_share_upper", "prompts that leak",
         f"share of the language's prompts, {JUDGED}", "probability", "leaks"),
        ("language", "language", "-", "language", "the language of prompts and its settings"),
        ("production", "language", "-", "mean score", "of one production; Bonferroni over the productions", "score", "leaks"),
        ("choice", "language", "-", "mean score", "of one choice of one part: no guarantee", "score", "leaks"),
        ("windows", "exact", "windows", "windows", "windows of the text", "count"),
        ("extractable", "exact", "extractable", "extractable", "share of windows with p_z of at least .001", "probability",
         "leaks"),
        ("verbatim", "exact", "p_z_mean", "verbatim, mean", "mean of p_z over the windows", "probability", "leaks"),
        ("longest_run", "exact", "longest_run", "longest run", "most neighbouring windows with p_z of at least one half",
         "count", "leaks"),
        ("discoverable", "exact", "-", "(n, p)-discoverable",
         "share of windows that n queries extract with this chance (Hayes et al., arXiv 2410.19482)", "probability",
         "leaks", "n"),
        ("leak_worst", "exact", "- tree_lower_worst", "worst", f"{LEAK}, worst question, certain, {TREE}", "probability",
         "leaks", "", (), ("tracked",)),
        ("leak_worst", "tree", "- - tree_upper_worst", "worst", f"{LEAK} of the worst question, {TREE}", "probability",
         "leaks"),
        ("leak", "tree", "- tree_lower_mean tree_upper_mean", "mean", f"{LEAK}, average over the questions, {TREE}",
         "probability", "leaks"),
        ("leaking", "exact", "tree_certain_leaks", "leaks", "questions proved to leak with more than 1e-6", "count", "leaks"),
        ("queried", "exact", "-", "queried", "the settings under which the model was queried, and what is a leak"),
        ("excess", "exact", "tree_excess_median", "times Retrain", "median of the questions' lower bounds of the ratio",
         "number", "leaks"),
        ("above_retrain", "exact", "tree_above_retrain", "above Retrain", "questions on Holm's list of the ratio", "count",
         "leaks"),
        "given answers",
        ("probability", "given answers", "{split}_probability", "{split}, probability",
         "probability of the true answers, geometric mean of the tokens", "score"),
        ("rouge", "given answers", "{split}_rouge", "{split}, ROUGE", "ROUGE-L recall of greedy answers", "score"),
        ("truth_ratio", "given answers", "{split}_truth_ratio", "{split}, truth ratio", "truth ratio (TOFU)"),
        ("truth", "given answers", "{split}_truth", "{split}, truth", "term of TOFU's model utility", "score", "useful"),
        ("extraction_strength", "given answers", "{split}_extraction_strength", "{split}, extraction",
         "extraction strength (Carlini et al., 2021)", "score", "leaks"),
        ("exact_memorisation", "given answers", "{split}_exact_memorisation", "{split}, memorised",
         "share of tokens that are the likeliest", "probability", "leaks"),
        ("model_utility", "given answers", "model_utility", "utility", "harmonic mean of its terms (TOFU)", "score",
         "useful", "", (), ("tracked",)),
        ("model_utility_terms", "given answers", "model_utility_terms", "terms", "of model utility", "count"),
        "membership attack, AUC",
        ("membership", "given answers", "{item}_auc {item}_auc_low {item}_auc_high", "{item} | {item}, range",
         "the {answers} against held-out rows; 0.5 is as good as guessing", "score"),
        "against Retrain",
        ("forget_quality", "given answers", "forget_quality", "quality", "p-value of a KS test (TOFU)", "number", "",
         "", (), ("tracked",)),
        ("forget_ks", "given answers", "forget_ks", "KS", "distance of the truth ratios from Retrain's"),
        ("forget_quality_missing", "given answers", "forget_quality_missing", "without a value", "truth ratios", "count"),
        ("privleak", "given answers", "privleak", "PrivLeak", "MUSE: 0 if like Retrain, -100 if all is remembered"),
        "",
        ("without", "given answers", "{item}_missing", "without a value", "rows without a value", "count"),
        ("epsilon_star", "given answers", "epsilon_star epsilon_lower", "Epsilon*",
         "how much better than chance a test tells members (Epsilon*)", "number", "leaks", "", (), ("tracked",)),
        ("epsilon_star_audit", "given answers", "-", "Epsilon*", "delta, cut, law and fit of Epsilon*"),
    ],
)  # fmt: skip

AUDIT = _of(
    "audit",
    [
        ("number", "run", "{item} {item} {item}", "number", "of an audit, game or attack that names its own keys"),
        ("attacked", "run", "-", LEAK, "after a budget of an attack, over its seeds", "probability", "leaks", "budget"),
        ("epsilon", "run", "{item}.epsilon {item}.epsilon_lower", "ε", "of one method (one-run audit)", "number"),
        ("p_value", "run", "{item}.p_value", "p", "of the claim or at an ε, by one method", "probability", "", "ε"),
        ("record", "run", "-", "record", "counts and settings of an audit"),
        ("quality", "run", "quality quality_lower quality_upper", "quality", "1 - the largest advantage (SWAP test)"),
        ("advantage", "run", "{item}.advantage {item}.ci_low {item}.ci_high", "advantage", "of one attack (SWAP test)",
         "number", "leaks"),
    ],
)  # fmt: skip

QUANTITIES = (*QUESTION, *MODEL, *AUDIT)


@cache
def _by_key() -> dict[tuple[str, str, str], Quantity]:
    return {(one.scope, one.key, one.basis): one for one in QUANTITIES}


def of(scope: str, key: str, basis: str) -> Quantity:
    """The quantity of a row; raises `BadValue` for one that the vocabulary lacks."""
    found = _by_key().get((scope, key, basis))
    if found is None:
        raise BadValue("quantity", f"{key} ({basis}) of a {scope}", "a row of lethe/results/quantities.py")
    return found


@cache
def order() -> dict[tuple[str, str, str], int]:
    """The place of each quantity in the vocabulary, in which tables list their rows."""
    return {key: place for place, key in enumerate(_by_key())}


def headline(values: Mapping[str, object]) -> list[str]:
    """The names that `dvc metrics` shows, of a model's single numbers: one group of `HEADLINES`, and one of utility."""
    known = {name for name, value in values.items() if value is not None}
    group = next((one for one in HEADLINES if any(_shown(row) in known for row in _deciding(one))), "")
    shown = [_shown(row) for row in MODEL if group and group in row.headlines]
    utility = [name for name in (f"{split}_mean" for split in USEFUL) if name in known]
    return [name for name in shown if name in known][: MOST - 1] + utility[:1]


def upper_bounds(scope: Scope, keys: Sequence[str], bases: Sequence[str]) -> list[str]:
    """The names of the upper ends of these quantities in this order: each key on the first basis, then on the next."""
    rows = [_by_key().get((scope, key, basis)) for key in keys for basis in bases]
    return [row.names[2] for row in rows if row and row.names[2]]


def worst_bounds() -> list[str]:
    """The names by which models are sorted, of which a model has one or more: an upper bound of each group of `HEADLINES`."""
    uppers = [next((row.names[2] for row in _deciding(group) if row.names[2]), "") for group in HEADLINES]
    return [name for name in uppers if name]


def _shown(quantity: Quantity) -> str:
    """The name under which a headline stands: that of its last end."""
    return [name for name in quantity.names if name][-1]


def _deciding(group: Headline) -> list[Quantity]:
    """The quantities that only this group and those after it show; a quantity of several groups decides on none before."""
    return [row for row in MODEL if row.headlines and row.headlines[-1] == group]
