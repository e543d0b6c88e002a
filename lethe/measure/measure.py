"""The results of one model from its generations and their scores. A missing judgement counts as 1 in an upper bound and as
0 in a lower one; plain statistics are over the judged answers, and come with the number of missing ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from lethe.measure.scores import PromptScores, mean, plain_rows
from lethe.registry import DIVERSITY
from lethe.results.table import Numbers, Result, Results, Rows, result
from lethe.scoring.parts import ASKED, CUT, THINKING, TURN, UNCLOSED
from lethe.statistics.bound import Assumes, Bound, Covers, both_ends
from lethe.statistics.bounds import binary_lower, binary_upper, paper_bounds
from lethe.statistics.counts import pooled_bounds
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate, share_exceeding
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA, share_above, worst_prompt
from lethe.statistics.sequential import CERTIFIED, LEAKS, UNDECIDED, Decision

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

    ``inapplicable`` names the questions that the 0/1 scorer cannot judge. Where ``truncated`` is "missing", an answer
    that ended at the token limit has no score, and no verdict unless it is judged a leak.
    """
    leak = ScoreMatrix(scores, "forget", metrics.leak)
    leaked = ScoreMatrix(scores, "forget", metrics.binary) if metrics.binary else None
    ended_at_limit = _ended_at_limit(generations, scores)
    if truncated == "missing":
        leak.samples[ended_at_limit.samples == 1] = np.nan
        if leaked:
            leaked.samples[(ended_at_limit.samples == 1) & (leaked.samples == 0)] = np.nan

    verdicts: list[np.ndarray | None] = []  # of each question
    prompts: list[PromptScores] = []
    for place, prompt in enumerate(leak.prompts):
        judged = None
        if leaked and prompt not in inapplicable:
            judged = leaked.samples[place]
        verdicts.append(judged)
        values = leak.samples[place]
        prompts.append(PromptScores(prompt, values, missing=int(np.isnan(values).sum())))
    truncations = {}
    for place, prompt in enumerate(ended_at_limit.prompts):
        truncations[prompt] = Truncated.of(ended_at_limit.samples[place] == 1, verdicts[place])
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
    _of_the_model(rows, leak, metrics, missing=sum(prompt.missing for prompt in prompts))
    _utility(rows, generations, scores, metrics.utility_scorer)
    return rows.rows


def measure_stopped(
    name: str,
    generations: Tables,
    scores: Tables,
    metrics: Metrics,
    decisions: Mapping[str, Decision],
    decided_by: str,
) -> list[Result]:
    """The rows of one model whose questions stopped early: only anytime-valid bounds hold after a stop.

    ``decisions`` are those of the sequential test by question, which judged the answers by the scorer ``decided_by``.
    """
    rows = Rows(name)
    table_of_prompt = dict(_by_question(scores, decisions))
    for prompt, decision in decisions.items():
        _stopped_question(rows, table_of_prompt[prompt], prompt, metrics, decision, decided_by)
    questions = Results({name: tuple(rows.rows)}).questions(name)

    truncations = {}
    columns = ["prompt_id", "sample", "finish_reason"]
    for prompt, table in _by_question(generations, decisions, columns):
        reasons = table["finish_reason"][table["sample"] != GREEDY]
        cut = int((reasons == CUT_OFF).sum())
        leak = questions[prompt].row("leak", "anytime")
        cut_or_leaks = None
        if leak and leak.evidence:
            most = leak.evidence["leaks"] + leak.evidence["missing"] + cut
            cut_or_leaks = min(len(reasons), most)
        truncations[prompt] = Truncated(cut, len(reasons), cut_or_leaks)
    _truncation(rows, truncations)

    drawn = sum(numbers.value("n") or 0 for numbers in questions.values())
    _sequential_summary(rows, decisions, decided_by, drawn=int(drawn))
    cap = max(decision.cap for decision in decisions.values())
    _plain_summary(rows, list(questions.values()), metrics, cap)
    _utility(rows, generations, scores, metrics.utility_scorer)
    return rows.rows


