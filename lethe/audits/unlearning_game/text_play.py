"""The unlearning game on language models, and its adversaries, which ``attacks`` of params.yaml
names.

A unit is an author with all question-answer pairs; the adversary sees one pair. All models share
one tokenizer, made from all texts, so that likelihoods are comparable token by token. The quality
says whether an attacker can infer that the model learned the rows. A bound says how much of the
rows the model reveals: as in the pipeline, the first model of each method answers each forget
question many times, and the leaking answers count.

An adversary has ``score(view)``: (n,) float64 from a `TextView`, higher where the model more
probably learned the row. The game fits one threshold for all rows once, on the shadow models.
``loss``, ``zlib``, ``min_k`` and ``min_k_plus_plus`` are the measures of
`lethe.scoring.likelihood`; ``reference`` is the mean log-probability per token minus that of a
model that never saw the answer, in nats (Carlini et al. 2021).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.audits import SCRATCH, Runner, in_processes
from lethe.audits.unlearning_game import Leakage
from lethe.audits.unlearning_game import TextParams as Params
from lethe.audits.unlearning_game.result import HALVES, AttackOutcome, GameResult
from lethe.audits.unlearning_game.rounds import Game, ModelJob, Shadow, ThresholdAttack
from lethe.audits.unlearning_game.text_models import make, observe
from lethe.config.schema import Data
from lethe.data.rows import load_splits
from lethe.errors import BadFile
from lethe.identity import digest, module_of, versions
from lethe.io.artifacts import Row
from lethe.measure.prompts import (
    METRIC,
    MeasureSettings,
    measure_prompts,
    metric_of,
    pooled_of,
    worst_of,
)
from lethe.measure.scores import as_prompts
from lethe.models.checkpoints import content, load_tokenizer, prepare_torch
from lethe.models.encoding import CHAT, Encoder
from lethe.models.likelihood import AnswerTokens
from lethe.registry import METHODS, TEXT_ATTACKS
from lethe.results.table import Rows
from lethe.sampling.engine import AnswerStore, Options, Prompt, Settings, open_engine
from lethe.sampling.tasks import SplitTask, draw
from lethe.scoring import likelihood
from lethe.scoring.likelihood import Item
from lethe.scoring.table import score_answers

if TYPE_CHECKING:
    import pandas as pd

RETRAIN, NONE = "retrain", "none"  # the two ends of the scale, in every game


@dataclass(frozen=True)
class TextView:
    """An adversary's view of one language model on n rows: the likelihood of each answer under the
    model, and under a shadow model that never saw the answer's author. ``model``: folder of the
    weights.
    """

    items: Sequence[Item]
    references: Sequence[AnswerTokens]
    model: Path | None = None

    @property
    def labels(self) -> np.ndarray:
        """(n,) the class of each row: text has one class."""
        return np.zeros(len(self.items), dtype=np.int64)


@dataclass(frozen=True)
class OfItems:
    """An adversary that measures each answer by itself."""

    measure: Callable[[Item], float]

    def score(self, view: TextView) -> np.ndarray:
        """(n,) the measure of each answer."""
        return np.array([self.measure(item) for item in view.items])


class ReferenceAdversary:
    """An adversary that compares with a model that never saw the answer."""

    def score(self, view: TextView) -> np.ndarray:
        """(n,) the difference of the mean log-probabilities per token, in nats."""
        differences = []
        for reference, item in zip(view.references, view.items, strict=True):
            differences.append(reference.nll - item.answer.nll)
        return np.array(differences)


MEMBERS = {
    "loss": OfItems(likelihood.mia_loss),
    "min_k": OfItems(likelihood.mia_min_k),
    "min_k_plus_plus": OfItems(likelihood.mia_min_k_plus_plus),
    "reference": ReferenceAdversary(),
    "zlib": OfItems(likelihood.mia_zlib),
}


class TextGame(Game["Params", list[AnswerTokens], TextView]):
    """The game observes the likelihood of every row's answer under a model."""

    unit = "authors"
    performs = "probability"

    def load(self) -> None:
        self.rows, self.units = _rows(self.settings.data.model_dump_json())
        self.content = digest(self.rows)

    def methods(self) -> dict[str, str]:
        losses = {name: entry.loss for name, entry in self.settings.methods.items()}
        return {RETRAIN: RETRAIN, **losses, NONE: NONE}

    def starts_afresh(self, method: str) -> bool:
        return method == RETRAIN

    def decides(self, method: str | None) -> tuple[list[str], dict[str, object]]:
        settings = self.settings
        recipe = settings.learning
        modules = ["lethe.audits.unlearning_game.text_models"]
        prompt = None
        start = None
        if recipe.prompt != CHAT:
            prompt = Path(recipe.prompt).read_text(encoding="utf-8")
        if recipe.start_from:
            start = content(Path(recipe.start_from))
        facts: dict[str, object] = {
            "data": self.content,
            "learning": recipe,
            "prompt": prompt,
            "start_from": start,
            "libraries": versions("numpy", "torch", "transformers", "tokenizers"),
        }
        if method in settings.methods:
            entry = settings.methods[method]
            modules.append(module_of(METHODS[entry.loss]))
            facts |= {"method": entry, "unlearning": settings.unlearning}
        elif method is not None:
            facts["method"] = method
        return modules, facts

    def make(self, job: ModelJob) -> None:
        settings = self.settings
        make(
            rows=self.rows,
            retain=self.of(job.retain),
            forget=self.of(job.forget),
            learning=settings.learning,
            unlearning=settings.unlearning,
            entry=settings.methods.get(job.method or ""),
            label=f"unlearn {job.method}",
            seed=job.seed,
            start=self.beginning(job),
            place=self.place(job),
        )

    def observe(self, job: ModelJob) -> list[AnswerTokens]:
        return observe(self.place(job))

    def view(
        self,
        job: ModelJob,
        seen: list[AnswerTokens],
        units: np.ndarray,
        shadows: Sequence[tuple[ModelJob, list[AnswerTokens]]],
    ) -> TextView:
        items = [Item(self.rows[row]["answer"], seen[row]) for row in self.of(units)]
        references = []
        for unit in units:
            answers = _never_saw(unit, shadows)
            references += [answers[row] for row in self.of([unit])]
        return TextView(items, references, self.place(job) / "model")

    def fit(
        self, name: str, shadows: Sequence[Shadow[TextView]], seed: int
    ) -> ThresholdAttack[TextView]:
        return ThresholdAttack(TEXT_ATTACKS[name].score, shadows)

    def performance(self, job: ModelJob, units: np.ndarray) -> float:
        """Return the mean over rows of exp of the mean log-probability of the answer's tokens."""
        answers = self.observe(job)
        probabilities = [np.exp(-answers[row].nll) for row in self.of(units)]
        return float(np.mean(probabilities))

    def of(self, units: Sequence[int] | np.ndarray) -> np.ndarray:
        """The rows of the units, unit by unit: every author has equally many."""
        rows_of_unit = len(self.rows) // self.units
        first_rows = np.asarray(units)[:, None] * rows_of_unit
        return (first_rows + np.arange(rows_of_unit)).ravel()


