"""The unlearning game on images with interclass confusion for comparison, its adversaries, tables and figure of its paper.

Tu et al. (2024), "Towards Reliable Empirical Machine Unlearning Evaluation: A Game-Theoretic View". Tables 1, 3 and 4:
quality, interclass confusion and attack AUC by privacy budget. Table 2: the standard deviation of the quality over
repetitions, swapped pairs against two random splits. Figure 2: quality by data set size (A) and by repetition (B).

The game fits an adversary **once**, on the shadow half of the data, disjoint from every forget and test set: refitted on
each split it would find chance differences even in a retrained model. All attacks are weak (the answer on a point ignores
the others) and black-box.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field
from scipy.special import log_softmax, logsumexp, xlogy

from lethe.audits import SCRATCH, AuditResult, Runner, in_processes
from lethe.audits.unlearning_game import RoundsParams
from lethe.audits.unlearning_game import result as results
from lethe.audits.unlearning_game.rounds import (
    NOTHING,
    Adversary,
    Game,
    ModelJob,
    Played,
    Shadow,
    ThresholdAttack,
)
from lethe.config.fields import Count, Integer, MemberOf, Name, NameIn, Section, Seed, Share
from lethe.config.schema import GameParams
from lethe.data import images as image_data
from lethe.data.images import Images
from lethe.errors import BadParam
from lethe.identity import digest, versions
from lethe.statistics.unlearning_game import Split, group_bound
from studies.image_game.models import (
    DEFENDERS,
    LOGITS,
    DefenderParams,
    ImageLearning,
    Privacy,
    make,
)

# Shadow models that all agree have a spread of 0, which would make the ratio infinite.
SMALLEST_SPREAD = 1e-3
# Lower log-probabilities add no information and would dominate the attack network's input.
FLOOR = -15.0


@dataclass(frozen=True)
class View:
    """An adversary's view of one image model on n points: ``logits`` (n, classes), ``labels`` (n,).

    ``reference`` (shadow models, n, classes) has the shadow models' logits, NaN where one learned the point.
    """

    logits: np.ndarray
    labels: np.ndarray
    reference: np.ndarray
    model: Path | None = None

    @property
    def log_probabilities(self) -> np.ndarray:
        """The (n, classes) ln p."""
        return log_softmax(self.logits.astype(np.float64), axis=-1)

    @property
    def log_confidence(self) -> np.ndarray:
        """The (n,) ln p_y, which orders points as p_y does, without ties where p_y rounds to 1."""
        points = np.arange(len(self.labels))
        return self.log_probabilities[points, self.labels]


Shadows = Sequence[Shadow[View]]


def by_threshold(
    score: Callable[[View], np.ndarray], shadows: Shadows, seed: int
) -> ThresholdAttack[View]:
    """Accept the points whose score (n,) is above the threshold that suits the shadow models best."""
    return ThresholdAttack(score, shadows)


class Correctness:
    """Accept the points that the model classifies correctly (Yeom et al. 2018). Nothing is fitted."""

    def __init__(self, shadows: Shadows, seed: int):
        pass

    def score(self, view: View) -> np.ndarray:
        return (view.logits.argmax(axis=-1) == view.labels).astype(np.float64)

    accept = score


def logit_confidence(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return ln p_y - ln(1 - p_y) = logit_y - logsumexp of the others, (..., n) from logits (..., n, classes)."""
    points = np.arange(len(labels))
    others = logits.astype(np.float64)
    of_label = others[..., points, labels]
    others[..., points, labels] = -np.inf
    return of_label - logsumexp(others, axis=-1)


def deviation(view: View) -> np.ndarray:
    """Return (n,) the model's confidence minus the mean over the shadow models that did not learn the point."""
    reference = np.nanmean(logit_confidence(view.reference, view.labels), axis=0)
    return logit_confidence(view.logits, view.labels) - reference


def likelihood_ratio(shadows: Shadows, seed: int) -> ThresholdAttack[View]:
    """The likelihood-ratio attack of Carlini et al. (2022), limited to the data of a fair adversary.

    z = ln p_y - ln(1 - p_y) is about normal, and shadow models that did not learn the point give its mean mu_out(x). The
    score is the ratio of two normal densities of z - mu_out(x), fitted on the shadow points of members and of non-members.
    """
    inside = _Normal.fitted([model.members for model in shadows])
    outside = _Normal.fitted([model.nonmembers for model in shadows])

    def score(view: View) -> np.ndarray:
        deviations = deviation(view)
        return inside.log_density(deviations) - outside.log_density(deviations)

    return ThresholdAttack(score, shadows)


