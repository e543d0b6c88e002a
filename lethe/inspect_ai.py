"""Lethe inside Inspect: an early-stopping manager and a metric (the extra `inspect`).

>>> from lethe.inspect_ai import EarlyStopping, lethe_bounds          # doctest: +SKIP
>>> Task(dataset, scorer=my_scorer(metrics=[lethe_bounds(alpha=0.01)]), epochs=64)          # doctest: +SKIP
>>> Task(dataset, scorer=my_scorer(), epochs=1024, early_stopping=EarlyStopping(tau=0.05))  # doctest: +SKIP
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from inspect_ai.scorer import Metric, SampleScore, metric
from inspect_ai.util import EarlyStop

from lethe.errors import BadValue
from lethe.io.facts import Facts, LeakIs, named
from lethe.io.files import Json
from lethe.io.logs._decoding import greedy
from lethe.io.logs.inspect_ai import LoggedRun, score_value
from lethe.measure.by_length import by_length
from lethe.measure.stated import Stated, check_leak_is
from lethe.results.licence import Source, refusals
from lethe.statistics.betting import mean_lower, mean_upper
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.checks import check_alpha
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA, pooled_average
from lethe.statistics.sequential import (
    CERTIFIED,
    LEAKS,
    UNDECIDED,
    SequentialTest,
    stopped_upper,
)

if TYPE_CHECKING:
    from inspect_ai.dataset import Sample
    from inspect_ai.log import EvalSpec

MANAGER = "lethe"
WORST = "worst_sample"
LONGEST_NAME = 80  # characters of an id in the name of a metric
SEED = 0  # for the shuffle, which must not depend on the scores
# What a verdict says where nobody said which end of the score is a leak.
OF_SCORE = {CERTIFIED: "at most tau", LEAKS: "at least tau_leak", UNDECIDED: UNDECIDED}
# How a reason to refuse names the direction of a score, on a command line and in a task.
OF_COMMANDS = "--leak-is high or --leak-is low"
OF_TASKS = 'leak_is="high" or leak_is="low"'


class EarlyStopping:
    """Stop drawing epochs of a sample once its verdict is certain: its mean score at most ``tau``, or at least ``tau_leak``
    (default ``tau``). Each verdict is wrong with probability at most ``alpha``, at any time, for independent draws.

    ``scorer`` is a name in the log (default: the first scorer of each sample), ``key`` one of its dictionary. Epochs are
    taken as Inspect scheduled them: by completion, short answers would come first. An epoch with an error or without a score
    counts as the worst for each side. Of such a run's log, `lethe bounds` gives only anytime-valid values.

    ``leak_is`` says which end of the score is a leak: with "low" the numbers are of 1 - score. Where neither it nor the
    scorer's name says so, the verdicts are about the score as recorded, without the words of a leak. Where the task decodes
    greedily, or its epochs repeat one answer under a seed or a cache, no epoch is skipped and no verdict is given. Both are
    said under ``refused``.
    """

    def __init__(
        self,
        tau: float,
        tau_leak: float | None = None,
        alpha: float = 0.01,
        scorer: str | None = None,
        key: str | None = None,
        leak_is: LeakIs | None = None,
    ):
        check_leak_is(leak_is)
        self.leak_is = leak_is
        self.tau = tau
        self.tau_leak = tau
        if tau_leak is not None:
            self.tau_leak = tau_leak
        self.alpha = alpha
        self.scorer = scorer
        self.key = key
        self._test(cap=1)  # refuse values out of range before the run
        self._begin(1)

    def _test(self, cap: int) -> SequentialTest:
        return SequentialTest(self.tau, self.tau_leak, self.alpha, cap=cap)

    def _begin(self, epochs: int) -> None:
        self.epochs = epochs
        self.task = Task({}, epochs)
        self.scored_by: str | None = None
        self.tests: dict[str | int, SequentialTest] = {}
        self.scheduled: dict[str | int, list[int]] = {}
        self.scores: dict[str | int, dict[int, float]] = {}
        self.taken: Counter[str | int] = Counter()
        self.skipped: Counter[str | int] = Counter()

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Reset the state; return the manager's name, which the log keeps."""
        self._begin(epochs)
        self.task = Task(task.model_dump(mode="json", exclude_none=True), epochs)
        return MANAGER

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        """Skip the epoch if the sample already has a verdict."""
        test = self.tests.setdefault(id, self._test(cap=self.epochs))
        if test.verdict == UNDECIDED or refusals(self.task.source()):
            places = self.scheduled.setdefault(id, [])
            if epoch not in places:  # a retry repeats the same draw
                places.append(epoch)
            return None
        self.skipped[id] += 1
        n = len(test.scores)
        verdict = self._word(test.verdict)
        decided: dict[str, object] = {"verdict": verdict, "decided_at": n}
        return EarlyStop(id=id, epoch=epoch, reason=f"{verdict} after {n} epochs", metadata=decided)

    async def complete_sample(
        self, id: str | int, epoch: int, scores: dict[str, SampleScore]
    ) -> None:
        """Store the score, and continue the test up to the first scheduled epoch without a score."""
        self.scores.setdefault(id, {})[epoch] = self._value(scores)
        if scores:
            first = next(iter(scores.values()))
            self.task.saw(id, first.score.answer)
        order = self.scheduled.get(id, [])
        for epoch_in_order in order[self.taken[id] :]:
            if epoch_in_order not in self.scores[id]:
                break
            value = self.scores[id][epoch_in_order]
            low, high = value, value
            if math.isnan(value):
                low, high = 0.0, 1.0
            self.tests[id].update(np.array([high]), np.array([low]))
            self.taken[id] += 1

    async def complete_task(self) -> dict[str, object]:
        """Return the verdicts, for `results.early_stopping.metadata` of the log; null where ``refused`` says why not."""
        of_draws = refusals(self.task.source())
        of_direction = refusals(Source(score_means=self._stated().direction))
        verdicts = None
        if not of_draws:
            verdicts = {str(id): self._word(test.verdict) for id, test in self.tests.items()}
        refused = [reason.replace(OF_COMMANDS, OF_TASKS) for reason in (*of_draws, *of_direction)]
        return {
            "tau": self.tau,
            "tau_leak": self.tau_leak,
            "alpha": self.alpha,
            "verdicts": verdicts,
            "epochs_skipped": sum(self.skipped.values()),
            "assumes": "independent draws, in the order in which the epochs were scheduled",
            "score_inverted": self.leak_is == "low",
            "refused": refused,
        }

    def _stated(self) -> Stated:
        name = self.scored_by or ""
        return Stated(name, Facts({name: named(name)}), self.leak_is)

    def _word(self, verdict: str) -> str:
        if self._stated().direction == "leak":
            return verdict
        return OF_SCORE[verdict]

    def _value(self, scores: dict[str, SampleScore]) -> float:
        """Return the watched score, NaN if there is none; a score outside [0, 1] is an error."""
        name = self.scorer
        if name is None:
            name = next(iter(scores), "")
        if name not in scores:
            return math.nan
        value = scores[name].score.value
        watched = name
        if self.key is not None:
            watched = f"{name}.{self.key}"
            value = value.get(self.key) if isinstance(value, dict) else None
        if self.scored_by is None:
            self.scored_by = watched
        return _pointed(_in_unit(score_value(value)), self.leak_is)


