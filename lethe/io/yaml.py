"""YAML files, read as DVC reads them."""

from __future__ import annotations

import os

from lethe.errors import BadFile
from lethe.io.files import Json, read_text

DEEPEST = 50  # levels of lists and keys
MOST = 100_000  # values on one level


def load_yaml(text: str) -> Json:
    """Read YAML 1.2, as DVC does (PyYAML reads 026 as 22, 1:30 as 90); raise `YAMLError`, also for a duplicate key."""
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(text)


def read_yaml(path: str | os.PathLike) -> dict[str, object]:
    """Return the keys of a YAML file; raise `BadFile` with the line of broken YAML or of a duplicate key."""
    value = parse_yaml(read_text(path), path)
    if not isinstance(value, dict):
        raise BadFile(path, f"holds {type(value).__name__}, expected keys")
    return value


def parse_yaml(text: str, path: str | os.PathLike) -> Json:
    """Parse ``text`` as YAML without duplicate keys; errors name ``path``."""
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import YAMLError

    try:
        value = load_yaml(text)
        _check_depth(value)
        return value
    except RecursionError:
        legal = f"the depth must be at most {DEEPEST} levels"
        raise BadFile(path, f"nested too deeply; {legal}") from None
    # An impossible date raises ValueError, as does a number of 5,000 digits; a mapping as a key raises TypeError.
    except (YAMLError, ValueError, TypeError) as error:
        problem = getattr(error, "problem", None)
        if isinstance(error, DuplicateKeyError):
            problem = str(problem).replace("found duplicate key", "duplicate key")
            problem = problem.partition(" with value")[0]
        problem = problem or str(error).split(";")[0]
        sentence = "not valid YAML"
        mark = getattr(error, "problem_mark", None)
        if mark:
            sentence += f" at line {mark.line + 1}"
        if problem:
            sentence += f": {problem}"
        raise BadFile(path, sentence) from None


def _check_depth(value: Json) -> None:
    """Raise `RecursionError` beyond `DEEPEST` levels, `ValueError` beyond `MOST` values: aliases can stand for billions."""
    level = [value]
    for _ in range(DEEPEST):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            if len(inner) > MOST:
                raise ValueError(f"more than {MOST:,} values on one level (aliases repeat values)")
        level = inner
        if not level:
            return
    raise RecursionError