def _never_saw(
    unit: int, shadows: Sequence[tuple[ModelJob, list[AnswerTokens]]]
) -> list[AnswerTokens]:
    """The likelihoods under the first shadow model that never saw the author."""
    for shadow, answers in shadows:
        if unit not in shadow.retain:
            return answers
    raise ValueError(f"every shadow model learned the unit {unit}")


@lru_cache(maxsize=1)
def _rows(data: str) -> tuple[list[Row], int]:
    """Return the rows of all authors of a dataset, author by author, and the number of authors."""
    settings = Data(**json.loads(data))
    splits = load_splits(settings)
    by_author: dict[str, list[Row]] = {}
    for row in (*splits["forget"], *splits["retain"]):
        author = row.get("author")
        if not author:
            problem = f"row {row['id']} names no author"
            raise BadFile(settings.source, problem, "The game moves whole authors.")
        by_author.setdefault(author, []).append(row)
    counts = {len(rows) for rows in by_author.values()}
    if len(counts) > 1:
        problem = f"its authors have {min(counts)} to {max(counts)} rows each"
        remedy = "Give each author the same number: forget and test set must have one size."
        raise BadFile(settings.source, problem, remedy)
    rows: list[Row] = []
    for author in sorted(by_author):
        rows += by_author[author]
    return rows, len(by_author)


