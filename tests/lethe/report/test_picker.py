"""The block that the page's script reads: complete, small, and safe whatever a model wrote."""

from __future__ import annotations

import dataclasses
import json
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from lethe.evaluation.answers import BINS
from lethe.report import picker
from lethe.report.page import render
from lethe.report.picker import as_data, text_parts
from lethe.statistics.bound import Bound
from lethe.text import INVISIBLE, LONGEST, number
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import HOSTILE, change_rows

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
            assert len(worst) <= picker.KEPT


def test_leak_at_k_is_that_of_the_question_rounded_outward(own_small, without_figures):
    def band(row):
        asked = (row.scope, row.quantity, row.at) == ("question", "leak_at_k", 1000)
        return dataclasses.replace(row, lower=0.12349, upper=0.45611) if asked else row

    change_rows(own_small, band)
    found = block(render(load(own_small)).html)
    column = [head for head, _ in found["columns"]].index("1,000")
    npo = found["told"][found["models"].index("npo")]
    assert {found["shared"][binary][column] for binary, *_ in npo} == {"12.3%–45.7%"}


def test_a_hostile_answer_is_data(page):
    data = re.search(r'id="questions-data">(.*?)</script>', page.html, re.S)[1]
    assert "\\u003cscript\\u003edocument.title" in data
    found = block(page.html)
    texts = [worst[0] for told in found["told"] for entry in told for worst in entry[4]]
    assert any(isinstance(text, str) and text.startswith(HOSTILE) for text in texts)


def test_a_question_without_results_of_one_model_has_no_entry(own_small, without_figures):
    change_rows(own_small, lambda row: None)
    found = block(render(load(own_small)).html)
    assert found["told"][found["models"].index("npo")] == [None] * 3
    assert all(found["told"][found["models"].index("base")])


def test_the_table_without_a_script_holds_every_bound(run, page):
    table = page.html.split('aria-label="Every question of every model"')[1].split("</table>")[0]
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in table.split("<tbody>")[1].split("</tr>")[:-1]]
    assert len(rows) == len(run.forget)
    for place, row in enumerate(rows):
        for cell, model in zip(row, run.models, strict=True):
            question = model.questions[place]
            bound: Bound = question.bounds["m_bin"]
            assert cell == bound.percent() + (" ◆" if question.value("binary_greedy") else "")
