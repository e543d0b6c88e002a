"""``seeds: [2, 12, 22]`` on a method or a trained model makes a model a seed, and ``utility.tasks`` a stage a model.

DVC makes a stage for each entry of a section of params.yaml, and computes no entries. So each seed but the first has an entry
of its own, ``npo_12: {same_as: npo, seed: 12}``, and so has each model that it makes. `write_copies` writes and removes these
entries, `lethe run` calls it first, and every other reader refuses a file in which `write_copies` would change something.
The entry with the key ``seeds`` is itself the model of the first seed.
"""

import copy
import os
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TypeAlias

from lethe.errors import BadParam
from lethe.io.files import Json

SECTIONS = ("train.models", "unlearn.methods")
LEGAL = "a list of different whole numbers of at least 0, such as [2, 12, 22]"
Entries: TypeAlias = MutableMapping[str, Json]


def write_copies(document: Mapping[str, Json]) -> list[str]:
    """Write the entries that ``seeds`` asks for into a document of params.yaml, remove others; return a line for each change.

    Raises `BadParam` where a name that an entry needs is taken. What is no legal document is left for validation to name.
    """
    changes = []
    for key in SECTIONS:
        section = _section(document, key)
        if section is None:
            continue

        copies = _copies(section)
        removed = [name for name in section if _is_copy(section[name]) and name not in copies]
        for name in removed:
            del section[name]
            changes.append(f"{key}.{name}: removed, because no seeds ask for this entry")
            changes += _remove_models(document, name)

        changes += _write_entries(key, section, copies)
        changes += _write_models(document, copies)
        if key == "train.models":
            changes += _write_retrains(document, copies)
    return changes + _write_measured_by_tasks(document)


def resolved(document: dict[str, Json]) -> dict[str, Json]:
    """The document with every entry written out, in place: no ``seeds``, and each copy with all keys of its entry.

    Raises ``ValueError`` for illegal seeds, and where an entry for a seed is missing or left over.
    """
    for key in SECTIONS:
        section = _section(document, key)
        if section is not None:
            _check(key, section)

    # A file that `lethe run` would change first is not what the user has read.
    try:
        changes = write_copies(copy.deepcopy(document))
    except BadParam as error:
        raise ValueError(str(error).rstrip(".")) from None
    if changes:
        raise ValueError(
            f"the entries are not as `seeds` and `utility.tasks` say ({changes[0]}); `lethe run` writes them, "
            "`lethe run sources` nothing else"
        )

    for key in SECTIONS:
        section = _section(document, key)
        if section is None:
            continue
        plain = dict(section)
        for name, entry in plain.items():
            if _is_copy(entry):
                of = entry["same_as"]
                section[name] = _with_seed(key, plain[of], entry["seed"]) | {"same_as": of}
            elif seeds_of(entry):
                section[name] = _with_seed(key, entry, seeds_of(entry)[0])
    return document


def seeds_of(entry: Json) -> list[int]:
    """The seeds of an entry, if it has legal ones; otherwise none."""
    seeds = entry.get("seeds") if isinstance(entry, Mapping) else None
    if not isinstance(seeds, list):
        return []
    for seed in seeds:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            return []
    if len(set(seeds)) < len(seeds):
        return []
    return list(seeds)


def _check(key: str, section: Entries) -> None:
    """Raises ``ValueError`` for seeds of a section that are illegal, or beside a seed."""
    for name, entry in section.items():
        if not isinstance(entry, Mapping) or "seeds" not in entry:
            continue
        stated = f"{key}.{name}"
        if not seeds_of(entry):
            raise ValueError(f"{stated}.seeds is {entry['seeds']!r}; it must be {LEGAL}")
        recipe = entry.get("recipe")
        if "seed" in entry or (isinstance(recipe, Mapping) and "seed" in recipe):
            raise ValueError(f"{stated} has both seed and seeds; keep one of them")


def _with_seed(key: str, entry: Mapping[str, Json], seed: int) -> dict[str, Json]:
    """An entry with one seed in the place of its seeds."""
    written = {name: value for name, value in entry.items() if name != "seeds"}
    if key == "train.models":
        recipe = written.get("recipe") or {}
        return {**written, "recipe": {**recipe, "seed": seed}}
    return {**written, "seed": seed}


def _copies(section: Entries) -> dict[str, dict[str, Json]]:
    """The entries that the seeds of a section ask for, by their names."""
    copies: dict[str, dict[str, Json]] = {}
    for name, entry in section.items():
        for seed in seeds_of(entry)[1:]:
            copies[f"{name}_{seed}"] = {"same_as": name, "seed": seed}
    return copies


def _is_copy(entry: Json) -> bool:
    """Whether an entry stands for a further seed of another one."""
    return isinstance(entry, Mapping) and "same_as" in entry


def _section(document: Mapping[str, Json], key: str) -> Entries | None:
    """The section of a document under a dotted key; None where there is no such mapping."""
    value: Json = document
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, MutableMapping) else None


def _place(name: str) -> str:
    """The folder of the model that an entry makes."""
    return f"data/models/{name}"


def _made_by(models: Entries, name: str) -> list[str]:
    """The models whose folder the entry ``name`` of a section makes."""
    made = []
    for model, entry in models.items():
        path = entry.get("path") if isinstance(entry, Mapping) else None
        if isinstance(path, str) and os.path.normpath(path) == _place(name):
            made.append(model)
    return made


def _remove_models(document: Mapping[str, Json], name: str) -> list[str]:
    """Remove the models of the folder that a removed entry made; return the changes."""
    models = _section(document, "models")
    if models is None:
        return []
    changes = []
    for model in _made_by(models, name):
        del models[model]
        changes.append(f"models.{model}: removed with {name}")
    return changes


