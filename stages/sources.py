"""Stage `sources`: the identity of each entry of each stage, which dvc.yaml takes from data/sources.json beside the raw keys.

An identity hashes the code that the stage can run, the modules of the members that its settings name, and the settings that
dvc.yaml lists for the stage, with their defaults and what `lethe.config` computes of them (`lethe.identity`). So an edit
makes only the entries run again whose output it can change.
"""

import os
from collections.abc import Callable
from pathlib import Path

from lethe.config import Params
from lethe.config.schema import Population
from lethe.identity import Sources, content_digest
from lethe.identity import versions as installed_versions
from lethe.io.files import Json, write_json
from lethe.io.yaml import read_yaml
from lethe.models.checkpoints import check_tracked
from lethe.registry import (
    AUDITS,
    DATASETS,
    DIVERSITY,
    ENGINES,
    GAMES,
    JUDGES,
    LIKELIHOODS,
    METHODS,
    MODEL_ATTACKS,
    ONE_RUN_METHODS,
    SCORERS,
    TEXT_ATTACKS,
    Registry,
)
from lethe.unlearning import ALONG
from stages import entry

Members = dict[str, str]  # modules, each with the version of the package that it comes from
# What a stage reads beside the keys that dvc.yaml lists: values that the settings compute of them.
COMPUTED = {
    "references": ("report.retrains", "sharing"),
    "sample": ("sample.most", "sample.longest", "sample.at_first"),
    # The tokenizer then never reads the secrets.
    "train": ("train.models.${key}", "secrets_are_drawn"),
    "unlearn": ("unlearn.methods.${key}", "along"),
    "likelihood": ("models.${key}.template",),
    "twins": ("models.${key}.template",),
    "epsilon_star": ("models.${key}.template",),
    "compare": ("report.retrains", "sharing", "sample.most", "metrics.utility_scorer"),
}
NAMES = "lethe.results.quantities"  # no closure has it; these two stages write what it names
WITH_NAMES = ("metrics", "report")


def identities(root: Path, settings: Params) -> dict[str, object]:
    """Return by stage of ``root/dvc.yaml`` its identity, or those of its entries by their names."""
    sources = Sources(root)
    hashes: dict[str, object] = {}
    for stage, definition in _stages(root).items():
        keys = keys_of(root)[stage]
        if "foreach" not in definition:
            hashes[stage] = identity(sources, settings, stage, "", keys)
            continue
        entries = _at(settings, definition["foreach"].removeprefix("${").removesuffix("}"))
        hashes[stage] = {name: identity(sources, settings, stage, name, keys) for name in entries}
    return hashes


def keys_of(root: Path) -> dict[str, list[str]]:
    """Return by stage the keys of params.yaml that dvc.yaml lists, and the values computed of them."""
    keys_of_stage: dict[str, list[str]] = {}
    for stage, definition in _stages(root).items():
        params = definition.get("do", definition)["params"]
        listed = [key for key in params if isinstance(key, str)]
        keys_of_stage[stage] = [*listed, *COMPUTED.get(stage, ())]
    return keys_of_stage


def identity(
    sources: Sources,
    settings: Params,
    stage: str,
    name: str,
    keys: list[str],
) -> str:
    """Return the identity of one entry of a stage."""
    modules = filter(sources.place, modules_of(settings, stage, name))
    versions = sorted(members(settings, stage, name).values())
    values = values_of(settings, name, keys)
    if stage == "unlearn" and settings.along is not None:
        # The entry depends on this file only where it measures points.
        values["along.prompt"] = content_digest(sources.root / settings.along.prompt)
    return sources.identity(*modules, settings=values, versions=versions)


def modules_of(settings: Params, stage: str, name: str) -> list[str]:
    """Return the modules with which the code of one entry begins: the stage's own and those of its members."""
    names = [NAMES] if stage in WITH_NAMES else []
    return [f"stages.{stage}", *sorted(members(settings, stage, name)), *names]


def members(settings: Params, stage: str, name: str) -> Members:
    """Return the modules that one entry of a stage loads by a name, which no import statement shows."""
    return MEMBERS[stage](settings, name) if stage in MEMBERS else {}


def values_of(settings: Params, name: str, keys: list[str]) -> dict[str, Json]:
    """Return the values of keys such as ``models.${key}`` for one entry."""
    values: dict[str, Json] = {}
    for key in keys:
        of_entry = key.replace("${key}", name)
        values[of_entry] = _at(settings, of_entry)
    return values


def _prepare(settings: Params, name: str) -> Members:
    """The dataset that the settings name."""
    return DATASETS.modules(settings.data.kind)


def _unlearn(settings: Params, name: str) -> Members:
    """The method of one entry; where points along it are measured, every engine and the scorers."""
    modules = METHODS.modules(settings.unlearn.methods[name].loss)
    if settings.along is not None:
        modules |= {ALONG: ""} | ENGINES.modules()
        modules |= _scorer(settings.along.leak) | _scorer(settings.along.utility)
    return modules


