"""The game's page and its trends: on the paper's own numbers every trend holds, on others it does not."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser

import pytest

from lethe.audits.unlearning_game.result import GameResult, kendall, trends
from lethe.io.json_files import restored
from lethe.report.game_page import page
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.unlearning_game import group_bound
from tests.lethe.report.other_pages import METHODS, QUALITY, by_budget, paper, single


def typed(result):
    return restored(GameResult, result)


def held(result):
    return {trend.claim: trend.held for trend in trends(typed(result))}


def test_every_trend_holds_on_the_papers_own_numbers():
    assert len(held(paper())) == 10
    assert all(held(paper()).values())


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


def test_no_variation_between_random_splits_is_not_passed_over():
    result = paper()
    result["tables"]["deviation"]["none"] = {"swap": 0.01, "random": 0.0}
    trend = next(one for one in trends(typed(result)) if "varies less" in one.claim)
    assert not trend.held
    assert "None inf" in trend.measured


def test_falling_metrics_are_told_to_fall():
    result = paper()
    for name in ("confusion", "mia"):
        result["tables"][name]["values"] = by_budget(QUALITY)
    assert not held(result)["Interclass confusion does not fall as epsilon grows, for at least one method"]
    assert not held(result)["1 - attack AUC does not fall as epsilon grows, for at least one method"]


def test_a_single_game_is_judged_on_what_it_measured():
    claims = held(single())
    assert any(claim.startswith("Without privacy NegGrad") for claim in claims)
    assert not any("epsilon" in claim or "ranking" in claim for claim in claims)
    alone = single()
    for method in METHODS[1:]:
        del alone["methods"][method], alone["defenders"][method]
    alone["methods"]["none"].update(deviation=None, confusion=None)
    assert held(alone) == {}


def test_trends_name_the_methods_as_the_tables_do():
    result = paper()
    result["tables"]["quality"]["values"]["150"].update(neg_grad=0.99)
    result["tables"]["deviation"]["ft_final"] = {"swap": 0.03, "random": 0.02}
    told = " ".join(trend.measured for trend in trends(typed(result)))
    assert not re.search("neg_grad|ft_final|retr_final|none |retrain", told)
    assert "NegGrad: 0.973 to 0.990 to 0.942 to 0.709" in told
    assert "FtFinal 1.500" in told
    assert "ε = ∞: 0.993" in told


def test_every_entry_of_a_method_counts_in_the_ranking():
    result = single()
    result["defenders"]["gentle"] = "neg_grad"
    result["methods"]["gentle"] = copy.deepcopy(result["methods"]["none"])
    trend = next(one for one in trends(typed(result)) if one.claim.startswith("Without privacy"))
    assert not trend.held
    assert "NegGrad (gentle) 0.587" in trend.measured


def test_a_ranking_speaks_of_the_methods_that_were_played():
    result = single()
    del result["methods"]["ft_final"], result["defenders"]["ft_final"]
    assert any(one.claim.endswith("Fisher above RetrFinal and None") for one in trends(typed(result)))
    result["privacy"] = vars(group_bound(50, 1e-5, 10))
    assert not any("Without privacy" in one.claim for one in trends(typed(result)))


def test_kendall_counts_agreeing_pairs():
    one = {"a": 1, "b": 2, "c": 3}
    assert kendall(one, one) == 1
    assert kendall(one, {"a": 3, "b": 2, "c": 1}) == -1
    assert kendall(one, {"a": 2, "b": 1, "c": 3}) == pytest.approx(1 / 3)


class Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(html):
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return " ".join(" ".join(parser.text).split())


def test_the_page_shows_tables_figure_trends_and_bounds():
    html = page("paper", typed(paper()))
    text = read(html)
    for part in (
        "Table 1",
        "Table 2",
        "Table 3",
        "Table 4",
        "Figure 2",
        "Held",
        "vacuous",
        "NegGrad",
        "0.709",
        "ε = ∞",
    ):
        assert part in text, part
    assert "Did not hold" not in text
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert page("paper", typed(paper())) == html  # the same result, the same bytes


def test_a_single_game_has_no_tables():
    text = read(page("digits", typed(single())))
    assert "Table 1" not in text
    assert "Figure 2" not in text
    assert "What privacy promises" not in text


def test_without_seeds_there_is_no_interval():
    result = single()
    for method in result["methods"].values():
        method["quality"].update(ci_low=None, ci_high=None)
    assert "No intervals" in read(page("digits", typed(result)))


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
        "0.302",  # up: rounded down it would be no bound
        "leaks, of 128 samples",
        "42 forget questions at temperature 0.7",
        "bound on their rate: on average over the forget questions, with probability 0.99",
        "bound, worst question: on the worst of the forget questions, with probability 0.99",
    ):
        assert part in text, part


def test_a_method_under_another_name_shows_both():
    result = single()
    result["defenders"]["neg_grad_loud"] = result["defenders"].pop("neg_grad")
    result["methods"]["neg_grad_loud"] = result["methods"].pop("neg_grad")
    assert "NegGrad (neg_grad_loud)" in read(page("digits", typed(result)))