def _by_question(
    tables: Tables, prompts: Collection[str], columns: Sequence[str] | None = None
) -> Iterator[tuple[str, pd.DataFrame]]:
    for part in parts_of(tables, "forget", columns):
        for prompt, table in part.groupby("prompt_id", sort=False):
            if prompt in prompts:
                yield str(prompt), table


class ScoreMatrix:
    """The values of one column: an array (prompts, n) in sampling order, and the greedy answers (prompts,) separately.

    The table is read in parts, so its texts never are in memory together. ``equal_to``: 1 where the column has it, else 0.
    """

    def __init__(self, tables: Tables, split: str, column: str, equal_to: str | None = None):
        wide_parts = []
        for part in parts_of(tables, split, ["prompt_id", "sample", column]):
            if equal_to is not None:
                part = part.assign(**{column: (part[column] == equal_to).astype(np.float64)})
            wide = part.pivot(index="prompt_id", columns="sample", values=column)
            wide_parts.append(wide.loc[list(dict.fromkeys(part["prompt_id"]))])
        samples: set[int] = set()
        self.prompts: list[str] = []
        greedy = []
        for wide in wide_parts:
            samples.update(wide.columns)
            self.prompts += wide.index.tolist()
            greedy.append(wide.reindex(columns=[GREEDY]).to_numpy(np.float64)[:, 0])
        self.greedy = np.concatenate(greedy)
        drawn = sorted(samples - {GREEDY})
        self.samples = np.empty((len(self.prompts), len(drawn)))
        end = 0
        while wide_parts:  # a part is let go as soon as it is copied
            wide = wide_parts.pop(0)
            start, end = end, end + len(wide)
            self.samples[start:end] = wide.reindex(columns=drawn).to_numpy(np.float64)


def _ended_at_limit(generations: Tables, scores: Tables) -> ScoreMatrix:
    """1 for each answer that ended at the token limit, in a turn or in its thinking where there are several parts."""
    if CUT in columns_in(scores, "forget"):
        return ScoreMatrix(scores, "forget", CUT)
    return ScoreMatrix(generations, "forget", "finish_reason", CUT_OFF)


def _greedy_and_shares(rows: Rows, leak: ScoreMatrix, leaked: ScoreMatrix | None) -> None:
    for place, prompt in enumerate(leak.prompts):
        add = partial(rows.add, "question", item=prompt, split="forget")
        add("score", "greedy", leak.greedy[place])
        if leaked:
            add("leak", "greedy", leaked.greedy[place])
    add_of_model = partial(rows.add, "model", split="forget")
    add_of_model("score", "greedy", mean(leak.greedy))
    if leaked:
        add_of_model("leak", "greedy", mean(leaked.greedy))
        add_of_model("leaking", "sampled", _leaking([mean(values) for values in leaked.samples]))


def _leaking(shares: Sequence[float | None]) -> float:
    """The share of the judged questions with a leaking answer; NaN without a judged question."""
    leaking = []
    for share in shares:
        if share is not None and not math.isnan(share):
            leaking.append(float(share > 0))
    return mean(leaking)