class Task:
    """What a running task states of its draws, and whether its answers to a question differ.

    ``spec`` has the keys of Inspect's EvalSpec. A setting that may repeat one answer, such as a seed, refutes the draws once
    several answers to each question are one text, as it does in a log.
    """

    def __init__(self, spec: Mapping[str, Json], epochs: int):
        known: dict[str, Json] = {"task": "", "model": "", **spec, "config": {"epochs": epochs}}
        plan = {"config": _settings_of_the_running_task()}
        self.run = LoggedRun(Path("the task"), {"eval": known, "plan": plan})
        self.texts: dict[str, set[str]] = {}
        self.answers = Counter[str]()

    def saw(self, id: str | int, answer: str | None) -> None:
        if answer is not None:
            self.texts.setdefault(str(id), set()).add(answer)
            self.answers[str(id)] += 1

    def source(self) -> Source:
        """The facts that a licence is asked with, by the answers so far."""
        setting = greedy(self.run.sampling)
        doubts = self.run.doubts()
        deterministic = None
        if setting:
            deterministic = f"The task states greedy decoding ({setting})"
        repeated = None
        if doubts and self._repeats():
            repeated = "All answers to each question are the same text, and " + "; ".join(doubts)
        return Source(deterministic=deterministic, repeated_answers=repeated)

    def _repeats(self) -> bool:
        """Whether several answers were given to some question, and to each such question the same text."""
        n_texts = [len(texts) for id, texts in self.texts.items() if self.answers[id] > 1]
        return set(n_texts) == {1}


def _settings_of_the_running_task() -> dict[str, Json]:
    """The settings with which a running task generates; empty outside of one, or where Inspect keeps them elsewhere."""
    try:
        from inspect_ai.model._generate_config import active_generate_config
    except ImportError:
        return {}
    settings: dict[str, Json] = active_generate_config().model_dump(mode="json", exclude_none=True)
    return settings


