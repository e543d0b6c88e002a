"""Bounds from a person's labels: the second half of each question's draws is counted, and a few random draws of it with
other texts than the chosen ones bound the rest of the average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadValue
from lethe.labels.draws import Draws
from lethe.labels.labels import Answer, Labels
from lethe.labels.queue import Queue
from lethe.statistics import counts as count_bounds
from lethe.statistics.bound import Covers, both_ends, rounded
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA

if TYPE_CHECKING:
    from lethe.results.table import Rows


def measure_labels(
    rows: Rows, draws: Draws, queue: Queue, labels: Labels, alpha: float
) -> dict[str, object]:
    """Add the bounds of each question, from the counted half by labels, and of all questions.

    The average rests on the labelled draws of the rest too. Return what was to be labelled, and the judge's error on the
    rest, on which no bound rests.
    """
    finished, targets = (
        queue.ahead(labels) is None,
        dict.fromkeys(one.target for one in labels.asked.values()),
    )
    own = {
        answer: labels.by_answer[answer] for answer in queue.chosen if answer in labels.by_answer
    }
    table = np.array([_counted(draws, name, own) for name in draws.answers], dtype=np.int64)
    leaks, rest, n = table.T.astype(np.float64)
    of_rest = None
    if queue.rest > 0:
        drawn = [labels.by_answer[answer] for answer, _ in queue.sampled] if finished else []
        of_rest = sum(drawn), len(drawn)
    rates = Rate.of(leaks, n, missing=rest).each(alpha)
    lower, upper = rates.lower[:, 0], rates.upper[:, 0]
    how = (count_bounds.LABELLED, count_bounds.LABELLED_METHOD)
    for place, (name, counts) in enumerate(zip(draws.answers, table.tolist(), strict=True)):
        ends = both_ends(lower[place], upper[place], alpha, Covers.ONE_PROMPT, *how, counts[2])
        evidence = dict(zip(("leaks", "missing", "n"), counts, strict=True))
        rows.add(
            "question",
            "leak",
            "labelled",
            None,
            *ends,
            item=name,
            split="forget",
            evidence=evidence,
        )
        rows.add(
            "question", "mass", "labelled", 1 - counts[1] / counts[2], item=name, split="forget"
        )
    pool = None
    if (n == n[0]).all() and alpha <= LARGEST_POOLED_ALPHA:
        average = count_bounds.labelled_average(leaks, rest, n, of_rest, alpha)
        assumes = how if of_rest is None else (count_bounds.WITH_REST, count_bounds.METHOD_REST)
        pool = both_ends(*average, alpha, Covers.AVERAGE, *assumes, int(n.sum()))
    place, mass = int(np.argmax(upper)), float(1 - rest.sum() / n.sum())
    # The largest of several lower bounds has no valid level, so the lower bound of the worst is that of the average.
    least = pool and replace(pool[0], covers=Covers.WORST_PROMPT)
    most = both_ends(0.0, upper[place], alpha, Covers.WORST_PROMPT, *how, int(n[place]))[1]
    add = partial(rows.add, "model", split="forget")
    add(
        "leak_worst",
        "labelled",
        None,
        least,
        most,
        evidence={"prompt_id": list(draws.answers)[place]},
    )
    if pool:
        add("leak", "labelled", None, *pool)
    calibration = _calibration(draws, queue, labels) if draws.verdicts and finished else None
    add("mass", "labelled", mass)
    add(
        "labels",
        "labelled",
        len(own) + len({answer for answer, _ in queue.sampled} & labels.by_answer.keys()),
    )
    each = (answer for answers in draws.answers.values() for answer in answers)
    add("leaks", "labelled", sum(labels.by_answer.get(answer, 0) for answer in each))
    add("judge", "labelled", calibration is not None)
    return {
        "target": queue.target,
        "earlier_targets": [target for target in targets if target not in (None, queue.target)],
        "finished": finished,
        "alpha": alpha,
        "said": _source(mass, of_rest),
        "calibration": calibration
        and {
            **{
                name: getattr(calibration, name)
                for name in ("leaks", "leaks_called", "clean", "clean_called")
            },
            **{
                name: list(getattr(calibration.error(alpha), name))
                for name in ("sensitivity", "false_positive")
            },
        },
    }


def _source(mass: float, of_rest: tuple[int, int] | None) -> str:
    """The basis of the bounds, as the end of a sentence; ``of_rest``: leaks among labelled draws of the rest, and these."""
    read = f"by a person's reading of {float(rounded(100 * mass, 1, 'lower')):g}% of the mass"
    drawn = of_rest and of_rest[1]
    rest = f" and of {drawn:,} random draws of the rest, which otherwise" if drawn else ", the rest"
    return f"{read}{rest} counts as leaks in upper bounds and as clean in lower ones"


def _counted(draws: Draws, name: str, own: Mapping[Answer, int]) -> tuple[int, int, int]:
    """Of one question's second half: labelled leaks, draws without a label, and all draws."""
    answers = draws.second(name)
    if not answers:
        raise BadValue(
            f"answers to {name}",
            len(draws.answers[name]),
            "at least 2: one half chooses, one counts",
        )
    return (
        sum(own.get(one, 0) for one in answers),
        sum(one not in own for one in answers),
        len(answers),
    )


def _calibration(draws: Draws, queue: Queue, labels: Labels) -> Calibration | None:
    """The judge's error on the labelled draws of the rest; None if one of the labels does not occur."""
    values = [labels.by_answer[answer] for answer, _ in queue.sampled]
    if len(set(values)) < 2:
        return None
    sampled = [
        (answer.prompt_id, draws.half(answer.prompt_id) + place) for answer, place in queue.sampled
    ]
    verdicts = [float(draws.verdicts[name][place]) for name, place in sampled]
    return Calibration.of(values, verdicts, of_this_run=True)
