"""The results of one model from its generations and their scores. A missing judgement counts as 1 in an upper bound and as
0 in a lower one; plain statistics are over the judged answers, and come with the number of missing ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.evaluating import Metrics
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
from lethe.scoring import ASKED, CUT, THINKING, TURN, UNCLOSED
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
    """Measure one model whose questions were sampled a fixed number of times."""
    leak = ScoreMatrix(scores, "forget", metrics.leak)
    leaked = ScoreMatrix(scores, "forget", metrics.binary) if metrics.binary else None
    if CUT in columns_in(scores, "forget"):
        cut = ScoreMatrix(scores, "forget", CUT)
    else:
        cut = ScoreMatrix(generations, "forget", "finish_reason", CUT_OFF)
    if truncated == "missing":
        leak.samples[cut.samples == 1] = np.nan
        if leaked:
            leaked.samples[(cut.samples == 1) & (leaked.samples == 0)] = np.nan
    verdicts = leaked.samples if leaked else [None] * len(leak.prompts)
    leaks = [
        None if name in inapplicable else own
        for name, own in zip(leak.prompts, verdicts, strict=True)
    ]
    same = {
        key: getattr(metrics, key)
        for key in ("alpha", "thresholds", "rho", "share_above", "together")
    }
    settings = MeasureSettings(**same, missing="worst", calibration=calibration)
    missing = np.isnan(leak.samples).sum(axis=1).tolist()
    prompts = [
        PromptScores(*each) for each in zip(leak.prompts, leak.samples, missing, strict=True)
    ]
    rows, counts = Rows(name), {}
    _greedy_and_shares(rows, leak, leaked)
    for prompt, ended, own in zip(cut.prompts, cut.samples == 1, leaks, strict=True):
        either = None if own is None else int((ended | (own != 0)).sum())
        counts[prompt] = (int(ended.sum()), len(ended), either)
    _truncation(rows, counts, metrics.alpha)
    _parts_and_turns(rows, scores, metrics)
    measure_prompts(rows, prompts, settings, leaks)
    _of_the_model(rows, leak, metrics, sum(missing))
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
    """Measure one model whose questions stopped early, from their decisions: only anytime-valid bounds hold after a stop."""
    rows = Rows(name)
    tables = dict(_by_question(scores, decisions))
    for prompt, decision in decisions.items():
        _stopped_question(rows, tables[prompt], prompt, metrics, decision, decided_by)
    plain, counts = Results({name: tuple(rows.rows)}).questions(name), {}
    for prompt, table in _by_question(
        generations, decisions, ["prompt_id", "sample", "finish_reason"]
    ):
        reasons, leak = (
            table["finish_reason"][table["sample"] != GREEDY],
            plain[prompt].row("leak", "anytime"),
        )
        cut, either = int((reasons == CUT_OFF).sum()), None
        if leak and leak.evidence:  # at most so many answers leak, lack a verdict or were cut off
            either = min(len(reasons), leak.evidence["leaks"] + leak.evidence["missing"] + cut)
        counts[prompt] = (cut, len(reasons), either)
    _truncation(rows, counts)
    _sequential_summary(
        rows, decisions, decided_by, drawn=int(sum(own.value("n") or 0 for own in plain.values()))
    )
    _plain_summary(
        rows, list(plain.values()), metrics, max(decision.cap for decision in decisions.values())
    )
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
        wide = []
        for part in parts_of(tables, split, ["prompt_id", "sample", column]):
            if equal_to is not None:
                part = part.assign(**{column: (part[column] == equal_to).astype(np.float64)})
            own = part.pivot(index="prompt_id", columns="sample", values=column)
            wide.append(own.loc[list(dict.fromkeys(part["prompt_id"]))])
        numbers = sorted({number for part in wide for number in part.columns})
        drawn = [number for number in numbers if number != GREEDY]
        self.prompts: list[str] = [prompt for part in wide for prompt in part.index]
        self.greedy = np.concatenate(
            [part.reindex(columns=[GREEDY]).to_numpy(np.float64)[:, 0] for part in wide]
        )
        self.samples = np.empty((len(self.prompts), len(drawn)))
        end = 0
        while wide:  # a part is let go as soon as it is copied
            own = wide.pop(0)
            start, end = end, end + len(own)
            self.samples[start:end] = own.reindex(columns=drawn).to_numpy(np.float64)


def _greedy_and_shares(rows: Rows, leak: ScoreMatrix, leaked: ScoreMatrix | None) -> None:
    for place, prompt in enumerate(leak.prompts):
        rows.add("question", "score", "greedy", leak.greedy[place], item=prompt, split="forget")
        if leaked:
            rows.add(
                "question", "leak", "greedy", leaked.greedy[place], item=prompt, split="forget"
            )
    rows.add("model", "score", "greedy", mean(leak.greedy), split="forget")
    if leaked:
        rows.add("model", "leak", "greedy", mean(leaked.greedy), split="forget")
        rows.add(
            "model",
            "leaking",
            "sampled",
            _leaking([mean(own) for own in leaked.samples]),
            split="forget",
        )


def _leaking(shares: Sequence[float | None]) -> float:
    """The share of the judged questions with a leaking answer."""
    return mean(
        share if share is None or math.isnan(share) else float(share > 0) for share in shares
    )


def _truncation(
    rows: Rows, counts: Mapping[str, tuple[int, int, int | None]], alpha: float | None = None
) -> None:
    """The share of answers that ended at the token limit, of each question and of all.

    ``counts`` are these, all answers, and those that leak, lack a verdict, or were cut off: as many might leak without the
    limit. Without ``alpha`` there is no upper end: that of a fixed number of answers does not hold after a stopping rule.
    """
    for prompt, (cut, n, either) in counts.items():
        upper = None if alpha is None else _upper(cut, n, alpha, Covers.ONE_PROMPT)
        evidence = {"cut": cut, "n": n, "cut_or_leaks": either}
        add = partial(rows.add, "question", item=prompt, split="forget")
        add("truncated", "sampled", cut / n, None, upper, evidence=evidence)
    cuts, sizes, _ = zip(*counts.values(), strict=True)
    upper = None if alpha is None else _upper(max(cuts), sizes[0], alpha, Covers.WORST_PROMPT)
    rows.add("model", "truncated", "sampled", sum(cuts) / sum(sizes), None, upper, split="forget")


def _parts_and_turns(rows: Rows, scores: Tables, metrics: Metrics) -> None:
    """What leaks in the thinking, and in each turn of the conversations that came to it."""
    names, turn = columns_in(scores, "forget"), 1
    if UNCLOSED in names:
        share = float(ScoreMatrix(scores, "forget", UNCLOSED).samples.mean())
        rows.add("model", "unclosed", "sampled", share, split="forget")
    if f"{metrics.binary}{THINKING}" in names:
        thought = ScoreMatrix(scores, "forget", f"{metrics.binary}{THINKING}")
        _one_part(rows, thought, np.ones_like(thought.samples, bool), metrics.alpha, "thinking")
    while (column := f"{metrics.binary}{TURN.format(turn)}") in names:
        asked = ScoreMatrix(scores, "forget", ASKED).samples >= turn
        _one_part(
            rows, ScoreMatrix(scores, "forget", column), asked, metrics.alpha, "turn", float(turn)
        )
        turn += 1


def _one_part(
    rows: Rows,
    leaked: ScoreMatrix,
    asked: np.ndarray,
    alpha: float,
    basis: str,
    at: float | None = None,
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
        add = partial(rows.add, "question", item=prompt, split="forget", at=at)
        add("leak", basis, mean(drawn), lower, upper, evidence=evidence)
        worst.append(upper)
        shares.append(drawn)
    if worst:
        most = replace(max(worst, key=lambda one: one.value), covers=Covers.WORST_PROMPT)
        rows.add("model", "leak_worst", basis, None, None, most, split="forget", at=at)
        rows.add("model", "leak", basis, mean(np.concatenate(shares)), split="forget", at=at)


def _upper(count: int, n: int, alpha: float, covers: Covers) -> Bound:
    return Bound(
        float(binary_upper(count, n, alpha)),
        "upper",
        alpha,
        covers,
        Assumes.DRAWS,
        "Clopper-Pearson",
        n,
    )


def _of_the_model(rows: Rows, leak: ScoreMatrix, metrics: Metrics, missing: int) -> None:
    """The forget set as a whole; the quantity of each row states its claim."""
    add = partial(rows.add, "model", split="forget")
    of = {name: of_prompts(rows.rows, name) for name in (*WORST, "max", "ed_score")}
    values = {name: [row.estimate for row in own] for name, own in of.items()}
    _constants(rows, metrics, *leak.samples.shape, missing)
    _means(rows, values)
    add("score_bound", "sampled", mean(row.upper for row in of["score"]))
    for name in WORST:
        if one := worst_of(rows.rows, name):
            add(f"{name}_worst", "sampled", None, None, one.bound)
    if of["leak"]:
        add("leak", "sampled", mean(values["leak"]), None, pooled_of(rows.rows, metrics.alpha))
        above = share_above([row.upper_bound for row in of["leak"]], metrics.share_above)
        add("share_above", "sampled", above)
    curve = paper_bounds(leak.samples, metrics.alpha, CURVE, metrics.rho, missing="worst")
    for x, bound, share in zip(
        CURVE, curve.m_gen.mean(axis=0), curve.empirical_tail.mean(axis=0), strict=True
    ):
        add("tail", "sampled", float(share), at=float(x))
        add("tail_bound", "sampled", float(bound), at=float(x))
    # Mean and standard deviation after 2, 4, 8, ... answers to the question with the largest M_mu.
    worst, n = int(np.argmax([row.upper or 0.0 for row in of["score"]])), leak.samples.shape[1]
    for size in sorted({*(2**k for k in range(1, int(np.log2(n)) + 1)), n}):
        at = paper_bounds(
            leak.samples[worst, :size], metrics.alpha, np.array([0.5]), metrics.rho, missing="worst"
        )
        add = partial(
            rows.add, "question", item=leak.prompts[worst], split="forget", at=float(size)
        )
        add("convergence_mean", "sampled", float(at.mean[0]), None, at.bounds("m_mu")[0])
        add("convergence_sd", "sampled", float(at.sd[0]), None, at.bounds("m_sigma")[0])


def _constants(rows: Rows, metrics: Metrics, questions: int, n: int, missing: int) -> None:
    """The level, the sizes, and with the answers the scorers that judged them."""
    rows.add("model", "alpha", "sampled", metrics.alpha)
    judged_by = {"score": metrics.leak, "leak": metrics.binary}
    rows.add("model", "questions", "sampled", questions, split="forget")
    rows.add("model", "answers", "sampled", n, split="forget", evidence=judged_by)
    rows.add("model", "unscored", "sampled", missing, split="forget")


def _means(rows: Rows, values: Mapping[str, Sequence[float | None]]) -> None:
    """The means over the questions, and the highest score of all."""
    for quantity in ("score", "sd", "ed_score"):
        rows.add("model", quantity, "sampled", mean(values[quantity]), split="forget")
    most = max((value for value in values["max"] if value is not None), default=math.nan)
    rows.add("model", "max", "sampled", most, split="forget")


def _stopped_question(
    rows: Rows,
    table: pd.DataFrame,
    prompt: str,
    metrics: Metrics,
    decision: Decision,
    decided_by: str,
) -> None:
    greedy, samples = table[table["sample"] == GREEDY], table[table["sample"] != GREEDY]
    scores = samples[metrics.leak].to_numpy(dtype=np.float64)
    own = PromptScores(prompt, scores, int(np.isnan(scores).sum()))
    plain_rows(rows, own, metrics.rho, mean(greedy[metrics.leak].to_numpy()))
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
        drawn = samples[decided_by]
        evidence = {"leaks": int(drawn.sum()), "n": len(drawn), "missing": int(drawn.isna().sum())}
        add("leak", "anytime", None, *ends, evidence=evidence)


def _plain_summary(rows: Rows, each: Sequence[Numbers], metrics: Metrics, cap: int) -> None:
    of = {
        name: [own.estimate(name) for own in each]
        for name in ("score", "sd", "ed_score", "max", "leak")
    }
    greedy = {
        name: mean(own.estimate(name, "greedy") for own in each) for name in ("score", "leak")
    }
    _constants(
        rows, metrics, len(each), cap, int(sum(own.estimate("unscored") or 0 for own in each))
    )
    rows.add("model", "score", "greedy", greedy["score"], split="forget")
    _means(rows, of)
    if metrics.binary:
        rows.add("model", "leak", "greedy", greedy["leak"], split="forget")
        rows.add("model", "leak", "sampled", mean(of["leak"]), split="forget")
        rows.add("model", "leaking", "sampled", _leaking(of["leak"]), split="forget")


def _sequential_summary(
    rows: Rows, decisions: Mapping[str, Decision], decided_by: str, drawn: int
) -> None:
    """The rule, the verdicts, and the samples saved relative to drawing every question to the cap."""
    each, rule = list(decisions.values()), next(iter(decisions.values()))
    add, most = partial(rows.add, "model", split="forget"), rule.cap * len(each)
    rows.add("model", "scorer", "anytime", text=decided_by)
    for quantity in ("alpha", "tau", "tau_leak"):
        rows.add("model", quantity, "anytime", getattr(rule, quantity))
    for quantity, verdict in (
        ("certified", CERTIFIED),
        ("leaking", LEAKS),
        ("undecided", UNDECIDED),
    ):
        add(quantity, "anytime", sum(own.verdict == verdict for own in each))
    for quantity, key in (("score_worst", "anytime_upper"), ("sd_worst", "anytime_sd_upper")):
        add(quantity, "anytime", None, None, worst_prompt([own.bounds()[key] for own in each])[1])
    add("drawn", "anytime", drawn)
    add("saved", "anytime", most - drawn)
    add("saved_share", "anytime", 1 - drawn / most)


def _utility(rows: Rows, generations: Tables, scores: Tables, scorer: str) -> None:
    """Greedy score, sampled score and diversity of the answers on every split that unlearning should not touch."""
    import pandas as pd

    for split in sorted(set(scores) - {"forget"}):
        values, add = ScoreMatrix(scores, split, scorer), partial(rows.add, "model", split=split)
        each: dict[str, list[pd.Series]] = {name: [] for name in DIVERSITY}
        for part in parts_of(generations, split, ["prompt_id", "sample", "text"]):
            texts = part[part["sample"] != GREEDY].groupby("prompt_id")["text"]
            for name, parts in each.items():
                parts.append(texts.agg(DIVERSITY[name]))
        add("kept", "greedy", mean(values.greedy))
        add("kept", "sampled", mean(values.samples))
        for name, parts in each.items():
            # in the order of the ids, so that the parts do not change the last bits of the sums
            add("diversity", "sampled", mean(pd.concat(parts).sort_index().to_numpy()), item=name)
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
    """
    scorer, left_out = metrics.binary or metrics.leak, list(inapplicable)
    drawn = (generations["sample"] != GREEDY).to_numpy() & ~generations["prompt_id"].isin(
        left_out
    ).to_numpy()
    values = scores[scorer].to_numpy(dtype=np.float64)[drawn]
    names = generations["production"].to_numpy()[drawn]
    entries, share = described["productions"], described["share"]
    shares: list[tuple[str, list[Bound]]] = []
    if second is not None and share is not None and metrics.binary in second:
        judgeable = second[~second["prompt_id"].isin(left_out)]
        shares = _shares(judgeable, share, metrics, calibration) if len(judgeable) else []
    tau = share["tau"] if shares else None
    facts = {
        "path": described["path"],
        "scorer": scorer,
        "binary": metrics.binary is not None,
        "tau": tau,
    }
    add = partial(rows.add, "model")
    add("language", "language", evidence=facts)
    each = [(entry, values[names == entry["name"]]) for entry in entries]
    made = [_production(rows.model, entry, own, len(entries), metrics) for entry, own in each]
    made.sort(key=lambda row: math.inf if row.estimate is None else -row.estimate)
    if judged := [(row.estimate, row.n, row) for row in made if row.estimate is not None]:
        _, _, worst = max(judged, key=lambda one: one[:2])
        add("worst_production", "language", text=worst.item)
        add("worst_production_mean", "language", worst.estimate)
    for basis, ends in shares:
        add("share_above", basis, None, *ends)
    rows.rows += made
    chosen = {entry["name"]: entry["choices"] for entry in entries}
    for part in described[
        "varied"
    ]:  # each choice, over all questions and all choices of the other parts
        taken = np.array([chosen[name][part] for name in names], dtype=object)
        for choice in dict.fromkeys(choices[part] for choices in chosen.values()):
            own = values[taken == choice] if len(values) else values
            evidence = {"part": part, "choice": choice}
            add(
                "choice",
                "language",
                mean(own),
                n=len(own),
                item=f"{part}: {choice}",
                evidence=evidence,
            )


