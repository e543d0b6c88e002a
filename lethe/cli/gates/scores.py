"""The gate of `lethe bounds`: on scores, or on a person's labels of the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lethe.cli.gates.gate import JUDGED, MISFIT, Gate, closed_gate, gate_of, without_bound
from lethe.cli.outcome import Arguments

if TYPE_CHECKING:
    from lethe.api import bounding


BESIDE_THE_GATE = ("together", "pass_at", "calibration")  # of `lethe bounds`, which no gate needs


def gate_of_scores(
    call: Callable[..., bounding.Bounds], arguments: Arguments, result: bounding.Bounds, tau: float
) -> Gate:
    """The gate on scores, or on a person's labels of the answers; verdicts with a calibration open none."""
    from lethe.io import tries

    log = result.log.log if result.log else None
    named = [log.tool, log.task, log.model] if log else []
    prompts = sorted(prompt.prompt_id for prompt in result.prompts)
    tested = ["bounds", named, arguments.get("score"), prompts, bool(arguments.get("labels"))]
    draws: list[object] = [prompt.scores.tolist() for prompt in result.prompts]
    if arguments.get("labels"):
        draws.append(arguments["labels"].read_text(encoding="utf-8"))
    attempt = tries.begin(tested, draws, result.settings.alpha)
    if result.refused:
        return closed_gate(tau, attempt, " ".join(result.refused))
    if result.unpointed and not arguments.get("labels"):
        return closed_gate(tau, attempt, " ".join(result.unpointed))

    judge = result.settings.calibration
    if judge and result.worst_by_judge() is None:
        why = MISFIT.format(arguments["calibration"], judge.judge or "the judge")
        return closed_gate(tau, attempt, why)
    if judge and not arguments.get("labels"):
        return closed_gate(tau, attempt, JUDGED)

    plain = {name: arguments[name] for name in arguments if name not in BESIDE_THE_GATE}
    at_level = call(**{**plain, "alpha": attempt.level})
    said = attempt.sentence()
    if log is None or log.model is None:
        said = attempt.sentence(
            "these prompts (the file names no model: keep another model's files in another folder)"
        )
    if not arguments.get("labels"):
        worst = at_level.worst()
        return gate_of(tau, attempt, worst.bound, worst.prompt_id, at_level.ends(), said)
    by_labels = at_level.worst_by_labels()
    if by_labels is None:
        questions = result.questions.values()
        uppers = [numbers.upper("leak", "labelled") for numbers in questions]
        return closed_gate(tau, attempt, without_bound(uppers.count(None)))
    ends = at_level.ends_by_labels()
    return gate_of(tau, attempt, by_labels.bound, by_labels.prompt_id, ends, said)