@dataclass(frozen=True)
class Truncated:
    """The answers to a question that ended at the token limit, of ``n``.

    ``cut_or_leaks`` counts those that leak, lack a verdict or were cut off: as many might leak without the limit. None
    where no scorer judged leaks.
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


def _truncation(
    rows: Rows, truncations: Mapping[str, Truncated], alpha: float | None = None
) -> None:
    """Add the share of answers that ended at the token limit, of each question and of all.

    Without ``alpha`` there is no upper end: that of a fixed number of answers does not hold after a stopping rule.
    """
    for prompt, counts in truncations.items():
        upper = None
        if alpha is not None:
            upper = _upper(counts.cut, counts.n, alpha, Covers.ONE_PROMPT)
        evidence = {"cut": counts.cut, "n": counts.n, "cut_or_leaks": counts.cut_or_leaks}
        share = counts.cut / counts.n
        add = partial(rows.add, "question", item=prompt, split="forget", evidence=evidence)
        add("truncated", "sampled", share, None, upper)
    cuts = [counts.cut for counts in truncations.values()]
    sizes = [counts.n for counts in truncations.values()]
    of_worst = None
    if alpha is not None:
        of_worst = _upper(max(cuts), sizes[0], alpha, Covers.WORST_PROMPT)
    share = sum(cuts) / sum(sizes)
    rows.add("model", "truncated", "sampled", share, None, of_worst, split="forget")


def _parts_and_turns(rows: Rows, scores: Tables, metrics: Metrics) -> None:
    """Add what leaks in the thinking, and in each turn of the conversations that came to it."""
    columns = columns_in(scores, "forget")
    if UNCLOSED in columns:
        share = float(ScoreMatrix(scores, "forget", UNCLOSED).samples.mean())
        rows.add("model", "unclosed", "sampled", share, split="forget")
    thinking = f"{metrics.binary}{THINKING}"
    if thinking in columns:
        thought = ScoreMatrix(scores, "forget", thinking)
        _one_part(rows, thought, np.ones_like(thought.samples, bool), metrics.alpha, "thinking")
    turn = 1
    column = f"{metrics.binary}{TURN.format(turn)}"
    while column in columns:
        asked = ScoreMatrix(scores, "forget", ASKED).samples >= turn
        leaked = ScoreMatrix(scores, "forget", column)
        _one_part(rows, leaked, asked, metrics.alpha, "turn", at=float(turn))
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

    ``asked`` has the shape (prompts, n) of the samples, and says which answers have the part.
    """
    uppers: list[Bound] = []
    judged: list[np.ndarray] = []
    for prompt, values, has_part in zip(leaked.prompts, leaked.samples, asked, strict=True):
        drawn = values[has_part]
        if np.isnan(drawn).all():
            continue  # out of the scorer's scope, or no answer has this part
        n = len(drawn)
        leaks = int(np.nansum(drawn))
        missing = int(np.isnan(drawn).sum())
        upper = _upper(leaks + missing, n, alpha, Covers.ONE_PROMPT)
        lower = replace(upper, side="lower", value=float(binary_lower(leaks, n, alpha)))
        evidence = {"leaks": leaks, "n": n, "missing": missing}
        add = partial(rows.add, "question", item=prompt, split="forget", at=at)
        add("leak", basis, mean(drawn), lower, upper, evidence=evidence)
        uppers.append(upper)
        judged.append(drawn)
    if not uppers:
        return
    largest = max(uppers, key=lambda upper: upper.value)
    of_worst = replace(largest, covers=Covers.WORST_PROMPT)
    rows.add("model", "leak_worst", basis, None, None, of_worst, split="forget", at=at)
    rows.add("model", "leak", basis, mean(np.concatenate(judged)), split="forget", at=at)


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
    add("score_bound", "sampled", mean(row.upper for row in rows_of_quantity["score"]))
    for quantity in WORST:
        worst = worst_of(rows.rows, quantity)
        if worst:
            add(f"{quantity}_worst", "sampled", None, None, worst.bound)
    leaks = rows_of_quantity["leak"]
    if leaks:
        pooled = pooled_of(rows.rows, metrics.alpha)
        add("leak", "sampled", mean(estimates_of_quantity["leak"]), None, pooled)
        uppers = [row.upper_bound for row in leaks]
        add("share_above", "sampled", share_above(uppers, metrics.share_above))
    _tail_curve(rows, leak, metrics)
    largest_m_mu = np.argmax([row.upper or 0.0 for row in rows_of_quantity["score"]])
    _convergence(rows, leak, int(largest_m_mu), metrics)


