"""The tables of `lethe plan --preset`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.cli.console import print_json, print_table
from lethe.instruction_set import own_kernels

if TYPE_CHECKING:
    from lethe.steps.costs import Plan
    from lethe.steps.judging_costs import JudgeCost
    from lethe.steps.training_costs import StageCost

LONG = 1800  # processor seconds
FASTER = (
    "On a processor the kernels are those that give every x86-64 machine the same bytes. LETHE_KERNELS=machine takes this "
    "machine's own, which are faster and give numbers of their own (docs/reproducibility.md)."
)


def print_costs(preset: str, plan: Plan, stages: list[StageCost], judges: list[JudgeCost], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        whole = ("generations", "tokens_at_most", "seconds_at_most")
        print_json(
            {
                "preset": preset,
                "questions": dict(plan.questions),
                **{name: getattr(plan, name) for name in whole},
                "rate_from": plan.rate_from,
                "models": [asdict(model) for model in plan.models],
                "stages": [asdict(stage) for stage in stages],
                "judges": [asdict(judge) for judge in judges],
            }
        )
        return
    rows: list[list[object]] = [
        [
            model.model,
            model.generations,
            model.tokens_at_most,
            _gigabytes(model.weight_bytes),
            _gigabytes(model.cache_bytes_at_most),
            model.tokens_per_second and round(model.tokens_per_second, 1),
            _duration(model.seconds_at_most),
        ]
        for model in plan.models
    ]
    asked = ", ".join(f"{split} {count:,}" for split, count in plan.questions.items())
    notes = [
        f"Questions: {asked}. In all {plan.generations:,} answers, at most {plan.tokens_at_most:,} tokens.",
        f"Tokens per second: {plan.rate_from}. Time, one model after the other: "
        f"{_duration(plan.seconds_at_most) or 'unknown'} at most.",
        "Estimates: every answer is taken as long as max_new_tokens. Likelihoods and exact bounds are not counted.",
    ]
    columns = ["model", "answers", "tokens at most", "weights", "cache at most", "tokens/s", "time at most"]
    print_table(f"Cost of {preset}", columns, rows, notes)
    if judges:
        print_table(f"Judging of {preset}", *_judge_table(judges))
    if stages:
        print_table(f"Training, unlearning and attacks of {preset}", *_stage_table(stages))


def _judge_table(judges: list[JudgeCost]) -> tuple[list[str], list[list[object]], list[str]]:
    """The columns, a row per judge, and the notes."""
    rows: list[list[object]] = [
        [
            judge.name,
            judge.answers_at_most,
            judge.tokens_at_most,
            _gigabytes(judge.weight_bytes),
            judge.answers_per_second and round(judge.answers_per_second, 1),
            _duration(judge.seconds_at_most),
        ]
        for judge in judges
    ]
    unknown = [judge.name for judge in judges if judge.answers_per_second is None]
    notes = ["Equal answers are judged once, so a run judges fewer. Times are as those of training."]
    if unknown:
        notes.append(
            f"No rate for {', '.join(unknown)}: give --judge-rate, or put the judge's model in its folder."
        )
    return ["judge", "answers at most", "tokens at most", "weights", "answers/s", "time at most"], rows, notes


def _stage_table(stages: list[StageCost]) -> tuple[list[str], list[list[object]], list[str]]:
    """The columns, a row per stage, and the notes."""
    rows: list[list[object]] = []
    for one in stages:
        kept = one.reference if one.reference and one.reference.needs != "nothing" else None
        rows.append(
            [
                f"{one.stage}@{one.name}",
                one.tokens or None,
                one.answers or None,
                _duration(one.seconds),
                kept and kept.needs,
                kept and _megabytes(kept.frozen_bytes),
                kept and _megabytes(kept.cached_bytes),
                kept and kept.chosen,
            ]
        )
    sums = {
        stage: [one.seconds for one in stages if one.stage == stage and one.seconds is not None]
        for stage in dict.fromkeys(one.stage for one in stages)
    }
    told = ", ".join(f"{stage} {_duration(sum(seconds))}" for stage, seconds in sums.items() if seconds)
    columns = ["stage", "trained tokens", "answers", "processor time", "reference", "frozen", "cached", "set to"]
    return (
        columns,
        rows,
        [
            f"Processor time in all: {told or 'unknown'}. Times are of one core, or of the GPU where there is one, from "
            "steps measured here on the model that unlearning starts from, or on an untrained one where that is missing; an "
            "attack's are those of its answers.",
            "Reference: what unlearn.recipe.reference keeps of the model before unlearning, whole (frozen) or as values on "
            "the answers (cached).",
            *([FASTER] if own_kernels() is None and sum(map(sum, sums.values())) > LONG else []),
        ],
    )


def _megabytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


def _gigabytes(count: int | None) -> str | None:
    if count is None:
        return None
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 / 10 else _megabytes(count)


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.1f} min"
