"""The unlearning game on images: which models it needs, how each is made, what the attacks gain on them.

Half of the data trains the shadow models, the other half is the data set D of the game. Every pair of D is a random
split and its swapped twin; each half of a pair has its own models, learned and unlearned afresh, several seeds each.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts import atomic_folder
from stages.datasets import images as image_data
from stages.datasets.images import Images
from stages.errors import BadParam
from stages.learning.attacks import Shadow, View, attack
from stages.learning.finished import SCRATCH, digest, in_processes
from stages.learning.game import HALVES, RANDOM, Outcome, summarise
from stages.learning.image_unlearning import Task, defender
from stages.statistics.game import Split, draw_split, group_bound, signed_advantage
from stages.statistics.membership import auc

Runner = Callable[[Callable, Sequence[tuple], str], None]


@dataclass(frozen=True, eq=False)
class Job:
    """One model to make: learned on ``retain`` afresh (no method), or unlearned by a method from ``start``.

    ``retain`` and ``forget`` are row numbers of the data set, ``labels`` (of all its rows) stands in for its own.
    """

    retain: np.ndarray
    forget: np.ndarray
    seed: int
    method: str | None = None
    start: Job | None = None
    labels: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Played:
    """One unlearned model in the game: which it is and on which rows the adversary is asked."""

    method: str
    pair: int
    half: str
    seed: int
    job: Job
    split: Split


class ImageGame:
    """A game by its params entry; finished models are kept under ``scratch``."""

    def __init__(self, settings: Any, scratch: Path = SCRATCH):
        self.settings, self.scratch = settings, scratch
        self.images = _images(settings.data.model_dump_json())
        order = self._generator("halves").permutation(len(self.images))
        half = len(order) // 2
        self.target, self.shadow = np.sort(order[:half]), np.sort(order[half:])
        pair, classes = settings.confused_classes, self.images.classes
        if pair is not None and (pair[0] == pair[1] or max(pair) >= classes):
            raise BadParam(
                "games.*.confused_classes", pair, f"two different classes of 0 to {classes - 1}, or null"
            )

    def split(self, pair: int, half: str) -> Split:
        """The split of a pair's half, in row numbers of the data set."""
        stream = self._generator("random split" if half == RANDOM else "split", pair)
        split = draw_split(len(self.target), self.settings.portion, stream)
        split = split.swapped() if half == "swapped" else split
        return Split(self.target[split.retain], self.target[split.forget], self.target[split.test])

    def played(self) -> Iterator[Played]:
        """Every unlearned model that the game evaluates."""
        settings = self.settings
        for pair in range(settings.pairs):
            for half in (*HALVES, *([RANDOM] if settings.random_splits else [])):
                split = self.split(pair, half)
                for seed in range(settings.seeds):
                    start = Job(split.learned, _NOTHING, self._seed("learn", pair, half, seed))
                    for method in settings.methods:
                        yield Played(
                            method, pair, half, seed, self._unlearn(method, split, start, pair, half, seed), split
                        )

    def shadows(self) -> list[Job]:
        """Shadow models; every point of the shadow half is learned by exactly half of them."""
        count = self.settings.shadow_models
        ranks = self._generator("shadow").random((count, len(self.shadow))).argsort(axis=0)
        return [
            Job(self.shadow[ranks[i] < count // 2], _NOTHING, self._seed("shadow", i, "", 0)) for i in range(count)
        ]

    def confused(self) -> Iterator[Played]:
        """The models of interclass confusion: half of two classes learned under each other's label, then unlearned."""
        settings = self.settings
        if settings.confused_classes is None:
            return
        a, b = settings.confused_classes
        for pair in range(settings.pairs):
            everything = self.split(pair, "original").learned
            rng = self._generator("confusion", pair)
            chosen = []
            for label in (a, b):
                rows = everything[self.images.labels[everything] == label]
                chosen.append(rng.permutation(rows)[: len(rows) // 2])
            forget = np.sort(np.concatenate(chosen))
            labels = self.images.labels.copy()
            labels[forget] = a + b - labels[forget]
            retain = np.setdiff1d(everything, forget)
            for seed in range(settings.seeds):
                start = Job(everything, _NOTHING, self._seed("confusion", pair, "", seed), labels=labels)
                for method in settings.methods:
                    job = Job(retain, forget, self._seed(method, pair, "confusion", seed), method, start, labels)
                    yield Played(method, pair, "confusion", seed, job, self.split(pair, "original"))

    def make_all(self, run: Runner = in_processes) -> None:
        """Make every model that is not finished yet: first what is learned, then what is unlearned from it."""
        unlearned = [one.job for one in (*self.played(), *self.confused())]
        learned = [
            *self.shadows(),
            *(job.start for job in unlearned if defender_of(self.settings, job).NEEDS_LEARNED),
        ]
        for jobs, label in ((learned, "learn"), (unlearned, "unlearn")):
            missing = {self.place(job): job for job in jobs if not self.place(job).is_dir()}
            run(make, [(self.settings, self.scratch, job) for job in missing.values()], label)

    def place(self, job: Job) -> Path:
        """The folder of a finished model, named by all that decides it."""
        from stages.learning import image_networks, image_training, training

        settings = self.settings
        parts: list[Any] = [
            _content(settings.data.model_dump_json()),
            settings.learning.model_dump(),
            settings.privacy and settings.privacy.model_dump(),
            *(image_data, image_networks, image_training, training),
            *(job.retain, job.seed, job.labels if job.labels is not None else "own labels"),
        ]
        if job.method is not None:
            module = defender_of(settings, job)
            parts += [settings.methods[job.method].model_dump(), module]
            if module.NEEDS_LEARNED:  # a defender that starts afresh sees nothing of the forget set
                parts += [job.forget, self.place(job.start).name]
        return self.scratch / digest(*parts)

    def logits(self, job: Job) -> np.ndarray:
        """(n, classes) of every row of the data set under a finished model."""
        return np.load(self.place(job) / "logits.npy")

    def adversaries(self) -> dict[str, Any]:
        """Every attack, fitted once on the shadow half."""
        jobs = self.shadows()
        logits = np.stack([self.logits(job) for job in jobs])
        reference = self._reference(jobs, logits)
        shadows = []
        for i, job in enumerate(jobs):
            others = reference.copy()
            others[i] = np.nan  # a model's own answer is no reference for it
            sides = [
                View(logits[i][rows], self.images.labels[rows], others[:, rows], self.place(job))
                for rows in (job.retain, np.setdiff1d(self.shadow, job.retain))
            ]
            shadows.append(Shadow(*sides))
        seed = self._seed("attack", 0, "", 0)
        return {name: attack(name).fit(shadows, seed) for name in self.settings.attacks}

    def outcomes(self) -> list[Outcome]:
        """Let every attack answer on every unlearned model; the models must be finished."""
        adversaries = self.adversaries()
        jobs = self.shadows()
        reference = self._reference(jobs, np.stack([self.logits(job) for job in jobs]))
        found = []
        for one in self.played():
            logits = self.logits(one.job)
            views = [
                View(logits[rows], self.images.labels[rows], reference[:, rows], self.place(one.job))
                for rows in (one.split.forget, one.split.test)
            ]
            for name, adversary in adversaries.items():
                accepted = [adversary.accept(view) for view in views]
                area = auc(*(adversary.score(view) for view in views))
                signed = signed_advantage(*accepted)
                found.append(Outcome(one.method, one.pair, one.half, one.seed, name, *accepted, signed, area))
        return found

    def accuracy(self, job: Job, rows: np.ndarray) -> float:
        """Share of the rows that a finished model classifies as the data set says."""
        return float((self.logits(job)[rows].argmax(axis=1) == self.images.labels[rows]).mean())

    def memorisation(self, job: Job) -> float:
        """Share of the confused points that the model still gives the other class of the two."""
        predicted = self.logits(job)[job.forget].argmax(axis=1)
        return float((predicted == job.labels[job.forget]).mean())

    def _unlearn(self, method: str, split: Split, start: Job, pair: int, half: str, seed: int) -> Job:
        fresh = not defender(self.settings.methods[method].method).NEEDS_LEARNED
        shared = fresh and self.settings.shared_retrain and half in HALVES
        stream = self._seed(method, pair, "both" if shared else half, seed)
        return Job(split.retain, split.forget, stream, method, start)

    def _reference(self, jobs: list[Job], logits: np.ndarray) -> np.ndarray:
        reference = logits.copy()
        for i, job in enumerate(jobs):
            reference[i, job.retain] = np.nan
        return reference

    def _generator(self, purpose: str, *where: int) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, zlib.crc32(purpose.encode()), *where])

    def _seed(self, purpose: str, pair: int, half: str, seed: int) -> int:
        """A whole number of 31 bits for one purpose and place, independent of how many others there are."""
        words = [self.settings.seed, zlib.crc32(f"{purpose}/{half}".encode()), pair, seed]
        return int(np.random.SeedSequence(words).generate_state(1)[0] >> 1)


def play(
    settings: Any, scratch: Path = SCRATCH, run: Runner = in_processes
) -> tuple[dict[str, Any], list[Outcome]]:
    """The whole game: make the models that are not finished, attack them; returns the result and the outcomes."""
    game = ImageGame(settings, scratch)
    game.make_all(run)
    outcomes = game.outcomes()
    methods = summarise(outcomes, settings.alpha)
    for name, method in methods.items():
        mine = [one for one in game.played() if one.method == name and one.half in HALVES]
        method["accuracy"] = {
            part: float(np.mean([game.accuracy(one.job, getattr(one.split, part)) for one in mine]))
            for part in ("retain", "forget", "test")
        }
        confused = [one for one in game.confused() if one.method == name]
        method["confusion"] = confused and {
            "score": 1 - float(np.mean([game.memorisation(one.job) for one in confused])),
            "accuracy": float(np.mean([game.accuracy(one.job, one.split.test) for one in confused])),
        }
    split, privacy = game.split(0, "original"), settings.privacy
    result = {
        "kind": "images",
        "accuracy_is": "accuracy",
        "sizes": {part: len(getattr(split, part)) for part in ("retain", "forget", "test")},
        "shadow_points": len(game.shadow),
        **{key: getattr(settings, key) for key in ("pairs", "seeds", "alpha", "shared_retrain")},
        "privacy": privacy and asdict(group_bound(privacy.epsilon, privacy.delta, len(split.forget))),
        "defenders": {name: entry.method for name, entry in settings.methods.items()},
        "methods": methods,
    }
    return result, outcomes


def make(settings: Any, scratch: Path, job: Job) -> None:
    """Make one model and keep its weights and its logits on the whole data set; runs in a process of its own."""
    import torch
    from safetensors.torch import load_file, save_file

    from stages.learning.image_networks import build
    from stages.learning.image_training import learn, logits, points

    torch.set_num_threads(1)
    game = ImageGame(settings, scratch)
    images, privacy = game.images, settings.privacy

    def learned(data):
        return learn(data, images.classes, settings.learning, privacy, job.seed)

    retain = points(images, job.retain, job.labels)
    if job.method is None:
        network = learned(retain)
    else:
        module, network = defender_of(settings, job), None
        if module.NEEDS_LEARNED:
            network = build(
                settings.learning.network, retain.images.shape[1], images.classes, 0, privacy is not None
            )
            network.load_state_dict(load_file(game.place(job.start) / "model.safetensors"))
        forget = points(images, job.forget, job.labels)
        network = module.unlearn(Task(network, retain, forget, learned, settings.methods[job.method], job.seed))
    with atomic_folder(game.place(job)) as folder:
        save_file(network.state_dict(), folder / "model.safetensors")
        np.save(folder / "logits.npy", logits(network.eval(), images))


def defender_of(settings: Any, job: Job):
    return defender(settings.methods[job.method].method)


_NOTHING = np.array([], dtype=np.int64)


@lru_cache(maxsize=1)
def _images(data: str) -> Images:
    import json

    return image_data.load(**json.loads(data))


@lru_cache(maxsize=1)
def _content(data: str) -> str:
    images = _images(data)
    return digest(images.pixels, images.labels, images.classes, images.white)
