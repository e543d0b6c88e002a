"""The gate of `lethe eval`: on all answers that were ever drawn, or on a person's labels of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.gates.gate import (
    JUDGED,
    MISFIT,
    Gate,
    closed_gate,
    gate_of,
    questions_at,
    without_bound,
)
from lethe.cli.outcome import Arguments
from lethe.errors import BadInput, plural
from lethe.results.gate import GatedQuestion

if TYPE_CHECKING:
    from lethe.api import evaluating
    from lethe.io.processes import Process


NO_BOUND = "--fail-above: this run has no bound of the worst question's leak probability."
UNFINISHED = (
    "answers of seed {} were begun and never counted. Draw them to the end by the same command (--seed, --n), since the gate "
    "may leave out none"
)


def gate_of_answers(
    evaluation: evaluating.Evaluation, arguments: Arguments, folder: Path, tau: float
) -> Gate:
    """The gate on sampled answers, or on a person's labels of them; a calibration of the scorer opens none."""
    from lethe.results import table
    from lethe.results.ends import Ends

    attempt = evaluation.attempt
    values = evaluation.numbers.values
    if evaluation.refused:
        return closed_gate(tau, attempt, " ".join(evaluation.refused))
    if arguments.get("calibration") and not arguments.get("labels"):
        why = JUDGED
        if values.get("judge_fits") is False:
            why = MISFIT.format(arguments["calibration"], arguments.get("scorer", "keyword_leak"))
        return closed_gate(tau, attempt, why)
    if not arguments.get("labels"):
        return _gate_at_any_time(evaluation, tau)

    worst = evaluation.numbers.upper("leak_worst", "labelled")
    if worst is None:
        raise BadInput(NO_BOUND)
    if evaluation.skipped:
        return closed_gate(tau, attempt, without_bound(len(evaluation.skipped)))
    (model,) = evaluation.models
    rows = []
    items = []
    for row in table.read(folder, [model]).rows(model):
        if row.basis == "labelled" and row.upper is not None:
            rows.append(row)
            if row.scope == "question" and row.quantity == "leak":
                items.append(str(row.item))
    ends = Ends.of_rows(rows, items)
    uppers = ends.upper(attempt.level)
    largest = int(uppers.argmax())
    bound = replace(worst, value=float(uppers[largest]), alpha=attempt.level)
    questions = questions_at(items, ends.lower(attempt.level), uppers)
    return gate_of(tau, attempt, bound, items[largest], questions)


def _gate_at_any_time(evaluation: evaluating.Evaluation, tau: float) -> Gate:
    """The gate on all answers that were ever drawn for this model and these questions; trying it again costs nothing."""
    from lethe.io.tries import AtAnyTime

    process = evaluation.process
    assert process is not None  # a command always keeps its folder
    alpha = evaluation.attempt.alpha
    once = AtAnyTime(1, alpha, process.kept)
    totals = process.totals()
    answers = [drawn.n for drawn in totals.values()]
    bound = evaluation.numbers.upper("leak_worst", "sampled")
    if bound is None or not totals:
        raise BadInput(NO_BOUND)

    unjudged = len(evaluation.skipped)
    unjudged += int(evaluation.questions["binary_share"].isna().sum())
    left = process.unfinished()
    if unjudged:
        gate = closed_gate(tau, once, without_bound(unjudged))
    elif left:
        gate = closed_gate(tau, once, UNFINISHED.format(left[0].partition(" ")[0]))
    else:
        questions = _at_any_time(process, tau, alpha)
        worst = max(questions, key=lambda question: question.upper)
        method = f"at any time, {min(answers):,} to {max(answers):,} answers"
        bound = replace(bound, value=worst.upper, alpha=alpha, method=method, n=None)
        gate = gate_of(tau, once, bound, worst.id, questions, _about_process(process))
    drawn = {"segments": len(process.segments), "answers": sum(answers), "kept": process.kept}
    gate.json["process"] = {"file": str(process.path), **drawn}
    return gate


def _at_any_time(process: Process, tau: float, alpha: float) -> list[GatedQuestion]:
    """Both ends of each question, which hold at any time, each one-sided at alpha.

    The largest ln e against ``tau`` is kept of each question: a proof stays one, whatever is drawn after it.
    """
    import numpy as np

    from lethe.results.evidence import upper_at_stop
    from lethe.statistics.anytime import is_reached, log_below

    totals = process.totals()
    may_leak = np.array([drawn.leaks + drawn.missing for drawn in totals.values()])
    answers = np.array([drawn.n for drawn in totals.values()])
    no_leaks = np.array([drawn.n - drawn.leaks for drawn in totals.values()])
    both = upper_at_stop(np.concatenate([may_leak, no_leaks]), np.tile(answers, 2), alpha)
    m = len(totals)
    uppers = dict(zip(totals, both[:m].tolist(), strict=True))
    if tau > 0:
        log_e = log_below(may_leak, answers, tau).tolist()
        process = process.with_evidence(tau, dict(zip(totals, log_e, strict=True)))
        largest = process.largest[repr(tau)]
        for item in totals:
            if is_reached(largest[item], math.log(1 / alpha)):
                uppers[item] = min(uppers[item], tau)
    highs = np.array(list(uppers.values()))
    lowers = np.minimum(1 - both[m:], highs)  # a kept proof outlives later leaks
    return questions_at(list(totals), lowers, highs)


def _about_process(process: Process) -> str:
    """What the gate rests on, and when another try would be a new test."""
    if not process.kept:
        return (
            f"{process.path.parent} cannot be written, so the answers of other calls are not counted: "
            "another seed is a new test."
        )
    seeds = plural(len({name.partition(" ")[0] for name in process.segments}), "seed")
    return (
        f"It rests on all answers to these questions so far ({seeds}), and may be tried again with more answers or another "
        f"seed at no cost. Without {process.path} another seed is a new test."
    )
