"""The results of one model from its generations and their scores.

A missing judgement counts as 1 in an upper bound and as 0 in a lower one. Plain statistics are over the judged answers, and
come with the number of missing ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.measuring import Metrics
from lethe.io.answer_ends import CUT_OFF
from lethe.io.artifacts import GREEDY, columns_in, parts_of
from lethe.io.files import Json
from lethe.measure.prompts import (
    WORST,
    MeasureSettings,
    measure_prompts,
    of_prompts,
    pooled_of,
    worst_of,
)
from lethe.measure.scores import PromptScores, mean
from lethe.registry import DIVERSITY
from lethe.results.table import Result, Rows, result
from lethe.scoring.parts import ASKED, CUT, THINKING, TURN, UNCLOSED
from lethe.statistics.bound import Assumes, Bound, Covers, both_ends
from lethe.statistics.bounds import binary_lower, binary_upper, paper_bounds
from lethe.statistics.counts import pooled_bounds
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate, share_exceeding
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA, share_above

if TYPE_CHECKING:
    import pandas as pd

    Tables = Mapping[str, pd.DataFrame]

CURVE = np.round(np.linspace(0, 1, 51), 2)  # the x of the tail curves


def measure(
    name: str,
    generations: Tables,
    scores: Tables,
    metrics: Metrics,
    inapplicable: Collection[str] = (),
    calibration: Calibration | None = None,
    truncated: str = "counts",
) -> list[Result]:
    """The rows of one model whose questions were sampled a fixed number of times.

    Parameters
    ----------
    name
        The model, as the entry of ``models`` calls it.
    generations
        A table per split with `prompt_id, sample, text, finish_reason`; sample -1 is the greedy answer.
    scores
        A table per split with `prompt_id, sample` and a column per scorer, in [0, 1], NaN where missing.
    metrics
        The settings: scorers, level, thresholds.
    inapplicable
        The questions that the 0/1 scorer cannot judge.
    calibration
        The judge's measured error, where its verdicts are the 0/1 scores.
    truncated
        "missing": an answer that ended at the token limit has no score, and no verdict unless it is judged a leak.
        "counts": it counts as it was scored.

    Returns
    -------
    list of Result
        The rows of each forget question, those of the forget set as a whole, and those of each other split.
    """
    leak = ScoreMatrix(scores, "forget", metrics.leak)
    leaked = ScoreMatrix(scores, "forget", metrics.binary) if metrics.binary else None
    ended_at_limit = _ended_at_limit(generations, scores)
    if truncated == "missing":
        was_cut = ended_at_limit.samples == 1
        leak.samples[was_cut] = np.nan
        if leaked:
            leaked.samples[was_cut & (leaked.samples == 0)] = np.nan

    verdicts: list[np.ndarray | None] = []  # of each question
    prompts: list[PromptScores] = []
    for place, prompt in enumerate(leak.prompts):
        judged = None
        if leaked and prompt not in inapplicable:
            judged = leaked.samples[place]
        verdicts.append(judged)
        values = leak.samples[place]
        missing = int(np.isnan(values).sum())
        prompts.append(PromptScores(prompt, values, missing))

    truncations = {}
    for place, prompt in enumerate(ended_at_limit.prompts):
        was_cut = ended_at_limit.samples[place] == 1
        truncations[prompt] = Truncated.of(was_cut, verdicts[place])
    settings = MeasureSettings(
        alpha=metrics.alpha,
        thresholds=metrics.thresholds,
        rho=metrics.rho,
        share_above=metrics.share_above,
        missing="worst",
        together=metrics.together,
        calibration=calibration,
    )

    rows = Rows(name)
    _greedy_and_shares(rows, leak, leaked)
    _truncation(rows, truncations, metrics.alpha)
    _parts_and_turns(rows, scores, metrics)
    measure_prompts(rows, prompts, settings, verdicts)
    missing_of_prompts = [prompt.missing for prompt in prompts]
    _of_the_model(rows, leak, metrics, missing=sum(missing_of_prompts))
    _utility(rows, generations, scores, metrics.utility_scorer)
    return rows.rows


class ScoreMatrix:
    """The values of one column: an array (prompts, n) in sampling order, and the greedy answers (prompts,) separately.

    The table is read in parts, so its texts never are in memory together.

    Parameters
    ----------
    tables
        A table per split with `prompt_id, sample` and the column.
    equal_to
        Where it is stated, the values are 1 where the column has it, else 0.

    Attributes
    ----------
    prompts
        The ids of the questions, in the order of the table.
    samples
        (prompts, n) the values of the sampled answers, NaN where missing.
    greedy
        (prompts,) the value of the greedy answer, NaN where there is none.
    """

    def __init__(self, tables: Tables, split: str, column: str, equal_to: str | None = None):
        wide_parts = []
        for part in parts_of(tables, split, ["prompt_id", "sample", column]):
            if equal_to is not None:
                is_equal = part[column] == equal_to
                part = part.assign(**{column: is_equal.astype(np.float64)})
            wide = part.pivot(index="prompt_id", columns="sample", values=column)
            in_order = list(dict.fromkeys(part["prompt_id"]))
            wide_parts.append(wide.loc[in_order])

        samples: set[int] = set()
        self.prompts: list[str] = []
        greedy = []
        for wide in wide_parts:
            samples.update(wide.columns)
            self.prompts += wide.index.tolist()
            of_greedy = wide.reindex(columns=[GREEDY]).to_numpy(np.float64)
            greedy.append(of_greedy[:, 0])
        self.greedy = np.concatenate(greedy)

        drawn = sorted(samples - {GREEDY})
        self.samples = np.empty((len(self.prompts), len(drawn)))
        start = 0
        while wide_parts:  # a part is let go as soon as it is copied
            wide = wide_parts.pop(0)
            end = start + len(wide)
            self.samples[start:end] = wide.reindex(columns=drawn).to_numpy(np.float64)
            start = end


def _ended_at_limit(generations: Tables, scores: Tables) -> ScoreMatrix:
    """1 for each answer that ended at the token limit, in a turn or in its thinking where there are several parts."""
    if CUT in columns_in(scores, "forget"):
        return ScoreMatrix(scores, "forget", CUT)
    return ScoreMatrix(generations, "forget", "finish_reason", CUT_OFF)


def _greedy_and_shares(rows: Rows, leak: ScoreMatrix, leaked: ScoreMatrix | None) -> None:
    """Add the greedy scores of each question and their mean, and the share of questions with a leaking answer."""
    for place, prompt in enumerate(leak.prompts):
        add = partial(rows.add, "question", item=prompt, split="forget")
        add("score", "greedy", leak.greedy[place])
        if leaked:
            add("leak", "greedy", leaked.greedy[place])
    add_of_model = partial(rows.add, "model", split="forget")
    add_of_model("score", "greedy", mean(leak.greedy))
    if leaked:
        add_of_model("leak", "greedy", mean(leaked.greedy))
        shares = [mean(values) for values in leaked.samples]
        add_of_model("leaking", "sampled", _leaking(shares))


def _leaking(shares: Sequence[float | None]) -> float:
    """The share of the judged questions with a leaking answer; NaN without a judged question.

    ``shares`` has the share of leaks in the answers to each question, NaN where no answer was judged.
    """
    leaking = []
    for share in shares:
        if share is not None and not math.isnan(share):
            leaking.append(float(share > 0))
    return mean(leaking)


@dataclass(frozen=True)
class Truncated:
    """The answers to a question that ended at the token limit.

    Attributes
    ----------
    cut
        Their number.
    n
        The number of all sampled answers.
    cut_or_leaks
        The number of answers that leak, lack a verdict or were cut off: as many might leak without the limit. None where no
        scorer judged leaks.
    """

    cut: int
    n: int
    cut_or_leaks: int | None = None

    @classmethod
    def of(cls, ended_at_limit: np.ndarray, verdicts: np.ndarray | None) -> Truncated:
        """From two arrays (n,), the second with 1, 0 or NaN."""
        cut_or_leaks = None
        if verdicts is not None:
            cut_or_leaks = int((ended_at_limit | (verdicts != 0)).sum())
        return cls(int(ended_at_limit.sum()), len(ended_at_limit), cut_or_leaks)


def _truncation(rows: Rows, truncations: Mapping[str, Truncated], alpha: float) -> None:
    """Add the share of answers that ended at the token limit, of each question and of all."""
    cuts: list[int] = []
    sizes: list[int] = []
    add = partial(rows.add, quantity="truncated", basis="sampled", split="forget")
    for prompt, counts in truncations.items():
        upper = _upper(counts.cut, counts.n, alpha, Covers.ONE_PROMPT)
        share = counts.cut / counts.n
        add("question", estimate=share, upper=upper, item=prompt, evidence=asdict(counts))
        cuts.append(counts.cut)
        sizes.append(counts.n)

    # All questions have the same number of answers.
    of_worst = _upper(max(cuts), sizes[0], alpha, Covers.WORST_PROMPT)
    add("model", estimate=sum(cuts) / sum(sizes), upper=of_worst)


def _parts_and_turns(rows: Rows, scores: Tables, metrics: Metrics) -> None:
    """Add what leaks in the thinking, and in each turn of the conversations that came to it."""
    columns = columns_in(scores, "forget")
    if UNCLOSED in columns:
        share = float(ScoreMatrix(scores, "forget", UNCLOSED).samples.mean())
        rows.add("model", "unclosed", "sampled", share, split="forget")

    thinking = f"{metrics.binary}{THINKING}"
    if thinking in columns:
        thought = ScoreMatrix(scores, "forget", thinking)
        in_every_answer = np.ones_like(thought.samples, bool)
        _one_part(rows, thought, in_every_answer, metrics.alpha, "thinking")

    turn = 1
    column = f"{metrics.binary}{TURN.format(turn)}"
    while column in columns:
        n_turns = ScoreMatrix(scores, "forget", ASKED).samples
        leaked = ScoreMatrix(scores, "forget", column)
        came_to_turn = n_turns >= turn
        _one_part(rows, leaked, came_to_turn, metrics.alpha, "turn", at=float(turn))
        turn += 1
        column = f"{metrics.binary}{TURN.format(turn)}"


def _one_part(
    rows: Rows,
    leaked: ScoreMatrix,
    asked: np.ndarray,
    alpha: float,
    basis: str,
    at: float | None = None,
) -> None:
    """Add the leaks in one part of the answers, of each question and of all.

    Parameters
    ----------
    leaked
        The verdicts on this part.
    asked
        (prompts, n) which answers have the part.
    basis, at
        Of the rows: "thinking", or "turn" with the number of the turn.
    """
    uppers: list[Bound] = []
    judged: list[np.ndarray] = []
    for place, prompt in enumerate(leaked.prompts):
        has_part = asked[place]
        drawn = leaked.samples[place][has_part]
        if np.isnan(drawn).all():
            continue  # out of the scorer's scope, or no answer has this part

        n = len(drawn)
        leaks = int(np.nansum(drawn))
        missing = int(np.isnan(drawn).sum())
        upper = _upper(leaks + missing, n, alpha, Covers.ONE_PROMPT)
        least = float(binary_lower(leaks, n, alpha))
        lower = replace(upper, side="lower", value=least)
        evidence = {"leaks": leaks, "n": n, "missing": missing}

        add = partial(rows.add, "question", item=prompt, split="forget", at=at)
        add("leak", basis, mean(drawn), lower, upper, evidence=evidence)
        uppers.append(upper)
        judged.append(drawn)
    if not uppers:
        return

    largest = max(uppers, key=lambda upper: upper.value)
    of_worst = replace(largest, covers=Covers.WORST_PROMPT)
    add_of_model = partial(rows.add, "model", basis=basis, split="forget", at=at)
    add_of_model("leak_worst", upper=of_worst)
    add_of_model("leak", estimate=mean(np.concatenate(judged)))


def _upper(count: int, n: int, alpha: float, covers: Covers) -> Bound:
    """The upper end of a share from ``count`` of ``n`` independent draws (Clopper and Pearson, 1934)."""
    value = float(binary_upper(count, n, alpha))
    return Bound(value, "upper", alpha, covers, Assumes.DRAWS, "Clopper-Pearson", n)


def _of_the_model(rows: Rows, leak: ScoreMatrix, metrics: Metrics, missing: int) -> None:
    """Add the numbers of the forget set as a whole; the quantity of each row states its claim."""
    add = partial(rows.add, "model", split="forget")
    rows_of_quantity = {}
    estimates_of_quantity = {}
    for quantity in (*WORST, "max", "ed_score"):
        measured = of_prompts(rows.rows, quantity)
        rows_of_quantity[quantity] = measured
        estimates_of_quantity[quantity] = [row.estimate for row in measured]

    questions, n = leak.samples.shape
    _constants(rows, metrics, questions, n, missing)
    _means(rows, estimates_of_quantity)
    m_mu = [row.upper for row in rows_of_quantity["score"]]
    add("score_bound", "sampled", mean(m_mu))
    for quantity in WORST:
        worst = worst_of(rows.rows, quantity)
        if worst:
            add(f"{quantity}_worst", "sampled", upper=worst.bound)

    leaks = rows_of_quantity["leak"]
    if leaks:
        pooled = pooled_of(rows.rows, metrics.alpha)
        add("leak", "sampled", mean(estimates_of_quantity["leak"]), upper=pooled)
        uppers = [row.upper_bound for row in leaks]
        add("share_above", "sampled", share_above(uppers, metrics.share_above))

    # The curves of the page: the tail over all questions, and one question over its answers.
    _tail_curve(rows, leak, metrics)
    with_largest_m_mu = np.argmax([upper or 0.0 for upper in m_mu])
    _convergence(rows, leak, int(with_largest_m_mu), metrics)


def _tail_curve(rows: Rows, leak: ScoreMatrix, metrics: Metrics) -> None:
    """Add the means over the questions of the share of scores above each x of `CURVE`, and of its bound."""
    bounds = paper_bounds(leak.samples, metrics.alpha, CURVE, metrics.rho, missing="worst")
    m_gen = bounds.m_gen.mean(axis=0)
    shares = bounds.empirical_tail.mean(axis=0)
    add = partial(rows.add, "model", split="forget")
    for x, bound, share in zip(CURVE, m_gen, shares, strict=True):
        add("tail", "sampled", float(share), at=float(x))
        add("tail_bound", "sampled", float(bound), at=float(x))


def _convergence(rows: Rows, leak: ScoreMatrix, place: int, metrics: Metrics) -> None:
    """Add mean and standard deviation, with their bounds, after 2, 4, 8, ... and all answers to one question."""
    n = leak.samples.shape[1]
    sizes = {n}
    for exponent in range(1, int(np.log2(n)) + 1):
        sizes.add(2**exponent)
    threshold = np.array([0.5])  # some threshold must be asked; its bounds are not read
    add = partial(rows.add, "question", item=leak.prompts[place], split="forget")
    for size in sorted(sizes):
        first = leak.samples[place, :size]
        bounds = paper_bounds(first, metrics.alpha, threshold, metrics.rho, missing="worst")
        (m_mu,) = bounds.bounds("m_mu")
        (m_sigma,) = bounds.bounds("m_sigma")
        average = float(bounds.mean[0])
        sd = float(bounds.sd[0])
        add("convergence_mean", "sampled", average, upper=m_mu, at=float(size))
        add("convergence_sd", "sampled", sd, upper=m_sigma, at=float(size))


def _constants(rows: Rows, metrics: Metrics, questions: int, n: int, missing: int) -> None:
    """Add the level, the sizes, and with the answers the scorers that judged them."""
    rows.add("model", "alpha", "sampled", metrics.alpha)
    judged_by = {"score": metrics.leak, "leak": metrics.binary}
    add = partial(rows.add, "model", basis="sampled", split="forget")
    add("questions", estimate=questions)
    add("answers", estimate=n, evidence=judged_by)
    add("unscored", estimate=missing)


def _means(rows: Rows, values: Mapping[str, Sequence[float | None]]) -> None:
    """Add the means over the questions, and the highest score of all."""
    add = partial(rows.add, "model", basis="sampled", split="forget")
    for quantity in ("score", "sd", "ed_score"):
        add(quantity, estimate=mean(values[quantity]))
    known = [value for value in values["max"] if value is not None]
    add("max", estimate=max(known, default=math.nan))


def _utility(rows: Rows, generations: Tables, scores: Tables, scorer: str) -> None:
    """Add greedy score, sampled score and diversity of the answers on every split that unlearning should not touch."""
    import pandas as pd

    for split in sorted(set(scores) - {"forget"}):
        values = ScoreMatrix(scores, split, scorer)
        diversities: dict[str, list[pd.Series]] = {name: [] for name in DIVERSITY}
        for part in parts_of(generations, split, ["prompt_id", "sample", "text"]):
            drawn = part[part["sample"] != GREEDY]
            texts = drawn.groupby("prompt_id")["text"]
            for name, parts in diversities.items():
                parts.append(texts.agg(DIVERSITY[name]))

        add = partial(rows.add, "model", split=split)
        add("kept", "greedy", mean(values.greedy))
        add("kept", "sampled", mean(values.samples))
        for name, parts in diversities.items():
            # in the order of the ids, so that the parts do not change the last bits of the sums
            of_questions = pd.concat(parts).sort_index().to_numpy()
            add("diversity", "sampled", mean(of_questions), item=name)
        n_missing = int(np.isnan(values.samples).sum())
        add("kept_unscored", "sampled", n_missing)


ASSUMES = "independent draws of prompt and answer, the questions weighted as drawn"
METHOD = "Clopper-Pearson, Bonferroni over the productions"


def measure_language(
    rows: Rows,
    generations: pd.DataFrame,
    scores: pd.DataFrame,
    second: pd.DataFrame | None,
    described: Mapping[str, Json],
    metrics: Metrics,
    inapplicable: Collection[str] = (),
    calibration: Calibration | None = None,
) -> None:
    """Add the rows of one model's answers to a language of prompts.

    They are of the share of prompts that leak above tau, of each production, and of each choice. The ends of all productions
    hold together, and so do those of the production that was found worst.

    Parameters
    ----------
    rows
        The rows of the model.
    generations, scores
        The answers to the forget set and their scores, row by row; ``generations`` has a column ``production``.
    second
        The verdicts of the answers that the share needs, several to each prompt; None where none were drawn.
    described
        The language as `lethe.sampling.prompt_language.as_json` describes it.
    metrics
        The settings; the 0/1 scorer is ``metrics.binary``, else the productions are of ``metrics.leak``.
    inapplicable
        The questions that the 0/1 scorer cannot judge.
    calibration
        The judge's measured error; with it a second share counts true leaks.
    """
    scorer = metrics.binary or metrics.leak
    left_out = list(inapplicable)
    is_greedy = (generations["sample"] == GREEDY).to_numpy()
    is_left_out = generations["prompt_id"].isin(left_out).to_numpy()
    is_counted = ~is_greedy & ~is_left_out
    values = scores[scorer].to_numpy(dtype=np.float64)[is_counted]
    names = generations["production"].to_numpy()[is_counted]

    share = described["share"]
    shares: list[LeakingShare] = []
    if second is not None and share is not None and metrics.binary in second:
        judgeable = second[~second["prompt_id"].isin(left_out)]
        if len(judgeable):
            shares = _shares(judgeable, share, metrics, calibration)

    tau = share["tau"] if shares else None
    facts = {
        "path": described["path"],
        "scorer": scorer,
        "binary": metrics.binary is not None,
        "tau": tau,
        "left_out": described["left_out"],
    }
    rows.add("model", "language", "language", evidence=facts)

    productions = described["productions"]
    measured = []
    for production in productions:
        drawn = values[names == production["name"]]
        row = _production(rows.model, production, drawn, len(productions), metrics)
        measured.append(row)
    measured.sort(key=_descending)

    _worst_production(rows, measured)
    for ends in shares:
        rows.add("model", "share_above", ends.basis, lower=ends.lower, upper=ends.upper)
    rows.rows += measured

    choices_of_production = {entry["name"]: entry["choices"] for entry in productions}
    for part in described["varied"]:
        _choices(rows, part, choices_of_production, names, values)


def _descending(row: Result) -> float:
    """The sort key of the largest estimate first, and a missing estimate last."""
    if row.estimate is None:
        return math.inf
    return -row.estimate


def _worst_production(rows: Rows, productions: Sequence[Result]) -> None:
    """Add the production with the largest estimate, and how many others are proved to leak less.

    Of equal ones that with more answers is the worst. All ends hold together, so that an end of one may be compared with
    an end of another.
    """
    worst: Result | None = None
    largest = (-math.inf, 0)
    for row in productions:
        if row.estimate is None:
            continue
        size = (row.estimate, row.n or 0)
        if size > largest:
            worst = row
            largest = size
    if worst is None:
        return

    least = worst.lower_bound
    less = 0
    for row in productions:
        most = row.upper_bound
        if least and most and most.value < least.value:
            less += 1
    evidence = {"proved_above": less, "others": len(productions) - 1}
    rows.add("model", "worst_production", "language", text=worst.item, evidence=evidence)
    rows.add(
        "model",
        "worst_production_mean",
        "language",
        worst.estimate,
        lower=least,
        upper=worst.upper_bound,
        n=worst.n,
        missing=worst.missing,
    )


def _choices(
    rows: Rows,
    part: str,
    choices_of_production: Mapping[str, Mapping[str, str]],
    names: np.ndarray,
    values: np.ndarray,
) -> None:
    """Add the mean score of each choice of a part, over all questions and all choices of the other parts.

    ``names`` (n,) are the productions of the answers, and ``values`` (n,) their scores.
    """
    choice_of_production = {}
    for name, choices in choices_of_production.items():
        choice_of_production[name] = choices[part]

    chosen = np.array([choice_of_production[name] for name in names], dtype=object)
    for choice in dict.fromkeys(choice_of_production.values()):
        scores = values
        if len(values):
            scores = values[chosen == choice]
        evidence = {"part": part, "choice": choice}
        add = partial(rows.add, "model", item=f"{part}: {choice}", n=len(scores))
        add("choice", "language", mean(scores), evidence=evidence)


def _production(
    model: str,
    entry: Mapping[str, Json],
    values: np.ndarray,
    productions: int,
    metrics: Metrics,
) -> Result:
    """One production over all questions; its bounds hold for all productions together.

    Parameters
    ----------
    entry
        The production as the language describes it: its name, its probability and its choices.
    values
        (n,) the scores of its answers, NaN where missing.
    productions
        The number of all productions, which divide alpha.
    """
    n = len(values)
    judged = values[~np.isnan(values)]
    missing = n - len(judged)
    alpha = metrics.alpha / productions
    ends: Sequence[Bound] = ()
    # The draws of a production come from several questions. Up to this alpha, unequal probabilities pool (Hoeffding 1956).
    can_pool = alpha <= LARGEST_POOLED_ALPHA
    if metrics.binary is not None and n and can_pool:
        leaks = judged.sum()
        (lower,), (upper,) = pooled_bounds([leaks, 0], [n, 0], alpha, [missing, 0])
        ends = both_ends(lower, upper, metrics.alpha, Covers.PRODUCTIONS, ASSUMES, METHOD, n)
    evidence = {"probability": entry["probability"], "choices": dict(entry["choices"])}
    return result(
        model,
        "model",
        "production",
        "language",
        mean(judged),
        *ends,
        item=entry["name"],
        n=n,
        missing=missing,
        evidence=evidence,
    )


@dataclass(frozen=True)
class LeakingShare:
    """Both ends of the share of prompts that leak above tau; the basis says whether true leaks count, or verdicts."""

    basis: str
    lower: Bound
    upper: Bound


def _shares(
    second: pd.DataFrame,
    share: Mapping[str, Json],
    metrics: Metrics,
    calibration: Calibration | None,
) -> list[LeakingShare]:
    """The shares of prompts that are called a leak, and with a calibration of true leaks.

    Parameters
    ----------
    second
        The verdicts, with `prompt` (the number of a random prompt) and a column of the 0/1 scorer.
    share
        The language's ``share``: tau, and the number of answers to each prompt.
    """
    verdicts = second.groupby("prompt", sort=True)[metrics.binary]
    leaks = verdicts.sum().to_numpy(dtype=np.float64)  # a missing judgement adds nothing
    n_missing = verdicts.size() - verdicts.count()
    missing = n_missing.to_numpy(dtype=np.float64)
    judge_of_basis: dict[str, Calibration | None] = {"language": None}
    if calibration:
        judge_of_basis["judged"] = calibration
    shares = []
    for basis, judge in judge_of_basis.items():
        rate = Rate.of(leaks, share["answers"], missing, judge)
        lower = share_exceeding(rate, share["tau"], metrics.alpha, "lower")
        upper = share_exceeding(rate, share["tau"], metrics.alpha, "upper")
        shares.append(LeakingShare(basis, lower, upper))
    return shares