@dataclass(frozen=True)
class _Normal:
    """A normal law of deviations."""

    mean: float
    sd: float

    @classmethod
    def fitted(cls, views: Sequence[View]) -> Self:
        """The normal law of the deviations of all points of these views."""
        deviations = np.concatenate([deviation(view) for view in views])
        return cls(deviations.mean(), max(deviations.std(), SMALLEST_SPREAD))

    def log_density(self, values: np.ndarray) -> np.ndarray:
        """The logarithm of the density up to a constant that all normal laws share."""
        z = (values - self.mean) / self.sd
        return -(z**2) / 2 - np.log(self.sd)


def shadow(shadows: Shadows, seed: int) -> ThresholdAttack[View]:
    """The shadow-model attack of Shokri et al. (2017): a network per class, on sorted and true log-probabilities.

    A point of a class whose shadow points are all members, or all non-members, has the score 1/2.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    views = []
    of_views = []
    for model in shadows:
        views += [model.members, model.nonmembers]
        of_views.append(np.ones(len(model.members.labels)))
        of_views.append(np.zeros(len(model.nonmembers.labels)))
    is_member = np.concatenate(of_views)
    inputs = np.concatenate([_inputs(view) for view in views])
    labels = np.concatenate([view.labels for view in views])

    networks = {}
    warnings.filterwarnings("ignore", category=ConvergenceWarning)  # 200 epochs are enough here
    for label in np.unique(labels).tolist():
        of_label = labels == label
        if len(np.unique(is_member[of_label])) < 2:
            continue
        perceptron = MLPClassifier((64,), alpha=1e-2, random_state=seed)
        network = make_pipeline(StandardScaler(), perceptron)
        networks[label] = network.fit(inputs[of_label], is_member[of_label])

    def score(view: View) -> np.ndarray:
        inputs_of_view = _inputs(view)
        scores = np.full(len(view.labels), 0.5)
        for label in np.intersect1d(view.labels, list(networks)).tolist():
            of_label = view.labels == label
            probabilities = networks[label].predict_proba(inputs_of_view[of_label])
            scores[of_label] = probabilities[:, 1]
        return scores

    return ThresholdAttack(score, shadows)


def _inputs(view: View) -> np.ndarray:
    """The (n, classes + 1) input of an attack network: ln p in descending order, then that of the true class."""
    descending = np.sort(view.log_probabilities, axis=1)[:, ::-1]
    inputs = np.hstack([descending, view.log_confidence[:, None]])
    return np.maximum(inputs, FLOOR)


LOG_FLOOR = 1e-30  # replaces a probability of 0 inside a logarithm


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """-sum_j p_j ln p_j over the last axis, in nats."""
    floored = np.maximum(probabilities, LOG_FLOOR)
    return -xlogy(probabilities, floored).sum(axis=-1)


def modified_entropy(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mentr(p, y) = -(1 - p_y) ln p_y - sum_{j != y} p_j ln(1 - p_j), in nats (Song and Mittal 2021, eq. 8)."""
    probabilities = np.asarray(probabilities, float)
    points = np.arange(len(labels))

    p = probabilities[points, labels]
    of_label = (1 - p) * np.log(np.maximum(p, LOG_FLOOR))

    of_others = xlogy(probabilities, np.maximum(1 - probabilities, LOG_FLOOR))
    of_others[points, labels] = 0
    return -of_label - of_others.sum(axis=1)


# Confidence, entropy and modified entropy, which counts certainty of a wrong class as uncertainty: Song and Mittal (2021).
ATTACKS: dict[str, Callable[[Shadows, int], Adversary[View]]] = {
    "confidence": partial(by_threshold, lambda view: view.log_confidence),
    "correctness": Correctness,
    "entropy": partial(by_threshold, lambda view: -entropy(np.exp(view.log_probabilities))),
    "likelihood_ratio": likelihood_ratio,
    "modified_entropy": partial(
        by_threshold, lambda view: -modified_entropy(np.exp(view.log_probabilities), view.labels)
    ),
    "shadow": shadow,
}


AttackName = Annotated[str, NameIn((ATTACKS,))]
DefenderEntry = Annotated[DefenderParams, MemberOf(DEFENDERS, "method", DefenderParams, needs=True)]


class ImageData(Section):
    """The images of a game.

    Attributes
    ----------
    kind
        The data set.
    source
        A folder, or the name of CIFAR-10 on the hub; null: the usual place of the kind.
    points
        How many images take part, at random; null: all.
    label_noise
        The share of images that get another label.
    seed
        Of the choice of images and of the noise.
    """

    kind: Literal["digits", "fashion_mnist", "cifar10"]
    source: str | None
    points: Count | None
    label_noise: Share
    seed: Seed