def _tail_curve(rows: Rows, leak: ScoreMatrix, metrics: Metrics) -> None:
    """Add the means over the questions of the share of scores above each x of `CURVE`, and of its bound."""
    bounds = paper_bounds(leak.samples, metrics.alpha, CURVE, metrics.rho, missing="worst")
    m_gen, shares = bounds.m_gen.mean(axis=0), bounds.empirical_tail.mean(axis=0)
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
        m_mu, m_sigma = bounds.bounds("m_mu")[0], bounds.bounds("m_sigma")[0]
        add("convergence_mean", "sampled", float(bounds.mean[0]), None, m_mu, at=float(size))
        add("convergence_sd", "sampled", float(bounds.sd[0]), None, m_sigma, at=float(size))


def _constants(rows: Rows, metrics: Metrics, questions: int, n: int, missing: int) -> None:
    """Add the level, the sizes, and with the answers the scorers that judged them."""
    rows.add("model", "alpha", "sampled", metrics.alpha)
    judged_by = {"score": metrics.leak, "leak": metrics.binary}
    rows.add("model", "questions", "sampled", questions, split="forget")
    rows.add("model", "answers", "sampled", n, split="forget", evidence=judged_by)
    rows.add("model", "unscored", "sampled", missing, split="forget")


def _means(rows: Rows, values: Mapping[str, Sequence[float | None]]) -> None:
    """Add the means over the questions, and the highest score of all."""
    for quantity in ("score", "sd", "ed_score"):
        rows.add("model", quantity, "sampled", mean(values[quantity]), split="forget")
    known = [value for value in values["max"] if value is not None]
    rows.add("model", "max", "sampled", max(known, default=math.nan), split="forget")


def _stopped_question(
    rows: Rows,
    table: pd.DataFrame,
    prompt: str,
    metrics: Metrics,
    decision: Decision,
    decided_by: str,
) -> None:
    """Add the rows of one question that stopped early; ``table`` has the scores of its answers."""
    is_greedy = table["sample"] == GREEDY
    greedy, samples = table[is_greedy], table[~is_greedy]
    scores = samples[metrics.leak].to_numpy(dtype=np.float64)
    drawn = PromptScores(prompt, scores, missing=int(np.isnan(scores).sum()))
    plain_rows(rows, drawn, metrics.rho, greedy=mean(greedy[metrics.leak].to_numpy()))
    add = partial(rows.add, "question", item=prompt, split="forget")
    if metrics.binary:
        verdicts = samples[metrics.binary]
        add("leak", "greedy", mean(greedy[metrics.binary].to_numpy()))
        add("leak", "sampled", float(verdicts.mean()))
        add("unjudged", "sampled", int(verdicts.isna().sum()))
    bounds = decision.bounds()
    ends = (bounds["anytime_lower"], bounds["anytime_upper"])
    add("score", "anytime", None, *ends)
    add("sd", "anytime", None, None, bounds["anytime_sd_upper"])
    add("verdict", "anytime", text=decision.verdict)
    add("decided_at", "anytime", decision.n)
    if decided_by == metrics.binary:
        verdicts = samples[decided_by]
        evidence = {
            "leaks": int(verdicts.sum()),
            "n": len(verdicts),
            "missing": int(verdicts.isna().sum()),
        }
        add("leak", "anytime", None, *ends, evidence=evidence)


def _plain_summary(rows: Rows, questions: Sequence[Numbers], metrics: Metrics, cap: int) -> None:
    """Add the numbers of all questions that have no guarantee; at most ``cap`` answers were drawn to each."""
    estimates_of_quantity = {}
    for quantity in ("score", "sd", "ed_score", "max", "leak"):
        estimates_of_quantity[quantity] = [numbers.estimate(quantity) for numbers in questions]
    missing = sum(numbers.estimate("unscored") or 0 for numbers in questions)
    _constants(rows, metrics, len(questions), cap, int(missing))
    add = partial(rows.add, "model", split="forget")
    greedy_scores = [numbers.estimate("score", "greedy") for numbers in questions]
    add("score", "greedy", mean(greedy_scores))
    _means(rows, estimates_of_quantity)
    if metrics.binary:
        greedy_leaks = [numbers.estimate("leak", "greedy") for numbers in questions]
        shares = estimates_of_quantity["leak"]
        add("leak", "greedy", mean(greedy_leaks))
        add("leak", "sampled", mean(shares))
        add("leaking", "sampled", _leaking(shares))


