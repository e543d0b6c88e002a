"""Changes to params.yaml from the command line: `-S key=value` and presets, comments and order kept."""

import contextlib
import copy
import functools
import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.representer import RoundTripRepresenter

from flows import workspace
from lethe import config
from lethe.audits.unlearning_game.text_game import Params as TextGame
from lethe.config.load import read_preset as preset_in
from lethe.config.load import section_of
from lethe.config.measuring import NO_BINARY
from lethe.config.schema import PLAIN, Params
from lethe.config.seeds import write_copies
from lethe.errors import BadInput, BadParam, ParamsClash
from lethe.io.files import Json, write_text
from lethe.io.label_places import ANSWERS, CALIBRATION, LABELS, filled
from lethe.labels.labels import read_labels
from lethe.models import checkpoints, hub
from lethe.models.encoding import CHAT, read_template
from lethe.sampling.prompt_language import read_language
from lethe.steps import utility

PRESETS = Path(__file__).parent / "presets"
MODELS = Path("data/models")
FIRST = "train.recipe.start_from"  # never the output of a stage: the stages `train` read this model
read_preset = functools.partial(preset_in, PRESETS)
GAMES_READ = (
    Path("data/source"),
    Path("lethe/models/prompts"),
)  # what dvc.yaml lists for the stage `game`


def change(path: Path, settings: Sequence[tuple[str, object]]) -> list[str]:
    """Write new values into params.yaml at ``path``; return a line for each change."""
    changes, text = changed(path, settings)
    if changes:
        write_text(path, text)
    return changes


def change_here(root: Path, settings: Sequence[tuple[str, object]]) -> list[str]:
    """Change ``root``'s params.yaml and return a line per change, also where an attack among the models must move, or
    entries for `seeds` are to be written.
    """
    path = root / config.FILE
    if not settings:
        document = config.read_yaml(path)
        if not _attacks_among(document.get("models")) and not write_copies(document):
            return []
    back = "git checkout params.yaml"
    if not workspace.in_git(root):
        back = f"cp {workspace.ORIGINAL} params.yaml"
        if not (root / workspace.ORIGINAL).exists():
            write_text(root / workspace.ORIGINAL, path.read_text(encoding="utf-8"))
    lines = [f"params.yaml changes: {line}" for line in change(path, settings)]
    if not lines:
        return ["params.yaml unchanged"]
    return [*lines, f"The change stays in params.yaml; `{back}` undoes it."]


def changed(path: Path, settings: Sequence[tuple[str, object]]) -> tuple[list[str], str]:
    """Return the changes and the text that `change` would write; raises `BadParam` as `change` does."""
    config.read_yaml(path)  # refuses what is no YAML, with its line
    document = _yaml().load(path.read_text(encoding="utf-8"))
    changes = []
    for key, value in settings:
        section, last = section_of(document, key, value, str(path))
        if last not in section or section[last] != value:
            changes.append(f"{key}: {_short(section.get(last, 'absent'))} -> {_short(value)}")
            # A later change may be of a key within.
            section[last] = copy.deepcopy(value)
    changes += _attacks_in_their_place(document)
    changes += write_copies(document)
    stream = io.StringIO()
    _yaml().dump(document, stream)
    check(config.validate(config.parse_yaml(stream.getvalue(), path), str(path)), path.parent)
    return changes, stream.getvalue()


def _attacks_in_their_place(document: dict[str, Json]) -> list[str]:
    """Move each entry under ``models`` with the key ``after`` to ``attacks``, with its references; return the changes.

    Raises `BadParam` where an attack of that name is there already.
    """
    models = document.get("models")
    attacks = document.get("attacks")
    if not isinstance(models, dict) or not isinstance(attacks, dict):
        return []
    changes = []
    moved = _attacks_among(models)
    for name in moved:
        if name in attacks and attacks[name] != models[name]:
            raise BadParam(
                f"models.{name}", dict(models[name]), f"a name that attacks does not have ({name})"
            )
        attacks[name] = models.pop(name)
        changes.append(
            f"models.{name} -> attacks.{name}: an entry with `after` is an attack, which has a stage of its own"
        )
    for name in moved:
        changes += _references(document, name)
    return changes


def _attacks_among(models: object) -> list[str]:
    """The names of the entries under ``models`` that have the key ``after``."""
    if not isinstance(models, dict):
        return []
    return [name for name, entry in models.items() if isinstance(entry, dict) and "after" in entry]


