"""What the page says first about each model: two words, ranges, plain sentences."""

from __future__ import annotations

import re

import pytest

from lethe import config
from lethe.evaluation.run import load as load_run
from lethe.io.json_files import read_json, write_json
from lethe.report import columns, verdicts
from lethe.report.page import render
from lethe.statistics.bound import Bound, Covers, joint_level
from tests.lethe.report.conftest import MODELS, PROVENANCE, load
from tests.lethe.report.synthetic import change_json, change_questions, verdict_on_npo


def test_every_model_has_its_two_words_in_the_first_table(page):
    table = page.html.split('id="numbers"')[1].split("</table>")[0]
    for name in MODELS:
        row = table.split(f'<th scope="row">{name}</th>')[1].split("</tr>")[0]
        told = page.summary["models"][name]
        words = [told[aspect]["word"] for aspect in ("forgetting", "utility")]
        assert re.findall(r'<span class="word [a-z]+">([^<]*)</span>', row) == words
        if name in ("base", "retrain"):
            assert words == ["reference", "reference"]
        for aspect in ("forgetting", "utility"):
            lower, upper = map(Bound.from_dict, told[aspect]["interval"])
            assert (lower.side, upper.side, lower.covers) == ("lower", "upper", Covers.AVERAGE)
            shown = [end.percent(2) if aspect == "forgetting" else end.number() for end in (lower, upper)]
            assert " to ".join(shown) in row


def screen(html: str) -> str:
    """What a reader sees first, without markup."""
    first = html.split('<section id="verdicts">')[1].split("</section>")[0]
    return re.sub(r"<[^>]+>", "", first)


def test_the_first_screen_has_no_words_of_the_trade(page):
    """All but the small print, which says the same for those who know statistics."""
    told, _, small_print = screen(page.html).partition("In statistical terms")
    for word in ("prefix engine", "i.i.d.", "α", "alpha", "independent draws", "interval", "bound "):
        assert word not in told
    for word in ("prefix engine", "α = 0.01", "independent draws", "Bonferroni", "temperature 1"):
        assert word in small_print


def test_the_first_screen_has_one_sentence_a_model(page):
    table = page.html.split('<table class="lines sortable">')[1].split("</table>")[0]
    rows = dict(re.findall(r'<th scope="row">([^<]*)</th>.*?<td>([^\n]*)</td>\s*</tr>', table, re.S))
    assert list(rows) == list(MODELS)
    for name, cell in rows.items():
        sentence = re.sub(r"<[^>]+>", "", cell)
        assert sentence.count(". ") == 0
        assert sentence.endswith(".")
        told = page.summary["models"][name]["forgetting"]["interval"]
        assert " to ".join(Bound.from_dict(end).percent(2) for end in told) in sentence
    assert "what the guarantee covers" in screen(page.html).lower()
    assert joint_level(0.01) in screen(page.html)


@pytest.mark.parametrize(
    ("rule", "words"), [("word", "as whole words only"), ("substring", "inside longer words too")]
)
def test_the_keyword_rule_in_force_is_on_the_first_screen(own_small, rule, words):
    text = (own_small / "params.yaml").read_text()
    (own_small / "params.yaml").write_text(text.replace("keyword_match: word", f"keyword_match: {rule}"))
    told = screen(render(load(own_small)).html)
    assert f"{words} (score.keyword_match: {rule})" in told
    assert f"keywords count {words}." in told


def test_too_few_answers_are_said_to_be_too_few(small_page):
    """Three questions of 64 answers: no share could be shown to be small."""
    for model in ("npo", "npo_at"):
        row = small_page.html.split(f'<th scope="row">{model}</th>')[1].split("</tr>")[0]
        told = re.sub(r"<[^>]+>", "", row)
        assert "64 answers to each question are too few" in told
        assert "lethe plan" in told


