"""Changes to params.yaml from the command line: `-S key=value` and presets, comments and order kept."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows import inputs
from lethe import config
from lethe.config import yaml as presets
from lethe.config.yaml import section_of
from lethe.errors import BadParam
from lethe.io.atomic import write_text

if TYPE_CHECKING:
    from ruamel.yaml import YAML

PRESETS = Path(__file__).parent / "presets"


def read_preset(name: str) -> dict[str, object]:
    """Return the keys and values of a preset; each value replaces the whole value at its key, as `-S` does."""
    return presets.read_preset(PRESETS, name)


def change(path: Path, settings: Sequence[tuple[str, object]]) -> list[str]:
    """Set keys of a params file in order and return the changes; the whole file is validated before it is written."""
    said, text = changed(path, settings)
    if said:
        write_text(path, text)
    return said


def changed(path: Path, settings: Sequence[tuple[str, object]]) -> tuple[list[str], str]:
    """Return the changes and the text that `change` would write; raises `BadParam` as `change` does."""
    config.read_yaml(path)  # refuses what is no YAML, with its line
    document = _yaml().load(path.read_text(encoding="utf-8"))
    said = []
    for key, value in settings:
        section, last = section_of(document, key, value, str(path))
        if last not in section or section[last] != value:
            said.append(f"{key}: {_short(section.get(last, 'absent'))} -> {_short(value)}")
            section[last] = value
    said += _attacks_in_their_place(document)
    stream = io.StringIO()
    _yaml().dump(document, stream)
    inputs.check(config.validate(config.parse_yaml(stream.getvalue(), path), str(path)), path.parent)
    return said, stream.getvalue()


def holds_attacks_among_models(path: Path) -> bool:
    """Whether an entry under ``models`` has the key ``after``, so that `change` would put the entry under ``attacks``."""
    models = config.read_yaml(path).get("models")
    return isinstance(models, dict) and any(isinstance(one, dict) and "after" in one for one in models.values())


def _attacks_in_their_place(document: dict[str, Any]) -> list[str]:
    """Move each entry under ``models`` with the key ``after`` to ``attacks``, with its references; return the changes.

    DVC runs each foreach over one whole dictionary: under ``models`` the attack would be sampled, scored and measured as a
    model before its attack, and each model would need a stage for an attack that its entry does not have. The half-life
    needs Base under the same attack and the excess needs Retrain, so both are added where ``attacks`` lacks them.
    """
    models, attacks = document.get("models"), document.get("attacks")
    if not isinstance(models, dict) or not isinstance(attacks, dict):
        return []
    said = []
    moved = [name for name, entry in models.items() if isinstance(entry, dict) and "after" in entry]
    for name in moved:
        if name in attacks and attacks[name] != models[name]:
            raise BadParam(f"models.{name}", dict(models[name]), f"a name that attacks does not have ({name})")
        attacks[name] = models.pop(name)
        said.append(
            f"models.{name} -> attacks.{name}: an entry with `after` is an attack, which has a stage of its own"
        )
    return [*said, *(line for name in moved for line in _references(document, name))]


def _references(document: dict[str, Any], name: str) -> list[str]:
    """Put Base and Retrain under the attack ``name``, unless ``attacks`` has them; return the changes."""
    models, attacks, said = document["models"], document["attacks"], []
    report = document.get("report")
    for role in ("base", "retrain"):
        model = report.get(role) if isinstance(report, dict) else None
        entry = models.get(model) if model is not None else None
        if not (isinstance(attacks[name], dict) and isinstance(entry, dict) and "path" in entry):
            continue  # validation names what is wrong
        twin = copy.deepcopy(attacks[name])  # a shared object would become an alias in the file
        twin["path"] = entry["path"]
        if twin in attacks.values():
            continue
        own = f"{name}_{model}"
        if own in attacks:
            raise BadParam(
                f"attacks.{own}", dict(attacks[own]), f"{model} under the attack of {name}, or another name"
            )
        attacks[own] = twin
        said.append(f"attacks.{own}: added, so that the report shows {name} and {model} under the same attack")
    return said


def _yaml() -> YAML:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # never fold a long line
    represent = yaml.representer.add_representer
    represent(type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null"))
    # YAML 1.1 reads 1e-05 as text and 1.0e-05 as a number; YAML 1.2 reads both as numbers.
    represent(float, lambda writer, value: writer.represent_scalar("tag:yaml.org,2002:float", _number(value)))
    return yaml


def _number(value: float) -> str:
    text = repr(value)
    return text.replace("e", ".0e", 1) if "e" in text and "." not in text else text


def _short(value: Any, limit: int = 60) -> str:
    text = str(dict(value) if isinstance(value, dict) else value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
