"""The work of a step of `lethe study twins-canaries`: a model is made by Lethe's own stages, ranked and bounded.

A folder of work holds the models; where one is gone, it is made again by the same seeds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.config.measuring import ModelEntry
from lethe.data.sealed import read_key
from lethe.data.secrets import secrets_of
from lethe.io.artifacts import write_splits
from lethe.io.files import Json
from lethe.models import checkpoints
from lethe.models.checkpoints import InMemory, Source
from lethe.models.encoding import Encoder
from lethe.models.likelihood import mean_losses
from lethe.progress import tell
from lethe.results.exact_bounds import rows_of
from lethe.steps import exact, twins
from lethe.steps.exact import of_params
from studies.canaries.design import (
    BASE,
    DATA,
    NAME,
    PROMPT,
    RETRAIN,
    UNTOUCHED,
    Design,
    Step,
    canaries,
    kept,
    steps,
)
from studies.steps import Clock, Steps, kept_rows, working_in
from studies.steps import read_outcomes as of_steps

ROOT = Path(".")  # the folder of work, in which a step runs
SEED = 5  # of the attacks
KEPT = (("leak", "exact"), ("leak", "tree"))


@dataclass(frozen=True)
class Place:
    """The pretrained model's folder, and the folder of work; each absolute."""

    pretrained: Path
    work: Path


def run(
    design: Design,
    place: Place,
    keep: bool,
    limit: int | None = None,
    said: Callable[[str], None] = tell,
) -> list[str]:
    """Do the steps that have no outcome yet, at most ``limit`` of them, and return their names."""
    recipe = design.params
    seeds = [recipe.train.recipe.seed, recipe.unlearn.recipe.seed, recipe.sample.seed, SEED]
    study = Steps(
        NAME,
        listed=lambda _: steps(design),
        seeds=lambda _: seeds,
        work=lambda step, _: measured(design, place, step),
    )
    return study.run(keep, limit, said)


def read_outcomes(keep: bool) -> dict[str, Mapping[str, Json]]:
    """The values of the steps that are done, by their names."""
    return of_steps(NAME, keep)


def measured(design: Design, place: Place, step: Step) -> dict[str, Json]:
    """Make the model of a step; return its ranks and scores, or the certain ends of each canary."""
    clock = Clock()
    with working_in(place.work):
        write_splits({"forget": canaries(), "retain": kept()}, "jsonl", ROOT / "dataset")
        source = _made(design, place, step)
        if step.kind == "trace":
            values = _ranked(source, step)
        else:
            values = _bounded(design, source, step)
    return {**values, **clock.cost()}


def _made(design: Design, place: Place, step: Step) -> Source:
    """The model of a step, trained or unlearned if it is not there, and attacked where the step has an attack."""
    folder = _folder(design, place, step.model)
    if not step.attack:
        return folder
    return _attacked(design, folder, step.attack)


def _folder(design: Design, place: Place, name: str) -> Path:
    """The folder of a model before any attack, trained or unlearned if it is not there."""
    from stages import train, unlearn

    if name == UNTOUCHED:
        return place.pretrained
    folder = Path("models", name)
    if (folder / "training.json").is_file():
        return folder

    params = design.params
    if name in (BASE, RETRAIN):
        recipe = params.train.recipe.model_copy(update={"start_from": str(place.pretrained)})
        rows = "all" if name == BASE else "retain"
        train.train(name, recipe, rows, ROOT)
        return folder

    base = _folder(design, place, BASE)
    recipe_of_method = params.unlearn.recipe.model_copy(update={"start_from": str(base)})
    unlearn.forget(name, recipe_of_method, params.unlearn.methods[name], PROMPT, ROOT)
    return folder


def _attacked(design: Design, folder: Path, name: str) -> InMemory:
    """A model after the largest budget of an attack."""
    import torch

    from lethe.attacks.protocol import Knowledge
    from lethe.registry import MODEL_ATTACKS

    checkpoints.prepare_torch()
    torch.manual_seed(SEED)
    model, tokenizer = checkpoints.load(folder, "float32")
    settings = design.attack(name)
    attack = MODEL_ATTACKS[settings.kind](settings)
    encoder = Encoder(tokenizer, PROMPT)
    padding = tokenizer.pad_token_id or 0
    knowledge = Knowledge(canaries(), kept(), encoder, padding)

    for _budget, attacked in attack.attacked(model, knowledge, SEED):
        model = attacked
    return InMemory(model, tokenizer)


def _ranked(source: Source, step: Step) -> dict[str, Json]:
    """The ranks and scores of the canaries, and the loss on the rows that stay."""
    secrets = secrets_of(canaries())
    scored = twins.candidate_scores(source, secrets, PROMPT, f"twins {step.of}")
    test = twins.tested(scored, read_key(DATA / "twins.key"))
    scores = [np.round(of_secret.log_probs, 4).tolist() for of_secret in scored]

    model, tokenizer = checkpoints.opened(source)
    losses = mean_losses(model, tokenizer, PROMPT, kept())
    return {
        "secrets": [of_secret.secret.name for of_secret in scored],
        "ranks": list(test.ranks),
        "candidates": list(test.candidates),
        "p": test.p,
        "direction": test.direction,
        "scores": scores,
        "retain_loss": float(np.mean(losses)),
    }


def _bounded(design: Design, source: Source, step: Step) -> dict[str, Json]:
    """The certain ends of the probability of each canary, and the answer trees behind them."""
    params = design.params
    assert params.exact is not None
    settings = of_params(params.exact, params.sample, ModelEntry(path=str(source)), "word")
    certificates = exact.certify(step.of, source, canaries(), settings)
    return {
        "secrets": [row["id"] for row in canaries()],
        "rows": kept_rows(rows_of(certificates), KEPT),
    }