def _production(
    model: str, entry: Mapping[str, Json], values: np.ndarray, productions: int, metrics: Metrics
) -> Result:
    """One production over all questions; its bounds hold for all productions together."""
    n, judged = len(values), values[~np.isnan(values)]
    evidence = {"probability": entry["probability"], "choices": dict(entry["choices"])}
    alpha, missing = metrics.alpha / productions, n - len(judged)
    ends: Sequence[Bound] = ()
    # The draws of a production come from several questions. Up to this alpha, unequal probabilities pool (Hoeffding 1956).
    if metrics.binary is not None and n and alpha <= LARGEST_POOLED_ALPHA:
        (lower,), (upper,) = pooled_bounds([judged.sum(), 0], [n, 0], alpha, [missing, 0])
        ends = both_ends(lower, upper, metrics.alpha, Covers.PRODUCTIONS, ASSUMES, METHOD, n)
    about = (model, "model", "production", "language", mean(judged))
    return result(*about, *ends, item=entry["name"], n=n, missing=missing, evidence=evidence)


def _shares(
    second: pd.DataFrame,
    share: Mapping[str, Json],
    metrics: Metrics,
    calibration: Calibration | None,
) -> list[tuple[str, list[Bound]]]:
    """Both ends of the share of prompts, by basis: of those called a leak, and with a calibration of true leaks."""
    leaked = second.groupby("prompt", sort=True)[metrics.binary]
    seen = leaked.sum().to_numpy(dtype=np.float64)  # a missing judgement adds nothing
    absent = (leaked.size() - leaked.count()).to_numpy(dtype=np.float64)

    def ends(judge: Calibration | None) -> list[Bound]:
        rate = Rate.of(seen, share["answers"], absent, judge)
        return [
            share_exceeding(rate, share["tau"], metrics.alpha, side) for side in ("lower", "upper")
        ]

    return [("language", ends(None)), *([("judged", ends(calibration))] if calibration else [])]
