"""What the page says first about each model: two words, ranges, plain sentences."""

import json
import re

import pytest

from lethe import config
from lethe.data import aim
from lethe.io.artifacts import write_splits
from lethe.io.json_files import read_json
from lethe.registry import DATASETS
from lethe.report import first_screen
from lethe.report.page import render
from lethe.statistics.bound import Bound, Covers
from tests.lethe.report.conftest import MODELS, load
from tests.lethe.report.synthetic import change_params, write_run
from tests.small import ROOT


def rows_of(html: str, section: str) -> dict[str, str]:
    """The rows of the first table of a section by model."""
    body = html.split(f'<section id="{section}">')[1].split("<tbody>")[1].split("</tbody>")[0]
    return dict(re.findall(r'<th scope="row">([^<]*)</th>(.*?)</tr>', body, re.S))


def test_every_model_has_its_two_words_in_the_first_table(page):
    rows = rows_of(page.html, "verdicts")
    assert list(rows) == list(MODELS)
    for name, row in rows.items():
        told = page.summary["models"][name]
        words = [told[aspect]["word"] for aspect in ("forgetting", "utility")]
        assert re.findall(r'<span class="word [a-z]+">([^<]*)</span>', re.sub(r"</?a[^>]*>", "", row)) == words
        if name in ("base", "retrain"):
            assert words == ["reference", "reference"]


def screen(html: str) -> str:
    """What a reader sees first, without markup."""
    first = html.split('<section id="verdicts">')[1].split("</section>")[0]
    return re.sub(r"<[^>]+>", "", first)


@pytest.mark.parametrize(
    ("rule", "words"), [("word", "as whole words only"), ("substring", "inside longer words too")]
)
def test_the_keyword_rule_in_force_is_on_the_first_screen(own_small, without_figures, rule, words):
    change_params(own_small, lambda value: value["score"].update(keyword_match=rule))
    told = screen(render(load(own_small)).html)
    assert f"{words} (score.keyword_match: {rule})" in told


def test_too_few_answers_come_with_the_number_that_would_do(small_page):
    """Three questions of 64 answers: no share could be shown to be small."""
    for model in ("npo", "npo_at"):
        told = small_page.summary["models"][model]["forgetting"]
        assert told["word"] == "open"
        assert told["clean_question_open"]
        assert told["decides"]["answers"] > 64


@pytest.mark.parametrize(
    ("lower", "upper", "told"),
    [
        (0.0, 0.3, "at most 30%"),
        (0.5, 1.0, "at least 50%"),
        (1.0, 1.0, "above 99.9%"),
        (0.25, 0.5, "25% to 50%"),
    ],
)
def test_no_band_promises_certainty(lower, upper, told):
    rest = (0.01, Covers.WORST_PROMPT, "draws", "made up")
    band = first_screen.between((Bound(lower, "lower", *rest), Bound(upper, "upper", *rest)))
    assert band == told


ROW = {"id": "a", "question": "q", "answer": "a"}


# Not the page's own words: titles of splits, ids, questions; and what is about the losses of that split.
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
