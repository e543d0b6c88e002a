"""params.yaml, checked before anything runs, and pydantic's errors in Lethe's words: the key, the value, the legal values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, overload

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lethe.config.fields import LONGEST_NAME, MemberOf
from lethe.config.schema import FILE, Data, EvaluationParams, Params
from lethe.config.yaml import read_yaml
from lethe.errors import BadInput, BadParam, ParamsClash
from lethe.process import PARAMS

M = TypeVar("M", bound=BaseModel)


def load(path: str | os.PathLike = FILE) -> Params:
    """Read and validate ``path``; raise `BadFile` or `BadParam`.

    A stage of `lethe run` reads the copy of params.yaml that the run made when it began.
    """
    return validate(read_yaml(os.environ.get(PARAMS, path) if path == FILE else path), str(path))


@overload
def validate(value: dict[str, object], source: str = FILE) -> Params: ...
@overload
def validate(value: dict[str, object], source: str, model: type[M]) -> M: ...
def validate(value: dict[str, object], source: str = FILE, model: type[BaseModel] = Params) -> BaseModel:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise bad_param(error, value, source, model) from None


def evaluation_params(**sections: object) -> EvaluationParams:
    return validate(sections, "lethe eval", EvaluationParams)


def bad_param(
    error: ValidationError, value: dict[str, object], source: str, model: type[BaseModel] = Params
) -> BadInput:
    """Return the first problem in Lethe's words, and the keys of the other problems.

    Unknown keys come first: an unknown key is often a misspelling of a missing one.
    """
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    key = _key(first)
    others = [other for other in dict.fromkeys(map(_key, problems)) if other != key]
    also = f" (also wrong: {', '.join(others)})" if others else ""
    if first["type"] == "value_error" and isinstance(first["input"], dict):
        return ParamsClash(key, str(first["ctx"]["error"]) + also, source)
    got = _Words("nothing: the key is missing") if first["type"] == "missing" else first["input"]
    return BadParam(key, got, _legal(first, _Walk(_location(first), value, model)), source, also)


def _location(problem: ErrorDetails) -> list[str]:
    return [str(part) for part in problem["loc"] if part != "[key]"]


def _key(problem: ErrorDetails) -> str:
    return ".".join(_location(problem))


class _Words(str):
    __repr__ = str.__str__


# What is legal where a kind of error leaves no other word; the fields are those of pydantic's context.
LEGAL = {
    "no_member": "{legal}",
    "literal_error": "{expected}",
    "value_error": "{error}",
    "too_long": "at most {max_length} entries",
    "string_too_short": "text that is not empty",
    "string_type": "text",
    "list_type": "a list",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_attributes_type": "a section of keys",
}
NUMBERS = {"int": "an integer", "float": "a number", "finite": "a finite number"}  # by the first word of the kind
ENDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most", "multiple_of": "a multiple of"}


def _legal(problem: ErrorDetails, walk: _Walk) -> str:
    kind, context, keys = problem["type"], problem.get("ctx", {}), ", ".join(walk.keys)
    if kind == "extra_forbidden":
        return f"one of the keys {', '.join(walk.keys_above)}" if walk.keys_above else "absent"
    if kind == "string_pattern_mismatch" or (kind == "string_too_long" and context["max_length"] == LONGEST_NAME):
        dot = ", '.'" if "." in context.get("pattern", "") else ""
        return f"a name of at most {LONGEST_NAME} letters, digits{dot}, '_' and '-', the first a letter or digit"
    if kind == "dict_type":
        return f"a dictionary of names, each with {f'the keys {keys}' if keys else 'a section of keys'}"
    if kind == "model_type":
        return f"the keys {keys}" if keys else "a section of keys"
    if kind == "too_short":
        return f"at least {context['min_length']} {'entry' if context['min_length'] == 1 else 'entries'}"
    if kind in LEGAL:
        return LEGAL[kind].format(**context)
    # the whole legal range of a number, such as "above 0 and at most 0.5", not only the violated end
    number = NUMBERS.get(kind.partition("_")[0])
    ends = [f"{words} {walk.range[name]}" for name, words in ENDS.items() if name in walk.range]
    if number or kind.startswith(("greater_than", "less_than", "multiple_of")):
        return " ".join(filter(None, [number, " and ".join(ends)]))
    return problem["msg"].replace("Input should be ", "").replace("Field required", "a value here")


class _Walk:
    """The path through the models to a key: the keys of the section there and above, and the range of the number there.

    The model of a registry's member checks the entry that names the member.
    """

    def __init__(self, location: list[str], value: Any, section: Any):
        self.range: dict[str, Any] = {}
        self.keys, self.keys_above = _keys(section), []
        member: MemberOf | None = None
        for part in location:
            self.keys_above, value = self.keys, value.get(part) if isinstance(value, dict) else None
            if _is_section(section) and part in section.model_fields:
                field = section.model_fields[part]
                metadata = [*field.metadata, *_parts(field.annotation)]
                self.range = _constraints(metadata)
                section = _section_of(field.annotation)
                member = next((one for one in metadata if isinstance(one, MemberOf)), None)
            elif section is Data and Data.section(part):
                section = Data.section(part)
            elif member is not None:  # the name of an entry: the keys are those of the named member
                section, member = (isinstance(value, dict) and member.model(value)) or None, None
            # any other name in a dictionary: ``section`` is already the model of the values
            self.keys = _keys(section)


def _keys(section: Any) -> list[str]:
    if not _is_section(section):
        return []
    return [*section.model_fields, *(Data.sections() if section is Data else ())]


def _is_section(section: Any) -> bool:
    return isinstance(section, type) and issubclass(section, BaseModel)


def _constraints(metadata: Iterable[Any]) -> dict[str, Any]:
    constraints: dict[str, Any] = {}
    for one in metadata:
        parts = getattr(one, "metadata", None) or [one]  # a pydantic Field holds its constraints
        constraints |= {name: getattr(part, name) for part in parts for name in ENDS if hasattr(part, name)}
    return constraints


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the metadata of `Annotated` anywhere inside ``annotation``, such as for the numbers in a list."""
    yield from getattr(annotation, "__metadata__", ())
    for argument in getattr(annotation, "__args__", ()):
        yield from _parts(argument)


def _section_of(annotation: Any) -> Any:
    """Return the model inside ``dict[Name, Model]``, ``Model | None`` or ``Annotated[...]``."""
    if isinstance(annotation, type) and not getattr(annotation, "__args__", None):
        return annotation
    for argument in reversed(getattr(annotation, "__args__", ())):
        section = _section_of(argument)
        if _is_section(section):
            return section
    return annotation
