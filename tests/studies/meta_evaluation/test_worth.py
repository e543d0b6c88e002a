"""The evaluation of numbers on models whose truth is made up here: the truth has AUC 1, noise 0.5, claims follow rules."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from studies.meta_evaluation.numbers import Cost, Number
from studies.meta_evaluation.page import COLUMNS, WHAT, page, rows, sentences, target_of
from studies.meta_evaluation.settings import MetaEvaluation
from studies.meta_evaluation.worth import PoolMember, RetrainMember, UnlearnedMember, meta_result
from tests.studies.small_meta import small_document

QUESTIONS = [f"q{i}" for i in range(6)]
HEADLINE = ["truth", "noise", "good"]
PROVENANCE = {
    "revision": "abc",
    "python": "3",
    "machine": {"instruction set": "AVX2, fixed"},
    "packages": {"lethe": "1"},
}


def rules(**changes: object) -> MetaEvaluation:
    section = small_document()["meta_evaluation"] | {"bootstrap": 200}
    section |= {"headline": HEADLINE, "claims": []} | changes
    return MetaEvaluation.model_validate(section)


def number(name: str, value: float, each: dict[str, float] | None = None) -> Number:
    return Number(name, value, value, ("greedy",), each or {})


def pool(seed: int = 0, models: int = 30) -> list[PoolMember]:
    rng, found = np.random.default_rng(seed), []
    for place in range(2 * models):
        knows = place < models
        part = knows and place % 5 == 0
        learned = frozenset(QUESTIONS[:3] if part else QUESTIONS if knows else [])
        each = {key: float(key in learned) for key in QUESTIONS}
        values = [
            number("truth", float(knows), each),
            number("noise", rng.normal(), {key: rng.normal() for key in QUESTIONS}),
            number("good", 1.5 * knows + rng.normal()),
            number("infinite", math.inf if knows and place else rng.normal()),
        ]
        if place != 3:
            values.append(number("seldom", float(knows)))
        kind = "part" if part else "all" if knows else "retain"
        found.append(PoolMember(f"m{place}", kind, learned, 0.9, {one.name: one for one in values}))
    return found


def unlearned(seed: int = 1, models: int = 24) -> list[UnlearnedMember]:
    rng, found = np.random.default_rng(seed), []
    for place in range(models):
        deep = place / models  # how much comes back
        before = {
            "truth": number("truth", 0.0),
            "noise": number("noise", rng.normal()),
            "good": number("good", deep),
        }
        relearned = {"truth": number("truth", 0.2), "noise": before["noise"], "good": number("good", deep + 0.4)}
        quantised = {"truth": number("truth", 0.0), "noise": before["noise"], "good": number("good", 2 * deep)}
        found.append(
            UnlearnedMember(
                f"u{place}",
                f"method {place % 12}",
                0.5 if place == 0 else 0.9,
                before,
                relearned,
                quantised,
                {"leaks": deep, "mean": 1 - deep},
            )
        )
    return found


RETRAIN = RetrainMember(
    {name: number(name, 0.0) for name in ("truth", "noise", "good")},
    {"truth": number("truth", 0.1), "noise": number("noise", 0.0), "good": number("good", 0.2)},
    1.0,
)
COSTS = {"greedy": Cost(0.5, 100.0)}


@pytest.fixture(scope="module")
def result():
    claims = [
        {"text": "The truth tells more than noise", "better": "truth", "than": "noise"},
        {"text": "Noise tells more than the truth", "better": "noise", "than": "truth"},
        {"text": "Good predicts", "better": "good", "than": "noise"},
    ]
    settings = rules(claims=claims, unlearned=small_document()["meta_evaluation"]["unlearned"] | {"utility": 0.8})
    return meta_result(pool(), unlearned(), RETRAIN, COSTS, settings)


def worth(result, name):
    return next(one for one in result.worth if one.name == name)


def test_the_truth_has_auc_1_and_noise_one_half_within_its_interval(result):
    truth, noise = worth(result, "truth"), worth(result, "noise")
    assert (truth.auc.value, truth.auc_each.value) == (1.0, 1.0)
    assert noise.auc.low <= 0.5 <= noise.auc.high
    assert noise.auc_each.low <= 0.5 <= noise.auc_each.high
    assert result.worth[0].auc.value == 1.0, "sorted by AUC"


def test_per_question_a_model_knows_only_what_it_learned(result):
    """Were a partly trained model counted as knowing every question, its truth would not separate."""
    blunt = [
        PoolMember(one.name, one.kind, frozenset(QUESTIONS) if one.knows else frozenset(), 0.9, one.numbers)
        for one in pool()
    ]
    assert worth(meta_result(blunt, [], RETRAIN, COSTS, rules()), "truth").auc_each.value < 1


def test_infinite_and_missing_numbers(result):
    assert worth(result, "infinite").auc.value > 0.95
    assert worth(result, "seldom").missing == 1
    assert worth(result, "truth").missing == 0
    with_seldom = meta_result(pool(), [], RETRAIN, COSTS, rules(headline=["truth", "seldom", "noise"]))
    assert with_seldom.unpaired == ("seldom",)
    assert len(with_seldom.pairs) == 1


def test_r_and_q_count_useful_models_that_the_number_calls_unlearned(result):
    good, truth = worth(result, "good"), worth(result, "truth")
    assert result.useful == 23, "one model lost its utility"
    assert truth.kept == 23
    assert good.kept <= 23
    assert good.one_sided.relearning.value == pytest.approx(0.5), "0.2 of Retrain over 0.4 of the model"
    assert good.one_sided.quantisation.value == pytest.approx(0.5)
    assert good.one_sided.both.value == pytest.approx(0.5)
    assert truth.one_sided.quantisation.value == 1.0
    assert good.symmetric.relearning.value == pytest.approx(1 - 0.2 / 0.6)


def test_prediction_and_cost(result):
    assert worth(result, "good").prediction.value == pytest.approx(1.0)
    assert worth(result, "good").prediction_mean.value == pytest.approx(-1.0)
    noise = worth(result, "noise").prediction
    assert noise.low <= 0 <= noise.high
    assert worth(result, "good").cost == Cost(0.5, 100.0)
    assert math.isnan(worth(meta_result(pool(), [], RETRAIN, {}, rules()), "good").cost.seconds)


def test_claims_are_decided_by_holm(result):
    first, second, third = result.claims
    tests = [{test.by: test for test in claim.tests} for claim in result.claims]
    assert (first.verdict, second.verdict) == ("supported", "contradicted")
    assert tests[0]["AUC"].difference == -tests[1]["AUC"].difference
    assert (tests[2]["leaks"].verdict, tests[2]["mean"].verdict) == ("supported", "contradicted")
    assert third.verdict == "mixed"
    assert tests[0]["leaks"].verdict == "not decided", "the truth is the same for all unlearned models"


def test_pool_models_of_small_utility_count_in_no_auc():
    """Badly trained models that know look like models that lack: the filter keeps them out, and their utility is shown."""
    members = pool()
    weak = [replace(one, utility=0.5, numbers={"truth": number("truth", 0.0)}) for one in members[:3]]
    kept = rules(pool=small_document()["meta_evaluation"]["pool"] | {"utility": 0.8})
    found = meta_result([*weak, *members[3:]], [], RETRAIN, COSTS, kept)
    assert worth(found, "truth").auc.value == 1.0
    assert sum(found.knows.values()) == 27
    shown = {(one.knows, one.kind): one for one in found.quality}
    assert sum(one.left_out for one in found.quality) == 3
    assert shown[True, "all"].least == 0.5
    assert shown[False, "retain"].left_out == 0
    assert found.utility_auc.value == 0.5, "all others are alike"
    every = rules(pool=small_document()["meta_evaluation"]["pool"] | {"utility": 0.0})
    assert worth(meta_result([*weak, *members[3:]], [], RETRAIN, COSTS, every), "truth").auc.value < 1


def test_the_interval_of_a_prediction_draws_whole_methods():
    """Were the 24 models independent, the interval would be narrower than with three methods of eight models each."""
    members = [replace(one, method=f"method {place // 3}") for place, one in enumerate(unlearned())]
    alone = [replace(one, method=one.name) for one in members]
    found, single = (
        worth(meta_result(pool(), own, RETRAIN, COSTS, rules()), "noise").prediction for own in (members, alone)
    )
    assert found.value == single.value
    assert "groups" in found.method
    assert "groups" not in single.method


def test_two_noises_decide_no_claim():
    decided = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        members = [
            PoolMember(
                f"m{i}",
                "all" if i < 20 else "retain",
                frozenset(QUESTIONS if i < 20 else []),
                0.9,
                {name: number(name, rng.normal()) for name in ("truth", "noise", "good")},
            )
            for i in range(40)
        ]
        claim = {"text": "One noise tells more", "better": "truth", "than": "noise"}
        found = meta_result(members, [], RETRAIN, COSTS, rules(claims=[claim], bootstrap=20))
        decided += found.claims[0].verdict != "not decided"
    assert decided <= 5


def test_the_page_holds_every_number_and_sentence(result):
    text = page("tiny", result, HEADLINE, PROVENANCE)
    assert all(f">{one.name}<" in text for one in result.worth)
    assert "noise" in next(one for one in sentences(result) if one.startswith("Not shown"))
    assert "<script" in text
    assert "<dt>git revision</dt><dd>abc</dd>" in text
    assert "<dt>instruction set</dt><dd>AVX2, fixed</dd>" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")
    shown = {row[0]: row for row in rows(result)}
    assert shown["truth"][2].startswith("1.000 (0.8")
    titles = [column.title for column in COLUMNS]
    assert shown["infinite"][titles.index("seconds per model")] == "0.50"
    assert shown["truth"][titles.index("of models")] == str(
        next(o.kept for o in result.worth if o.name == "truth")
    )
    drawn = text.partition('id="figure"')[2].partition("</section>")[0]
    assert WHAT[target_of(result.worth)] in drawn
    assert {row[1] for row in shown.values()} == {"larger"}


def test_without_unlearned_models_the_page_says_so():
    found = meta_result(pool(models=4), [], RETRAIN, COSTS, rules())
    said = " ".join(sentences(found))
    assert "too few unlearned models" in said
    assert "No number that tells" in said
    page("none", found, HEADLINE, PROVENANCE)