def play(
    settings: Params, scratch: Path = SCRATCH, run: Runner = in_processes
) -> tuple[GameResult, list[AttackOutcome]]:
    """Play the game; each method's ``leakage`` holds the bounds, or None where ``settings.leakage``
    is null.
    """
    game = TextGame(settings, scratch)
    result, outcomes = game.play(run)
    if not settings.leakage:
        return result, outcomes
    names = list(game.methods())
    leakages = run(leakage, [(game, name) for name in names], "leakage")
    leakage_of_method = dict(zip(names, leakages, strict=True))
    methods = {}
    for name, method in result.methods.items():
        methods[name] = replace(method, leakage=leakage_of_method[name])
    return replace(result, methods=methods), outcomes


def leakage(game: TextGame, method: str) -> dict[str, object]:
    """Bound the leakage of a method's first finished model on its forget set; a missing judgement
    counts as a leak. ``worst_bound`` is the largest over questions of ``worst_metric``, M_bin (0/1
    scorer) or M_mu; ``pooled_bound`` bounds the average leak rate (0/1 scorer only). ``guarantees``
    has the rest of each bound.
    """
    prepare_torch()
    asked = game.settings.leakage
    assert asked is not None  # `play` asks only then
    job = _first_job(game, method)
    folder = game.place(job) / "model"
    rows = [game.rows[row] for row in game.of(job.forget)]
    engine, drawn = _drawn(game, asked, folder, rows, f"leakage {method}")
    scores = score_answers(drawn, {row["id"]: row for row in rows}, [asked.scorer])
    wide = scores.pivot(index="prompt_id", columns="sample", values=asked.scorer)
    greedy = wide[-1].to_numpy()
    samples = wide.drop(columns=-1).to_numpy(dtype=np.float64)

    measured = Rows(method)
    prompts = as_prompts(dict(zip(wide.index, samples, strict=True)), "worst")
    measuring = MeasureSettings(alpha=asked.alpha, thresholds=(), missing="worst")
    measure_prompts(measured, prompts, measuring)
    metric = metric_of(measured.rows)
    worst = worst_of(measured.rows, *METRIC[metric])
    assert worst is not None  # a graded score has M_mu for every question
    pooled = pooled_of(measured.rows, asked.alpha)
    return {
        "scorer": asked.scorer,
        "engine": engine,
        "questions": len(rows),
        "n": asked.n,
        "temperature": asked.temperature,
        "alpha": asked.alpha,
        "greedy": float(np.nanmean(greedy)),
        "mean": float(np.nanmean(samples)),
        "worst_metric": metric,
        "worst_bound": worst.bound.value,
        "pooled_bound": pooled and pooled.value,
        "guarantees": {
            "worst_bound": worst.bound.guarantee_dict(),
            "pooled_bound": pooled and pooled.guarantee_dict(),
        },
    }


def _first_job(game: TextGame, method: str) -> ModelJob:
    """The first model of a method."""
    for played in game.played():
        if played.method == method and played.half == HALVES[0]:
            return played.job
    raise ValueError(f"the game has no model of the method {method!r}")


def _drawn(
    game: TextGame,
    asked: Leakage,
    folder: Path,
    rows: Sequence[Row],
    label: str,
) -> tuple[str, pd.DataFrame]:
    """The name of the engine, and the answers that it drew of the model in ``folder``."""
    encoder = Encoder(load_tokenizer(folder), game.settings.learning.prompt)
    settings = Settings(
        n=asked.n,
        max_new_tokens=asked.max_new_tokens,
        temperature=asked.temperature,
        seed=asked.seed,
    )
    prompts = [Prompt(row["id"], encoder.prompt(row)) for row in rows]
    task = SplitTask("forget", prompts, settings)
    options = Options(max_rows=asked.max_rows)
    engine = open_engine(asked.engine, folder, options)
    store = AnswerStore.of(folder, engine, options, game.scratch / "answers")
    drawn = draw(task, engine, store, label)
    store.clear()
    return engine.name, drawn
