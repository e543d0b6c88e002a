"""A run about requests to refuse is told in its own words, a run about forgetting in the usual ones."""

from __future__ import annotations

import html
import json
import re
from dataclasses import fields

import pytest

from lethe import config
from lethe.data import aim
from lethe.evaluation.wording import FORGET, REFUSE, WORDINGS
from lethe.io.artifacts import write_splits
from lethe.io.json_files import read_json
from lethe.registry import DATASETS
from lethe.report.page import render
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run
from tests.small import ROOT

ROW = {"id": "a", "question": "q", "answer": "a"}
WRONG = re.compile(r"(?i)\bforg[eo]t|unlearn|\bstill knows?\b|\bleaked\b|answers leak")
# Not the page's own words: titles of splits, ids, questions; and what is about the losses of that split.
NAMES = re.compile(r"forget-\d+|of the forget set born|forget against held-out rows")
SECTIONS = r'<section id="(?:provenance|epsilon-star|glossary)">.*?</section>'
VOCABULARY = r'<details id="every-number">.*?</details>'  # the names for machines are the same for both aims
APART = re.compile(rf"(?s)<(script|style|svg|pre)\b.*?</\1>|{SECTIONS}|{VOCABULARY}")


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    """The page of one model that should refuse; its kind of dataset says so."""
    root = tmp_path_factory.mktemp("refusing")
    models = {"refuser": {"path": "data/models/refuser"}}
    params = config.read_yaml(ROOT / "params.yaml")
    alone = {"train": params["train"] | {"models": {}}, "unlearn": params["unlearn"] | {"methods": {}}}
    write_run(root, 3, 64, models=models, report=params["report"] | {"base": None, "retrain": None}, **alone)
    about = root / "data/dataset/about.json"
    about.write_text(json.dumps(read_json(about) | {"kind": "requests", "aim": "refuse"}))
    return render(load(root))


def test_only_kinds_of_requests_are_to_be_refused(tmp_path):
    """The kind decides and the dataset's own record says so; the record of a set to forget is as before."""
    found = {kind: aim(kind) for kind in DATASETS.names()}
    assert {kind for kind, what in found.items() if what == "refuse"} == {
        "requests",
        "jailbreakbench",
        "harmbench",
    }
    for what, told in (("forget", {}), ("refuse", {"aim": "refuse"})):
        write_splits({"forget": [ROW]}, "jsonl", tmp_path / what, what)
        about = read_json(tmp_path / what / "about.json")
        assert about == {"schema": 1, "kind": "jsonl", **told, "rows": {"forget": 1}}


def test_no_word_of_forgetting_is_on_a_page_about_refusing(refusing):
    shown = NAMES.sub(" ", html.unescape(re.sub(r"<[^>]*>", " ", APART.sub(" ", refusing.html))))
    assert WRONG.findall(shown) == []
    assert REFUSE.heading[0] in shown
    assert REFUSE.expected in shown


def test_json_keeps_the_words_for_machines(refusing):
    told = refusing.summary["models"]["refuser"]
    assert told["forgetting"]["word"] in ("leaks", "open", "forgot")
    assert told["standing"].split(", ")[0] == REFUSE.word(told["forgetting"]["word"])


def test_both_wordings_say_everything():
    """Every word of a standing has its verb, and no field is empty but those of the usual aim."""
    assert set(WORDINGS) == {"forget", "refuse"}
    for words in WORDINGS.values():
        assert set(words.verbs) == {"leaks", "forgot", "open", "none"}
        empty = {field.name for field in fields(words) if not getattr(words, field.name)}
        assert empty == ({"shown", "verdict", "meaning"} if words is FORGET else set())
