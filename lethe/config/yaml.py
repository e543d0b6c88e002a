"""YAML 1.2 files in which no key is listed twice, read with errors that name the file and the line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lethe.errors import BadFile

DEEPEST = 50  # levels of lists and keys
MOST = 100_000  # values on one level


def load_yaml(text: str) -> Any:
    """Read YAML 1.2, as DVC does; raise `ruamel.yaml.error.YAMLError`, also for a duplicate key.

    PyYAML reads YAML 1.1, where 026 is 22, 1:30 is 90 and on is true. A run would differ from its record in DVC.
    """
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(text)


def read_yaml(path: str | os.PathLike) -> dict[str, object]:
    """Return the keys of a YAML file; raise `BadFile` with the line of broken YAML or of a duplicate key."""
    path = Path(path)
    if not path.is_file():
        raise BadFile(
            path,
            "no such file",
            "Check the path; params.yaml and presets are found from the root of the repository.",
        )
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
    """Raise `RecursionError` if lists and keys are nested deeper than `DEEPEST`, before a library does so.

    An alias repeats a value without a copy, so a few lines can stand for billions of values: more than `MOST` raise
    `ValueError`.
    """
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
