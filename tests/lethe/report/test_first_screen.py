"""What the page says first about each model: two words, ranges, plain sentences."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import pytest

from lethe import config
from lethe.evaluation.findings import findings
from lethe.evaluation.run import load as load_run
from lethe.evaluation.standing import Aspect, Standing, standings
from lethe.report import columns, first_screen
from lethe.report.page import render
from lethe.report.tables import epsilon_star_rows
from lethe.results.ends import Ends
from lethe.results.verdict import decide
from lethe.statistics.bound import Bound, Covers, joint_level
from tests.lethe.report.conftest import MODELS, PROVENANCE, load
from tests.lethe.report.synthetic import (
    change_numbers,
    change_params,
    change_rows,
    measure_again,
    write_epsilon_star,
)


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


def test_the_ranges_of_each_model_are_in_the_table_of_numbers(page, run):
    said = findings(run)
    quantity = first_screen.judged_by(run)[0]
    for model, (name, row) in zip(run.models, rows_of(page.html, "numbers").items(), strict=True):
        assert model.name == name
        assert quantity.told(quantity.measure(model, said.level)) in row
        lower, upper = map(Bound.from_dict, page.summary["models"][name]["utility"]["interval"])
        assert (lower.side, upper.side, lower.covers) == ("lower", "upper", Covers.AVERAGE)
        assert f"{lower.number()} to {upper.number()}" in row


def screen(html: str) -> str:
    """What a reader sees first, without markup."""
    first = html.split('<section id="verdicts">')[1].split("</section>")[0]
    return re.sub(r"<[^>]+>", "", first)


def test_the_first_screen_has_no_words_of_the_trade(page):
    """All but the small print, which says the same for those who know statistics."""
    told, _, small_print = screen(page.html).partition("In statistical terms")
    for word in ("prefix engine", "i.i.d.", "α", "alpha", "independent draws", "interval", "bound "):
        assert word not in told
    for word in ("prefix engine", "α = 0.01", "Holm", "Bonferroni", "temperature 1"):
        assert word in small_print


def test_the_first_screen_has_one_sentence_a_model(page):
    for name, row in rows_of(page.html, "verdicts").items():
        cell = unescape(re.sub(r"<[^>]+>", "", row.rsplit("<td>", 1)[1]))
        said = page.summary["models"][name]["verdict"]
        assert cell.strip() == said or (name in ("base", "retrain") and not said)
        assert cell.count(". ") == 0
        assert cell.strip().endswith(".")
    assert joint_level(0.01) in page.html


@pytest.mark.parametrize(
    ("rule", "words"), [("word", "as whole words only"), ("substring", "inside longer words too")]
)
def test_the_keyword_rule_in_force_is_on_the_first_screen(own_small, without_figures, rule, words):
    change_params(own_small, lambda value: value["score"].update(keyword_match=rule))
    told = screen(render(load(own_small)).html)
    assert f"{words} (score.keyword_match: {rule})" in told
    assert f"keywords count {words}." in told


def test_too_few_answers_come_with_the_number_that_would_do(small_page):
    """Three questions of 64 answers: no share could be shown to be small."""
    for model in ("npo", "npo_at"):
        told = small_page.summary["models"][model]["forgetting"]
        assert told["word"] == "open"
        assert told["clean_question_open"]
        assert told["decides"]["answers"] > 64


def test_the_page_of_one_model_names_it(own_small, without_figures):
    whole = config.load(own_small / "params.yaml")
    sections = {"models": {"npo": {"path": "/models/mine"}}, "metrics": whole.metrics.model_dump()}
    checked = config.evaluation_params(
        **sections, score=whole.score.model_dump(), sample=whole.sample.model_dump()
    )
    html = render(load_run(checked, own_small / "data", PROVENANCE)).html
    assert re.search(r"<title>Lethe: .*\bnpo\b.*</title>", html)
    assert "<dt>model</dt><dd>npo</dd>" in html
    assert "<dt>models</dt>" not in html
    assert re.search(r'<p class="lead">npo ', html)


def test_the_headline_counts_the_words_of_the_models_under_test():
    clean, loud = (decide(Ends.of_arrays(("q",), leaks=[leaks], n=10_000), alpha=0.01) for leaks in (0, 5000))
    said = [
        Standing("base", None, Aspect("reference"), ""),
        *(Standing(name, clean, Aspect("intact"), "") for name in ("a", "b")),
        Standing("c", loud, Aspect("destroyed"), ""),
    ]
    told = first_screen.headline(said)
    assert re.findall(r"\d", told) == ["3", "2", "1"]
    assert told.index("2 forgot") < told.index("1 leaks")
    assert first_screen.headline(said[:1]) == ""
    assert first_screen.headline([said[0], said[3]]).startswith("c leaks")


def test_the_band_of_leak_at_k_is_told_and_rounded_outward(own_small):
    change_numbers(own_small, leak_at_1000_worst_lower=0.12349, leak_at_1000_worst=0.45611)
    run = load(own_small)
    said = findings(run)
    cells = {
        one.model: first_screen.cells(model, one, run, said.level)
        for model, one in zip(run.models, standings(run, said), strict=True)
    }
    assert cells["npo"][1] == "12.3% to 45.7%"


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
    band = first_screen.between((Bound(lower, "lower", *rest), Bound(upper, "upper", *rest)))
    assert band.replace("30.0%", "30%").replace("least 50.0%", "least 50%") == told


def test_missing_scores_are_those_of_the_verdicts_own_scorer(own_small):
    change_numbers(own_small, missing=3)  # of the other scorer

    def two(row):
        own = (row.quantity, row.item) == ("unjudged", "forget-000")
        return dataclasses.replace(row, estimate=2.0) if own else row

    change_rows(own_small, two)
    (said,) = first_screen.gaps(load(own_small))
    assert said.startswith("npo: 2 scores ")
    assert "keyword leak" in said


def test_questions_without_keywords_are_named_once(own_small):
    for name in ("base", "retrain", "npo", "npo_at"):
        measure_again(own_small, name, inapplicable={"forget-001"})
    (said,) = first_screen.gaps(load(own_small))
    assert "1 of 3" in said
    assert said.endswith(": forget-001.")


def test_no_printed_bound_on_a_standard_deviation_exceeds_a_half(own_small):
    change_numbers(own_small, m_sigma_worst=1.319)
    run = load(own_small)
    npo = next(model for model in run.models if model.name == "npo")
    shown = {column.key: column for _, own in columns.columns(run, "model", [npo.numbers]) for column in own}
    assert shown["m_sigma_worst"].cell(npo.numbers) == "≤ 0.500"
    assert npo.values["m_sigma_worst"] == 1.319


def test_a_rejected_fit_gives_no_estimate(own_small):
    fit = {"ks_p_values": {"train": 0.2, "population": 0.01}}
    write_epsilon_star(own_small, "npo", 2.2844, epsilon_star=386206.9, fit=fit)
    cells = {name: own for name, *own in epsilon_star_rows(load(own_small))}["npo"]
    assert cells[:2] == ["2.284", "none: fit rejected"]