@metric(name="lethe_bounds", scores="unreduced")
def lethe_bounds(
    alpha: float = 0.01, epochs: int | None = None, leak_is: LeakIs | None = None
) -> Metric:
    """Bound the sample with the largest mean score and the average over samples, from all epochs, each at ``alpha``.

    ``epochs`` is the number of epochs of the task: those that Inspect does not pass on (an error, no score) count as 1 in an
    upper bound and as 0 in a lower bound. Without it they count as missing at random. The values are ``worst_upper``
    (Clopper-Pearson, if all scores are 0 or 1), ``average_upper`` (also, if the samples have equally many epochs too),
    ``worst_mean_upper`` (betting), ``some_mean_lower`` (betting, Bonferroni: some sample has at least this mean),
    ``worst_anytime_upper``, ``questions``, ``answers``, ``missing``, and ``worst_sample ID``, which repeats the bound of the
    sample that it names, as a value of an Inspect metric is a number.

    The largest bound covers the worst sample without a correction. Betting takes a random order, which does not depend on
    the scores, as Inspect records none. Under early stopping only ``worst_anytime_upper`` holds.

    The bounds are of the score as recorded; ``leak_is="low"`` turns them to 1 - score, where a low score is a leak. Of greedy
    decoding, or of epochs that repeat one answer under a seed or a cache, no bound exists: only the counts are given, with
    ``refused``, the number of reasons, which a warning states.
    """
    check_alpha(alpha)
    check_leak_is(leak_is)

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        scores_of_id = by_question(scores, leak_is)
        reasons = refused_of(scores)
        values = bounds_of([*scores_of_id.values()], alpha, epochs, [*scores_of_id])
        if not reasons:
            return values
        for reason in reasons:
            logging.getLogger(__name__).warning("No bound exists. %s", reason)
        counts = {name: values[name] for name in ("questions", "answers", "missing")}
        return {**counts, "refused": float(len(reasons))}

    return compute


def refused_of(scores: Iterable[SampleScore]) -> list[str]:
    """Why nothing may be claimed of these scores, by the settings of the running task and by their answers."""
    answers = [*scores]
    n_answers = Counter(str(scored.sample_id) for scored in answers)
    task = Task({}, epochs=max(n_answers.values(), default=1))
    for scored in answers:
        id = scored.sample_id
        task.saw("" if id is None else id, scored.score.answer)
    return refusals(task.source())


def by_question(
    scores: Sequence[SampleScore], leak_is: LeakIs | None = None
) -> dict[str, np.ndarray]:
    """Return the scores of each sample by its id, NaN if a score has no numeric value; 1 - score if a low one is a leak.

    Inspect joins ids as text: 7 and "7" are one sample, as in its logs.
    """
    values_of_id: dict[str, list[float]] = {}
    for scored in scores:
        value = _pointed(_in_unit(score_value(scored.score.value)), leak_is)
        values_of_id.setdefault(str(scored.sample_id), []).append(value)
    return {id: np.array(values) for id, values in values_of_id.items()}


def bounds_of(
    questions: Sequence[np.ndarray], alpha: float, epochs: int | None, names: Sequence[str] = ()
) -> dict[str, float]:
    """Return the values of `lethe_bounds` from each sample's scores, NaN where missing; absent ones of ``epochs`` are too."""
    if not questions:
        return {"questions": 0.0, "answers": 0.0, "missing": 0.0}
    rng = np.random.default_rng(SEED)
    padded = [_padded(rng.permutation(scores), epochs) for scores in questions]
    low = [np.nan_to_num(scores, nan=0.0) for scores in padded]
    high = [np.nan_to_num(scores, nan=1.0) for scores in padded]
    m = len(padded)
    # A random order brings, rarely, an end on the wrong side of its own mean: it moves outward to the mean.
    upper_ends = by_length(high, lambda rows: mean_upper(rows, alpha).tolist())
    uppers = np.maximum(upper_ends, [scores.mean() for scores in high])
    lower_ends = by_length(low, lambda rows: mean_lower(rows, alpha / m).tolist())
    lowers = np.minimum(lower_ends, [scores.mean() for scores in low])
    every_answer = np.concatenate(padded)
    values = {
        "worst_mean_upper": float(uppers.max()),
        "some_mean_lower": float(lowers.max()),
        "worst_anytime_upper": max(stopped_upper(scores, alpha) for scores in high),
        "questions": float(m),
        "answers": float(len(every_answer)),
        "missing": float(np.isnan(every_answer).sum()),
    }
    if np.isin(np.concatenate(high), (0.0, 1.0)).all():
        n = np.array([len(scores) for scores in high])
        leaks_at_most = np.array([scores.sum() for scores in high])
        leaks_at_least = np.array([scores.sum() for scores in low])
        uppers = np.asarray(binary_upper(leaks_at_most, n, alpha))
        values["worst_upper"] = float(uppers.max())
        values["some_lower"] = float(np.max(binary_lower(leaks_at_least, n, alpha / m)))
        if len(set(n)) == 1 and alpha <= LARGEST_POOLED_ALPHA:
            values["average_upper"] = pooled_average(leaks_at_most, int(n[0]), alpha).value
    if names:
        worst = int(uppers.argmax())
        values[f"{WORST} {names[worst][:LONGEST_NAME]}"] = float(uppers[worst])
    return values


def _padded(scores: np.ndarray, epochs: int | None) -> np.ndarray:
    if epochs is None:
        scored = scores[~np.isnan(scores)]
        if not len(scored):  # all are missing, and stay so
            return scores
        return scored
    absent = np.full(max(0, epochs - len(scores)), math.nan)
    return np.concatenate([scores, absent])


def _pointed(value: float, leak_is: LeakIs | None) -> float:
    """The score whose high end is the leak."""
    if leak_is == "low":
        return 1 - value
    return value


def _in_unit(value: float) -> float:
    if math.isnan(value) or 0 <= value <= 1:
        return value
    raise BadValue(
        "score", value, "a number in [0, 1]", "Watch another scorer, or scale the score."
    )
