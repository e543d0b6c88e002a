"""YAML files, presets and keys of the command line; params.yaml, checked before anything runs; pydantic's errors in words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lethe.config.fields import LONGEST_NAME, MemberOf
from lethe.config.schema import FILE, Data, EvaluationParams, Params
from lethe.errors import BadFile, BadInput, BadParam, BadValue, ParamsClash
from lethe.process import PARAMS

M = TypeVar("M", bound=BaseModel)
DEEPEST = 50  # levels of lists and keys
MOST = 100_000  # values on one level


def load_yaml(text: str) -> Any:
    """Read YAML 1.2, as DVC does (PyYAML reads 026 as 22, 1:30 as 90); raise `YAMLError`, also for a duplicate key."""
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(text)


def read_yaml(path: str | os.PathLike) -> dict[str, object]:
    """Return the keys of a YAML file; raise `BadFile` with the line of broken YAML or of a duplicate key."""
    path = Path(path)
    if not path.is_file():
        remedy = "Check the path; params.yaml and presets are found from the root of the repository."
        raise BadFile(path, "no such file", remedy)
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadFile(path, f"is not UTF-8 at line {line}", "Save the file as UTF-8.") from None
    value = parse_yaml(text, path)
    if not isinstance(value, dict):
        raise BadFile(path, f"holds {type(value).__name__}, expected keys")
    return value


def parse_yaml(text: str, path: str | os.PathLike) -> Any:
    """Parse ``text`` as YAML without duplicate keys; errors name ``path``."""
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import YAMLError

    try:
        value = load_yaml(text)
        _check_depth(value)
        return value
    except RecursionError:
        raise BadFile(path, f"nested too deeply; the depth must be at most {DEEPEST} levels") from None
    # An impossible date raises ValueError, as does a number of 5,000 digits; a mapping as a key raises TypeError.
    except (YAMLError, ValueError, TypeError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        if isinstance(error, DuplicateKeyError):
            problem = str(problem).replace("found duplicate key", "duplicate key").partition(" with value")[0]
        problem = problem or str(error).split(";")[0]
        where = f" at line {mark.line + 1}" if mark else ""
        raise BadFile(path, f"not valid YAML{where}" + (f": {problem}" if problem else "")) from None


def _check_depth(value: Any) -> None:
    """Raise `RecursionError` beyond `DEEPEST` levels, `ValueError` beyond `MOST` values: aliases can stand for billions."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, (dict, list)):
                inner += each.values() if isinstance(each, dict) else each
            if len(inner) > MOST:
                raise ValueError(f"more than {MOST:,} values on one level (aliases repeat values)")
        level = inner
        if not level:
            return
    raise RecursionError


def parse(assignment: str) -> tuple[str, object]:
    """``sample.n=64`` as its key and value; the value is read as YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise BadValue("-S", assignment, "key=value, for example sample.n=64")
    try:
        return key.strip(), YAML(typ="safe", pure=True).load(text)
    # ValueError: an impossible date, a number of 5,000 digits; TypeError: a mapping as a key
    except (YAMLError, ValueError, TypeError, RecursionError):
        raise BadParam(key.strip(), text, "a value in YAML", source="-S") from None


def section_of(
    document: object, key: str, value: object, source: str = "params.yaml", legal: str = ""
) -> tuple[dict[str, object], str]:
    """Find the section of a document in which a dotted key ends."""
    *sections, last = key.split(".")
    for part in sections:
        document = document.get(part) if isinstance(document, dict) else None
    if not isinstance(document, dict):
        raise BadParam(key, value, legal or f"a key whose sections exist ({'.'.join(sections)} does not)", source)
    return document, last


def read_preset(folder: Path, name: str, asked: str = "--preset") -> dict[str, object]:
    """The keys and values of a preset, in their order."""
    presets = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in presets:
        raise BadValue(asked, name, f"one of {', '.join(presets)}" if presets else "none: there is no preset")
    return read_yaml(folder / f"{name}.yaml")


def changed_document(
    settings: Iterable[tuple[str, object]], source: str | Path = FILE, shown_as: str = FILE
) -> dict[str, object]:
    """Read params.yaml and set keys of it in order; no file changes and nothing is validated."""
    document = read_yaml(source)
    for key, value in settings:
        section, last = section_of(document, key, value, shown_as)
        section[last] = value
    return document


def load(path: str | os.PathLike = FILE) -> Params:
    """Read and validate ``path``; a stage of `lethe run` reads the copy that the run made when it began."""
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
    """Return the first problem in Lethe's words, unknown keys first, as one may be a misspelt key; and the others' keys."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first, location = problems[0], _location(problems[0])
    key, *others = dict.fromkeys(".".join(_location(one)) for one in problems)
    also = f" (also wrong: {', '.join(others)})" if others else ""
    if first["type"] == "value_error" and isinstance(first["input"], dict):
        return ParamsClash(key, str(first["ctx"]["error"]) + also, source)
    got = _Words("nothing: the key is missing") if first["type"] == "missing" else first["input"]
    return BadParam(key, got, _legal(first, _Walk(location, value, model)), source, also)


def _location(problem: ErrorDetails) -> list[str]:
    return [str(part) for part in problem["loc"] if part != "[key]"]


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
    """The path through the models to a key, with the keys of the section there and above, and the range of its number."""

    def __init__(self, location: list[str], value: Any, section: Any):
        self.range: dict[str, Any] = {}
        self.keys, self.keys_above = _keys(section), []
        member: MemberOf | None = None
        for part in location:
            self.keys_above, value = self.keys, value.get(part) if isinstance(value, dict) else None
            if field := getattr(section, "model_fields", {}).get(part):
                metadata = [*field.metadata, *_parts(field.annotation)]
                # a pydantic Field holds its constraints
                parts = [own for one in metadata for own in getattr(one, "metadata", None) or [one]]
                self.range = {name: getattr(own, name) for own in parts for name in ENDS if hasattr(own, name)}
                section = _section_of(field.annotation)
                member = next((one for one in metadata if isinstance(one, MemberOf)), None)
            elif section is Data and Data.section(part):
                section = Data.section(part)
            elif member is not None:  # the name of an entry: the keys are those of the named member
                section, member = (isinstance(value, dict) and member.model(value)) or None, None
            # any other name in a dictionary: ``section`` is already the model of the values
            self.keys = _keys(section)


def _keys(section: Any) -> list[str]:
    return [*getattr(section, "model_fields", ()), *(Data.sections() if section is Data else ())]


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the metadata of `Annotated` anywhere inside ``annotation``, such as for the numbers in a list."""
    yield from getattr(annotation, "__metadata__", ())
    for argument in getattr(annotation, "__args__", ()):
        yield from _parts(argument)


def _section_of(annotation: Any) -> Any:
    """Return the model inside ``dict[Name, Model]``, ``Model | None`` or ``Annotated[...]``."""
    if isinstance(annotation, type) and not getattr(annotation, "__args__", None):
        return annotation
    inner = map(_section_of, reversed(getattr(annotation, "__args__", ())))
    return next((section for section in inner if hasattr(section, "model_fields")), annotation)