def _references(document: dict[str, Json], name: str) -> list[str]:
    """Add base and retrain under the attack ``name``, as the report compares them; return the changes."""
    models = document["models"]
    attacks = document["attacks"]
    changes: list[str] = []
    report = document.get("report")
    if not isinstance(report, dict) or not isinstance(attacks[name], dict):
        return changes  # validation names what is wrong
    for role in ("base", "retrain"):
        model = report.get(role)
        entry = models.get(model) if model is not None else None
        if not isinstance(entry, dict) or "path" not in entry:
            continue

        twin = copy.deepcopy(attacks[name])  # a shared object would become an alias in the file
        twin["path"] = entry["path"]
        if twin in attacks.values():
            continue

        attacked = f"{name}_{model}"
        if attacked in attacks:
            raise BadParam(
                f"attacks.{attacked}",
                dict(attacks[attacked]),
                f"{model} under the attack of {name}, or another name",
            )
        attacks[attacked] = twin
        changes.append(
            f"attacks.{attacked}: added, so that the report shows {name} and {model} under the same attack"
        )
    return changes


def _yaml() -> YAML:
    """A reader and writer of YAML that keeps comments, quotes and the order of keys."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # never fold a long line

    # DVC in this process writes by the class of ruamel.yaml, which stays as it is.
    class Representer(RoundTripRepresenter):
        pass

    yaml.Representer = Representer
    represent = yaml.representer.add_representer
    represent(
        type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    represent(
        float,
        lambda writer, value: writer.represent_scalar("tag:yaml.org,2002:float", _number(value)),
    )
    return yaml


def _number(value: float) -> str:
    """A number that YAML 1.1 reads as one too: 1e-05 is text there, and 1.0e-05 is not.

    >>> _number(1e-05), _number(0.5)
    ('1.0e-05', '0.5')
    """
    text = repr(value)
    if "e" in text and "." not in text:
        return text.replace("e", ".0e", 1)
    return text


def _short(value: object, limit: int = 60) -> str:
    """A value in at most so many characters."""
    if isinstance(value, dict):
        value = dict(value)
    text = str(value)
    if len(text) <= limit:
        return text
    return text[: limit - 3] + "..."


def check(params: Params, root: Path) -> None:
    """Raise the `BadInput` that names the first key whose path, below ``root``, does not exist or is of the wrong kind, or
    whose package is missing.
    """
    if params.utility.tasks:
        utility.check_installed()  # a stage would miss it hours later
    made = {str(MODELS / name) for name in (*params.train.models, *params.unlearn.methods)}
    prompts = _prompts(params)
    models = _models(params)

    # Models of the hub are fetched, so that they exist.
    for key, path in models.items():
        named = hub.named_by(path)
        if named:
            with _as_of(key):
                hub.fill(named, root)
    for key, path in models.items():
        if path not in made:
            # An adapter that no stage makes holds its base model, or DVC would not see when the base changes.
            checkpoints.check_tracked(root / path, key)

    _check_judged(params, root)
    _check_labels(params, root)
    _check_language(params.sample.language, root)
    _check_paths(params, prompts, models, made, root)
    for key, path in prompts.items():
        with _as_of(key):
            read_template(root / path)
    _check_games(prompts | models, root)

    # Report a mistake in a model that no stage makes before hours of training.
    for key, path in models.items():
        if os.path.normpath(path) not in made:
            with _as_of(key):
                checkpoints.check(root / path)


def _check_language(language: str | None, root: Path) -> None:
    """Refuse a language of prompts that is no file, or that cannot be read."""
    if language is None:
        return
    if not (root / language).is_file():
        raise BadParam("sample.language", language, f"a file that exists, such as {PLAIN}")
    with _as_of("sample.language"):
        read_language(root / language)


def _check_paths(
    params: Params,
    prompts: Mapping[str, str],
    models: Mapping[str, str],
    made: Collection[str],
    root: Path,
) -> None:
    """Refuse the first path that does not exist; a model may be one of ``made``, which a stage makes."""
    paths = {"data.source": params.data.source}
    for name, audit in params.audits.items():
        paths[f"audits.{name}.source"] = audit.source
    paths |= {**prompts, **models}
    for key, path in paths.items():
        from_stage = key in models and key != FIRST and not key.startswith("games.")
        if (root / path).exists() or (from_stage and os.path.normpath(path) in made):
            continue
        legal = "a path that exists"
        if from_stage:
            legal += f", or a model that a stage makes ({', '.join(sorted(made))})"
        raise BadParam(key, path, legal)
    if FIRST in models and os.path.normpath(models[FIRST]) in made:
        legal = "a model that no stage makes: the stage `train` would wait for itself"
        raise BadParam(FIRST, models[FIRST], legal)


def _check_games(paths: Mapping[str, str], root: Path) -> None:
    """Require what a game reads in folders that dvc.yaml lists, since only some games have these keys."""
    folders = [os.path.abspath(root / folder) for folder in GAMES_READ]
    for key, path in paths.items():
        place = Path(os.path.abspath(root / path))
        if key.startswith("games.") and not any(place.is_relative_to(folder) for folder in folders):
            legal = f"a path below {' or '.join(map(str, GAMES_READ))}, whose content the stage game depends on"
            raise BadParam(key, path, legal)


def _check_judged(params: Params, root: Path) -> None:
    """Labelled answers are a file or a split that the stage prepare writes; a calibration is a file or made of them."""
    made = []
    for name, judge in params.judges.items():
        path = filled(judge.labelled, root)
        if path is None:
            continue
        of_the_dataset = Path(os.path.normpath(path)).parent == Path("data/dataset")
        if not of_the_dataset and not (root / path).is_file():
            legal = f"a file that exists, a split of the dataset (data/dataset/SPLIT.jsonl), or {ANSWERS}"
            raise BadParam(f"judges.{name}.labelled", path, legal)
        made.append(f"data/judged/{name}/calibration.csv")
    path = filled(params.metrics.calibration, root)
    if path is not None and os.path.normpath(path) not in made and not (root / path).is_file():
        legal = f"a file that exists, such as {CALIBRATION}"
        if made:
            legal += f", or what a stage makes of labelled answers ({', '.join(made)})"
        raise BadParam("metrics.calibration", path, legal)
    if path is not None and params.metrics.binary is None:
        raise ParamsClash("metrics", f"calibration is {path!r}, {NO_BINARY}")


def _check_labels(params: Params, root: Path) -> None:
    """Refuse a folder of labels that has none of a model, or a broken row."""
    folder = filled(params.metrics.labels.folder, root)
    if folder is None:
        return
    if not any((root / folder / f"{name}.jsonl").is_file() for name in params.models):
        legal = f"a folder with a file of `lethe label` for one of the models ({', '.join(params.models)}), or {LABELS}"
        raise BadParam("metrics.labels.folder", folder, legal)
    with _as_of("metrics.labels.folder"):
        for name in params.models:
            # A broken row would otherwise stop the stage metrics, hours later.
            read_labels(root / folder / f"{name}.jsonl")


@contextlib.contextmanager
def _as_of(key: str) -> Iterator[None]:
    """Have an error name the key of params.yaml whose value it is about."""
    try:
        yield
    except BadInput as error:
        raise ParamsClash(key, str(error).rstrip(".")) from None


def _of_games(params: Params, key: str) -> dict[str, str]:
    """A path of each game that trains language models; only these name a prompt or a model."""
    paths: dict[str, str] = {}
    for name, game in params.games.items():
        if not isinstance(game, TextGame):
            continue
        path = getattr(game.learning, key)
        if path is not None:
            paths[f"games.{name}.learning.{key}"] = path
    return paths


def _prompts(params: Params) -> dict[str, str]:
    """The templates of prompts that are files, by their keys in params.yaml."""
    named = {
        "train.recipe.prompt": params.train.recipe.prompt,
        "sample.prompt": params.sample.prompt,
    }
    named |= _of_games(params, "prompt")
    return {key: path for key, path in named.items() if path != CHAT}


def _models(params: Params) -> dict[str, str]:
    """The models that stages read, by their keys in params.yaml."""
    places: dict[str, str] = {}
    if params.train.recipe.start_from:
        places[FIRST] = params.train.recipe.start_from
    places |= _of_games(params, "start_from")
    if params.unlearn.methods:
        places["unlearn.recipe.start_from"] = params.unlearn.recipe.start_from
    for name, judge in params.judges.items():
        places[f"judges.{name}.model"] = judge.model
    for name, attack in params.attacks.items():
        places[f"attacks.{name}.path"] = attack.path
    for name, model in params.models.items():
        places[f"models.{name}.path"] = model.path
    return places
