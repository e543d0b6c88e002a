"""Epsilon* of the language models of a finished run: by the paper's loss on the training set, beside that of Lethe.

The paper (Negoescu et al. 2024, footnote 1 and Definition 2) takes a classifier's loss to be the negative logit of the true
class's probability, and its losses on the whole training set. A language model classifies at each token, so here the loss of
an answer is the mean of its tokens' negative logits. Stage `epsilon_star` takes the mean negative log-likelihood instead, on
the forget set alone, since it asks what is left of that set.

The training set here are the rows of authors. The facts of the world, which every model learned too, are left out: the
held-out rows are of authors, and would differ from these facts whatever a model had learned.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe import config
from lethe.config.measuring import SERVED
from lethe.config.schema import Params
from lethe.io.artifacts import Row, read_split
from lethe.io.files import Json, flat_items
from lethe.statistics.epsilon_star import EpsilonStarAudit, audit
from lethe.statistics.epsilon_star.ratios import recommended_delta
from studies import outcome

NAME = "epsilon-star-text"
SEEDS = ("data.seed", "train.recipe.seed", "unlearn.recipe.seed")
LEVEL = 0.05  # of a lower bound, and of the test of a fit
LEAST = -(2.0**-24)  # ln p of a token whose probability rounds to 1 in float32
Values = dict[str, Json]


@dataclass(frozen=True)
class Losses:
    """The losses of one model by one definition: (n,) of members, (m,) of held-out rows."""

    members: np.ndarray
    population: np.ndarray

    def audit(self, *, cut: bool = False) -> EpsilonStarAudit:
        """By Definition 2: one Gaussian a side, delta 1 / (n ln n). With ``cut`` the rates lie between delta and 1 - delta,
        as in the paper's own implementation (footnote 2); then no estimate exceeds ln((1 - delta) / delta).

        For the lower end the members count as a sample of such rows. As a whole training set they would have an infinite end
        wherever all of their losses are below the threshold and those of more than delta of the population are not.
        """
        delta = recommended_delta(len(self.members))
        least_rate = delta if cut else None
        return audit(self.members, self.population, delta=delta, cut=least_rate, alpha=LEVEL)


def negative_logit(log_probs: np.ndarray) -> float:
    """The mean over (T,) tokens of -(ln p - ln(1 - p)); a p that rounds to 1 counts as the next smaller float32.

    An answer of a model without tokens has no loss: NaN.
    """
    if not len(log_probs):
        return float("nan")
    capped = np.minimum(log_probs, LEAST)
    log_of_rest = np.log(-np.expm1(capped))  # ln(1 - p)
    return float(np.mean(log_of_rest - capped))


def study(root: Path, *, keep: bool = False) -> Values:
    """Read the models of the finished run in ``root``, write the outcome and return its values.

    Raises `MissingArtifact` where a model or a split of the dataset is not there yet.
    """
    params = config.load(root / config.FILE)
    settings = params.model_dump(mode="json")
    setting_of_key: dict[str, Json] = dict(flat_items(settings))
    seeds = [setting_of_key[key] for key in SEEDS]
    of_study = outcome.Study(NAME, f"lethe study {NAME}", seeds, settings, keep)
    values = measure(params, root)
    of_study.finish(values)
    return values


def measure(params: Params, root: Path) -> Values:
    """The numbers of each model that has weights, and the share of those whose fit is not rejected."""
    dataset = root / "data/dataset"
    rows = {split: read_split(split, dataset) for split in ("forget", "retain", "heldout")}
    models: list[Values] = []
    paths = set()
    for name, model in params.models.items():
        if model.path == SERVED or model.path in paths:
            continue  # the same weights at another temperature have the same losses
        paths.add(model.path)

        members = [*rows["forget"], *rows["retain"]]
        trained = params.train.models.get(name)
        if trained is not None and trained.rows == "retain":
            members = rows["retain"]

        prompt = root / params.asked(name).prompt
        numbers = _numbers(root / model.path, prompt, members, rows, label=name)
        models.append({"model": name, **numbers})

    fits = [row["paper"]["not rejected"] for row in models]
    return {"models": models, "one Gaussian not rejected": sum(fits) / len(fits)}


def _numbers(
    path: Path, prompt: Path, members: Sequence[Row], rows: dict[str, list[Row]], label: str
) -> Values:
    """Epsilon* of one model by both definitions."""
    from lethe.models.checkpoints import load, prepare_torch
    from lethe.models.encoding import Encoder
    from lethe.models.likelihood import AnswerTokens, answer_tokens

    prepare_torch()
    model, tokenizer = load(path)
    encoder = Encoder(tokenizer, str(prompt))
    padding = tokenizer.pad_token_id or 0

    def tokens_of(split: Sequence[Row], name: str) -> list[AnswerTokens]:
        examples = [encoder.example(row) for row in split]
        return answer_tokens(model, examples, padding, label=f"{label} {name}")

    def negative_logits(answers: Sequence[AnswerTokens]) -> np.ndarray:
        return np.array([negative_logit(answer.log_probs) for answer in answers])

    def mean_losses(answers: Sequence[AnswerTokens]) -> np.ndarray:
        return np.array([answer.nll for answer in answers])

    heldout = tokens_of(rows["heldout"], "heldout")
    forget = tokens_of(rows["forget"], "forget")
    trained = tokens_of(members, "training set")

    paper = Losses(negative_logits(trained), negative_logits(heldout))
    ours = Losses(mean_losses(forget), mean_losses(heldout))
    return {
        "paper": {**_facts(paper.audit()), "with the cut": _finite(paper.audit(cut=True))},
        "ours": _facts(ours.audit()),
    }


def _facts(result: EpsilonStarAudit) -> Values:
    """What is infinite, or NaN where a cut leaves no threshold, is None: JSON has neither."""
    fit = result.fit
    return {
        "members": result.n_train,
        "population": result.n_population,
        "delta": result.delta,
        "estimate": _finite(result),
        "lower": None if result.lower_infinite else result.epsilon_lower,
        "not rejected": fit is not None and min(fit.ks_p_values.values()) >= LEVEL,
    }


def _finite(result: EpsilonStarAudit) -> float | None:
    """The estimate; None where it is infinite or NaN."""
    return result.epsilon_star if math.isfinite(result.epsilon_star) else None


def table(values: Values) -> tuple[list[str], list[list[Json]]]:
    """Head and rows of the printed table."""
    head = ["model", "training set", "with the cut", "lower", "Gaussian", "forget set", "lower"]
    rows = []
    for row in values["models"]:
        paper = row["paper"]
        ours = row["ours"]
        rows.append(
            [
                row["model"],
                paper["estimate"],
                paper["with the cut"],
                paper["lower"],
                "not rejected" if paper["not rejected"] else "rejected",
                ours["estimate"],
                ours["lower"],
            ]
        )
    return head, rows
