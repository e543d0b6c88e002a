"""The unlearning sample inference game for any kind of data: splits, models, shadow models,
attacks.

Half of the data trains the shadow models; the other half is the data set D of the game. Every pair
is a random split of D and its swapped twin. Each half of a pair has its own models, learned and
unlearned afresh with several seeds. The game splits units: images, or authors with all their rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from lethe.audits import SCRATCH, Runner, in_processes
from lethe.audits.unlearning_game import RoundsParams
from lethe.audits.unlearning_game.result import (
    HALVES,
    RANDOM,
    AttackOutcome,
    GameResult,
    results_by_method,
)
from lethe.identity import cache_key
from lethe.models.checkpoints import default_device
from lethe.progress import progress
from lethe.statistics.streams import stream
from lethe.statistics.two_sample import auc, fit_threshold
from lethe.statistics.unlearning_game import Split, draw_split, signed_advantage


class Labelled(Protocol):
    """Points with classes."""

    @property
    def labels(self) -> np.ndarray:
        """(n,) the class of each point."""


V = TypeVar("V", bound=Labelled)
Seen = TypeVar("Seen", bound=Labelled, contravariant=True)


@dataclass(frozen=True)
class Shadow(Generic[V]):
    """A shadow model's views of the points that it learned and of the others."""

    members: V
    nonmembers: V


class Adversary(Protocol[Seen]):
    """A fitted adversary, which answers for all points of a view at once."""

    def score(self, view: Seen, /) -> np.ndarray:
        """Return (n,) float64, higher where the model more probably learned the point."""

    def accept(self, view: Seen, /) -> np.ndarray:
        """Return (n,) in [0, 1], the probability that the adversary says "forget"."""


class ThresholdAttack(Generic[V]):
    """Accept where ``score`` reaches the threshold of the point's class, fitted on all shadow
    models together; of all classes for one without shadow points.
    """

    def __init__(self, score: Callable[[V], np.ndarray], shadows: Sequence[Shadow[V]]):
        self.score = score
        members = [shadow.members for shadow in shadows]
        others = [shadow.nonmembers for shadow in shadows]
        member_scores = np.concatenate([score(view) for view in members])
        other_scores = np.concatenate([score(view) for view in others])
        member_labels = np.concatenate([view.labels for view in members])
        other_labels = np.concatenate([view.labels for view in others])

        self.everywhere = fit_threshold(member_scores, other_scores)
        self.by_class = {}
        for label in np.intersect1d(member_labels, other_labels).tolist():
            in_class = member_scores[member_labels == label]
            outside = other_scores[other_labels == label]
            self.by_class[label] = fit_threshold(in_class, outside)

    def accept(self, view: V) -> np.ndarray:
        """(n,) 1 where the score reaches the threshold of the point's class, else 0."""
        thresholds = [self.by_class.get(label, self.everywhere) for label in view.labels.tolist()]
        is_accepted = self.score(view) >= np.array(thresholds)
        return is_accepted.astype(np.float64)


