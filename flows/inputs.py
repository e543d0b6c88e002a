"""Checks of the paths in params.yaml: each file or folder must exist and be usable, unless a stage makes it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lethe.audits.unlearning_game.kinds.text import Params as TextGame
from lethe.config.schema import ANSWERS, CALIBRATION, LABELS, PLAIN, Params
from lethe.data.prompt_language import read_language
from lethe.errors import BadInput, BadParam, ParamsClash
from lethe.evaluation.labels import read_labels
from lethe.models import checkpoints, hub
from lethe.models.encoding import CHAT, read_template

MODELS = Path("data/models")
FIRST = "train.recipe.start_from"  # never the output of a stage: the stages `train` read this model
GAMES_READ = (Path("data/source"), Path("lethe/models/prompts"))  # what dvc.yaml lists for the stage `game`


def check(params: Params, root: Path) -> None:
    """Raise the `BadInput` that names the first key whose path does not exist or is of the wrong kind.

    Call it before any stage starts. Paths are relative to ``root``. A checkpoint of the hub is put into its folder.
    """
    made = {str(MODELS / name) for name in (*params.train.models, *params.unlearn.methods)}
    prompts, models_named = _prompts(params), _models(params)
    for key, path in models_named.items():
        if found := hub.named_by(path):
            with _told_as(key):
                hub.fill(found, root)
    _check_labelled(params, root)
    _check_calibration(params, root)
    _check_labels(params, root)
    _check_language(params, root)
    for key, path in (_sources(params) | prompts | models_named).items():
        from_stage = key in models_named and key != FIRST and not key.startswith("games.")
        if (root / path).exists() or (from_stage and os.path.normpath(path) in made):
            continue
        legal = "a path that exists"
        if from_stage:
            legal += f", or a model that a stage makes ({', '.join(sorted(made))})"
        raise BadParam(key, path, legal)
    first = params.train.recipe.start_from
    if first is not None and os.path.normpath(first) in made:
        raise BadParam(FIRST, first, "a model that no stage makes: the stage `train` would wait for itself")
    for key, path in prompts.items():
        with _told_as(key):
            read_template(root / path)
    _check_games(params, root)
    # Report a mistake in a model that no stage makes before hours of training.
    for key, path in models_named.items():
        if os.path.normpath(path) not in made:
            with _told_as(key):
                checkpoints.check(root / path)


def _check_labelled(params: Params, root: Path) -> None:
    """The labelled answers of each judge are a file, or a split that the stage prepare writes."""
    for name, judge in params.judges.items():
        path = judge.labelled
        if path is None or (root / path).is_file() or Path(os.path.normpath(path)).parent == Path("data/dataset"):
            continue
        legal = f"a file that exists, a split of the dataset (data/dataset/SPLIT.jsonl), or {ANSWERS}"
        raise BadParam(f"judges.{name}.labelled", path, legal)


def _check_language(params: Params, root: Path) -> None:
    path = params.sample.language
    if path is None:
        return
    if not (root / path).is_file():
        raise BadParam("sample.language", path, f"a file that exists, such as {PLAIN}")
    with _told_as("sample.language"):
        read_language(root / path)


def _check_calibration(params: Params, root: Path) -> None:
    path = params.metrics.calibration
    made = [f"data/judged/{name}/calibration.csv" for name, judge in params.judges.items() if judge.labelled]
    if path is None or os.path.normpath(path) in made or (root / path).is_file():
        return
    legal = f"a file that exists, such as {CALIBRATION}"
    if made:
        legal += f", or what a stage makes of labelled answers ({', '.join(made)})"
    raise BadParam("metrics.calibration", path, legal)


def _check_labels(params: Params, root: Path) -> None:
    """A folder with the labels of at least one model, since DVC tracks the folder."""
    folder = params.metrics.labels.folder
    if folder is None:
        return
    if not any((root / folder / f"{name}.jsonl").is_file() for name in params.models):
        legal = f"a folder with a file of `lethe label` for one of the models ({', '.join(params.models)}), or {LABELS}"
        raise BadParam("metrics.labels.folder", folder, legal)
    with _told_as("metrics.labels.folder"):
        for name in params.models:  # a broken row would otherwise stop the stage metrics, hours later
            read_labels(root / folder / f"{name}.jsonl")


def _check_games(params: Params, root: Path) -> None:
    """Require a game's prompt and model in folders that dvc.yaml lists, since only some games have these keys."""
    tracked = [os.path.abspath(root / place) for place in GAMES_READ]
    for name, game in _text_games(params).items():
        for key in ("prompt", "start_from"):
            path = getattr(game.learning, key)
            if path in (None, CHAT):
                continue
            place = Path(os.path.abspath(root / path))
            if not any(place.is_relative_to(folder) for folder in tracked):
                legal = (
                    f"a path below {' or '.join(map(str, GAMES_READ))}, whose content the stage game depends on"
                )
                raise BadParam(f"games.{name}.learning.{key}", path, legal)


@contextlib.contextmanager
def _told_as(key: str) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise ParamsClash(key, str(error).rstrip(".")) from None


def _sources(params: Params) -> dict[str, str]:
    audits = {f"audits.{name}.source": audit.source for name, audit in params.audits.items()}
    return {"data.source": params.data.source, **audits}


def _prompts(params: Params) -> dict[str, str]:
    """Return the template files by key; the tokenizer's own chat template is not a file."""
    named = {
        "train.recipe.prompt": params.train.recipe.prompt,
        "sample.prompt": params.sample.prompt,
        **{f"games.{name}.learning.prompt": game.learning.prompt for name, game in _text_games(params).items()},
    }
    return {key: path for key, path in named.items() if path != CHAT}


def _text_games(params: Params) -> dict[str, TextGame]:
    """Return the games that train language models; only these name a prompt or a model."""
    return {name: game for name, game in params.games.items() if isinstance(game, TextGame)}


def _models(params: Params) -> dict[str, str]:
    places = {FIRST: params.train.recipe.start_from} if params.train.recipe.start_from else {}
    places |= {
        f"games.{name}.learning.start_from": game.learning.start_from
        for name, game in _text_games(params).items()
        if game.learning.start_from is not None
    }
    if params.unlearn.methods:
        places["unlearn.recipe.start_from"] = params.unlearn.recipe.start_from
    places |= {f"judges.{name}.model": judge.model for name, judge in params.judges.items()}
    places |= {f"attacks.{name}.path": attack.path for name, attack in params.attacks.items()}
    return places | {f"models.{name}.path": model.path for name, model in params.models.items()}
