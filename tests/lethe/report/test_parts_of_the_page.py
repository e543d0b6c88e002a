"""The block that the script reads, and what stands first on the page."""

import json
import re
import unicodedata
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.data.rows import aim
from lethe.evaluation.answers import BINS
from lethe.evaluation.run import Model
from lethe.evaluation.wording import FORGET
from lethe.io.artifacts import write_splits
from lethe.io.files import read_json
from lethe.registry import DATASETS
from lethe.report import first_screen, picker
from lethe.report.page import render
from lethe.report.picker import as_data, text_parts
from lethe.report.tables import band, language_views
from lethe.results.table import Numbers, Rows
from lethe.statistics.bound import Bound, Covers
from lethe.text import INVISIBLE, LONGEST, number
from tests.lethe.report.conftest import MODELS, load
from tests.lethe.report.synthetic import change_params

TEXTS = st.text(max_size=80) | st.text(
    st.sampled_from("a<>&\"'\\\n\x00\u202e\u2028漢\U0001f600\ud800"), max_size=80
)


def block(html: str) -> dict:
    return json.loads(re.search(r'id="questions-data">(.*?)</script>', html, re.S)[1])


@given(TEXTS)
def test_a_text_comes_back_whole_with_its_invisible_characters_named(text):
    told = text_parts(text)
    parts = [told] if isinstance(told, str) else told
    plain = "".join(part for part in parts if isinstance(part, str))
    assert not any(unicodedata.category(character) in INVISIBLE for character in plain)
    assert "".join(part if isinstance(part, str) else chr(int(part[1], 16)) for part in parts) == text


@given(st.recursive(TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_nothing_in_the_block_ends_it(value):
    shown = str(as_data(value))
    assert not set("<>&") & set(shown)
    assert json.loads(shown) == value


@given(st.text(max_size=2000), st.integers(picker.SHORTEST, 400))
def test_a_text_is_cut_to_what_it_may_take_and_says_so(text, most):
    parts = text_parts(text, most=most)
    told = parts[-1] if isinstance(parts, list) and parts and isinstance(parts[-1], int) else None
    kept = parts if isinstance(parts, str) else [part for part in parts if not isinstance(part, int)]
    assert len(as_data(kept if told is None else kept or "").encode()) <= most + 4
    cut = len(text) > LONGEST or len(as_data(text_parts(text)).encode()) > most
    assert (told == len(text)) if cut else (told is None)


def test_every_question_of_every_model_is_in_the_block(run, page):
    found = block(page.html)
    assert found["models"] == [model.name for model in run.models]
    assert [name for name, *_ in found["questions"]] == list(run.forget)
    heads = [head for head, _ in found["columns"]]
    for model, told in zip(run.models, found["told"], strict=True):
        for row, (binary, score, drawn, histogram, worst) in zip(model.questions, told, strict=True):
            cells = dict(zip(heads, [*found["shared"][binary], *score], strict=True))
            assert cells["mean"] == number(row.value("mean"))
            assert cells["M_µ"].endswith(row.bounds["m_mu"].number())
            assert len(histogram) == BINS
            assert sum(histogram) == row.value("n") == int(drawn)
            assert len(worst) <= picker.LISTED


SHARE = st.floats(0, 1)


@given(SHARE, SHARE)
def test_both_ends_round_outward_and_none_promises_certainty(one, other):
    low, high = sorted((one, other))
    lower, upper = map(Fraction, band(low, high).split(" to "))
    least, most = (Fraction(repr(end)) for end in (low, high))  # as `Bound` reads a float
    assert lower <= least < lower + Fraction(2, 1000)
    assert lower < 1
    assert upper - Fraction(1, 1000) < most <= upper


def test_both_ends_of_the_share_of_prompts_are_said():
    rows, rest = Rows("m"), (0.05, Covers.PROMPTS_OF_LANGUAGE, "random prompts")
    facts = {"path": "l.yaml", "scorer": "keyword_leak", "binary": True, "tau": 0.2}
    rows.add("model", "language", "language", evidence=facts)
    rows.add("model", "worst_production", "language", text="plain")
    # two methods, so two rows
    ends = Bound(0.1, "lower", *rest, "detected"), Bound(0.4, "upper", *rest, "certified")
    rows.add("model", "share_above", "language", None, *ends)
    evidence = {"probability": 0.5, "choices": {"prefix": "plain"}}
    rows.add("model", "production", "language", 0.25, item="plain", n=8, missing=0, evidence=evidence)
    model = Model("m", "subject", "m", numbers=Numbers(rows.rows))
    (view,) = language_views(SimpleNamespace(models=[model], forget={"q": {}}, words=FORGET))
    said = " ".join(view.sentences)
    assert "25% of its 8 answers" in said
    assert "at most 40.0%" in said
    assert "at least 10.0%" in said
    assert view.rows == [["plain", "50%", "8", "25%", "–", "–"]]


def rows_of(html: str, section: str) -> dict[str, str]:
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
        assert told["decides"]["answers"] > 64


@pytest.mark.parametrize(
    ("lower", "upper", "told"),
    [(0.0, 0.3, "at most 30%"), (0.5, 1.0, "at least 50%"), (1.0, 1.0, "above 99.9%"), (0.25, 0.5, "25% to 50%")],
)
def test_no_band_promises_certainty(lower, upper, told):
    rest = (0.01, Covers.WORST_PROMPT, "draws", "made up")
    told_band = first_screen.between((Bound(lower, "lower", *rest), Bound(upper, "upper", *rest)))
    assert told_band == told


ROW = {"id": "a", "question": "q", "answer": "a"}


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
