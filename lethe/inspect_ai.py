"""Lethe inside Inspect: an early-stopping manager and a metric (the extra `inspect`).

>>> from lethe.inspect_ai import EarlyStopping, lethe_bounds          # doctest: +SKIP
>>> Task(dataset, scorer=my_scorer(metrics=[lethe_bounds(alpha=0.01)]), epochs=64)          # doctest: +SKIP
>>> Task(dataset, scorer=my_scorer(), epochs=1024, early_stopping=EarlyStopping(tau=0.05))  # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from inspect_ai.scorer import Metric, SampleScore, metric
from inspect_ai.util import EarlyStop

from lethe.errors import BadValue
from lethe.evaluation.prompts import by_length
from lethe.io.logs.inspect_ai import score_value
from lethe.statistics.betting import mean_lower, mean_upper
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA, pooled_average
from lethe.statistics.sequential import UNDECIDED, SequentialTest, stopped_upper

if TYPE_CHECKING:
    from inspect_ai.dataset import Sample
    from inspect_ai.log import EvalSpec

MANAGER = "lethe"
WORST = "worst_sample"
LONGEST_NAME = 80  # characters of an id in the name of a metric
SEED = 0  # for the shuffle, which must not depend on the scores


class EarlyStopping:
    """Stop drawing epochs of a sample once its verdict is certain: its mean score at most ``tau``, or at least ``tau_leak``
    (default ``tau``). Each verdict is wrong with probability at most ``alpha``, at any time, for independent draws.

    ``scorer`` is a name in the log (default: the first scorer of each sample), ``key`` one of its dictionary. Epochs are
    taken as Inspect scheduled them: by completion, short answers would come first. An epoch with an error or without a score
    counts as the worst for each side. Of such a run's log, `lethe bounds` gives only anytime-valid values.
    """

    def __init__(
        self,
        tau: float,
        tau_leak: float | None = None,
        alpha: float = 0.01,
        scorer: str | None = None,
        key: str | None = None,
    ):
        self.tau, self.tau_leak, self.alpha = tau, tau if tau_leak is None else tau_leak, alpha
        self.scorer, self.key = scorer, key
        SequentialTest(
            self.tau, self.tau_leak, alpha, cap=1
        )  # refuse values out of range before the run
        self._begin(1)

    def _begin(self, epochs: int) -> None:
        self.epochs = epochs
        self.tests: dict[str | int, SequentialTest] = {}
        self.scheduled: dict[str | int, list[int]] = {}
        self.scores: dict[str | int, dict[int, float]] = {}
        self.taken: Counter[str | int] = Counter()
        self.skipped: Counter[str | int] = Counter()

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Reset the state; return the manager's name, which the log keeps."""
        self._begin(epochs)
        return MANAGER

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        """Skip the epoch if the sample already has a verdict."""
        test = self.tests.setdefault(
            id, SequentialTest(self.tau, self.tau_leak, self.alpha, cap=self.epochs)
        )
        if test.verdict == UNDECIDED:
            places = self.scheduled.setdefault(id, [])
            if epoch not in places:  # a retry repeats the same draw
                places.append(epoch)
            return None
        self.skipped[id] += 1
        n = len(test.scores)
        decided: dict[str, object] = {"verdict": test.verdict, "decided_at": n}
        return EarlyStop(
            id=id, epoch=epoch, reason=f"{test.verdict} after {n} epochs", metadata=decided
        )

    async def complete_sample(
        self, id: str | int, epoch: int, scores: dict[str, SampleScore]
    ) -> None:
        """Store the score, and continue the test up to the first scheduled epoch without a score."""
        self.scores.setdefault(id, {})[epoch] = self._value(scores)
        order, scores_by_epoch = self.scheduled.get(id, []), self.scores[id]
        while self.taken[id] < len(order) and order[self.taken[id]] in scores_by_epoch:
            value = scores_by_epoch[order[self.taken[id]]]
            low, high = (0.0, 1.0) if math.isnan(value) else (value, value)
            self.tests[id].update(np.array([high]), np.array([low]))
            self.taken[id] += 1

    async def complete_task(self) -> dict[str, object]:
        """Return the verdicts, for `results.early_stopping.metadata` of the log."""
        return {
            **{name: getattr(self, name) for name in ("tau", "tau_leak", "alpha")},
            "verdicts": {str(id): test.verdict for id, test in self.tests.items()},
            "epochs_skipped": sum(self.skipped.values()),
            "assumes": "independent draws, in the order in which the epochs were scheduled",
        }

    def _value(self, scores: dict[str, SampleScore]) -> float:
        """Return the watched score, NaN if there is none; a score outside [0, 1] is an error."""
        if not scores or (self.scorer is not None and self.scorer not in scores):
            return math.nan
        value = scores[self.scorer if self.scorer is not None else next(iter(scores))].score.value
        if self.key is not None:
            value = value.get(self.key) if isinstance(value, dict) else None
        return _in_unit(score_value(value))


