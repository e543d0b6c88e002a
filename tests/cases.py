"""Tables of cases as data: ``cases.yaml`` beside the tests has the rows of a test, by its module and its name."""

import copy
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

# The one in C takes a tenth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def read_cases(file: str) -> dict[str, dict[str, Any]]:
    """The tables of a module by their names."""
    place = Path(file)
    text = place.with_name("cases.yaml").read_text(encoding="utf-8")
    return yaml.load(text, _LOADER)[place.stem]


def cases(test: Callable[..., None]) -> Callable[..., None]:
    """Parametrise a test by its own table."""
    table = read_cases(inspect.getfile(test))[test.__name__]
    return pytest.mark.parametrize(table["names"], table["rows"])(test)


def merged(value: Any, change: Any) -> Any:
    """The value with a change deep inside it; an empty table replaces, and "(gone)" stands for a key to take away."""
    if not isinstance(value, dict) or not isinstance(change, dict) or not change:
        return copy.deepcopy(change)
    new = copy.deepcopy(value)
    for key, further in change.items():
        new[key] = merged(value.get(key), further)
        if new[key] == "(gone)":
            del new[key]
    return new
