"""The text game with a bound, for each method, on the leakage of its model on the forget set.

The quality says whether an attacker can infer that the model learned the rows. The bounds say how much of the rows the
model reveals: as in the pipeline, the first model answers each forget question many times, and the leaking answers count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.audits.finished_models import SCRATCH, Runner, in_processes
from lethe.audits.unlearning_game.result import HALVES, AttackOutcome, GameResult
from lethe.audits.unlearning_game.text.play import TextGame
from lethe.evaluation.measure_settings import MeasureSettings
from lethe.evaluation.prompt_scores import PromptScores
from lethe.evaluation.prompts import Worst, measure_prompts
from lethe.sampling.engine import Options, Prompt, Settings, open_engine
from lethe.sampling.store import AnswerStore
from lethe.sampling.tasks import Task, draw
from lethe.scoring._tables import score_answers
from lethe.statistics.bound import Bound

if TYPE_CHECKING:
    from lethe.audits.unlearning_game.kinds.text import Params


@dataclass(frozen=True)
class Leakage:
    """The leakage of a method's first finished model on its forget set.

    ``worst`` is the largest over questions of M_bin (0/1 scorer) or M_mu; ``pooled`` bounds the average leak rate of all
    questions (0/1 scorer only); ``greedy`` and ``mean`` are plain shares.
    """

    scorer: str
    engine: str
    questions: int
    n: int
    temperature: float
    alpha: float
    greedy: float
    mean: float
    worst: Worst
    pooled: Bound | None

    def as_dict(self) -> dict[str, object]:
        """Return the keys of ``details.json``; ``guarantees`` has every field of each bound except the value."""
        bounds = {"worst_bound": self.worst.bound, "pooled_bound": self.pooled}
        return {
            "scorer": self.scorer,
            "engine": self.engine,
            "questions": self.questions,
            "n": self.n,
            "temperature": self.temperature,
            "alpha": self.alpha,
            "greedy": self.greedy,
            "mean": self.mean,
            "worst_metric": self.worst.metric,
            **{key: bound and bound.value for key, bound in bounds.items()},
            "guarantees": {key: bound and bound.guarantee_dict() for key, bound in bounds.items()},
        }


def play(
    settings: Params, scratch: Path = SCRATCH, run: Runner = in_processes
) -> tuple[GameResult, list[AttackOutcome]]:
    """Play the game; each method's ``leakage`` holds the bounds, or None where ``settings.leakage`` is null.

    The parameters are those of `images.play.play`.
    """
    game = TextGame(settings, scratch)
    result, outcomes = game.play(run)
    if not settings.leakage:
        return result, outcomes
    found = run(leakage, [(game, method) for method in game.methods()], "leakage")
    bounds = dict(zip(game.methods(), found, strict=True))
    methods = {name: replace(method, leakage=bounds[name].as_dict()) for name, method in result.methods.items()}
    return replace(result, methods=methods), outcomes


def leakage(game: TextGame, method: str) -> Leakage:
    """Bound the leakage of a method's first finished model; a missing judgement counts as a leak."""
    from lethe.models.checkpoints import load_tokenizer, prepare_torch
    from lethe.models.encoding import Encoder

    prepare_torch()
    asked = game.settings.leakage
    assert asked is not None  # `play` asks only then
    job = next(one.job for one in game.played() if one.method == method and one.half == HALVES[0])
    folder, rows = game.place(job) / "model", game.forgotten(job)
    encoder = Encoder(load_tokenizer(folder), game.settings.learning.prompt)
    settings = Settings(asked.n, asked.max_new_tokens, temperature=asked.temperature, seed=asked.seed)
    task = Task("forget", [Prompt(row["id"], encoder.prompt(row)) for row in rows], settings)
    options = Options(max_rows=asked.max_rows)
    engine = open_engine(asked.engine, folder, options)
    store = AnswerStore.of(folder, engine, options, game.scratch / "answers")
    drawn = draw(task, engine, store, f"leakage {method}")
    store.clear()
    scores = score_answers(drawn, {row["id"]: row for row in rows}, [asked.scorer])
    wide = scores.pivot(index="prompt_id", columns="sample", values=asked.scorer)
    greedy, samples = wide[-1].to_numpy(), wide.drop(columns=-1).to_numpy(dtype=np.float64)
    prompts = [
        PromptScores(str(name), own, int(np.isnan(own).sum()))
        for name, own in zip(wide.index, samples, strict=True)
    ]
    measures = measure_prompts(prompts, MeasureSettings(alpha=asked.alpha, thresholds=(), missing="worst"))
    worst = measures.worst()
    assert worst is not None  # a graded score has M_mu for every question
    return Leakage(
        scorer=asked.scorer,
        engine=engine.name,
        questions=len(rows),
        n=asked.n,
        temperature=asked.temperature,
        alpha=asked.alpha,
        greedy=float(np.nanmean(greedy)),
        mean=float(np.nanmean(samples)),
        worst=worst,
        pooled=measures.pooled,
    )
