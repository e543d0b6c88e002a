"""Presets and keys of the command line; params.yaml, checked before anything runs."""

import copy
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar, overload

from pydantic import BaseModel, ValidationError

from lethe.config.fields import bad_param
from lethe.config.schema import FILE, EvaluationParams, Params
from lethe.config.seeds import write_copies
from lethe.errors import BadParam, check
from lethe.io.yaml import read_yaml
from lethe.process import PARAMS

M = TypeVar("M", bound=BaseModel)


def parse(assignment: str) -> tuple[str, object]:
    """``sample.n=64`` as its key and value; the value is read as YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    key, equals, text = assignment.partition("=")
    check(equals and key.strip(), "-S", assignment, "key=value, for example sample.n=64")
    try:
        return key.strip(), YAML(typ="safe", pure=True).load(text)
    # ValueError: an impossible date, a number of 5,000 digits; TypeError: a mapping as a key
    except (YAMLError, ValueError, TypeError, RecursionError):
        raise BadParam(key.strip(), text, "a value in YAML", source="-S") from None


def section_of(
    document: object,
    key: str,
    value: object,
    source: str = "params.yaml",
    legal: str = "",
) -> tuple[dict[str, object], str]:
    """Find the section of a document in which a dotted key ends."""
    *sections, last = key.split(".")
    for part in sections:
        document = document.get(part) if isinstance(document, dict) else None
    if not isinstance(document, dict):
        raise BadParam(
            key,
            value,
            legal or f"a key whose sections exist ({'.'.join(sections)} does not)",
            source,
        )
    return document, last


def read_preset(folder: Path, name: str, asked: str = "--preset") -> dict[str, object]:
    """The keys and values of a preset, in their order."""
    presets = sorted(path.stem for path in folder.glob("*.yaml"))
    legal = "none: there is no preset"
    if presets:
        legal = f"one of {', '.join(presets)}"
    check(name in presets, asked, name, legal)
    return read_yaml(folder / f"{name}.yaml")


def changed_document(
    settings: Iterable[tuple[str, object]], source: str | Path = FILE, shown_as: str = FILE
) -> dict[str, object]:
    """Read params.yaml and set keys of it in order, with the entries of `seeds`; no file changes, nothing is validated."""
    document = read_yaml(source)
    for key, value in settings:
        section, last = section_of(document, key, value, shown_as)
        # A later change may be of a key within.
        section[last] = copy.deepcopy(value)
    write_copies(document)
    return document


def load(path: str | os.PathLike = FILE) -> Params:
    """Read and validate ``path``; a stage of `lethe run` reads the copy that the run made when it began."""
    place = path
    if path == FILE:
        place = os.environ.get(PARAMS, FILE)
    return validate(read_yaml(place), str(path))


@overload
def validate(value: dict[str, object], source: str = FILE) -> Params: ...
@overload
def validate(value: dict[str, object], source: str, model: type[M]) -> M: ...
def validate(
    value: dict[str, object], source: str = FILE, model: type[BaseModel] = Params
) -> BaseModel:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise bad_param(error, value, source, model) from None


def evaluation_params(**sections: object) -> EvaluationParams:
    """The settings of an evaluation from its sections; raises `BadParam` for an illegal value."""
    return validate(sections, "lethe eval", EvaluationParams)