def _sample(settings: Params, name: str) -> Members:
    """Every engine, as the machine chooses, and the scorer by which the rule of stopping decides."""
    if settings.sample.stop == "fixed":
        return ENGINES.modules()
    binary = settings.metrics.binary or ""
    if binary in settings.judges:
        return ENGINES.modules() | _judge(settings, binary)
    return ENGINES.modules() | _scorer(binary)


def _judge(settings: Params, name: str) -> Members:
    """The judge of one entry."""
    return JUDGES.modules(settings.judges[name].judge)


def _utility(settings: Params, name: str) -> Members:
    """The step, with the version of the package by which it measures; empty where that is not installed."""
    return {"lethe.steps.utility": str(installed_versions("lm-eval")["lm-eval"])}


def _score(settings: Params, name: str) -> Members:
    """Every likelihood, and the scorers that the settings name."""
    modules = LIKELIHOODS.modules()
    for scorer in settings.score.names:
        modules |= _scorer(scorer)
    return modules


def _exact(settings: Params, name: str) -> Members:
    """The scorer of the answer trees; none where they are off."""
    return {} if settings.exact is None else _scorer(settings.exact.scorer)


def _metrics(settings: Params, name: str) -> Members:
    """What measures the diversity of answers, and the binary scorer, which says about which rows it can speak."""
    binary = settings.metrics.binary
    if binary is None:
        return DIVERSITY.modules()
    if binary in settings.judges:
        return DIVERSITY.modules() | _judge(settings, binary)
    return DIVERSITY.modules() | _scorer(binary)


def _attack(settings: Params, name: str) -> Members:
    """Every engine, the attack and the scorer of its answers."""
    attack = settings.attacks[name]
    if isinstance(attack, Population):
        attacking = MODEL_ATTACKS.modules(*attack.population.kinds)
    else:
        attacking = MODEL_ATTACKS.modules(attack.after.kind)
    return ENGINES.modules() | attacking | _scorer(attack.scorer)


def _audit(settings: Params, name: str) -> Members:
    """The audit, and every method of the one-run audit."""
    return AUDITS.modules(settings.audits[name].kind) | ONE_RUN_METHODS.modules()


def _game(settings: Params, name: str) -> Members:
    """The game, its attacks, and the dataset, methods and scorer that the entry names."""
    game = settings.games[name]
    modules = GAMES.modules(game.kind) | TEXT_ATTACKS.modules() | ENGINES.modules()
    data = getattr(game, "data", None)
    if data is not None:
        modules |= DATASETS.modules(data.kind)
    for method in getattr(game, "methods", {}).values():
        modules |= METHODS.modules(method.loss)
    leakage = getattr(game, "leakage", None)
    if leakage is not None:
        modules |= _scorer(leakage.scorer)
    return modules


def _scorer(name: str) -> Members:
    """The module of a scorer, which may be a judge."""
    registry: Registry = JUDGES if name in JUDGES else SCORERS
    return registry.modules(name)


# Other stages load no member.
MEMBERS: dict[str, Callable[[Params, str], Members]] = {
    "prepare": _prepare,
    "unlearn": _unlearn,
    "sample": _sample,
    "judge": _judge,
    "score": _score,
    "exact": _exact,
    "metrics": _metrics,
    "attack": _attack,
    "utility": _utility,
    "audit": _audit,
    "game": _game,
}


def _stages(root: Path) -> dict[str, Json]:
    """The stages of dvc.yaml by name, without `sources` itself."""
    listed: Json = read_yaml(root / "dvc.yaml")["stages"]
    stages: dict[str, Json] = dict(listed)
    stages.pop("sources", None)
    return stages


def _at(settings: Params, key: str) -> Json:
    """The value of a dotted key, whose parts are names of entries or of settings."""
    value: Json = settings
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def check_models(settings: Params) -> None:
    """Refuse an adapter that no stage makes and whose base DVC does not track with it."""
    made = {f"data/models/{name}" for name in (*settings.train.models, *settings.unlearn.methods)}
    places = {
        "train.recipe.start_from": settings.train.recipe.start_from,
        "unlearn.recipe.start_from": settings.unlearn.recipe.start_from,
    }
    for name, judge in settings.judges.items():
        places[f"judges.{name}.model"] = judge.model
    for name, attack in settings.attacks.items():
        places[f"attacks.{name}.path"] = attack.path
    for name, model in settings.models.items():
        places[f"models.{name}.path"] = model.path
    for key, path in places.items():
        if path is not None and os.path.normpath(path) not in made:
            check_tracked(Path(path), key)


def run(settings: Params, root: Path) -> None:
    """Write ``root/sources.json``, after a look at the models that no stage makes."""
    check_models(settings)
    write_json(root / "sources.json", identities(Path.cwd(), settings))


main = entry(run, __name__)