PARTS = ("retain", "forget", "test")  # of a split
NOTHING = np.array([], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ModelJob:
    """One model to make: learned afresh on the units ``retain`` (no method), or unlearned by a
    method from ``start``. ``labels``, one per unit, replace the labels of the data set.
    """

    retain: np.ndarray
    forget: np.ndarray
    seed: int
    method: str | None = None
    start: ModelJob | None = None
    labels: np.ndarray | None = None

    @property
    def origin(self) -> ModelJob:
        """The job of the model from which the method starts; raises ``ValueError`` where there is none."""
        if self.start is None:
            raise ValueError("a job without a start learns afresh")
        return self.start


@dataclass(frozen=True, eq=False)
class Played:
    """One unlearned model in the game, and the split on which the adversary answers."""

    method: str
    pair: int
    half: str
    seed: int
    job: ModelJob
    split: Split


P = TypeVar("P", bound=RoundsParams)
Observed = TypeVar("Observed")  # what `observe` returns: logits, or likelihoods


class Game(ABC, Generic[P, Observed, V]):
    """A game, described by its params entry; ``scratch`` keeps finished models."""

    units: int  # the number of units to split
    unit: str  # the name of the units, in the plural
    performs: str  # the name of `performance`, in a word or two

    def __init__(self, settings: P, scratch: Path = SCRATCH):
        self.settings = settings
        self.scratch = scratch
        self.load()
        order = self.generator("halves").permutation(self.units)
        half = len(order) // 2
        self.target = np.sort(order[:half])
        self.shadow = np.sort(order[half:])

    def __reduce__(self) -> tuple[type[Game[P, Observed, V]], tuple[P, Path]]:
        """Pickle the params entry and not the data."""
        return type(self), (self.settings, self.scratch)

    @abstractmethod
    def load(self) -> None:
        """Read the data set and set ``units``."""

    @abstractmethod
    def methods(self) -> dict[str, str]:
        """Map every method of the game to its defender; ``retrain`` and ``none`` are among the
        methods.
        """

    @abstractmethod
    def starts_afresh(self, method: str) -> bool:
        """Whether the method sees only the retain set, and not the model learned on retain and
        forget set.
        """

    @abstractmethod
    def decides(self, method: str | None) -> tuple[list[str], dict[str, object]]:
        """Return everything that decides a model besides its job, for a `cache_key`."""

    @abstractmethod
    def make(self, job: ModelJob) -> None:
        """Make one model in its `place`, with the files that `observe` reads; this runs in a
        separate process.
        """

    @abstractmethod
    def observe(self, job: ModelJob) -> Observed:
        """Return the output of a finished model on every unit."""

    @abstractmethod
    def view(
        self,
        job: ModelJob,
        seen: Observed,
        units: np.ndarray,
        shadows: Sequence[tuple[ModelJob, Observed]],
    ) -> V:
        """Return an adversary's view of a model on some units, with the outputs of the shadow
        models on them.
        """

    @abstractmethod
    def fit(self, attack: str, shadows: Sequence[Shadow[V]], seed: int) -> Adversary[V]:
        """Return the adversary of this name, fitted on the shadow models."""

    @abstractmethod
    def performance(self, job: ModelJob, units: np.ndarray) -> float:
        """Return the performance of a finished model on the units, in [0, 1]."""

    def split(self, pair: int, half: str) -> Split:
        """Return the split of a half of a pair, in units of the whole data set."""
        purpose = "random split" if half == RANDOM else "split"
        rng = self.generator(purpose, pair)
        split = draw_split(len(self.target), self.settings.portion, rng)
        if half == "swapped":
            split = split.swapped()
        return Split(self.target[split.retain], self.target[split.forget], self.target[split.test])

    def played(self) -> Iterator[Played]:
        """Yield every unlearned model of the game, by pair, half, seed and method."""
        settings = self.settings
        halves = (*HALVES, RANDOM) if settings.random_splits else HALVES
        for pair in range(settings.pairs):
            for half in halves:
                split = self.split(pair, half)
                for seed in range(settings.seeds):
                    start = ModelJob(split.learned, NOTHING, self.seed("learn", pair, half, seed))
                    for method in self.methods():
                        job = self.unlearned(
                            method,
                            split,
                            start,
                            pair,
                            half,
                            seed,
                        )
                        yield Played(
                            method,
                            pair,
                            half,
                            seed,
                            job,
                            split,
                        )

    def unlearned(
        self,
        method: str,
        split: Split,
        start: ModelJob,
        pair: int,
        half: str,
        seed: int,
    ) -> ModelJob:
        """Return the job of a method; with a shared retrain, both halves of a pair have one model."""
        shared = self.settings.shared_retrain and self.starts_afresh(method) and half in HALVES
        if shared:
            half = "both"
        return ModelJob(
            split.retain, split.forget, self.seed(method, pair, half, seed), method, start
        )

    def shadows(self) -> list[ModelJob]:
        """Return the shadow models; exactly half of them learn each unit of the shadow half."""
        count = self.settings.shadow_models
        numbers = self.generator("shadow").random((count, len(self.shadow)))
        ranks = numbers.argsort(axis=0)
        jobs = []
        for number in range(count):
            learned = self.shadow[ranks[number] < count // 2]
            jobs.append(ModelJob(learned, NOTHING, self.seed("shadow", number, "", 0)))
        return jobs

    def jobs(self) -> list[ModelJob]:
        """Return every unlearned model to make; a kind of data may add models for comparison."""
        return [played.job for played in self.played()]

    def make_all(self, run: Runner = in_processes) -> None:
        """Make every unfinished model: first the learned models, then the models unlearned from
        them.
        """
        unlearned = self.jobs()
        learned = self.shadows()
        for job in unlearned:
            if job.method and not self.starts_afresh(job.method):
                learned.append(job.origin)
        run(self.make, self._missing(learned), "learn")
        run(self.make, self._missing(unlearned), "unlearn")

    def _missing(self, jobs: Sequence[ModelJob]) -> list[tuple[ModelJob]]:
        """The arguments of `make` for each different model that is not there."""
        job_of_place = {}
        for job in jobs:
            place = self.place(job)
            if not place.is_dir():
                job_of_place[place] = job
        return [(job,) for job in job_of_place.values()]

    def place(self, job: ModelJob) -> Path:
        """Return the folder of a model, named by a hash of everything that decides the model."""
        modules, facts = self.decides(job.method)
        facts |= {
            "retain": job.retain,
            "seed": job.seed,
            "labels": job.labels,
            "device": default_device(),
        }
        start = self.beginning(job)
        if start is not None:
            facts |= {"forget": job.forget, "start": start.name}
        return self.scratch / cache_key(*modules, **facts)

    def beginning(self, job: ModelJob) -> Path | None:
        """Return the folder of the learned model from which a job's method starts; None where the
        method trains afresh.
        """
        if job.method is None or self.starts_afresh(job.method):
            return None
        return self.place(job.origin)

    def adversaries(self) -> dict[str, Adversary[V]]:
        """Return the adversaries by name, fitted on all shadow models."""
        observed = self._observed_shadows()
        shadows = []
        for place, (job, seen) in enumerate(observed):
            others = observed[:place] + observed[place + 1 :]  # a model is never its own reference
            outside = np.setdiff1d(self.shadow, job.retain)
            members = self.view(job, seen, job.retain, others)
            shadows.append(Shadow(members, self.view(job, seen, outside, others)))
        seed = self.seed("attack", 0, "", 0)
        return {name: self.fit(name, shadows, seed) for name in self.settings.attacks}

    def _observed_shadows(self) -> list[tuple[ModelJob, Observed]]:
        """Each shadow model with its output on every unit."""
        return [(job, self.observe(job)) for job in self.shadows()]

    def attack(self, method: str, adversaries: dict[str, Adversary[V]]) -> list[AttackOutcome]:
        """Return the outcomes of all adversaries on every model that the method unlearned."""
        shadows = self._observed_shadows()
        outcomes = []
        for played in self.played():
            if played.method != method:
                continue
            job, split = played.job, played.split
            seen = self.observe(job)
            forget = self.view(job, seen, split.forget, shadows)
            test = self.view(job, seen, split.test, shadows)
            for name, adversary in adversaries.items():
                on_forget = adversary.accept(forget)
                on_test = adversary.accept(test)
                outcome = AttackOutcome(
                    method=method,
                    pair=played.pair,
                    half=played.half,
                    seed=played.seed,
                    attack=name,
                    forget=on_forget,
                    test=on_test,
                    signed=signed_advantage(on_forget, on_test),
                    auc=auc(adversary.score(forget), adversary.score(test)),
                )
                outcomes.append(outcome)
        return outcomes

    def play(self, run: Runner = in_processes) -> tuple[GameResult, list[AttackOutcome]]:
        """Play the whole game: make all unfinished models, attack every model, return the result
        and the outcomes.
        """
        self.make_all(run)
        adversaries = self.adversaries()  # functions among them: they stay in this process
        outcomes: list[AttackOutcome] = []
        for method in progress(self.methods(), "attack", "methods"):
            outcomes += self.attack(method, adversaries)
        return self.result(outcomes, self.split(0, HALVES[0])), outcomes

    def result(self, outcomes: Sequence[AttackOutcome], split: Split) -> GameResult:
        """Return the result; ``split`` is any split of the game and gives the sizes."""
        settings = self.settings
        methods = {}
        for name, method in results_by_method(outcomes, settings.alpha).items():
            models = []
            for played in self.played():
                if played.method == name and played.half in HALVES:
                    models.append(played)
            performance = {}
            for part in PARTS:
                values = []
                for model in models:
                    units = getattr(model.split, part)
                    values.append(self.performance(model.job, units))
                performance[part] = float(np.mean(values))
            methods[name] = replace(method, performance=performance)
        return GameResult(
            unit=self.unit,
            performs=self.performs,
            sizes={part: len(getattr(split, part)) for part in PARTS},
            defenders=self.methods(),
            methods=methods,
            kind=settings.kind,
            pairs=settings.pairs,
            seeds=settings.seeds,
            alpha=settings.alpha,
            shared_retrain=settings.shared_retrain,
        )

    def generator(self, purpose: str, *where: int) -> np.random.Generator:
        """Return the generator of one purpose and place."""
        return np.random.default_rng(stream(self.settings.seed, purpose, *where))

    def seed(self, purpose: str, pair: int, half: str, seed: int) -> int:
        """Return a 31-bit seed for one purpose and place, independent of the number of other seeds."""
        drawn = stream(self.settings.seed, purpose, half, pair, seed)
        return int(drawn.generate_state(1)[0] >> 1)
