"""The game's page and its trends: on the paper's own numbers every trend holds, on others it does not."""

import copy
import re
from html import unescape

import pytest

from lethe.audits.unlearning_game.result import GameResult, trends
from lethe.io.json_files import restored
from lethe.report.game_page import page
from lethe.statistics.bound import Assumes, Bound, Covers
from tests.lethe.report.other_pages import paper, single


def typed(result):
    return restored(GameResult, result)


def held(result):
    return {trend.claim: trend.held for trend in trends(typed(result))}


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        (lambda r: r["tables"]["quality"]["values"]["150"].update(retrain=0.9795), "Retraining has quality 1"),
        (lambda r: r["tables"]["quality"]["values"]["150"].update(fisher=0.981), "The quality falls"),
        (lambda r: r["methods"]["none"]["quality"].update(value=0.65), "Without privacy NegGrad"),
        (lambda r: r["figure"]["points"][2000].update(none=0.9), "keep their ranking over data set sizes"),
        (lambda r: r["figure"]["repeats"].update(none=[0.587, 0.9, 0.587]), "keep their ranking over repetitions"),
        (lambda r: r["tables"]["deviation"].update(none={"swap": 0.03, "random": 0.02}), "varies less"),
        (
            lambda r: [c.update(retrain=1.0) for c in r["tables"]["confusion"]["values"].values()],
            "confusion is not g",
        ),
        (lambda r: [c.update(retrain=0.5) for c in r["tables"]["mia"]["values"].values()], "AUC is not grounded"),
    ],
)
def test_a_trend_that_fails_is_told(change, claim):
    result = copy.deepcopy(paper())
    change(result)
    failed = [name for name, one in held(result).items() if not one]
    assert len(failed) == 1
    assert claim in failed[0]


def read(html):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_the_page_shows_tables_figure_trends_and_bounds():
    html = page("paper", typed(paper()))
    text = read(html)
    parts = ("Table 1", "Table 4", "Figure 2", "Held", "vacuous", "NegGrad", "0.709", "ε = ∞")
    assert [part for part in parts if part not in text] == []
    assert "Did not hold" not in text
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert page("paper", typed(paper())) == html  # the same result, the same bytes


def test_leakage_bounds_stand_beside_the_quality():
    result = single()
    for at, method in enumerate(result["methods"].values()):
        method["leakage"] = {
            "scorer": "keyword_leak",
            "questions": 42,
            "n": 128,
            "temperature": 0.7,
            "alpha": 0.01,
            "greedy": 0.1,
            "mean": 0.2,
            "pooled_bound": 0.30101,
            "worst_bound": round(0.8 + at / 100, 2),
            "guarantees": {
                key: Bound(0.5, "upper", 0.01, covers, Assumes.DRAWS_WITHIN, "Clopper-Pearson").guarantee_dict()
                for key, covers in (("pooled_bound", Covers.AVERAGE), ("worst_bound", Covers.WORST_PROMPT))
            },
        }
    text = read(page("authors", typed(result)))
    for part in (
        "bound, worst question",
        "0.850",
        "0.302",
        "42 forget questions",
    ):  # up: rounded down it would be no bound
        assert part in text, part
