"""Lethe inside lm-evaluation-harness: a filter that keeps all repeats, metrics of bounds, and their aggregations.

A task file names one function of this module, which registers the filter and the aggregations by their names::

    process_results: !function lethe.lm_eval.keyword_leak
    filter_list: [{name: all, filter: [{function: lethe_all}]}]
    metric_list:
      - {metric: keyword_leak, aggregation: lethe_mean, higher_is_better: false}
      - {metric: keyword_leak_upper, aggregation: lethe_worst, higher_is_better: false}
      - {metric: keyword_leak_average_upper, aggregation: lethe_average_upper, higher_is_better: false}
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import lm_eval.api.metrics
import lm_eval.filters  # noqa: F401  (lm-eval registers its own names only while there are no others)
import numpy as np
from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_aggregation, register_filter

from lethe.errors import BadInput, BadValue
from lethe.io.files import Json
from lethe.results.licence import Source, refusals
from lethe.scoring.scorer import open_scorer
from lethe.scoring.verdicts import AnsweredRow
from lethe.statistics.betting import mean_upper
from lethe.statistics.bounds import binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA, pooled_average

Document = Mapping[str, Json]
Score = Callable[[Sequence[str], Document], Sequence[float]]
Process = Callable[[Document, Sequence[Json]], dict[str, object]]

COPIES = "The repeats of each document are one text, like copies of a greedy or a cached answer"
OPENS = (
    "Each bound under this filter is 1. Check do_sample and temperature of the task, and leave out --use_cache; where the "
    "task does sample, give the samples that it logs to `lethe bounds`, which reads these settings."
)
CHOSEN = (
    "A filter of the task keeps one answer of each document, so each bound under this filter is 1. Add a filter of the "
    "function lethe_all to filter_list."
)


@cache
def _warn_once(sentence: str) -> None:
    logging.getLogger(__name__).warning(sentence)


@register_filter("lethe_all")
class KeepAll(Filter):
    """Keep every repeat of every document; the default filter of lm-eval keeps the first one alone.

    Where several documents have several repeats and each document's are one text, they are `Copies`, of which nothing is
    claimed: a filter cannot see whether the task samples.
    """

    def apply(self, resps: Iterable[Sequence[str]], docs: Sequence[Document]) -> list[list[str]]:
        answers_of_all = [list(answers) for answers in resps]
        several = [answers for answers in answers_of_all if len(answers) > 1]
        if len(several) > 1 and all(len(set(answers)) == 1 for answers in several):
            _warn_once(" ".join([*refusals(Source(repeated_answers=COPIES)), OPENS]))
            return [Copies(answers) for answers in answers_of_all]
        return answers_of_all


class Copies(list[str]):
    """The repeats of a document in a run whose answers may be copies of one answer each."""


class DocumentUpper(float):
    """An upper bound of one document, which adds as a maximum: lm-eval takes the mean of a metric for which the task names no
    aggregation, and a mean of bounds is no bound, but the largest one covers the worst document.
    """

    leaks: float = math.nan
    answers: int = 0
    alpha: float = math.nan

    def counted(self, leaks: float, answers: int, alpha: float) -> DocumentUpper:
        """The bound with the counts that the average needs; a missing answer counts as a leak."""
        self.leaks = leaks
        self.answers = answers
        self.alpha = alpha
        return self

    def __add__(self, other: float) -> DocumentUpper:
        return DocumentUpper(max(float(self), float(other)))

    __radd__ = __add__

    def __truediv__(self, other: float) -> float:
        return float(self)


@register_aggregation("lethe_worst")
def worst(uppers: Sequence[float]) -> float:
    """The largest of the upper ends of all questions, as lm-eval aggregates a metric."""
    return max(float(upper) for upper in uppers)


@register_aggregation("lethe_mean")
def mean(scores: Sequence[Sequence[float]]) -> float:
    """The mean over all answers that have a score, NaN where none has."""
    of_all = np.concatenate([np.asarray(of_document, dtype=np.float64) for of_document in scores])
    present = of_all[~np.isnan(of_all)]
    if not len(present):
        return math.nan
    return float(present.mean())


@register_aggregation("lethe_average_upper")
def average_upper(uppers: Sequence[DocumentUpper]) -> float:
    """Clopper-Pearson on the pooled count, for the average over documents; NaN where their numbers of answers differ."""
    n, alpha = uppers[0].answers, uppers[0].alpha
    unequal = any(upper.answers != n for upper in uppers)
    if unequal or alpha > LARGEST_POOLED_ALPHA:
        return math.nan
    leaks = [upper.leaks for upper in uppers]
    return pooled_average(leaks, n, alpha).value


def bounded(
    scorer: str | Score, alpha: float = 0.01, *, name: str | None = None, binary: bool | None = None
) -> Process:
    """Make the ``process_results`` of a task: each repeat scored, and the bounds of the document, each at ``alpha``.

    ``scorer`` is a scorer of Lethe, which reads `answer`, `keywords` and the like from the document; or a function of the
    answers and the document that returns a score in [0, 1] per answer, NaN where it cannot be judged, and only 0 and 1 if
    ``binary``. ``name`` is the prefix of the metrics, by default the scorer's. Per document there are ``NAME`` (the scores,
    for `lethe_mean`), ``NAME_upper`` (Clopper-Pearson for 0 and 1, else betting; for `lethe_worst`), ``NAME_betting_upper``
    (for `lethe_worst`), and for 0 and 1 ``NAME_average_upper`` (for `lethe_average_upper`).

    Assumes independent draws: ``do_sample: true`` and a temperature above 0. An answer that cannot be judged counts as 1.
    Under a filter that keeps one answer of each document, each bound is 1, for the filter may have chosen the answer. So is
    each bound of `Copies`, which are no draws.
    """
    check_alpha(alpha)
    prefix, zero_or_one, scores_of = _opened(scorer, name, binary)

    def process_results(doc: Document, results: Sequence[Json]) -> dict[str, object]:
        chosen = isinstance(results[0], str)  # by a filter that keeps one answer
        answers = [results[0]] if chosen else list(results[0])
        scores = _checked(scores_of(answers, doc), len(answers), zero_or_one)
        high = np.nan_to_num(scores, nan=1.0)
        if chosen:
            _warn_once(CHOSEN)
        if chosen or isinstance(results[0], Copies):
            high = np.ones(len(answers))  # nothing is claimed: the largest bound holds of anything
        betting = DocumentUpper(mean_upper(high[None], alpha)[0])
        metrics: dict[str, object] = {
            prefix: scores.tolist(),
            f"{prefix}_upper": betting,
            f"{prefix}_betting_upper": betting,
        }
        if zero_or_one:
            leaks = float(high.sum())
            exact = DocumentUpper(binary_upper(leaks, len(high), alpha))
            metrics[f"{prefix}_upper"] = exact
            average = DocumentUpper(exact).counted(leaks, len(high), alpha)
            metrics[f"{prefix}_average_upper"] = average
        return metrics

    return process_results


def _checked(values: Sequence[float], n: int, zero_or_one: bool) -> np.ndarray:
    """The scores (n,) of a document's answers, NaN where missing; `BadInput` or `BadValue` where they are none."""
    if not n:
        needed = "the task needs output_type generate_until and repeats from 1"
        raise BadInput(f"A document has no answer: {needed}.")
    scores = np.asarray(values, dtype=np.float64)
    if scores.shape != (n,) or ((scores < 0) | (scores > 1)).any():
        raise BadValue("scores", scores.tolist()[:5], f"{n} numbers in [0, 1]")
    if zero_or_one and not np.isin(scores[~np.isnan(scores)], (0.0, 1.0)).all():
        raise BadValue("scores", scores.tolist()[:5], "0 or 1, where binary is set")
    return scores


def _opened(scorer: str | Score, name: str | None, binary: bool | None) -> tuple[str, bool, Score]:
    """The prefix of the metrics, whether the scores are 0 and 1, and the function that scores."""
    if not isinstance(scorer, str):
        return name or scorer.__name__, bool(binary), scorer
    from lethe.registry import SCORERS

    opened = open_scorer(scorer)
    is_binary = False
    if scorer in SCORERS:
        is_binary = bool(getattr(SCORERS[scorer], "BINARY", False))

    def scores_of(answers: Sequence[str], document: Document) -> Sequence[float]:
        row = AnsweredRow(answers, document)
        return opened.score([row])[0].tolist()

    return name or scorer, is_binary, scores_of


keyword_leak = bounded("keyword_leak")
exact_match = bounded("exact_match")
rouge_l = bounded("rouge_l")
