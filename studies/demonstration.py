"""What a finished run of the demonstration says of the probabilistic paper's claims: its results are read, nothing is drawn.

Models of 0.6 M parameters learn generated authors, from one seed of training and of unlearning. So an end here is about the
draws of these models alone: a value plus and minus its standard error over them.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe import config
from lethe.config.schema import Params
from lethe.errors import BadInput, MissingArtifact
from lethe.io.files import Json, flat_items
from lethe.results.table import Numbers, Result, Results
from lethe.results.table import read as read_results
from studies import outcome

NAME = "demonstration"
SEEDS = ("data.seed", "train.recipe.seed", "unlearn.recipe.seed", "sample.seed")
ENTROPY, MATCHED = "npo_entropy", "npo_matched"  # with and without the entropy terms, else alike
EQUAL = 0.01  # greedy scores that differ by no more are equal
# Means of sampled scores that differ by more are apart: six standard errors of 1,024 draws.
APART = 0.1
HIGH = 0.5  # a score above this is far from nothing
FEW = 64  # the first answers, of 1,024
Values = dict[str, Json]


@dataclass(frozen=True)
class Asked:
    """The forget questions of one model, in the order of ``questions``; all arrays are (questions,).

    ``greedy``, ``mean``, ``sd`` and ``largest`` are of the score of the answers, ``greedy_leaks`` and ``leaks`` of the
    scorer that says yes or no; ``n`` is the number of answers to each question.
    """

    questions: tuple[str, ...]
    n: int
    greedy: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    largest: np.ndarray
    greedy_leaks: np.ndarray
    leaks: np.ndarray

    @classmethod
    def of(cls, results: Results, model: str) -> "Asked":
        """Raises `BadInput` where a number is missing."""
        rows_of_question = {}
        for question, numbers in results.questions(model).items():
            if numbers.row("score", "greedy") is not None:
                rows_of_question[question] = numbers
        if not rows_of_question:
            raise BadInput(f"{model} has no row of a question. `lethe run` measures it.")

        rows = list(rows_of_question.values())
        sizes = []
        for numbers in rows:
            sizes += [row.n for row in numbers.series("score") if row.n]
        return cls(
            questions=tuple(rows_of_question),
            n=min(sizes),
            greedy=_estimates(model, rows, "score", "greedy"),
            mean=_estimates(model, rows, "score", "sampled"),
            sd=_estimates(model, rows, "sd", "sampled"),
            largest=_estimates(model, rows, "max", "sampled"),
            greedy_leaks=_estimates(model, rows, "leak", "greedy"),
            leaks=_estimates(model, rows, "leak", "sampled"),
        )

    def ed_score(self, rho: float) -> Values:
        """The mean ED score. For n draws of deviation s, the mean has the variance s^2 / n and s about s^2 / 2n."""
        variances = self.sd**2 * (1 + rho**2 / 2) / self.n
        return _with_error(self.mean + rho * self.sd, variances)

    def mean_score(self) -> Values:
        """The mean over the questions of their mean scores."""
        return _with_error(self.mean, self.sd**2 / self.n)

    def deviation(self) -> Values:
        """The mean over the questions of their standard deviations, each with about the variance s^2 / 2n."""
        return _with_error(self.sd, self.sd**2 / (2 * self.n))


def _estimates(model: str, rows: Sequence[Numbers], quantity: str, basis: str) -> np.ndarray:
    """A quantity of each question (questions,). Raises `BadInput` where a question has none."""
    values = []
    for numbers in rows:
        value = numbers.estimate(quantity, basis)
        if value is None:
            raise BadInput(
                f"{model} has a question without {quantity} ({basis}): the claims need every answer's score, "
                "and a scorer that gives 0 or 1. Take the scorers of params.yaml, and run again."
            )
        values.append(value)
    return np.array(values)


def _with_error(values: np.ndarray, variances: np.ndarray) -> Values:
    """The mean over the questions, with ``sd``, its standard error over the draws of these questions.

    Both arrays are (questions,); the draws of two questions are independent.
    """
    error = np.sqrt(variances.sum()) / len(values)
    return {"mean": float(values.mean()), "sd": float(error)}


def study(root: Path, *, keep: bool = False) -> Values:
    """Read the finished run in ``root``, write the outcome and return its values.

    Raises `MissingArtifact` where a model of params.yaml has no results yet.
    """
    params = config.load(root / config.FILE)
    results = read_results(root / "data", params.models)
    for model in params.models:
        if not results.questions(model):
            raise MissingArtifact(f"data/results/metrics/{model}.parquet", f"metrics@{model}")

    settings = params.model_dump(mode="json")
    seeds = seeds_of(params)
    of_study = outcome.Study(NAME, "lethe study demonstration", seeds, settings, keep)
    values = measure(params, results)
    of_study.finish(values)
    return values


def seeds_of(params: Params) -> list[int]:
    """The seeds of data, training, unlearning and draws."""
    setting_of_key: dict[str, Json] = dict(flat_items(params.model_dump(mode="json")))
    return [setting_of_key[key] for key in SEEDS]


def measure(params: Params, results: Results) -> Values:
    """The numbers of each model, and of the models beside each other."""
    asked = {name: Asked.of(results, name) for name in params.models}
    models = []
    for name, questions in asked.items():
        numbers = _numbers(questions, results, name, params.metrics.rho)
        models.append({"model": name, **numbers})

    references = {params.report.base, *params.report.retrains}
    unlearned = []
    for name, model in params.models.items():
        if name not in references and model.adaptive_threshold is None:
            unlearned.append(asked[name])

    values: Values = {
        "models": models,
        "equal greedy score, sampled means apart": _apart(unlearned),
    }
    if ENTROPY in asked and MATCHED in asked:
        values["entropy beside its control"] = _beside(asked[ENTROPY], asked[MATCHED])
    return values


def _numbers(asked: Asked, results: Results, model: str, rho: float) -> Values:
    """What the outcome states of a model; ``rho`` weighs the deviation in the ED score."""
    values: Values = {
        "questions": len(asked.questions),
        "answers": asked.n,
        "greedy": float(asked.greedy.mean()),
        "mean": asked.mean_score(),
        "deviation": asked.deviation(),
        "ED": asked.ed_score(rho),
        "questions with a greedy leak": int(asked.greedy_leaks.sum()),
        "questions with a sampled leak": int(np.count_nonzero(asked.leaks)),
        "convergence": _convergence(results, model),
    }

    of_model = results.model(model)
    alike = []
    for row in of_model.series("diversity", item="self_bleu"):
        if row.estimate is not None:
            alike.append(row.estimate)
    if alike:
        values["self-BLEU of kept answers"] = float(np.mean(alike))

    for row in of_model.series("kept"):
        values[f"utility: {row.split}"] = row.estimate
    return values


def _convergence(results: Results, model: str) -> Values:
    """How far estimate and bound of the worst question are after `FEW` answers from those of all answers."""
    values: Values = {}
    for name, quantity in (("mean", "convergence_mean"), ("deviation", "convergence_sd")):
        row_at: dict[float, Result] = {}  # by the number of answers
        for numbers in results.questions(model).values():
            for row in numbers.series(quantity):
                if row.at is not None:
                    row_at[row.at] = row
        if FEW not in row_at:
            continue

        few = row_at[FEW]
        whole = row_at[max(row_at)]
        values[f"{name}, estimate"] = _distance(few.estimate, whole.estimate)
        values[f"{name}, bound"] = _distance(few.upper, whole.upper)
    return values


def _distance(first: float | None, second: float | None) -> float | None:
    """The absolute difference; None where a value is missing."""
    if first is None or second is None:
        return None
    return abs(first - second)


def _apart(models: Sequence[Asked]) -> Values:
    """Over all pairs of models, the questions of equal greedy score, and those of them whose sampled means are apart."""
    equal = 0
    apart = 0
    for first, second in itertools.combinations(models, 2):
        is_equal = np.abs(first.greedy - second.greedy) <= EQUAL
        is_apart = np.abs(first.mean - second.mean) > APART
        equal += int(is_equal.sum())
        apart += int((is_equal & is_apart).sum())
    return {"equal": equal, "apart": apart}


def _beside(entropy: Asked, control: Asked) -> Values:
    """Questions on which the entropy terms narrow the scores, and on which they alone let no score above `HIGH` through."""
    spread = int(np.count_nonzero(control.sd != entropy.sd))
    narrower = int(np.count_nonzero(entropy.sd < control.sd))
    control_is_high = control.largest > HIGH
    entropy_is_high = entropy.largest > HIGH
    only_control = int(np.count_nonzero(control_is_high & ~entropy_is_high))
    only_entropy = int(np.count_nonzero(entropy_is_high & ~control_is_high))
    return {
        "narrower": _share(narrower, spread),
        "high in the control alone": only_control,
        "high with entropy alone": only_entropy,
        "share of the control": _share(only_control, only_control + only_entropy),
    }


def _share(count: int, questions: int) -> Values:
    """A share of questions with its interval; all of [0, 1] where there is no question."""
    ends: Values = {"mean": 0.5, "smallest": 0.0, "largest": 1.0}
    if questions:
        ends.update(outcome.share(count, questions))
    return {**ends, "questions": questions}
