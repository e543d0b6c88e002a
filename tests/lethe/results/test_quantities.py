"""The vocabulary: every quantity once, every exported name for one number, and few headlines."""

import ast
import string
import subprocess
import sys
from collections import Counter
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadValue
from lethe.io.json_files import write_json
from lethe.results import quantities
from lethe.results.quantities import HEADLINES, MODEL, MOST, QUANTITIES, USEFUL, Quantity, headline
from lethe.results.table import Result
from tests.small import ROOT

PARTS = ("split", "item", "at")
# Names of two quantities of one scope: of a model never both have rows.
SHARED: dict[str, set[str]] = {"question": set(), "model": set(), "audit": set()}


def single(row: Quantity) -> list[str]:
    """The exported names of single numbers, each of their places written out."""
    places = row.exported_at if row.at else (None,)
    made = (Result("m", row.scope, row.key, row.basis, item="ITEM", split="SPLIT", at=at) for at in places)
    return [name for one in made for name in dict.fromkeys(one.names()) if name]


def test_every_exported_name_is_of_one_number():
    found = Counter((row.scope, name) for row in QUANTITIES for name in single(row))
    several: dict[str, set[str]] = {scope: set() for scope in SHARED}
    for (scope, name), times in found.items():
        if times > 1:
            several[scope].add(name)
    assert several == SHARED


@pytest.mark.parametrize("row", QUANTITIES, ids=lambda row: f"{row.scope}-{row.key}-{row.basis}")
def test_a_row_is_whole(row):
    fields = {name for pattern in row.names for _, name, _, _ in string.Formatter().parse(pattern) if name}
    assert fields <= set(PARTS)
    assert ("at" in fields) <= bool(row.at), "a name that says where needs a meaning of where"
    assert bool(row.exported_at) <= bool(row.at)
    made = Result("m", row.scope, row.key, row.basis, item="i", split="s", at=0.5)
    assert not [name for name in made.names() if "{" in name or "}" in name or " " in name]
    assert row.label
    assert row.definition
    assert row.unit != "text" or not any(row.names[1:]), "a word has no ends"
    assert set(row.headlines) <= set(get_args(quantities.Headline)) - {""}
    assert not row.headlines or (row.scope == "model" and any(row.names))
    assert [HEADLINES.index(one) for one in row.headlines if one in HEADLINES] == sorted(
        HEADLINES.index(one) for one in row.headlines if one in HEADLINES
    )


@pytest.mark.parametrize("module", ["evaluation/findings", "report/figures", "api/runs"])
def test_a_reader_takes_its_names_from_the_vocabulary(module):
    nodes = ast.walk(ast.parse((ROOT / f"lethe/{module}.py").read_text(encoding="utf-8")))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert not texts & {name for row in QUANTITIES for name in single(row) if "_" in name}


@pytest.mark.parametrize("key", [("model", "nothing", "sampled"), ("audit", "leak", "sampled"), ("", "", "")])
def test_an_unknown_quantity_is_refused(key):
    with pytest.raises(BadValue):
        quantities.of(*key)
    with pytest.raises(BadValue):
        Result("m", *key).names()


GROUPS = {
    "stopped": ["certified", "leaking_questions", "anytime_upper_worst"],
    "labelled": ["binary_greedy", "m_bin_worst", "labelled_worst", "labelled_pooled"],
    "judged": ["binary_greedy", "m_bin_worst", "judged_worst", "judged_pooled"],
    "leaks": ["binary_greedy", "binary_any", "m_bin_worst", "m_bin_pooled"],
    "scores": ["greedy_mean", "mean", "m_mu_worst", "m_sigma_worst"],
}


@pytest.mark.parametrize("group", HEADLINES)
@pytest.mark.parametrize("utility", [f"{split}_mean" for split in USEFUL])
def test_a_model_is_shown_by_its_strongest_evidence(group, utility):
    """A model with the numbers of this group and of all weaker ones, and words that are no numbers."""
    known = [name for one in HEADLINES[HEADLINES.index(group) :] for name in GROUPS[one]]
    values = dict.fromkeys([*known, utility, "n", "alpha", "ed_score"], 0.25)
    assert set(headline(values)) == {*GROUPS[group], utility}
    assert headline(values)[-1] == utility


NAMES = sorted({name for row in MODEL for name in single(row)} | {f"{split}_mean" for split in USEFUL})


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([None, 0.0, 0.25, "word", True])))
def test_a_headline_has_few_names_each_with_a_value(values):
    shown = headline(values)
    assert len(shown) == len(set(shown)) <= MOST
    assert all(values[name] is not None for name in shown)
    utility = [name for name in shown if name.removesuffix("_mean") in USEFUL]
    assert shown[len(shown) - len(utility) :] == utility
    assert utility == [f"{split}_mean" for split in USEFUL if values.get(f"{split}_mean") is not None][:1]


@pytest.mark.parametrize("group", [group for group in HEADLINES if group != "labelled"])
def test_the_table_of_dvc_fits_120_columns(tmp_path, group):
    """With the longest name of the demonstration, of which nobody labelled an answer, and the longest numbers."""
    values = dict.fromkeys((*GROUPS[group], "retain_mean"), 0.12345678)
    paths = [f"data/metrics/{name}.json" for name in ("base", "npo_entropy_at")]
    for path in paths:
        write_json(tmp_path / path, {"schema": 1, **{key: values[key] for key in headline(values)}})
    (tmp_path / "dvc.yaml").write_text(f"metrics: [{', '.join(paths)}]\n")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    command = [sys.executable, "-m", "dvc", "metrics", "show"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(key in lines[0] for key in values)
    assert max(map(len, lines)) <= 120
