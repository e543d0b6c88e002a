"""The unlearning game on images with interclass confusion for comparison, and the tables and figure of its paper.

The paper is "Towards Reliable Empirical Machine Unlearning Evaluation: A Game-Theoretic View" (Tu et al. 2024). Tables 1, 3
and 4: quality, interclass confusion and attack AUC by privacy budget. Table 2: the standard deviation of the quality over
repetitions, swapped pairs against two random splits. Figure 2: quality by data set size (A) and by repetition (B). The
tables play one game varied in four ways, and the variants share their common models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from lethe.audits import SCRATCH, Runner, in_processes
from lethe.audits.unlearning_game import RoundsParams
from lethe.audits.unlearning_game.result import (
    AttackOutcome,
    Confusion,
    Figure,
    GameResult,
    PlayedMethod,
    Table,
    Tables,
)
from lethe.audits.unlearning_game.rounds import NOTHING, Adversary, Game, Job, Played, Shadow
from lethe.config.fields import Count, Integer, MemberOf, Name, NameIn, Positive, Real, Section, Seed, Share
from lethe.config.schema import GameParams
from lethe.data import images as image_data
from lethe.data.images import Images
from lethe.errors import BadParam
from lethe.io.cache import digest, versions
from lethe.statistics.unlearning_game import Quality, Split, group_bound
from studies.image_game.attacks import ATTACKS, View
from studies.image_game.unlearning import DEFENDERS, LOGITS, DefenderParams, make

AttackName = Annotated[str, NameIn((ATTACKS,))]
DefenderEntry = Annotated[DefenderParams, MemberOf(DEFENDERS, "method", DefenderParams, needs=True)]


class ImageData(Section):
    kind: Literal["digits", "fashion_mnist", "cifar10"]
    source: str | None
    points: Count | None
    label_noise: Share
    seed: Seed


class ImageLearning(Section):
    network: Literal["resnet8", "resnet14", "resnet20", "resnet18"]
    optimiser: Literal["sgd", "rmsprop"]
    lr: Positive
    momentum: Annotated[Real, Field(ge=0, lt=1)]
    weight_decay: Annotated[Real, Field(ge=0)]
    epochs: Count
    batch: Annotated[Integer, Field(ge=2)]
    milestones: list[Count]


class Privacy(Section):
    """DP-SGD: the budget of one record, and the clipping norm of its gradient."""

    epsilon: Positive
    delta: Annotated[Real, Field(gt=0, lt=1)]
    clip: Positive


class ImageGameParams(RoundsParams):
    kind: Literal["images"]
    data: ImageData
    learning: ImageLearning
    privacy: Privacy | None
    confused_classes: Annotated[list[Seed], Field(min_length=2, max_length=2)] | None
    methods: Annotated[dict[Name, DefenderEntry], Field(min_length=1)]
    attacks: Annotated[list[AttackName], Field(min_length=1)]


class ImageTablesParams(GameParams):
    """Tables 1 to 4 and Figure 2 of Tu et al. (2024) at the scale of the entry: the game varied in four ways."""

    kind: Literal["image_tables"]
    game: ImageGameParams
    private_learning: ImageLearning
    budgets: Annotated[list[Privacy], Field(min_length=1)]
    points: list[Count]
    repeats: Annotated[Integer, Field(ge=2)]


NO_PRIVACY = "inf"  # the column of learning without differential privacy
Measure = Callable[[PlayedMethod], float | None]


class ImageGame(Game["ImageGameParams", np.ndarray, View]):
    """A unit is an image. The game observes a model's logits on the whole data set."""

    unit, performs = "images", "accuracy"

    def load(self) -> None:
        self.images = _images(self.settings.data.model_dump_json())
        self.units = len(self.images)
        pair, classes = self.settings.confused_classes, self.images.classes
        if pair is not None and (pair[0] == pair[1] or max(pair) >= classes):
            raise BadParam("confused_classes", pair, f"two different classes of 0 to {classes - 1}, or null")

    def methods(self) -> dict[str, str]:
        return {name: entry.method for name, entry in self.settings.methods.items()}

    def starts_afresh(self, method: str) -> bool:
        return DEFENDERS[self.methods()[method]].afresh

    def decides(self, method: str | None) -> tuple[list[str], dict[str, object]]:
        settings = self.settings
        modules = ["studies.image_game.unlearning"]
        facts: dict[str, object] = {
            "data": _content(settings.data.model_dump_json()),
            "learning": settings.learning,
            "privacy": settings.privacy,
            "libraries": versions("numpy", "torch", *(("opacus", "dp-accounting") if settings.privacy else ())),
        }
        if method is not None:
            facts["method"] = settings.methods[method]
        return modules, facts

    def make(self, job: Job) -> None:
        make(self.images, self.settings, job, self.beginning(job), self.place(job))

    def observe(self, job: Job) -> np.ndarray:
        return np.load(self.place(job) / LOGITS)

    def view(
        self, job: Job, seen: np.ndarray, units: np.ndarray, shadows: Sequence[tuple[Job, np.ndarray]]
    ) -> View:
        reference = np.stack([logits[units] for _, logits in shadows])
        for logits, (shadow, _) in zip(reference, shadows, strict=True):
            logits[np.isin(units, shadow.retain)] = np.nan
        return View(seen[units], self.images.labels[units], reference, self.place(job))

    def fit(self, name: str, shadows: Sequence[Shadow[View]], seed: int) -> Adversary[View]:
        return ATTACKS[name](shadows, seed)

    def performance(self, job: Job, units: np.ndarray) -> float:
        return float((self.observe(job)[units].argmax(axis=1) == self.images.labels[units]).mean())

    def jobs(self) -> list[Job]:
        return [*super().jobs(), *(one.job for one in self.confused())]

    def confused(self) -> Iterator[Played]:
        """Yield the models of interclass confusion: half of two classes learned with swapped labels, then unlearned."""
        settings = self.settings
        if settings.confused_classes is None:
            return
        a, b = settings.confused_classes
        for pair in range(settings.pairs):
            split, rng = self.split(pair, "original"), self.generator("confusion", pair)
            chosen = []
            for label in (a, b):
                images = split.learned[self.images.labels[split.learned] == label]
                chosen.append(rng.permutation(images)[: len(images) // 2])
            forget = np.sort(np.concatenate(chosen))
            labels = self.images.labels.copy()
            labels[forget] = a + b - labels[forget]
            retain = np.setdiff1d(split.learned, forget)
            for seed in range(settings.seeds):
                start = Job(split.learned, NOTHING, self.seed("confusion", pair, "", seed), labels=labels)
                for method in settings.methods:
                    job = Job(retain, forget, self.seed(method, pair, "confusion", seed), method, start, labels)
                    yield Played(method, pair, "confusion", seed, job, split)

    def memorisation(self, job: Job) -> float:
        """Return the share of confused images that the model still assigns to the other class of the two."""
        labels = self.images.labels if job.labels is None else job.labels
        predicted = self.observe(job)[job.forget].argmax(axis=1)
        return float((predicted == labels[job.forget]).mean())

    def result(self, outcomes: Sequence[AttackOutcome], split: Split) -> GameResult:
        result = super().result(outcomes, split)
        methods = {}
        for name, method in result.methods.items():
            mine = [one for one in self.confused() if one.method == name]
            confusion = None
            if mine:
                confusion = Confusion(
                    score=1 - float(np.mean([self.memorisation(one.job) for one in mine])),
                    accuracy=float(np.mean([self.performance(one.job, one.split.test) for one in mine])),
                )
            methods[name] = replace(method, confusion=confusion)
        budget = self.settings.privacy
        bound = group_bound(budget.epsilon, budget.delta, result.sizes["forget"]) if budget else None
        return replace(result, methods=methods, privacy=bound)


def play(
    settings: ImageGameParams, scratch: Path = SCRATCH, run: Runner = in_processes
) -> tuple[GameResult, list[AttackOutcome]]:
    return ImageGame(settings, scratch).play(run)


def play_tables(
    settings: ImageTablesParams, scratch: Path = SCRATCH, run: Runner = in_processes
) -> tuple[GameResult, list[AttackOutcome]]:
    """Play every variant; the result holds the game without privacy, ``tables`` and ``figure``."""
    base = settings.game

    def variant(**changes: object) -> GameResult:
        return play(base.model_copy(update=changes), scratch, run)[0]

    plain, outcomes = play(base, scratch, run)
    budgets = {
        f"{privacy.epsilon:g}": variant(privacy=privacy, learning=settings.private_learning, random_splits=False)
        for privacy in settings.budgets
    }
    repeated = variant(pairs=settings.repeats, random_splits=True, confused_classes=None)
    by_points = {
        points: variant(
            data=base.data.model_copy(update={"points": points}), random_splits=False, confused_classes=None
        )
        for points in settings.points
    }
    result = replace(
        plain,
        kind="image_tables",
        tables=tables({**budgets, NO_PRIVACY: plain}, repeated),
        figure=Figure(
            points={
                points: {method: values.quality.value for method, values in game.methods.items()}
                for points, game in by_points.items()
            },
            repetitions=settings.repeats,
            repeats={method: values.by_pair for method, values in repeated.methods.items()},
        ),
        bounds={epsilon: game.privacy for epsilon, game in budgets.items()},
    )
    return result, outcomes


def tables(budgets: dict[str, GameResult], repeated: GameResult) -> Tables:
    """Compute Tables 1, 3 and 4 from the games by budget, and Table 2 from the game of many pairs."""

    def by_budget(measure: Measure) -> dict[str, dict[str, float | None]]:
        return {
            epsilon: {name: measure(method) for name, method in game.methods.items()}
            for epsilon, game in budgets.items()
        }

    def table(measure: Measure, accuracy: Measure) -> Table:
        return Table(by_budget(measure), by_budget(accuracy))

    def confused(part: str) -> Measure:
        return lambda method: getattr(method.confusion, part) if method.confusion else None

    def on_test(method: PlayedMethod) -> float:
        return method.performance["test"]

    return Tables(
        quality=table(lambda method: method.quality.value, on_test),
        confusion=table(confused("score"), confused("accuracy")),
        mia=table(lambda method: method.mia_score, on_test),
        deviation={method: values.deviation for method, values in repeated.methods.items()},
    )


@lru_cache(maxsize=1)
def _images(data: str) -> Images:
    import json

    return image_data.load(**json.loads(data))


@lru_cache(maxsize=1)
def _content(data: str) -> str:
    images = _images(data)
    return digest(images.pixels, images.labels, images.classes, images.white)


def interval_note(quality: Quality) -> str:
    ends = quality.bounds()
    if ends is None:
        return "No intervals: one model per split."
    return f"ci_low to ci_high: {ends[0].guarantee()}, for each method by itself ({ends[0].method})."
