"""The measures of one model from its generations and their scores.

A missing judgement counts as 1 in an upper bound and as 0 in a lower bound, so both stay valid. The plain statistics are
over the judged answers only, and come with the number of missing judgements.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.evaluating import Metrics
from lethe.evaluation.judged import JudgedRate
from lethe.evaluation.measure_settings import MeasureSettings
from lethe.evaluation.model_measures import (
    ConvergencePoint,
    ModelMeasures,
    QuestionMeasure,
    SplitMeasure,
    Stopped,
    TailPoint,
)
from lethe.evaluation.prompt_scores import Plain, PromptScores, mean
from lethe.evaluation.prompts import PromptMeasures, measure_prompts
from lethe.io.artifacts import GREEDY
from lethe.io.parts import parts_of
from lethe.scoring.diversity import DIVERSITY, diversity
from lethe.statistics.bounds import PaperBounds, paper_bounds
from lethe.statistics.judge_error import Calibration
from lethe.statistics.sequential import Decision

if TYPE_CHECKING:
    import pandas as pd

    Tables = Mapping[str, pd.DataFrame]

CURVE = np.round(np.linspace(0, 1, 51), 2)  # the x of the M_gen curves


def measure(
    name: str,
    generations: Tables,
    scores: Tables,
    questions: Mapping[str, str],
    metrics: Metrics,
    inapplicable: Collection[str] = (),
    calibration: Calibration | None = None,
) -> ModelMeasures:
    """Measure one model whose questions were sampled a fixed number of times.

    Parameters
    ----------
    name : str
        The model's name.
    generations, scores : mappings from str to DataFrame
        One table per split; the split ``forget`` must be present.
    questions : mapping from str to str
        The text of each forget question by id.
    metrics : Metrics
        Alpha, thresholds, and the scorers.
    inapplicable : collection of str
        The questions that the binary scorer cannot judge (they have no keywords); they get no binary values. On every other
        question an unjudged answer counts as a leak.
    calibration : Calibration, optional
        The measured error of the binary scorer.

    Returns
    -------
    ModelMeasures
    """
    leak = ScoreMatrix(scores, "forget", metrics.leak)
    leaked = ScoreMatrix(scores, "forget", metrics.binary) if metrics.binary else None
    asked = [leaked is not None and prompt not in inapplicable for prompt in leak.prompts]
    settings = MeasureSettings(
        alpha=metrics.alpha,
        thresholds=metrics.thresholds,
        rho=metrics.rho,
        share_above=metrics.share_above,
        missing="worst",
        together=metrics.together,
        calibration=calibration,
    )
    measures = measure_prompts(
        [PromptScores(*each) for each in zip(leak.prompts, leak.samples, leak.missing, strict=True)],
        settings,
        [leaked.samples[place] if leaked and judged else None for place, judged in enumerate(asked)],
    )
    curve = paper_bounds(leak.samples, metrics.alpha, CURVE, metrics.rho, missing="worst")
    return ModelMeasures(
        name=name,
        alpha=metrics.alpha,
        n=curve.n,
        questions=_questions(measures, leak, leaked, questions),
        splits=_splits(generations, scores, metrics.kept),
        prompts=measures,
        m_gen=_m_gen(curve),
        convergence=_convergence(measures, leak, metrics),
    )


def measure_stopped(
    name: str,
    generations: Tables,
    scores: Tables,
    questions: Mapping[str, str],
    metrics: Metrics,
    decisions: Mapping[str, Decision],
    decided_by: str,
) -> ModelMeasures:
    """Measure one model whose questions stopped early, from their decisions: all bounds are anytime-valid.

    Bounds for a number of samples fixed beforehand do not hold after a stopping rule has looked at the samples.

    Parameters
    ----------
    name, generations, scores, questions, metrics
        As in `measure`.
    decisions : mapping from str to Decision
        The decision on each forget question by id; at least one.
    decided_by : str
        The scorer that the stopping rule used.

    Returns
    -------
    ModelMeasures
    """
    found = {
        prompt: _stopped_question(table, questions[prompt], metrics, decisions[prompt])
        for part in parts_of(scores, "forget")
        for prompt, table in part.groupby("prompt_id", sort=False)
        if prompt in decisions
    }
    measured = tuple(found[prompt] for prompt in decisions)
    rule = next(iter(decisions.values()))
    return ModelMeasures(
        name=name,
        alpha=metrics.alpha,
        n=rule.cap,
        questions=measured,
        splits=_splits(generations, scores, metrics.kept),
        stopped=Stopped(decided_by, rule.alpha, rule.tau, rule.tau_leak, rule.cap),
    )


class ScoreMatrix:
    """The scores of one column: an array (prompts, n) in sampling order, and the greedy answers (prompts,) separately.

    The array takes eight bytes per answer. The table of the split is read in parts, so its texts and names never are in
    memory together.
    """

    def __init__(self, tables: Tables, split: str, column: str):
        wide = [
            part.pivot(index="prompt_id", columns="sample", values=column).loc[
                list(dict.fromkeys(part["prompt_id"]))
            ]
            for part in parts_of(tables, split, ["prompt_id", "sample", column])
        ]
        numbers = sorted({number for part in wide for number in part.columns})
        drawn = [number for number in numbers if number != GREEDY]
        self.prompts: list[str] = [prompt for part in wide for prompt in part.index]
        self.greedy = np.concatenate([part.reindex(columns=[GREEDY]).to_numpy(np.float64)[:, 0] for part in wide])
        self.samples = np.empty((len(self.prompts), len(drawn)))
        end = 0
        while wide:  # a part is let go as soon as it is copied
            part = wide.pop(0)
            start, end = end, end + len(part)
            self.samples[start:end] = part.reindex(columns=drawn).to_numpy(np.float64)
        self.missing: list[int] = np.isnan(self.samples).sum(axis=1).tolist()


def _questions(
    measures: PromptMeasures, leak: ScoreMatrix, leaked: ScoreMatrix | None, questions: Mapping[str, str]
) -> tuple[QuestionMeasure, ...]:
    return tuple(
        QuestionMeasure(
            prompt_id=own.prompt_id,
            question=questions[own.prompt_id],
            n=own.n,
            missing=own.missing,
            greedy=float(leak.greedy[place]),
            mean=own.mean,
            sd=own.sd,
            max=own.max,
            ed_score=own.ed_score,
            binary_greedy=float(leaked.greedy[place]) if leaked else math.nan,
            binary_share=mean(leaked.samples[place]) if leaked else math.nan,
            binary_missing=None if own.leaking is None else own.leaks_missing,
            fixed=own,
            leak_at_k=points,
            judged=judged,
        )
        for place, (own, points, judged) in enumerate(
            zip(measures.prompts, measures.each_leak_at_k(), _judged(measures), strict=True)
        )
    )


def _judged(measures: PromptMeasures) -> Sequence[JudgedRate | None]:
    return measures.judged.each if measures.judged else [None] * len(measures.prompts)


def _stopped_question(table: pd.DataFrame, question: str, metrics: Metrics, decision: Decision) -> QuestionMeasure:
    greedy, samples = table[table["sample"] == GREEDY], table[table["sample"] != GREEDY]
    judged = samples[metrics.leak].dropna().to_numpy(dtype=np.float64)
    plain, binary = Plain.of(judged, metrics.rho), metrics.binary
    return QuestionMeasure(
        prompt_id=str(table["prompt_id"].iloc[0]),
        question=question,
        n=len(samples),
        missing=len(samples) - len(judged),
        greedy=_first(greedy, metrics.leak),
        mean=plain.mean,
        sd=plain.sd,
        max=plain.max,
        ed_score=plain.ed_score,
        binary_greedy=_first(greedy, binary) if binary else math.nan,
        binary_share=float(samples[binary].mean()) if binary else math.nan,
        binary_missing=int(samples[binary].isna().sum()) if binary else None,
        stopped=decision,
    )


def _splits(generations: Tables, scores: Tables, leak: str) -> tuple[SplitMeasure, ...]:
    """Greedy score, sampled score and diversity of the answers on every split that unlearning should not touch."""
    import pandas as pd

    measured = []
    for split in sorted(set(scores) - {"forget"}):
        values = ScoreMatrix(scores, split, leak)
        each: dict[str, list[pd.Series]] = {name: [] for name in DIVERSITY}
        for part in parts_of(generations, split, ["prompt_id", "sample", "text"]):
            texts = part[part["sample"] != GREEDY].groupby("prompt_id")["text"]
            for name, found in each.items():
                found.append(texts.agg(diversity(name)))
        # in the order of the ids, so that the parts do not change the last bits of the sums
        varied = {name: mean(pd.concat(found).sort_index().to_numpy()) for name, found in each.items()}
        missing = int(np.isnan(values.samples).sum())
        measured.append(SplitMeasure(split, mean(values.greedy), mean(values.samples), varied, missing))
    return tuple(measured)


def _m_gen(curve: PaperBounds) -> tuple[TailPoint, ...]:
    """Tail curves averaged over the questions: the bound on P(X > x), and the empirical share."""
    columns = (CURVE, curve.m_gen.mean(axis=0), curve.empirical_tail.mean(axis=0))
    return tuple(TailPoint(*map(float, point)) for point in zip(*columns, strict=True))


def _convergence(measures: PromptMeasures, leak: ScoreMatrix, metrics: Metrics) -> tuple[ConvergencePoint, ...]:
    """Mean and standard deviation, with bounds, after 2, 4, 8, ... answers to the question with the largest M_mu."""
    worst = int(np.argmax([own.m_mu.value for own in measures.prompts]))
    draws, n = leak.samples[worst], measures.prompts[worst].n
    points = []
    for size in sorted({*(2**k for k in range(1, int(np.log2(n)) + 1)), n}):
        at = paper_bounds(draws[:size], metrics.alpha, np.array([0.5]), metrics.rho, missing="worst")
        plain, bounds = (float(at.mean[0]), float(at.sd[0])), (at.bounds("m_mu")[0], at.bounds("m_sigma")[0])
        points.append(ConvergencePoint(leak.prompts[worst], size, plain[0], bounds[0], plain[1], bounds[1]))
    return tuple(points)


def _first(table: pd.DataFrame, column: str) -> float:
    return float(table[column].iloc[0]) if len(table) else math.nan
