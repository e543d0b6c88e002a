"""The evaluation of numbers on models whose truth is made up here: the truth has AUC 1, noise 0.5, claims follow rules."""

import math
from dataclasses import replace

import numpy as np
import pytest

from studies.meta_evaluation.numbers import Cost, Number
from studies.meta_evaluation.settings import MetaEvaluation
from studies.meta_evaluation.worth import Member, meta_result
from tests.studies.small_meta import small_document

QUESTIONS = [f"q{i}" for i in range(6)]
HEADLINE = ["truth", "noise", "good"]
COSTS = {"greedy": Cost(0.5, 100.0)}


def rules(**changes: object) -> MetaEvaluation:
    section = small_document()["meta_evaluation"] | {"bootstrap": 200}
    section |= {"headline": HEADLINE, "claims": []} | changes
    return MetaEvaluation.model_validate(section)


def number(name: str, value: float, each: dict[str, float] | None = None) -> Number:
    return Number(name, value, value, ("greedy",), each or {})


def pool(seed: int = 0, models: int = 30) -> list[Member]:
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
        role = "knows" if knows else "lacks"
        found.append(Member(f"m{place}", role, kind, learned, 0.9, {one.name: one for one in values}, COSTS))
    return found


def unlearned(seed: int = 1, models: int = 24) -> list[Member]:
    rng, found = np.random.default_rng(seed), []
    for place in range(models):
        deep = place / models  # how much comes back
        values = [number("truth", 0.0), number("noise", rng.normal()), number("good", deep)]
        back = {"leaks": deep, "mean": 1 - deep}
        method, by_name = f"method {place % 12}", {one.name: one for one in values}
        found.append(Member(f"u{place}", "unlearned", method, frozenset(), 0.9, by_name, comes_back=back))
    return found


@pytest.fixture(scope="module")
def result():
    claims = [
        {"text": "The truth tells more than noise", "better": "truth", "than": "noise"},
        {"text": "Noise tells more than the truth", "better": "noise", "than": "truth"},
        {"text": "Good predicts", "better": "good", "than": "noise"},
    ]
    return meta_result([*pool(), *unlearned()], rules(claims=claims))


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
    blunt = [replace(one, learned=frozenset(QUESTIONS) if one.knows else frozenset()) for one in pool()]
    assert worth(meta_result(blunt, rules()), "truth").auc_each.value < 1


def test_prediction_and_cost(result):
    assert worth(result, "good").prediction.value == pytest.approx(1.0)
    assert worth(result, "good").prediction_mean.value == pytest.approx(-1.0)
    noise = worth(result, "noise").prediction
    assert noise.low <= 0 <= noise.high
    assert worth(result, "good").cost == Cost(0.5, 100.0)
    free = [replace(one, costs={}) for one in pool()]
    assert math.isnan(worth(meta_result(free, rules()), "good").cost.seconds)


def test_claims_are_decided_by_holm(result):
    first, second, third = result.claims
    tests = [{test.by: test for test in claim.tests} for claim in result.claims]
    assert (first.verdict, second.verdict) == ("supported", "contradicted")
    assert tests[0]["AUC"].difference == -tests[1]["AUC"].difference
    assert (tests[2]["leaks"].verdict, tests[2]["mean"].verdict) == ("supported", "contradicted")
    assert third.verdict == "mixed"
    assert tests[0]["leaks"].verdict == "not decided", "the truth is the same for all unlearned models"


def test_pool_models_of_small_utility_count_in_no_auc():
    """Badly trained models that know look like models that lack: the filter keeps them out."""
    first, *members = pool()
    weak = [replace(one, utility=0.5, numbers={"truth": number("truth", 0.0)}) for one in members[:3]]
    results = {}
    for least in (0.8, 0.0):
        settings = rules(pool=small_document()["meta_evaluation"]["pool"] | {"utility": least})
        results[least] = meta_result([first, *weak, *members[3:]], settings)
    kept = results[0.8]
    assert worth(kept, "truth").auc.value == 1.0
    assert (sum(kept.knows.values()), kept.left_out) == (27, 3)
    assert kept.utility_auc.value == 0.5, "all others are alike"
    assert worth(results[0.0], "truth").auc.value < 1


def test_two_noises_decide_no_claim():
    decided = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        members = [
            Member(
                f"m{i}",
                "knows" if i < 20 else "lacks",
                "all" if i < 20 else "retain",
                frozenset(QUESTIONS if i < 20 else []),
                0.9,
                {name: number(name, rng.normal()) for name in ("truth", "noise", "good")},
            )
            for i in range(40)
        ]
        claim = {"text": "One noise tells more", "better": "truth", "than": "noise"}
        found = meta_result(members, rules(claims=[claim], bootstrap=20))
        decided += found.claims[0].verdict != "not decided"
    assert decided <= 5
