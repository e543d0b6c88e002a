"""A name that becomes part of a path cannot leave the folder that the path begins with."""

import copy
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe import config
from lethe.errors import BadInput
from tests.small import ROOT

GOOD = config.read_yaml(ROOT / "params.yaml")
ENTRIES = {
    "models": {"path": "x"},
    "attacks": {"path": "x", "after": "relearn"},
    "audits": {},
    "games": {},
    "judges": {},
    "unlearn.methods": {"loss": "npo", "lr": 1e-4, "epochs": 1, "beta": 0.1, "retain_weight": 1.0},
    "train.models": {"rows": "all"},
}
TRICKS = [
    *("..", ".", "../x", "a/b", "/etc/passwd", "a\\b", "C:x", "~", "~root", "-rf", ".hidden", ""),
    *("a\0b", "a\nb", "a b", "%2e%2e", "\uff0e\uff0e"),
]


def refused(section: str, name: str) -> bool:
    value = copy.deepcopy(GOOD)
    place = value
    for part in section.split("."):
        place = place[part]
    place[name] = ENTRIES[section]
    try:
        config.validate(value)
    except BadInput as error:
        return "the first a letter or digit" in str(error)
    return False


@pytest.mark.parametrize("section", ENTRIES)
def test_tricks_with_names_are_refused(section):
    assert [name for name in TRICKS if not refused(section, name)] == []


@settings(max_examples=50)
@given(st.text(min_size=1, max_size=12), st.sampled_from(sorted(ENTRIES)))
def test_every_name_that_is_taken_is_one_part_of_a_path(name, section):
    if refused(section, name):
        return
    assert PurePosixPath("data", name).parts == ("data", name)
    assert name not in (".", "..")
    assert name.isprintable()
