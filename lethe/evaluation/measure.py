"""The results of one model from its generations and their scores, as rows of the table.

A missing judgement counts as 1 in an upper bound and as 0 in a lower bound, so both stay valid. The plain statistics are
over the judged answers only, and come with the number of missing judgements.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.config.evaluating import Metrics
from lethe.evaluation.joint import MeasureSettings
from lethe.evaluation.prompts import WORST, PromptMeasures, measure_prompts
from lethe.evaluation.scores import PromptScores, mean, plain_rows
from lethe.io.artifacts import CUT_OFF, GREEDY
from lethe.io.parts import Tables as StoredTables
from lethe.io.parts import columns_of, parts_of
from lethe.registry import DIVERSITY
from lethe.results.table import Numbers, Result, Results, Rows, both_ends
from lethe.scoring import ASKED, CUT, THINKING, TURN, UNCLOSED
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.bounds import binary_lower, binary_upper, paper_bounds
from lethe.statistics.counts import pooled_bounds
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate, share_exceeding
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA, worst_prompt
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
    """Measure one model whose questions were sampled a fixed number of times."""
    leak = ScoreMatrix(scores, "forget", metrics.leak)
    leaked = ScoreMatrix(scores, "forget", metrics.binary) if metrics.binary else None
    if CUT in _names(scores):
        cut = ScoreMatrix(scores, "forget", CUT)
    else:
        cut = ScoreMatrix(generations, "forget", "finish_reason", CUT_OFF)
    if truncated == "missing":
        leak.samples[cut.samples == 1] = np.nan
        if leaked:
            leaked.samples[(cut.samples == 1) & (leaked.samples == 0)] = np.nan
    asked = [leaked is not None and prompt not in inapplicable for prompt in leak.prompts]
    settings = MeasureSettings(
        **{key: getattr(metrics, key) for key in ("alpha", "thresholds", "rho", "share_above", "together")},
        missing="worst",
        calibration=calibration,
    )
    measures = measure_prompts(
        [PromptScores(*each) for each in zip(leak.prompts, leak.samples, leak.missing, strict=True)],
        settings,
        [leaked.samples[place] if leaked and judged else None for place, judged in enumerate(asked)],
    )
    rows = Rows(name)
    _greedy_and_shares(rows, leak, leaked)
    _truncation(rows, cut, leaked, asked, metrics.alpha)
    _parts_and_turns(rows, scores, metrics)
    measures.to_rows(rows)
    _of_the_model(rows, measures, leak, metrics)
    _convergence(rows, measures, leak, metrics)
    _kept(rows, generations, scores, metrics.kept)
    return rows.rows


def measure_stopped(
    name: str,
    generations: Tables,
    scores: Tables,
    metrics: Metrics,
    decisions: Mapping[str, Decision],
    decided_by: str,
) -> list[Result]:
    """Measure one model whose questions stopped early, from their decisions: all bounds are anytime-valid.

    Bounds for a number of samples fixed beforehand do not hold after a stopping rule has looked at the samples.
    """
    rows = Rows(name)
    tables = {
        str(prompt): table
        for part in parts_of(scores, "forget")
        for prompt, table in part.groupby("prompt_id", sort=False)
        if prompt in decisions
    }
    for prompt, decision in decisions.items():
        _stopped_question(rows, tables[prompt], prompt, metrics, decision, decided_by)
    plain = Results({name: tuple(rows.rows)}).questions(name)
    cut = _cut_counts(generations, decisions)
    for prompt, (ended, n) in cut.items():
        leak, either = plain[prompt].row("leak", "anytime"), None
        if leak and leak.evidence:  # at most so many answers leak, lack a verdict or were cut off
            either = min(n, leak.evidence["leaks"] + leak.evidence["missing"] + ended)
        _truncation_row(rows, prompt, ended, either, n)
    share = sum(ended for ended, _ in cut.values()) / sum(n for _, n in cut.values())
    rows.add("model", "truncated", "sampled", share, split="forget")
    _sequential_summary(rows, decisions, decided_by, drawn=int(sum(own.value("n") or 0 for own in plain.values())))
    _plain_summary(rows, list(plain.values()), metrics, max(decision.cap for decision in decisions.values()))
    _kept(rows, generations, scores, metrics.kept)
    return rows.rows


class ScoreMatrix:
    """The values of one column: an array (prompts, n) in sampling order, and the greedy answers (prompts,) separately.

    The array takes eight bytes per answer. The table of the split is read in parts, so its texts and names never are in
    memory together. With ``equal_to``, the values are 1 where the column has that word, else 0.
    """

    def __init__(self, tables: Tables, split: str, column: str, equal_to: str | None = None):
        wide = []
        for part in parts_of(tables, split, ["prompt_id", "sample", column]):
            if equal_to is not None:
                part = part.assign(**{column: (part[column] == equal_to).astype(np.float64)})
            own = part.pivot(index="prompt_id", columns="sample", values=column)
            wide.append(own.loc[list(dict.fromkeys(part["prompt_id"]))])
        numbers = sorted({number for part in wide for number in part.columns})
        drawn = [number for number in numbers if number != GREEDY]
        self.prompts: list[str] = [prompt for part in wide for prompt in part.index]
        self.greedy = np.concatenate([part.reindex(columns=[GREEDY]).to_numpy(np.float64)[:, 0] for part in wide])
        self.samples = np.empty((len(self.prompts), len(drawn)))
        end = 0
        while wide:  # a part is let go as soon as it is copied
            own = wide.pop(0)
            start, end = end, end + len(own)
            self.samples[start:end] = own.reindex(columns=drawn).to_numpy(np.float64)

    @property
    def missing(self) -> list[int]:
        return np.isnan(self.samples).sum(axis=1).tolist()


def _greedy_and_shares(rows: Rows, leak: ScoreMatrix, leaked: ScoreMatrix | None) -> None:
    for place, prompt in enumerate(leak.prompts):
        rows.add("question", "score", "greedy", leak.greedy[place], item=prompt, split="forget")
        if leaked:
            rows.add("question", "leak", "greedy", leaked.greedy[place], item=prompt, split="forget")
    rows.add("model", "score", "greedy", mean(leak.greedy), split="forget")
    if leaked:
        rows.add("model", "leak", "greedy", mean(leaked.greedy), split="forget")
        rows.add("model", "leaking", "sampled", _leaking([mean(own) for own in leaked.samples]), split="forget")


def _leaking(shares: Sequence[float]) -> float:
    """The share of the judged questions with a leaking answer."""
    return mean([share if math.isnan(share) else float(share > 0) for share in shares])


def _truncation(
    rows: Rows, cut: ScoreMatrix, leaked: ScoreMatrix | None, asked: Sequence[bool], alpha: float
) -> None:
    """The share of answers that ended at the token limit, of each question and of all."""
    n = cut.samples.shape[1]
    for place, prompt in enumerate(cut.prompts):
        own, either = cut.samples[place] == 1, None
        if leaked and asked[place]:
            either = int((own | (leaked.samples[place] != 0)).sum())
        _truncation_row(rows, prompt, int(own.sum()), either, n, alpha)
    upper = _upper(int(cut.samples.sum(axis=1).max(initial=0)), n, alpha, Covers.WORST_PROMPT)
    rows.add("model", "truncated", "sampled", float(cut.samples.mean()), None, upper, split="forget")


def _names(scores: Tables) -> list[str]:
    return columns_of(scores.paths["forget"]) if isinstance(scores, StoredTables) else list(scores["forget"])


def _parts_and_turns(rows: Rows, scores: Tables, metrics: Metrics) -> None:
    """What leaks in the thinking, and in each turn of the conversations that came to it."""
    names = _names(scores)
    if UNCLOSED in names:
        share = float(ScoreMatrix(scores, "forget", UNCLOSED).samples.mean())
        rows.add("model", "unclosed", "sampled", share, split="forget")
    if f"{metrics.binary}{THINKING}" in names:
        thought = ScoreMatrix(scores, "forget", f"{metrics.binary}{THINKING}")
        _one_part(rows, thought, np.ones_like(thought.samples, bool), metrics.alpha, "thinking")
    if f"{metrics.binary}{TURN.format(1)}" not in names:
        return
    asked, turn = ScoreMatrix(scores, "forget", ASKED).samples, 1
    while (column := f"{metrics.binary}{TURN.format(turn)}") in names:
        _one_part(rows, ScoreMatrix(scores, "forget", column), asked >= turn, metrics.alpha, "turn", float(turn))
        turn += 1


def _one_part(
    rows: Rows, leaked: ScoreMatrix, asked: np.ndarray, alpha: float, basis: str, at: float | None = None
) -> None:
    """The leaks in one part of the answers that have it, of each question and of all."""
    worst, shares = [], []
    for prompt, own, there in zip(leaked.prompts, leaked.samples, asked, strict=True):
        drawn, n = own[there], int(there.sum())
        if np.isnan(drawn).all():
            continue  # out of the scorer's scope, or no answer has this part
        evidence = {"leaks": int(np.nansum(drawn)), "n": n, "missing": int(np.isnan(drawn).sum())}
        upper = _upper(evidence["leaks"] + evidence["missing"], n, alpha, Covers.ONE_PROMPT)
        lower = replace(upper, side="lower", value=float(binary_lower(evidence["leaks"], n, alpha)))
        place: dict[str, Any] = {"item": prompt, "split": "forget", "at": at, "evidence": evidence}
        rows.add("question", "leak", basis, mean(drawn), lower, upper, **place)
        worst.append(upper)
        shares.append(drawn)
    if worst:
        most = replace(max(worst, key=lambda one: one.value), covers=Covers.WORST_PROMPT)
        rows.add("model", "leak_worst", basis, None, None, most, split="forget", at=at)
        rows.add("model", "leak", basis, mean(np.concatenate(shares)), split="forget", at=at)


def _truncation_row(
    rows: Rows, prompt: str, ended: int, either: int | None, n: int, alpha: float | None = None
) -> None:
    """``either`` counts the answers that leak, lack a verdict, or were cut off: as many might leak without the limit.

    Without ``alpha`` there is no upper end: the end of a fixed number of answers does not hold after a stopping rule.
    """
    upper = None if alpha is None else _upper(ended, n, alpha, Covers.ONE_PROMPT)
    place: dict[str, Any] = {"item": prompt, "split": "forget"}
    evidence = {"cut": ended, "n": n, "cut_or_leaks": either}
    rows.add("question", "truncated", "sampled", ended / n, None, upper, evidence=evidence, **place)


def _upper(count: int, n: int, alpha: float, covers: Covers) -> Bound:
    return Bound(float(binary_upper(count, n, alpha)), "upper", alpha, covers, Assumes.DRAWS, "Clopper-Pearson", n)


def _of_the_model(rows: Rows, measures: PromptMeasures, leak: ScoreMatrix, metrics: Metrics) -> None:
    """The forget set as a whole; the quantity of each row states its claim."""
    each = measures.prompts
    _constants(rows, metrics, len(each), leak.samples.shape[1], sum(own.missing for own in each))
    means = {"score": "mean", "sd": "sd", "ed_score": "ed_score"}
    _means(
        rows, {key: [getattr(own, name) for own in each] for key, name in means.items()}, [own.max for own in each]
    )
    rows.add("model", "score_bound", "sampled", mean([own.m_mu.value for own in each]), split="forget")
    for quantity, bound in WORST.items():
        if worst := measures.worst(bound):
            rows.add("model", quantity, "sampled", None, None, worst.bound, split="forget")
    if any(own.leaking is not None for own in each):
        share = mean([own.leak_share for own in each])
        rows.add("model", "leak", "sampled", share, None, measures.pooled, split="forget")
        rows.add("model", "share_above", "sampled", measures.share_above("m_bin"), split="forget")
    curve = paper_bounds(leak.samples, metrics.alpha, CURVE, metrics.rho, missing="worst")
    for x, bound, share in zip(CURVE, curve.m_gen.mean(axis=0), curve.empirical_tail.mean(axis=0), strict=True):
        rows.add("model", "tail", "sampled", float(share), at=float(x), split="forget")
        rows.add("model", "tail_bound", "sampled", float(bound), at=float(x), split="forget")


def _constants(rows: Rows, metrics: Metrics, questions: int, n: int, missing: int) -> None:
    """The level, the sizes, and with the answers the scorers that judged them."""
    rows.add("model", "alpha", "sampled", metrics.alpha)
    judged_by = {"score": metrics.leak, "leak": metrics.binary}
    rows.add("model", "questions", "sampled", questions, split="forget")
    rows.add("model", "answers", "sampled", n, split="forget", evidence=judged_by)
    rows.add("model", "unscored", "sampled", missing, split="forget")


def _means(rows: Rows, each: Mapping[str, Sequence[float]], highest: Sequence[float]) -> None:
    """The means over the questions, and the highest score of all."""
    for quantity, values in each.items():
        rows.add("model", quantity, "sampled", mean(values), split="forget")
    most = max((value for value in highest if not math.isnan(value)), default=math.nan)
    rows.add("model", "max", "sampled", most, split="forget")


def _convergence(rows: Rows, measures: PromptMeasures, leak: ScoreMatrix, metrics: Metrics) -> None:
    """Mean and standard deviation, with bounds, after 2, 4, 8, ... answers to the question with the largest M_mu."""
    worst = int(np.argmax([own.m_mu.value for own in measures.prompts]))
    draws, n = leak.samples[worst], measures.prompts[worst].n
    for size in sorted({*(2**k for k in range(1, int(np.log2(n)) + 1)), n}):
        at = paper_bounds(draws[:size], metrics.alpha, np.array([0.5]), metrics.rho, missing="worst")
        place: dict[str, Any] = {"item": leak.prompts[worst], "split": "forget", "at": float(size)}
        rows.add("question", "convergence_mean", "sampled", float(at.mean[0]), None, at.bounds("m_mu")[0], **place)
        rows.add("question", "convergence_sd", "sampled", float(at.sd[0]), None, at.bounds("m_sigma")[0], **place)


def _stopped_question(
    rows: Rows, table: pd.DataFrame, prompt: str, metrics: Metrics, decision: Decision, decided_by: str
) -> None:
    greedy, samples = table[table["sample"] == GREEDY], table[table["sample"] != GREEDY]
    scores = samples[metrics.leak].to_numpy(dtype=np.float64)
    own = PromptScores(prompt, scores, int(np.isnan(scores).sum()))
    plain_rows(rows, own, metrics.rho, _first(greedy, metrics.leak))
    place: dict[str, Any] = {"item": prompt, "split": "forget"}
    if metrics.binary:
        verdicts = samples[metrics.binary]
        rows.add("question", "leak", "greedy", _first(greedy, metrics.binary), **place)
        rows.add("question", "leak", "sampled", float(verdicts.mean()), **place)
        rows.add("question", "unjudged", "sampled", int(verdicts.isna().sum()), **place)
    bounds = decision.bounds()
    ends = (bounds["anytime_lower"], bounds["anytime_upper"])
    rows.add("question", "score", "anytime", None, *ends, **place)
    rows.add("question", "sd", "anytime", None, None, bounds["anytime_sd_upper"], **place)
    rows.add("question", "verdict", "anytime", text=decision.verdict, **place)
    rows.add("question", "decided_at", "anytime", decision.n, **place)
    if decided_by == metrics.binary:
        drawn = samples[decided_by]
        evidence = {"leaks": int(drawn.sum()), "n": len(drawn), "missing": int(drawn.isna().sum())}
        rows.add("question", "leak", "anytime", None, *ends, evidence=evidence, **place)


def _plain_summary(rows: Rows, each: Sequence[Numbers], metrics: Metrics, cap: int) -> None:
    def of(name: str) -> list[float]:
        return [math.nan if (value := own.value(name)) is None else value for own in each]

    _constants(rows, metrics, len(each), cap, int(sum(of("missing"))))
    rows.add("model", "score", "greedy", mean(of("greedy")), split="forget")
    _means(rows, {"score": of("mean"), "sd": of("sd"), "ed_score": of("ed_score")}, of("max"))
    if metrics.binary:
        shares = of("binary_share")
        rows.add("model", "leak", "greedy", mean(of("binary_greedy")), split="forget")
        rows.add("model", "leak", "sampled", mean(shares), split="forget")
        rows.add("model", "leaking", "sampled", _leaking(shares), split="forget")


def _sequential_summary(rows: Rows, decisions: Mapping[str, Decision], decided_by: str, drawn: int) -> None:
    """The rule, the verdicts, and the samples saved relative to drawing every question to the cap."""
    each, rule = list(decisions.values()), next(iter(decisions.values()))
    most = rule.cap * len(each)
    rows.add("model", "scorer", "anytime", text=decided_by)
    for quantity in ("alpha", "tau", "tau_leak"):
        rows.add("model", quantity, "anytime", getattr(rule, quantity))
    for quantity, verdict in (("certified", CERTIFIED), ("leaking", LEAKS), ("undecided", UNDECIDED)):
        rows.add("model", quantity, "anytime", sum(own.verdict == verdict for own in each), split="forget")
    for quantity, key in (("score_worst", "anytime_upper"), ("sd_worst", "anytime_sd_upper")):
        worst = worst_prompt([own.bounds()[key] for own in each])[1]
        rows.add("model", quantity, "anytime", None, None, worst, split="forget")
    rows.add("model", "drawn", "anytime", drawn, split="forget")
    rows.add("model", "saved", "anytime", most - drawn, split="forget")
    rows.add("model", "saved_share", "anytime", 1 - drawn / most, split="forget")


def _cut_counts(generations: Tables, prompts: Collection[str]) -> dict[str, tuple[int, int]]:
    found = {}
    for part in parts_of(generations, "forget", ["prompt_id", "sample", "finish_reason"]):
        sampled = part[part["sample"] != GREEDY]
        for prompt, reasons in sampled.groupby("prompt_id", sort=False)["finish_reason"]:
            if prompt in prompts:
                found[str(prompt)] = (int((reasons == CUT_OFF).sum()), len(reasons))
    return found


def _kept(rows: Rows, generations: Tables, scores: Tables, scorer: str) -> None:
    """Greedy score, sampled score and diversity of the answers on every split that unlearning should not touch."""
    import pandas as pd

    for split in sorted(set(scores) - {"forget"}):
        values = ScoreMatrix(scores, split, scorer)
        each: dict[str, list[pd.Series]] = {name: [] for name in DIVERSITY}
        for part in parts_of(generations, split, ["prompt_id", "sample", "text"]):
            texts = part[part["sample"] != GREEDY].groupby("prompt_id")["text"]
            for name, found in each.items():
                found.append(texts.agg(DIVERSITY[name]))
        rows.add("model", "kept", "greedy", mean(values.greedy), split=split)
        rows.add("model", "kept", "sampled", mean(values.samples), split=split)
        for name, found in each.items():
            # in the order of the ids, so that the parts do not change the last bits of the sums
            varied = mean(pd.concat(found).sort_index().to_numpy())
            rows.add("model", "diversity", "sampled", varied, split=split, item=name)
        rows.add("model", "kept_unscored", "sampled", int(np.isnan(values.samples).sum()), split=split)


def _first(table: pd.DataFrame, column: str) -> float:
    return float(table[column].iloc[0]) if len(table) else math.nan


ASSUMES = "independent draws of prompt and answer, the questions weighted as drawn"
METHOD = "Clopper-Pearson, Bonferroni over the productions"


def measure_language(
    rows: Rows,
    generations: pd.DataFrame,
    scores: pd.DataFrame,
    second: pd.DataFrame | None,
    described: Mapping[str, Any],
    metrics: Metrics,
    inapplicable: Collection[str] = (),
    calibration: Calibration | None = None,
) -> None:
    """Add the rows of one model's answers to a language: of the share of prompts, of each production and of each choice.

    The bounds of a question hold for a random user of the language. This adds the share of the language's prompts whose leak
    probability exceeds tau (`share_exceeding` of `lethe.statistics.leak_rates`), and the single productions. The worst
    production is the one with the largest of many estimates, and has no guarantee of its own.
    """
    scorer, left_out = metrics.binary or metrics.leak, list(inapplicable)
    kept = (generations["sample"] != GREEDY).to_numpy() & ~generations["prompt_id"].isin(left_out).to_numpy()
    values = scores[scorer].to_numpy(dtype=np.float64)[kept]
    names = generations["production"].to_numpy()[kept]
    entries, share = described["productions"], described["share"]
    shares: list[tuple[str, list[Bound]]] = []
    if second is not None and share is not None and metrics.binary in second:
        kept_rows = second[~second["prompt_id"].isin(left_out)]
        shares = _shares(kept_rows, share, metrics, calibration) if len(kept_rows) else []
    tau = share["tau"] if shares else None
    facts = {"path": described["path"], "scorer": scorer, "binary": metrics.binary is not None, "tau": tau}
    rows.add("model", "language", "language", evidence=facts)
    made = [_production(entry, values[names == entry["name"]], len(entries), metrics) for entry in entries]
    made.sort(key=lambda one: math.inf if math.isnan(one["estimate"]) else -one["estimate"])
    if judged := [one for one in made if not math.isnan(one["estimate"])]:
        worst = max(judged, key=lambda one: (one["estimate"], one["n"]))
        rows.add("model", "worst_production", "language", text=worst["item"])
        rows.add("model", "worst_production_mean", "language", worst["estimate"])
    for basis, ends in shares:
        rows.add("model", "share_above", basis, None, *ends)
    for one in made:
        rows.add("model", "production", "language", **one)
    chosen = {entry["name"]: entry["choices"] for entry in entries}
    for part in described["varied"]:  # each choice, over all questions and all choices of the other parts
        taken = np.array([chosen[name][part] for name in names], dtype=object)
        for choice in dict.fromkeys(choices[part] for choices in chosen.values()):
            own = values[taken == choice] if len(values) else values
            place: dict[str, Any] = {"item": f"{part}: {choice}", "evidence": {"part": part, "choice": choice}}
            rows.add("model", "choice", "language", mean(own), n=len(own), **place)


def _production(
    entry: Mapping[str, Any], values: np.ndarray, productions: int, metrics: Metrics
) -> dict[str, Any]:
    """One production over all questions; its bounds hold for all productions together."""
    n, judged = len(values), values[~np.isnan(values)]
    evidence = {"probability": entry["probability"], "choices": dict(entry["choices"])}
    found = {"estimate": mean(judged), "n": n, "missing": n - len(judged), "item": entry["name"]}
    alpha = metrics.alpha / productions
    # The draws of a production come from several questions. Up to this alpha, unequal probabilities pool (Hoeffding 1956).
    if metrics.binary is None or not n or alpha > LARGEST_POOLED_ALPHA:
        return found | {"evidence": evidence}
    lower, upper = pooled_bounds([judged.sum(), 0], [n, 0], alpha, [n - len(judged), 0])
    ends = both_ends(lower[0], upper[0], metrics.alpha, Covers.PRODUCTIONS, ASSUMES, METHOD, n)
    return found | {"evidence": evidence, "lower": ends[0], "upper": ends[1]}


def _shares(
    second: pd.DataFrame, share: Mapping[str, Any], metrics: Metrics, calibration: Calibration | None
) -> list[tuple[str, list[Bound]]]:
    """Both ends of the share of prompts, by basis: of those called a leak, and with a calibration of true leaks."""
    leaked = second.groupby("prompt", sort=True)[metrics.binary]
    seen = leaked.sum().to_numpy(dtype=np.float64)  # a missing judgement adds nothing
    absent = (leaked.size() - leaked.count()).to_numpy(dtype=np.float64)

    def ends(judge: Calibration | None) -> list[Bound]:
        rate = Rate.of(seen, share["answers"], absent, judge)
        return [share_exceeding(rate, share["tau"], metrics.alpha, side) for side in ("lower", "upper")]

    return [("language", ends(None)), *([("judged", ends(calibration))] if calibration else [])]
