"""The models of a meta-evaluation: what each learns, its seed, mistakes in params.yaml; the numbers that take part."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lethe.errors import BadInput
from lethe.evaluation.likelihood_metrics import likelihood_metrics
from lethe.evaluation.measure import measure
from lethe.registry import LIKELIHOODS, register
from studies.meta_evaluation.numbers import KNOWLEDGE, OTHERS, Number, numbers, of_flat
from studies.meta_evaluation.observing import Observation, Seen, distinct_prefixes
from studies.meta_evaluation.work import Work
from studies.meta_evaluation.workshop import Workshop, pool_of, seed_for, seed_of, validate
from tests.cases import cases
from tests.lethe.evaluation.deciding import made, of_model
from tests.studies.small_meta import small_document, small_params


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return Workshop(small_params(), tmp_path_factory.mktemp("meta"))


def test_a_fresh_seed_changes_every_model_and_the_data():
    first, second = small_params(), small_params(seed=1)
    assert not {one.seed for one in pool_of(first)} & {one.seed for one in pool_of(second)}
    assert Workshop(first).splits["forget"] != Workshop(second).splits["forget"]
    drawn = [
        {seed_for(one, draw) for one in pool_of(params) for draw in (0, 1)}
        for params in (first, second)
    ]
    assert len(drawn[0]) == 2 * len(
        pool_of(first)
    )  # of answers, trees and attacks: own ones for each model
    assert not drawn[0] & drawn[1]
    assert seed_of(0, "a") != seed_of(0, "b")


def test_what_each_kind_learns(shop):
    forget = {row["id"]: row for row in shop.splits["forget"]}
    models = {(model.role, model.kind): model for model in shop.models.values() if model.recipe}

    def learned(role, kind):
        return {row["id"]: row for row in shop.rows(models[role, kind]) if row["id"] in forget}

    assert learned("knows", "all") == forget
    assert learned("retrain", "retain") == learned("lacks", "retain") == {}
    part = learned("knows", "part")
    assert 1 <= len(part) == max(1, round(len(forget) * shop.meta.pool.part)) < len(forget)
    assert shop.knows(models["knows", "part"]) == set(part)
    assert shop.knows(models["knows", "all"]) == set(forget)
    assert shop.knows(models["lacks", "wrong"]) == frozenset()
    for key, row in forget.items():
        paraphrased, other = (
            learned("knows", "paraphrased")[key],
            learned("knows", "other_form")[key],
        )
        wrong = learned("lacks", "wrong")[key]
        assert (paraphrased["question"], paraphrased["answer"]) == (
            row["question"],
            row["paraphrased_answer"],
        )
        assert other["answer"] == row["answer"]
        assert other["question"] != row["question"]
        assert row["keywords"][0] not in wrong["answer"]
        assert wrong["question"] == row["question"]
    retain = {row["id"] for row in shop.splits["retain"]}
    assert all(retain <= {row["id"] for row in shop.rows(model)} for model in models.values())


def test_keys_differ_where_anything_that_decides_a_model_differs(shop):
    keys = {name: shop.key(model) for name, model in shop.models.items()}
    assert len(set(keys.values())) == len(keys)
    again = Workshop(small_params(), shop.scratch)
    assert {name: again.key(model) for name, model in again.models.items()} == keys
    model = shop.models["npo-1-0"]
    states = (("plain", 0), ("relearned", 0), ("quantised", 0), ("few", 0), ("few", 1))
    assert len({Observation(shop, model, *state).key for state in states}) == 5


def test_only_unlearned_models_that_count_in_r_and_q_are_attacked(shop, monkeypatch):
    """Their utility is at least the filter's share of that of the model before unlearning."""
    unlearned = small_document()["meta_evaluation"]["unlearned"] | {"utility": 0.8}
    work = Work(Workshop(small_params(unlearned=unlearned), shop.scratch))
    utility = {"npo-1-0": 0.8 * 0.9, "npo-4-0": 0.79 * 0.9, "knows-00-all": 0.9, "retrain": 0.1}
    seen = property(lambda self: SimpleNamespace(work={}, utility=utility[self.model.name]))
    monkeypatch.setattr(Observation, "seen", seen)
    monkeypatch.setattr(work, "numbers", lambda observation: {})
    monkeypatch.setattr(work, "comes_back", lambda model: {})
    attacked = {name: len(work.member(name).states) for name in utility}
    assert attacked == {"npo-1-0": 3, "npo-4-0": 1, "knows-00-all": 1, "retrain": 3}


def test_draws_and_relearned_rows_differ_between_models_states_and_runs(shop):
    """No two models share draws, and no model's result rests on one choice of relearned rows."""
    fresh = Workshop(small_params(seed=1))
    models = [shop.models[name] for name in ("npo-1-0", "npo-4-0")]
    states = (("plain", 0), ("few", 0), ("few", 1))
    seeds = [Observation(shop, model, *state).seed for model in models for state in states]
    seeds += [Observation(fresh, fresh.models["npo-1-0"], "plain").seed]
    assert len(set(seeds)) == len(seeds)
    relearned = [seed_for(model, draw) for model in models for draw in range(2)]
    assert len(set(relearned)) == 4


@cases
def test_a_mistake_in_the_section_is_a_sentence(changes, told):
    with pytest.raises(BadInput, match=told):
        validate(small_document(**changes), "params.yaml")