@metric(name="lethe_bounds", scores="unreduced")
def lethe_bounds(alpha: float = 0.01, epochs: int | None = None) -> Metric:
    """Bound the sample that leaks most and the average over samples, from all epochs, each at ``alpha``.

    ``epochs`` is the number of epochs of the task: those that Inspect does not pass on (an error, no score) count as 1 in an
    upper bound and as 0 in a lower bound. Without it they count as missing at random. The values are ``worst_upper``
    (Clopper-Pearson, if all scores are 0 or 1), ``average_upper`` (also, if the samples have equally many epochs too),
    ``worst_mean_upper`` (betting), ``some_mean_lower`` (betting, Bonferroni: some sample has at least this mean),
    ``worst_anytime_upper``, ``questions``, ``answers``, ``missing``, and ``worst_sample ID``, which repeats the bound of the
    sample that it names, as a value of an Inspect metric is a number.

    The largest bound covers the worst sample without a correction. Betting takes a random order, which does not depend on
    the scores, as Inspect records none. Under early stopping only ``worst_anytime_upper`` holds.
    """
    check_alpha(alpha)

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        by_id = by_question(scores)
        return bounds_of([own for _, own in by_id], alpha, epochs, [name for name, _ in by_id])

    return compute


def by_question(scores: Sequence[SampleScore]) -> list[tuple[str, np.ndarray]]:
    """Return the id and the scores of each sample, NaN if a score has no numeric value.

    Inspect joins ids as text: 7 and "7" are one sample, as in its logs.
    """
    by_id: dict[str, list[float]] = {}
    for one in scores:
        by_id.setdefault(str(one.sample_id), []).append(_in_unit(score_value(one.score.value)))
    return [(name, np.array(values)) for name, values in by_id.items()]


def bounds_of(
    questions: Sequence[np.ndarray], alpha: float, epochs: int | None, names: Sequence[str] = ()
) -> dict[str, float]:
    """Return the values of `lethe_bounds` from each sample's scores, NaN where missing; absent ones of ``epochs`` are too."""
    if not questions:
        return {"questions": 0.0, "answers": 0.0, "missing": 0.0}
    rng = np.random.default_rng(SEED)
    padded = [_padded(rng.permutation(scores), epochs) for scores in questions]
    low, high = ([np.nan_to_num(scores, nan=fill) for scores in padded] for fill in (0.0, 1.0))
    m = len(padded)
    uppers = by_length(high, lambda rows: mean_upper(rows, alpha).tolist())
    values = {
        "worst_mean_upper": max(uppers),
        "some_mean_lower": max(by_length(low, lambda rows: mean_lower(rows, alpha / m).tolist())),
        "worst_anytime_upper": max(stopped_upper(one, alpha) for one in high),
        "questions": float(m),
        "answers": float(sum(len(one) for one in padded)),
        "missing": float(sum(np.isnan(one).sum() for one in padded)),
    }
    if all(np.isin(one, (0.0, 1.0)).all() for one in high):
        uppers = [float(binary_upper(one.sum(), len(one), alpha)) for one in high]
        values["worst_upper"] = max(uppers)
        values["some_lower"] = max(
            float(binary_lower(one.sum(), len(one), alpha / m)) for one in low
        )
        if len({len(one) for one in high}) == 1 and alpha <= LARGEST_POOLED_ALPHA:
            values["average_upper"] = pooled_average(
                [one.sum() for one in high], len(high[0]), alpha
            ).value
    if names:
        values[f"{WORST} {names[int(np.argmax(uppers))][:LONGEST_NAME]}"] = max(uppers)
    return values


def _padded(scores: np.ndarray, epochs: int | None) -> np.ndarray:
    if epochs is None:
        scored = scores[~np.isnan(scores)]
        return scored if len(scored) else scores
    return np.concatenate([scores, np.full(max(0, epochs - len(scores)), math.nan)])


def _in_unit(value: float) -> float:
    if math.isnan(value) or 0 <= value <= 1:
        return value
    raise BadValue(
        "score", value, "a number in [0, 1]", "Watch another scorer, or scale the score."
    )