class ImageGameParams(RoundsParams):
    """A game on images: what is learned, by what, and who attacks.

    Attributes
    ----------
    data, learning
        The images, and how every model learns them.
    privacy
        The budget of DP-SGD; null: plain training.
    confused_classes
        Two classes of which half is learned with swapped labels; null: no interclass confusion.
    methods, attacks
        The defenders by name, and the names of the adversaries.
    """

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
Measure = Callable[[results.PlayedMethod], float | None]


class ImageGame(Game["ImageGameParams", np.ndarray, View]):
    """A unit is an image. The game observes a model's logits on the whole data set."""

    unit = "images"
    performs = "accuracy"

    def load(self) -> None:
        """Read the images. Raises `BadParam` where the confused classes are no two classes of them."""
        self.images = _images(self.settings.data)
        self.units = len(self.images)
        pair = self.settings.confused_classes
        if pair is None:
            return
        last = self.images.classes - 1
        if pair[0] == pair[1] or max(pair) > last:
            legal = f"two different classes of 0 to {last}, or null"
            raise BadParam("confused_classes", pair, legal)

    def methods(self) -> dict[str, str]:
        return {name: entry.method for name, entry in self.settings.methods.items()}

    def starts_afresh(self, method: str) -> bool:
        return DEFENDERS[self.methods()[method]].afresh

    def decides(self, method: str | None) -> tuple[list[str], dict[str, object]]:
        """The modules and facts that decide a model's weights, for its key; ``method`` None: before unlearning."""
        settings = self.settings
        modules = ["studies.image_game.models"]
        libraries = ["numpy", "torch"]
        if settings.privacy:
            libraries += ["opacus", "dp-accounting"]
        facts: dict[str, object] = {
            "data": _content(settings.data),
            "learning": settings.learning,
            "privacy": settings.privacy,
            "libraries": versions(*libraries),
        }
        if method is not None:
            facts["method"] = settings.methods[method]
        return modules, facts

    def make(self, job: ModelJob) -> None:
        settings = self.settings
        entry = self.settings.methods.get(job.method or "")
        make(
            images=self.images,
            recipe=settings.learning,
            privacy=settings.privacy,
            entry=entry,
            job=job,
            start=self.beginning(job),
            place=self.place(job),
        )

    def observe(self, job: ModelJob) -> np.ndarray:
        return np.load(self.place(job) / LOGITS)

    def view(
        self,
        job: ModelJob,
        seen: np.ndarray,
        units: np.ndarray,
        shadows: Sequence[tuple[ModelJob, np.ndarray]],
    ) -> View:
        """The view on the images ``units`` (n,) of a model with logits ``seen`` (images, classes)."""
        reference = np.stack([logits[units] for _, logits in shadows])
        for logits, (shadow, _) in zip(reference, shadows, strict=True):
            logits[np.isin(units, shadow.retain)] = np.nan
        return View(
            logits=seen[units],
            labels=self.images.labels[units],
            reference=reference,
            model=self.place(job),
        )

    def fit(self, name: str, shadows: Sequence[Shadow[View]], seed: int) -> Adversary[View]:
        return ATTACKS[name](shadows, seed)

    def performance(self, job: ModelJob, units: np.ndarray) -> float:
        """The accuracy of a model on these images."""
        predicted = self.observe(job)[units].argmax(axis=1)
        is_right = predicted == self.images.labels[units]
        return float(is_right.mean())

    def jobs(self) -> list[ModelJob]:
        return super().jobs() + [played.job for played in self.confused()]

    def confused(self) -> Iterator[Played]:
        """Yield the models of interclass confusion: half of two classes learned with swapped labels, then unlearned."""
        settings = self.settings
        if settings.confused_classes is None:
            return
        a, b = settings.confused_classes
        for pair in range(settings.pairs):
            split = self.split(pair, "original")
            rng = self.generator("confusion", pair)
            chosen = []
            for label in (a, b):
                images = split.learned[self.images.labels[split.learned] == label]
                chosen.append(rng.permutation(images)[: len(images) // 2])
            forget = np.sort(np.concatenate(chosen))
            retain = np.setdiff1d(split.learned, forget)
            labels = self.images.labels.copy()
            labels[forget] = a + b - labels[forget]

            for seed in range(settings.seeds):
                seed_of_start = self.seed("confusion", pair, "", seed)
                start = ModelJob(split.learned, NOTHING, seed_of_start, labels=labels)
                for method in settings.methods:
                    seed_of_job = self.seed(method, pair, "confusion", seed)
                    job = ModelJob(retain, forget, seed_of_job, method, start, labels)
                    yield Played(method, pair, "confusion", seed, job, split)

    def memorisation(self, job: ModelJob) -> float:
        """Return the share of confused images that the model still assigns to the other class of the two."""
        labels = self.images.labels if job.labels is None else job.labels
        predicted = self.observe(job)[job.forget].argmax(axis=1)
        is_memorised = predicted == labels[job.forget]
        return float(is_memorised.mean())

    def result(self, outcomes: Sequence[results.AttackOutcome], split: Split) -> results.GameResult:
        """The result of the game, with interclass confusion and the bound of differential privacy on a group."""
        result = super().result(outcomes, split)
        methods = {}
        for name, method in result.methods.items():
            methods[name] = replace(method, confusion=self._confusion(name))

        budget = self.settings.privacy
        bound = None
        if budget:
            bound = group_bound(budget.epsilon, budget.delta, result.sizes["forget"])
        return replace(result, methods=methods, privacy=bound)

    def _confusion(self, name: str) -> results.Confusion | None:
        """What a method's confused models forgot, and their accuracy, averaged; None in a game without confusion."""
        memorised = []
        accuracies = []
        for played in self.confused():
            if played.method == name:
                memorised.append(self.memorisation(played.job))
                accuracies.append(self.performance(played.job, played.split.test))
        if not memorised:
            return None
        return results.Confusion(
            score=1 - float(np.mean(memorised)),
            accuracy=float(np.mean(accuracies)),
        )


def play(
    settings: ImageGameParams, scratch: Path = SCRATCH, run: Runner = in_processes
) -> tuple[results.GameResult, list[results.AttackOutcome]]:
    """Play the game on images; finished models are kept below ``scratch``."""
    return ImageGame(settings, scratch).play(run)


def play_tables(
    settings: ImageTablesParams, scratch: Path = SCRATCH, run: Runner = in_processes
) -> tuple[results.GameResult, list[results.AttackOutcome]]:
    """Play the game, and its variants for Tables 1 to 4 and Figure 2."""
    base = settings.game

    def variant(**changes: object) -> results.GameResult:
        changed = base.model_copy(update=changes)
        result, _ = play(changed, scratch, run)
        return result

    plain, outcomes = play(base, scratch, run)
    by_budget = {}
    for privacy in settings.budgets:
        by_budget[f"{privacy.epsilon:g}"] = variant(
            privacy=privacy,
            learning=settings.private_learning,
            random_splits=False,
        )

    repeated = variant(pairs=settings.repeats, random_splits=True, confused_classes=None)
    repeats = {name: method.by_pair for name, method in repeated.methods.items()}

    by_points = {}
    for points in settings.points:
        data = base.data.model_copy(update={"points": points})
        game = variant(data=data, random_splits=False, confused_classes=None)
        by_points[points] = {name: method.quality.value for name, method in game.methods.items()}

    result = replace(
        plain,
        kind="image_tables",
        tables=tables({**by_budget, NO_PRIVACY: plain}, repeated),
        figure=results.QualityByPoints(by_points, settings.repeats, repeats),
        bounds={epsilon: game.privacy for epsilon, game in by_budget.items()},
    )
    return result, outcomes


def tables(
    by_budget: dict[str, results.GameResult], repeated: results.GameResult
) -> results.PaperTables:
    """Tables 1 to 4: ``by_budget`` has the game of each budget of privacy, ``repeated`` that of many splits."""

    def table(measure: Measure, accuracy: Measure) -> results.BudgetTable:
        values: dict[str, dict[str, float | None]] = {}
        accuracies: dict[str, dict[str, float | None]] = {}
        for epsilon, game in by_budget.items():
            methods = game.methods.items()
            values[epsilon] = {name: measure(method) for name, method in methods}
            accuracies[epsilon] = {name: accuracy(method) for name, method in methods}
        return results.BudgetTable(values, accuracies)

    def confused(field: str) -> Measure:
        return lambda method: getattr(method.confusion, field) if method.confusion else None

    def on_test(method: results.PlayedMethod) -> float:
        return method.performance["test"]

    return results.PaperTables(
        quality=table(lambda method: method.quality.value, on_test),
        confusion=table(confused("score"), confused("accuracy")),
        mia=table(lambda method: method.mia_score, on_test),
        deviation={name: method.deviation for name, method in repeated.methods.items()},
    )


@lru_cache(maxsize=1)
def _images(data: ImageData) -> Images:
    return image_data.load(**dict(data))


@lru_cache(maxsize=1)
def _content(data: ImageData) -> str:
    images = _images(data)
    return digest(images.pixels, images.labels, images.classes, images.white)


def _kind(params: type[GameParams], function: Callable[..., tuple]) -> SimpleNamespace:
    """A kind of game for the registry: its settings, and a function that plays it."""

    def whole(
        settings: GameParams, scratch: Path | None = None, run: Runner | None = None
    ) -> AuditResult:
        played = function(settings, scratch or SCRATCH, run or in_processes)
        return results.played(*played)

    return SimpleNamespace(Params=params, play=whole)


KINDS = {
    "images": _kind(ImageGameParams, play),
    "image_tables": _kind(ImageTablesParams, play_tables),
}