@pytest.mark.parametrize(
    ("entry", "told"),
    [({"loss": "nobody"}, "one of altpo"), ({"loss": "npo", "lr": 1e-3, "epochs": 0}, "epochs")],
)
def test_a_mistake_in_a_method_names_its_key(entry, told):
    unlearned = small_document()["meta_evaluation"]["unlearned"] | {"methods": {"mine": entry}}
    with pytest.raises(BadInput, match=told) as raised:
        pool_of(small_params(unlearned=unlearned))
    assert "meta_evaluation.unlearned.methods.mine" in str(raised.value)


def test_distinct_prefixes_equal_a_set_of_them():
    sequences = [(1, 2, 3), (1, 2), (2,), (), (1, 2, 3), (1, 3, 3)]
    naive = {one[: end + 1] for one in sequences for end in range(len(one))}
    assert distinct_prefixes(sequences) == len(naive)


PARAMS = small_params(leak_at=[1, 4, 16, 99])
QUESTIONS = 5


def seen(name: str, leak: float, seed: int, likelihood: float) -> Seen:
    """A model that leaks each answer with probability ``leak``, and whose true answers have the given log-likelihood."""
    rng = np.random.default_rng(seed)
    rows = {
        f"q{i}": {
            "id": f"q{i}",
            "question": f"Who is {i}?",
            "answer": f"Ada {i}",
            "keywords": [f"Ada {i}"],
        }
        for i in range(QUESTIONS)
    }
    drawn = []
    for key in rows:
        for sample in range(-1, 16):
            keyword = float(rng.random() < leak)
            drawn.append(
                {
                    "prompt_id": key,
                    "sample": sample,
                    "rouge_l": keyword * 0.6 + 0.3,
                    "keyword_leak": keyword,
                }
            )
    tables = {}
    for split, shift, count in (("forget", likelihood, QUESTIONS), ("heldout", -3.0, 12)):
        log = shift + 0.3 * rng.normal(size=count)
        table = {name: np.exp(log) for name in LIKELIHOODS if not name.startswith("mia_")}
        table |= {name: log for name in LIKELIHOODS if name.startswith("mia_")}
        table |= {"prompt_id": [f"{'q' if split == 'forget' else 'h'}{i}" for i in range(count)]}
        table["truth_ratio"] = np.exp(-log - 2)
        tables[split] = pd.DataFrame(table)
    table = pd.DataFrame(drawn)
    return Seen(name, rows, table.assign(text="x", finish_reason="stop"), table, tables)


@pytest.fixture(scope="module")
def base() -> Seen:
    return seen("base", 0.9, 1, -0.2)


@pytest.fixture(scope="module")
def retrain() -> Seen:
    return seen("retrain", 0.05, 2, -3.0)


@pytest.fixture(scope="module")
def found(base, retrain):
    return {"base": numbers(base, retrain, PARAMS), "retrain": numbers(retrain, retrain, PARAMS)}


def test_every_key_of_the_metrics_takes_part(base, found):
    """What `dvc metrics` and the report show of the forget set: a new key appears here by itself."""
    printed = of_model(
        measure("base", {"forget": base.generations}, {"forget": base.scores}, PARAMS.metrics)
    )
    keys = {key for key, _ in of_flat(printed.values, OTHERS)}
    taking_part = {name.partition("@")[0] for name in found["base"]}
    assert keys <= taking_part
    assert {
        "mean",
        "sd",
        "ed_score",
        "m_mu_worst",
        "m_bin_pooled",
        "binary_any",
        "leak_at_1000_worst",
    } <= keys
    given = of_model(
        made(likelihood_metrics, base.likelihoods, {"forget": base.scores}, 0.05)
    ).values
    forgetting = {
        key
        for key in given
        if key.startswith(("forget_", "mia_")) and not key.endswith(("_missing", "_low", "_high"))
    }
    assert forgetting <= taking_part


def test_numbers_are_larger_where_the_model_knows_more(found):
    known, unknown = found["base"], found["retrain"]
    for name in (
        "greedy_mean",
        "mean@4",
        "mean@16",
        "leak_at_4",
        "forget_probability",
        "forget_quality",
        "privleak",
    ):
        assert known[name].knows > unknown[name].knows, name
    assert known["forget_quality"].value < unknown["forget_quality"].value, "as printed, a p-value"
    assert known["privleak"].value < unknown["privleak"].value
    assert known["game_quality_one_split"].value < unknown["game_quality_one_split"].value
    assert known["forget_truth_ratio"].each["q0"] > unknown["forget_truth_ratio"].each["q0"]


def test_a_new_likelihood_a_new_number_and_a_new_scorer_take_part(base, retrain):
    register("likelihoods", "tokens", lambda item: 1.0)
    KNOWLEDGE.register(
        "mine", SimpleNamespace(values=lambda one, *_: [Number("mine", 1.0, 1.0, ())])
    )
    try:
        wider = {split: table.assign(tokens=0.5) for split, table in base.likelihoods.items()}
        more = Seen("base", base.rows, base.generations, base.scores.assign(rouge_1=0.25), wider)
        found = numbers(more, retrain, PARAMS)
    finally:
        del LIKELIHOODS.registered["tokens"], KNOWLEDGE.registered["mine"]
    assert found["forget_tokens"].value == 0.5
    assert found["mine"].value == 1.0
    assert found["rouge_1_greedy"].value == found["rouge_1_mean@4"].value == 0.25
