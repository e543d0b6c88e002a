"""docs/papers.md: its words follow from outcome files, and it is what the command writes."""

import pytest
import yaml

from lethe.errors import BadFile
from studies import outcome, papers
from tests.small import ROOT

VALUES = {
    "bound": {"mean": 2.0, "smallest": 1.5, "largest": 2.5},
    "truth": 3.0,
    "share": 0.5,
    "cells": [{"n": 10, "name": "ε 1, clip 1", "x": 1.0}, {"n": 10, "name": "none", "x": 2.0}],
    "estimate": {"mean": 1.0, "sd": 0.25},
    "columns": {"50": {"a": 1, "b": 2, "c": 3}, "inf": {"a": 1, "b": 3, "c": 2}},
    "alike": {"50": {"a": 1, "b": 2}, "600": {"a": 0, "b": 9}, "inf": {"a": 7, "b": 8}},
}


def table_of(tmp_path, **row):
    outcome.write("small", "lethe study x", [0], {}, VALUES, commit="abc", folder=tmp_path)
    entry = {"item": "Table 9", "claim": "it is so", **row}
    rows = tmp_path / "papers.yaml"
    rows.write_text(yaml.safe_dump({"papers": [{"title": "A paper", "rows": [entry]}]}))
    (table,) = papers.read(rows, tmp_path)
    return table


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ([["bound", "<=", "truth"]], "holds"),
        ([["bound", ">=", "truth"]], "does not hold here"),
        ([["bound", "<=", 2]], "not decided"),
        ([["bound", ">=", "truth", 0.5]], "holds"),
        ([["bound", "<=", 2], ["bound", ">=", "truth"]], "does not hold here"),
        ([["share|2000", "<=", 0.51]], "not decided"),
        ([["share|20000", "<=", 0.51]], "holds"),
        ([["cells/n=10,name=ε 1, clip 1/x", "<=", 1]], "holds"),
        ([["estimate", "<=", 1.1]], "not decided"),
        ([["columns#order", ">=", 0.33], ["columns#order", "<=", 0.34]], "holds"),  # 2 of 3 pairs
        ([["alike#order", ">=", 1]], "holds"),
    ],
)
def test_a_word_follows_from_the_outcome_and_the_rule(tmp_path, rule, word):
    table = table_of(tmp_path, outcome="small", ours="{truth}", rule=rule)

    assert table.rows[0].word == word


def test_a_row_shows_its_numbers_with_their_ends_and_where_they_come_from(tmp_path):
    table = table_of(
        tmp_path, outcome="small", ours="{bound} of {truth}", rule=[["truth", ">=", 1]]
    )

    (row,) = table.rows
    assert row.here == "2 (1.5 to 2.5) of 3"
    assert "`lethe study x`" in row.source
    assert "small.json" in row.source


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"ours": "4 percent"}, "no outcome"),
        ({"rule": [["truth", ">=", 1]], "needs": "a GPU"}, "no outcome"),
        ({}, "no needs"),
        ({"outcome": "absent", "ours": "{truth}", "rule": [["truth", ">=", 1]]}, "not there"),
        ({"outcome": "small", "ours": "{truth}"}, "no rule"),
        ({"outcome": "small", "ours": "{other}", "rule": [["truth", ">=", 1]]}, "has no other"),
        ({"outcome": "small", "ours": "{truth}", "rule": [["cells/n=10", ">=", 1]]}, "no number"),
        ({"outcome": "small", "ours": "it holds", "rule": [["truth", ">=", 1]]}, "shows no number"),
    ],
)
def test_a_row_that_claims_something_needs_an_outcome_that_carries_the_number(tmp_path, row, said):
    with pytest.raises(BadFile, match=said):
        table_of(tmp_path, **row)


def test_a_row_whose_outcome_is_still_to_come_is_not_run_and_says_what_it_needs(tmp_path):
    rule = [["truth", ">=", 1]]

    table = table_of(tmp_path, outcome="absent", ours="{truth}", rule=rule, needs="a day")

    assert (table.rows[0].word, table.rows[0].here) == ("not run", "")
    assert "a day" in table.rows[0].scale


def test_failures_stand_first_and_what_was_not_run_last():
    for table in papers.read():
        places = [papers.WORDS.index(row.word) for row in table.rows]
        assert places == sorted(places)


def test_every_outcome_of_a_paper_has_a_row():
    sources = [row.source for table in papers.read() for row in table.rows]
    named = {source.partition("[")[2].partition("]")[0] for source in sources}
    kept = {path.stem for path in outcome.FOLDER.glob("*.json")}

    # The pairs of Figures 2 and 8 have no number to compare, the meta-evaluation is of no paper.
    assert kept - named <= {"one-run-2", "one-run-8", "meta-evaluation"}


def test_the_page_is_what_the_command_writes():
    written = (ROOT / "docs/papers.md").read_text(encoding="utf-8")

    assert written == papers.page(papers.read()), "lethe study papers --write docs/papers.md"
