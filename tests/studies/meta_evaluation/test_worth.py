"""The evaluation of numbers on models whose truth is made up here: the truth has AUC 1, noise 0.5, claims follow rules."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lethe.instruction_set import in_use
from lethe.io.tables import read_table
from studies.meta_evaluation.numbers import Number
from studies.meta_evaluation.observing import Cost
from studies.meta_evaluation.work import COLUMNS, WHAT, page, rows, sentences, target_of, write
from studies.meta_evaluation.workshop import MetaEvaluation
from studies.meta_evaluation.worth import Member, meta_result
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
        states = {"plain": {one.name: one for one in values}}
        found.append(Member(f"m{place}", role, kind, learned, 0.9, states, COSTS))
    return found


def unlearned(seed: int = 1, models: int = 24) -> list[Member]:
    rng, found = np.random.default_rng(seed), []
    for place in range(models):
        deep = place / models  # how much comes back
        before = {
            "truth": number("truth", 0.0),
            "noise": number("noise", rng.normal()),
            "good": number("good", deep),
        }
        relearned = {
            "truth": number("truth", 0.2),
            "noise": before["noise"],
            "good": number("good", deep + 0.4),
        }
        quantised = {
            "truth": number("truth", 0.0),
            "noise": before["noise"],
            "good": number("good", 2 * deep),
        }
        states = {"plain": before, "relearned": relearned, "quantised": quantised}
        utility, back = 0.5 if place == 0 else 0.9, {"leaks": deep, "mean": 1 - deep}
        about = (f"u{place}", "unlearned", f"method {place % 12}", frozenset(), utility)
        found.append(Member(*about, states, COSTS, back))
    return found


COSTS = {"greedy": Cost(0.5, 100.0)}
AT_RETRAIN = {
    "plain": {name: number(name, 0.0) for name in HEADLINE},
    "relearned": {
        name: number(name, value) for name, value in zip(HEADLINE, (0.1, 0.0, 0.2), strict=True)
    },
}
RETRAIN = Member("retrain", "retrain", "retain", frozenset(), 0.9, AT_RETRAIN, COSTS)


def evaluated(members, rules):
    return meta_result([RETRAIN, *members], rules)


@pytest.fixture(scope="module")
def result():
    claims = [
        {"text": "The truth tells more than noise", "better": "truth", "than": "noise"},
        {"text": "Noise tells more than the truth", "better": "noise", "than": "truth"},
        {"text": "Good predicts", "better": "good", "than": "noise"},
    ]
    settings = rules(
        claims=claims, unlearned=small_document()["meta_evaluation"]["unlearned"] | {"utility": 0.8}
    )
    return evaluated([*pool(), *unlearned()], settings)


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
    blunt = [replace(one, learned=frozenset(QUESTIONS if one.knows else ())) for one in pool()]
    assert worth(evaluated(blunt, rules()), "truth").auc_each.value < 1


def test_r_and_q_count_useful_models_that_the_number_calls_unlearned(result):
    good, truth = worth(result, "good"), worth(result, "truth")
    assert result.useful == 23, "one model lost its utility"
    assert truth.kept == 23
    assert good.kept <= 23
    assert good.one_sided.relearning.value == pytest.approx(0.5), (
        "0.2 of Retrain over 0.4 of the model"
    )
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
    assert math.isnan(
        worth(evaluated([replace(one, costs={}) for one in pool()], rules()), "good").cost.seconds
    )


def test_claims_are_decided_by_holm(result):
    first, second, third = result.claims
    tests = [{test.by: test for test in claim.tests} for claim in result.claims]
    assert (first.verdict, second.verdict) == ("supported", "contradicted")
    assert tests[0]["AUC"].difference == -tests[1]["AUC"].difference
    assert (tests[2]["leaks"].verdict, tests[2]["mean"].verdict) == ("supported", "contradicted")
    assert third.verdict == "mixed"
    assert tests[0]["leaks"].verdict == "not decided", (
        "the truth is the same for all unlearned models"
    )


def test_pool_models_of_small_utility_count_in_no_auc():
    """Badly trained models that know look like models that lack: the filter keeps them out, and their utility is shown."""
    members = pool()
    weak = [
        replace(one, utility=0.5, states={"plain": {"truth": number("truth", 0.0)}})
        for one in members[1:4]
    ]
    kept = rules(pool=small_document()["meta_evaluation"]["pool"] | {"utility": 0.8})
    found = evaluated([members[0], *weak, *members[4:]], kept)
    assert worth(found, "truth").auc.value == 1.0
    assert sum(found.knows.values()) == 27
    shown = {(one.knows, one.kind): one for one in found.quality}
    assert sum(one.left_out for one in found.quality) == 3
    assert shown[True, "all"].least == 0.5
    assert shown[False, "retain"].left_out == 0
    assert found.utility_auc.value == 0.5, "all others are alike"
    every = rules(pool=small_document()["meta_evaluation"]["pool"] | {"utility": 0.0})
    assert worth(evaluated([members[0], *weak, *members[4:]], every), "truth").auc.value < 1


def test_the_interval_of_a_prediction_draws_whole_methods():
    """Were the 24 models independent, the interval would be narrower than with three methods of eight models each."""
    members = [replace(one, kind=f"method {place // 3}") for place, one in enumerate(unlearned())]
    alone = [replace(one, kind=one.name) for one in members]
    found, single = (
        worth(evaluated([*pool(), *own], rules()), "noise").prediction for own in (members, alone)
    )
    assert found.value == single.value
    assert "groups" in found.method
    assert "groups" not in single.method


def test_two_noises_decide_no_claim():
    decided, kinds = (
        0,
        {True: ("knows", "all", frozenset(QUESTIONS)), False: ("lacks", "retain", frozenset())},
    )
    for seed in range(40):
        rng = np.random.default_rng(seed)
        members = []
        for place in range(40):
            values = {name: number(name, rng.normal()) for name in HEADLINE}
            members.append(Member(f"m{place}", *kinds[place < 20], 0.9, {"plain": values}, COSTS))
        claim = {"text": "One noise tells more", "better": "truth", "than": "noise"}
        decided += (
            evaluated(members, rules(claims=[claim], bootstrap=20)).claims[0].verdict
            != "not decided"
        )
    assert decided <= 5


def test_the_files_of_a_result(result, tmp_path):
    shop, members = SimpleNamespace(meta=rules(), folder=tmp_path), [RETRAIN, *unlearned()]
    folder = write("tiny", shop, result, members, tmp_path)
    written = json.loads((folder / "result.json").read_text())
    assert written["settings"]["bootstrap"] == 200
    assert written["provenance"]["machine"] == in_use()
    assert {one["name"] for one in written["worth"]} == {one.name for one in result.worth}
    assert len(read_table(folder / "numbers.parquet")) == 3 * sum(
        len(one.states) for one in members
    )
    assert "mean utility" in (folder / "index.html").read_text()


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
