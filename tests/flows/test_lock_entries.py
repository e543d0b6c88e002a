"""One entry replaced in the text of dvc.lock, beside DVC's own way as the naive twin."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flows.lock_entries import HEAD, replaced

TEXT = st.text(max_size=30) | st.sampled_from(
    [
        "a: b",
        "  x@y:",
        "- one",
        "#",
        "\n  prepare:\n",
        "word " * 40,
        "'",
        '"',
        "1e3",
        "null",
        "&id001",
        "\x85\u2028",
    ]
)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([0.01, 1e-05, 2.5]) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-z_]{1,9}(@[\w.-]{1,9})?", fullmatch=True) | st.sampled_from(
    ["null", "1", "a b", "sample@007"]
)
ENTRIES = st.dictionaries(
    NAMES, st.dictionaries(st.sampled_from(["cmd", "deps", "params"]), VALUE, min_size=1), max_size=3
)


def by_dvc(text: str, entries: dict) -> str:
    from dvc.utils.serialize import dumps_yaml, parse_yaml_for_update

    data = parse_yaml_for_update(text, "dvc.lock") if text else {"schema": "2.0", "stages": {}}
    data["stages"].update(entries)
    return dumps_yaml(data)


@given(ENTRIES, ENTRIES)
@settings(max_examples=60)
def test_the_text_is_that_of_dvc_or_left_to_dvc(before, after):
    text = by_dvc("", before)
    assume(by_dvc(text, {}) == text)  # DVC rounds numbers and moves characters of entries that do not change
    new = replaced(text, after)
    assert new is None or new == by_dvc(text, after)


def test_one_entry_changes_and_a_new_one_comes_last():
    text = by_dvc(
        "", {"prepare": {"cmd": "python x"}, "sample@a": {"cmd": "word " * 40, "params": {"a": ["x\ny", 1]}}}
    )
    new = replaced(text, {"prepare": {"cmd": "python y"}, "sample@b": {"cmd": "z"}})
    assert new is not None
    assert new == by_dvc(text, {"prepare": {"cmd": "python y"}, "sample@b": {"cmd": "z"}})
    assert [line for line in new.splitlines() if line.startswith("  ") and line[2] != " "] == [
        "  prepare:",
        "  sample@a:",
        "  sample@b:",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "stages:\n  a:\n    cmd: x\n",
        HEAD + "  a:\n    cmd: x\ndatasets: []\n",
        HEAD + "<<<<<<< ours\n  a:\n    cmd: x\n",
        HEAD + "  # mine\n  a:\n    cmd: x\n",
        HEAD + "  a:\n    cmd: x\n  a:\n    cmd: y\n",
        HEAD + "    cmd: x\n",
    ],
)
def test_a_text_that_dvc_did_not_write_is_left_to_dvc(text):
    assert replaced(text, {"a": {"cmd": "y"}}) is None
