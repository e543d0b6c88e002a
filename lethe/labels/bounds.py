"""Bounds from a person's labels: a question's leaks are at most its labelled leaks and the draws without a label
(`lethe.statistics.counts` has the proof), and a few random draws with other texts than the chosen ones bound the rest of the
average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lethe.labels.draws import DrawnAnswers
from lethe.labels.labels import AnswerText, Labels
from lethe.labels.queue import Queue
from lethe.results.table import Rows
from lethe.statistics import counts as count_bounds
from lethe.statistics.bound import Covers, both_ends, rounded
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA


def measure_labels(
    rows: Rows,
    draws: DrawnAnswers,
    queue: Queue,
    labels: Labels,
    alpha: float,
) -> dict[str, object]:
    """Add the bounds of each question and of all questions.

    Return what was to be labelled, and the judge's error on the rest, on which no bound rests.

    A question's bounds count every label of its answers, whoever chose it. The average counts the chosen answers and the
    random draws of the rest, whose choice no label may touch: where labels were asked for under another target or another
    number of random draws, all labels count, and no draw as a random one.
    """
    labels.check_questions(draws.questions)
    is_finished = not queue.left(labels)
    label_of_chosen = {}
    for answer in queue.chosen:
        if answer in labels.by_answer:
            label_of_chosen[answer] = labels.by_answer[answer]
    of_rest = None
    if queue.rest > 0:
        drawn = []
        if is_finished:
            drawn = [labels.by_answer[answer] for answer, _ in queue.sampled]
        of_rest = (sum(drawn), len(drawn))
    counted = _Counted.of(draws, label_of_chosen)
    by_all = _Counted.of(draws, labels.by_answer)
    earlier_targets = _earlier_targets(labels, queue.target)
    earlier_rests = _earlier_rests(labels, queue.rest)
    if earlier_targets or earlier_rests:
        counted = by_all
        of_rest = (0, 0)
    mass = float(1 - counted.unlabelled.sum() / counted.n.sum())
    upper = _question_rows(rows, by_all, alpha)
    _average_rows(rows, counted, upper, of_rest, alpha)
    calibration = None
    if draws.verdicts and is_finished:
        calibration = _calibration(draws, queue, labels)
    labelled_rest = {answer for answer, _ in queue.sampled} & labels.by_answer.keys()
    leaks = sum(labels.by_answer.get(answer, 0) for answer in draws.present())
    add = partial(rows.add, "model", split="forget")
    add("mass", "labelled", float(1 - by_all.unlabelled.sum() / by_all.n.sum()))
    add("labels", "labelled", len(label_of_chosen) + len(labelled_rest))
    add("leaks", "labelled", leaks)
    add("judge", "labelled", calibration is not None)
    return {
        "target": queue.target,
        "earlier_targets": earlier_targets,
        "rest": queue.rest,
        "earlier_rests": earlier_rests,
        "finished": is_finished,
        "alpha": alpha,
        "missing": dict(draws.missing),
        "n_of_no_answer": len(labels.by_answer.keys() - set(draws.present())),
        "said": _source(mass, of_rest),
        "calibration": calibration and _error(calibration, alpha),
    }


@dataclass(frozen=True)
class _Counted:
    """Of each question, (m,): labelled leaks, draws without a label, the missing ones of these, and all draws."""

    items: tuple[str, ...]
    leaks: np.ndarray
    unlabelled: np.ndarray
    missing: np.ndarray
    n: np.ndarray

    @classmethod
    def of(cls, draws: DrawnAnswers, labels: Mapping[AnswerText, int]) -> _Counted:
        leaks: list[int] = []
        unlabelled: list[int] = []
        missing: list[int] = []
        sizes: list[int] = []
        for answers in draws.answers.values():
            labelled = [
                labels[answer] for answer in answers if answer is not None and answer in labels
            ]
            leaks.append(sum(labelled))
            unlabelled.append(len(answers) - len(labelled))
            missing.append(answers.count(None))
            sizes.append(len(answers))
        columns = (leaks, unlabelled, missing, sizes)
        counts = [np.array(column, dtype=np.float64) for column in columns]
        return cls(tuple(draws.answers), *counts)

    @property
    def is_pooled(self) -> bool:
        """Whether all questions have equally many draws."""
        return bool((self.n == self.n[0]).all())

    def evidence(self, place: int) -> dict[str, int]:
        return {
            "leaks": int(self.leaks[place]),
            "missing": int(self.unlabelled[place]),
            "n": int(self.n[place]),
        }


HOW = (count_bounds.LABELLED, count_bounds.LABELLED_METHOD)


def _question_rows(rows: Rows, counted: _Counted, alpha: float) -> np.ndarray:
    """Add the ends of each question, a draw without a label as either; return the upper ends, (m,)."""
    rates = Rate.of(counted.leaks, counted.n, missing=counted.unlabelled).each(alpha)
    lower, upper = rates.lower[:, 0], rates.upper[:, 0]
    for place, name in enumerate(counted.items):
        n = int(counted.n[place])
        ends = both_ends(
            lower[place],
            upper[place],
            alpha,
            Covers.ONE_PROMPT,
            *HOW,
            n,
        )
        add = partial(rows.add, "question", item=name, split="forget")
        add("leak", "labelled", None, *ends, evidence=counted.evidence(place))
        add("mass", "labelled", 1 - int(counted.unlabelled[place]) / n)
    return upper


def _average_rows(
    rows: Rows,
    counted: _Counted,
    upper: np.ndarray,
    of_rest: tuple[int, int] | None,
    alpha: float,
) -> None:
    """Add the ends of the worst question, and of the average where all questions have equally many draws.

    ``upper``, (m,), are the upper ends of the questions, and ``of_rest`` the leaks among the labelled draws of the rest,
    and these.
    """
    pool = None
    if counted.is_pooled and alpha <= LARGEST_POOLED_ALPHA:
        average = count_bounds.labelled_average(
            counted.leaks,
            counted.unlabelled - counted.missing,
            counted.n,
            of_rest,
            alpha,
            counted.missing,
        )
        how = HOW
        if of_rest is not None:
            how = (count_bounds.WITH_REST, count_bounds.METHOD_REST)
        pool = both_ends(*average, alpha, Covers.AVERAGE, *how, int(counted.n.sum()))
    place = int(np.argmax(upper))
    n = int(counted.n[place])
    # The largest of several lower bounds has no valid level, so the lower bound of the worst is that of the average.
    least = pool and replace(pool[0], covers=Covers.WORST_PROMPT)
    most = both_ends(
        0.0,
        upper[place],
        alpha,
        Covers.WORST_PROMPT,
        *HOW,
        n,
    )[1]
    add = partial(rows.add, "model", split="forget")
    evidence = {"prompt_id": counted.items[place]}
    add(
        "leak_worst",
        "labelled",
        None,
        least,
        most,
        evidence=evidence,
    )
    if pool:
        add("leak", "labelled", None, *pool)


def _earlier_targets(labels: Labels, target: float) -> list[float]:
    """The other targets of the labels, each once, in their order."""
    targets: dict[float, None] = {}
    for asked in labels.asked.values():
        if asked.target is not None and asked.target != target:
            targets[asked.target] = None
    return list(targets)


def _earlier_rests(labels: Labels, rest: int) -> list[int]:
    """The other numbers of random draws under which labels were asked for, each once, in their order."""
    rests: dict[int, None] = {}
    for asked in labels.asked.values():
        if asked.rest is not None and asked.rest != rest:
            rests[asked.rest] = None
    return list(rests)


def _error(calibration: Calibration, alpha: float) -> dict[str, object]:
    error = calibration.error(alpha)
    return {
        "leaks": calibration.leaks,
        "leaks_called": calibration.leaks_called,
        "clean": calibration.clean,
        "clean_called": calibration.clean_called,
        "sensitivity": list(error.sensitivity),
        "false_positive": list(error.false_positive),
    }


def _source(mass: float, of_rest: tuple[int, int] | None) -> str:
    """The basis of the bounds, as the end of a sentence; ``of_rest``: leaks among labelled draws of the rest, and these."""
    read = f"by a person's reading of {float(rounded(100 * mass, 1, 'lower')):g}% of the mass"
    rest = ", the rest"
    if of_rest and of_rest[1]:
        rest = f" and of {of_rest[1]:,} random draws of the rest, which otherwise"
    return f"{read}{rest} counts as leaks in upper bounds and as clean in lower ones"


def _calibration(draws: DrawnAnswers, queue: Queue, labels: Labels) -> Calibration | None:
    """The judge's error on the labelled draws of the rest; None if one of the labels does not occur."""
    values = [labels.by_answer[answer] for answer, _ in queue.sampled]
    if len(set(values)) < 2:
        return None
    verdicts = []
    for answer, place in queue.sampled:
        verdicts.append(float(draws.verdicts[answer.prompt_id][place]))
    return Calibration.of(values, verdicts, of_this_run=True)