def _write_entries(key: str, section: Entries, copies: Mapping[str, dict[str, Json]]) -> list[str]:
    """Write the entries of further seeds behind those of their family; return the changes.

    Raises `BadParam` where another entry has the name.
    """
    changes = []
    for name, entry in copies.items():
        if section.get(name) == entry:
            continue
        if name in section and not _is_copy(section[name]):
            legal = (
                f"a name that {key} does not have, because the seeds of {entry['same_as']} take it"
            )
            raise BadParam(f"{key}.{name}", dict(section[name]), legal)
        _put(section, name, entry, _last_of_family(section, entry["same_as"]))
        changes.append(f"{key}.{name}: added for seed {entry['seed']} of {entry['same_as']}")
    return changes


def _last_of_family(section: Entries, of: str) -> str:
    """The last entry of the section that stands for a seed of ``of``."""
    last = of
    for name, entry in section.items():
        if _is_copy(entry) and entry["same_as"] == of:
            last = name
    return last


def _write_models(document: Mapping[str, Json], copies: Mapping[str, dict[str, Json]]) -> list[str]:
    """Write a model for each further seed of each model that an entry with seeds makes; return the changes."""
    models = _section(document, "models")
    if models is None:
        return []
    changes = []
    before: dict[str, str] = {}  # the entry behind which the next seed of a model comes
    for name, entry in copies.items():
        of = entry["same_as"]
        seed = entry["seed"]
        if not _made_by(models, of) and of not in models:
            _put(models, of, {"path": _place(of)}, None)
            changes.append(f"models.{of}: added")

        for model in _made_by(models, of):
            written = {**copy.deepcopy(dict(models[model])), "path": _place(name)}
            target = f"{model}_{seed}"
            if models.get(target) != written:
                _check_free(models, target, name)
                _put(models, target, written, before.get(model, model))
                changes.append(f"models.{target}: {_short(written)}")
            before[model] = target
    return changes


def _check_free(models: Entries, target: str, name: str) -> None:
    """Raises `BadParam` where a model has the name ``target`` and is of another folder than that of the entry ``name``."""
    if target in models and target not in _made_by(models, name):
        legal = f"a model of the folder {_place(name)}, which the seeds need, or another name"
        raise BadParam(f"models.{target}", models[target], legal)


def _write_retrains(
    document: Mapping[str, Json], copies: Mapping[str, dict[str, Json]]
) -> list[str]:
    """Have ``report.retrain`` name every seed of each model that it names, and none that is gone."""
    models = _section(document, "models")
    report = _section(document, "report")
    if models is None or report is None or report.get("retrain") is None:
        return []

    stated = report["retrain"]
    listed = stated if isinstance(stated, list) else [stated]
    names: dict[str, None] = {}
    for model in listed:
        if model in models or not isinstance(stated, list):
            names[model] = None
        names |= dict.fromkeys(_copies_of_model(models, model, copies))
    written = list(names)
    if written == listed:
        return []
    report["retrain"] = _on_one_line(written, report)
    return [f"report.retrain: {stated} -> {written}"]


def _copies_of_model(
    models: Entries, model: str, copies: Mapping[str, dict[str, Json]]
) -> Iterable[str]:
    """Yield the models of the further seeds of a model."""
    for entry in copies.values():
        target = f"{model}_{entry['seed']}"
        if model in _made_by(models, entry["same_as"]) and target in models:
            yield target


def _write_measured_by_tasks(document: Mapping[str, Json]) -> list[str]:
    """Have ``utility.models`` name each folder of weights once while ``utility.tasks`` names a task, and none otherwise."""
    utility = _section(document, "utility")
    models = _section(document, "models")
    section = _section(document, "utility.models")
    if utility is None or models is None or section is None:
        return []

    wanted = {}
    paths = set()
    for name, entry in models.items():
        path = entry.get("path") if isinstance(entry, Mapping) else None
        if utility.get("tasks") and isinstance(path, str) and "endpoint" not in entry:
            if os.path.normpath(path) not in paths:
                wanted[name] = {"path": path}
            paths.add(os.path.normpath(path))

    changes = []
    for name in [name for name in section if name not in wanted]:
        del section[name]
        changes.append(f"utility.models.{name}: removed")
    for name, entry in wanted.items():
        if section.get(name) != entry:
            _put(section, name, entry, None)
            changes.append(f"utility.models.{name}: added")
    return changes


def _put(section: Entries, name: str, entry: dict[str, Json], behind: str | None) -> None:
    """Write an entry behind another one, or at the end; in a document that keeps its comments, on one line."""
    written = type(section)()
    written.update(copy.deepcopy(entry))
    if hasattr(written, "fa"):
        written.fa.set_flow_style()
    if name in section or behind is None or behind not in section:
        section[name] = written
        return
    place = list(section).index(behind) + 1
    if hasattr(section, "insert"):
        section.insert(place, name, written)
        return
    items = list(section.items())
    items.insert(place, (name, written))
    section.clear()
    section.update(items)


def _on_one_line(names: list[str], section: Entries) -> list[str] | str:
    """Names as a value of a section; in a document that keeps its comments, a list on one line."""
    if len(names) == 1:
        return names[0]
    if not hasattr(section, "fa"):
        return names
    from ruamel.yaml.comments import CommentedSeq

    written = CommentedSeq(names)
    written.fa.set_flow_style()
    return written


def _short(entry: Mapping[str, Json]) -> str:
    """An entry in words."""
    return ", ".join(f"{key} {value}" for key, value in entry.items())