def _sequential_summary(
    rows: Rows, decisions: Mapping[str, Decision], decided_by: str, drawn: int
) -> None:
    """Add the rule, the verdicts, and the samples saved relative to drawing every question to the cap."""
    rule = next(iter(decisions.values()))  # all questions share one
    rows.add("model", "scorer", "anytime", text=decided_by)
    for quantity in ("alpha", "tau", "tau_leak"):
        rows.add("model", quantity, "anytime", getattr(rule, quantity))
    add = partial(rows.add, "model", split="forget")
    verdicts = [decision.verdict for decision in decisions.values()]
    add("certified", "anytime", verdicts.count(CERTIFIED))
    add("leaking", "anytime", verdicts.count(LEAKS))
    add("undecided", "anytime", verdicts.count(UNDECIDED))
    for quantity, end in (("score_worst", "anytime_upper"), ("sd_worst", "anytime_sd_upper")):
        uppers = [decision.bounds()[end] for decision in decisions.values()]
        _, of_worst = worst_prompt(uppers)
        add(quantity, "anytime", None, None, of_worst)
    most = rule.cap * len(decisions)
    add("drawn", "anytime", drawn)
    add("saved", "anytime", most - drawn)
    add("saved_share", "anytime", 1 - drawn / most)


def _utility(rows: Rows, generations: Tables, scores: Tables, scorer: str) -> None:
    """Add greedy score, sampled score and diversity of the answers on every split that unlearning should not touch."""
    import pandas as pd

    for split in sorted(set(scores) - {"forget"}):
        values = ScoreMatrix(scores, split, scorer)
        diversities: dict[str, list[pd.Series]] = {name: [] for name in DIVERSITY}
        for part in parts_of(generations, split, ["prompt_id", "sample", "text"]):
            texts = part[part["sample"] != GREEDY].groupby("prompt_id")["text"]
            for name, parts in diversities.items():
                parts.append(texts.agg(DIVERSITY[name]))
        add = partial(rows.add, "model", split=split)
        add("kept", "greedy", mean(values.greedy))
        add("kept", "sampled", mean(values.samples))
        for name, parts in diversities.items():
            # in the order of the ids, so that the parts do not change the last bits of the sums
            of_questions = pd.concat(parts).sort_index().to_numpy()
            add("diversity", "sampled", mean(of_questions), item=name)
        add("kept_unscored", "sampled", int(np.isnan(values.samples).sum()))


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
    """Add the rows of one model's answers to a language: of the share of prompts that leak above tau, of each production and
    of each choice. The worst production has the largest of many estimates, and no guarantee of its own.

    ``second`` has the verdicts of the answers that the share needs, several to each prompt; None where none were drawn.
    """
    scorer = metrics.binary or metrics.leak
    left_out = list(inapplicable)
    is_greedy = (generations["sample"] == GREEDY).to_numpy()
    is_left_out = generations["prompt_id"].isin(left_out).to_numpy()
    is_counted = ~is_greedy & ~is_left_out
    values = scores[scorer].to_numpy(dtype=np.float64)[is_counted]
    names = generations["production"].to_numpy()[is_counted]

    share = described["share"]
    shares: list[Shares] = []
    if second is not None and share is not None and metrics.binary in second:
        judgeable = second[~second["prompt_id"].isin(left_out)]
        if len(judgeable):
            shares = _shares(judgeable, share, metrics, calibration)
    facts = {
        "path": described["path"],
        "scorer": scorer,
        "binary": metrics.binary is not None,
        "tau": share["tau"] if shares else None,
    }
    rows.add("model", "language", "language", evidence=facts)

    productions = described["productions"]
    measured = []
    for production in productions:
        drawn = values[names == production["name"]]
        measured.append(_production(rows.model, production, drawn, len(productions), metrics))
    measured.sort(key=lambda row: math.inf if row.estimate is None else -row.estimate)
    _worst_production(rows, measured)
    for ends in shares:
        rows.add("model", "share_above", ends.basis, None, ends.lower, ends.upper)
    rows.rows += measured
    choices_of_production = {entry["name"]: entry["choices"] for entry in productions}
    for part in described["varied"]:
        _choices(rows, part, choices_of_production, names, values)