def test_the_page_of_one_model_names_it(own_small):
    whole = config.load(own_small / "params.yaml")
    sections = {"models": {"npo": {"path": "/models/mine"}}, "metrics": whole.metrics.model_dump()}
    checked = config.evaluation_params(
        **sections, score=whole.score.model_dump(), sample=whole.sample.model_dump()
    )
    html = render(load_run(checked, own_small / "data", PROVENANCE)).html
    assert "<title>Lethe: what npo still knows</title>" in html
    assert "<dt>model</dt><dd>npo</dd>" in html
    assert "<dt>models</dt>" not in html
    assert re.search(r'<p class="lead">npo ', html)
    # It leaked, and the range is wide: the reader is told why.
    row = re.sub(r"<[^>]+>", "", html.split('<th scope="row">npo</th>')[1].split("</tr>")[0])
    assert "64 answers to each question are few" in row
    assert "lethe plan" in row


def test_the_band_of_leak_at_k_is_told_and_rounded_outward(own_small):
    place = own_small / "data/curves/npo/leak_at_k.json"
    rows = read_json(place)
    for row in rows:
        if (row["of"], row["k"]) == ("worst", 1000):
            row |= {"lower": 0.12349, "upper": 0.45611}
    write_json(place, rows)
    page = render(load(own_small))
    told = page.summary["models"]["npo"]["verdict"]
    assert "worst question leaks with probability 12.3% to 45.7%; that of retrain does, by chance" in told
    assert "<td>12.3% to 45.7%</td>" in page.html


@pytest.mark.parametrize(
    ("lower", "upper", "told"),
    [
        (0.0, 0.3, "at most 30%"),
        (0.5, 1.0, "at least 50%"),
        (1.0, 1.0, "above 99.9%"),
        (0.25, 0.5, "25.0% to 50.0%"),
    ],
)
def test_no_band_promises_certainty(lower, upper, told):
    rest = (0.01, Covers.WORST_PROMPT, "draws", "made up")
    band = verdicts.between((Bound(lower, "lower", *rest), Bound(upper, "upper", *rest)))
    assert band.replace("30.0%", "30%").replace("least 50.0%", "least 50%") == told


def test_missing_scores_are_those_of_the_verdicts_own_scorer(own_small):
    change_json(own_small / "data/metrics/npo.json", missing=3)  # of the other scorer
    change_questions(own_small, lambda place: {"binary_missing": 2 if place == 0 else 0})
    assert "2 scores of keyword leak are missing" in verdict_on_npo(own_small)
    assert "3 scores" not in render(load(own_small)).summary["models"]["npo"]["verdict"]


def test_questions_without_keywords_are_named(own_small):
    change_questions(own_small, lambda place: {"m_bin": None, "binary_share": None} if place == 1 else {})
    told = render(load(own_small)).summary["models"]["npo"]["verdict"]
    assert (
        "For 1 of 3 questions, keyword leak can judge no answer, because they have no keywords: forget-001."
        in told
    )


def test_no_printed_bound_on_a_standard_deviation_exceeds_a_half(own_small):
    change_json(own_small / "data/metrics/npo.json", m_sigma_worst=1.319)
    run = load(own_small)
    shown = {column.key: column for group in columns.sampling_columns(run) for column in group.columns}
    npo = next(model for model in run.models if model.name == "npo")
    assert shown["m_sigma_worst"].cell(npo) == "0.500"
    assert render(run).summary["models"]["npo"]["metrics"]["m_sigma_worst"] == 1.319


def test_a_rejected_fit_gives_no_estimate(own_small):
    fit = {"ks_p_values": {"train": 0.2, "population": 0.01}}
    change_json(
        own_small / "data/epsilon_star/npo/result.json", epsilon_star=386206.9, epsilon_lower=2.2844, fit=fit
    )
    html = render(load(own_small)).html
    assert "386,20" not in html
    cells = re.search(r"<td>npo</td>\s*<td class=\"n\">([^<]*)</td>\s*<td class=\"n\">([^<]*)</td>", html).groups()
    assert cells == ("2.284", "none: fit rejected")