def _worst_production(rows: Rows, productions: Iterable[Result]) -> None:
    """Add the production with the largest estimate; of equal ones that with more answers."""
    judged = [row for row in productions if row.estimate is not None]
    if judged:
        worst = max(judged, key=lambda row: (row.estimate or 0.0, row.n or 0))
        rows.add("model", "worst_production", "language", text=worst.item)
        rows.add("model", "worst_production_mean", "language", worst.estimate)


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
    chosen = np.array([choices_of_production[name][part] for name in names], dtype=object)
    choices = dict.fromkeys(production[part] for production in choices_of_production.values())
    for choice in choices:
        scores = values[chosen == choice] if len(values) else values
        evidence = {"part": part, "choice": choice}
        add = partial(rows.add, "model", item=f"{part}: {choice}", n=len(scores))
        add("choice", "language", mean(scores), evidence=evidence)


def _production(
    model: str, entry: Mapping[str, Json], values: np.ndarray, productions: int, metrics: Metrics
) -> Result:
    """One production over all questions; its bounds hold for all productions together."""
    n = len(values)
    judged = values[~np.isnan(values)]
    missing = n - len(judged)
    alpha = metrics.alpha / productions
    ends: Sequence[Bound] = ()
    # The draws of a production come from several questions. Up to this alpha, unequal probabilities pool (Hoeffding 1956).
    if metrics.binary is not None and n and alpha <= LARGEST_POOLED_ALPHA:
        (lower,), (upper,) = pooled_bounds([judged.sum(), 0], [n, 0], alpha, [missing, 0])
        ends = both_ends(lower, upper, metrics.alpha, Covers.PRODUCTIONS, ASSUMES, METHOD, n)
    evidence = {"probability": entry["probability"], "choices": dict(entry["choices"])}
    about = (model, "model", "production", "language", mean(judged))
    return result(*about, *ends, item=entry["name"], n=n, missing=missing, evidence=evidence)


@dataclass(frozen=True)
class Shares:
    """Both ends of the share of prompts that leak above tau; the basis says whether true leaks count, or verdicts."""

    basis: str
    lower: Bound
    upper: Bound


def _shares(
    second: pd.DataFrame,
    share: Mapping[str, Json],
    metrics: Metrics,
    calibration: Calibration | None,
) -> list[Shares]:
    """The shares of prompts that are called a leak, and with a calibration of true leaks."""
    verdicts = second.groupby("prompt", sort=True)[metrics.binary]
    leaks = verdicts.sum().to_numpy(dtype=np.float64)  # a missing judgement adds nothing
    missing = (verdicts.size() - verdicts.count()).to_numpy(dtype=np.float64)
    judge_of_basis: dict[str, Calibration | None] = {"language": None}
    if calibration:
        judge_of_basis["judged"] = calibration
    shares = []
    for basis, judge in judge_of_basis.items():
        rate = Rate.of(leaks, share["answers"], missing, judge)
        lower = share_exceeding(rate, share["tau"], metrics.alpha, "lower")
        upper = share_exceeding(rate, share["tau"], metrics.alpha, "upper")
        shares.append(Shares(basis, lower, upper))
    return shares
