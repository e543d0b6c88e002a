"""The models of a meta-evaluation: what each learns, its seed, and the mistakes of params.yaml as sentences."""

from types import SimpleNamespace

import pytest

from lethe.errors import BadInput
from studies.meta_evaluation.observing import Observation, distinct_prefixes
from studies.meta_evaluation.work import Work
from studies.meta_evaluation.workshop import Workshop, pool_of, seed_for, seed_of, validate
from tests.cases import cases
from tests.studies.small_meta import small_document, small_params


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return Workshop(small_params(), tmp_path_factory.mktemp("meta"))


def test_a_fresh_seed_changes_every_model_and_the_data():
    first, second = small_params(), small_params(seed=1)
    assert not {one.seed for one in pool_of(first)} & {one.seed for one in pool_of(second)}
    assert Workshop(first).splits["forget"] != Workshop(second).splits["forget"]
    drawn = [{seed_for(one, draw) for one in pool_of(params) for draw in (0, 1)} for params in (first, second)]
    assert len(drawn[0]) == 2 * len(pool_of(first))  # of answers, trees and attacks: own ones for each model
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
        paraphrased, other = learned("knows", "paraphrased")[key], learned("knows", "other_form")[key]
        wrong = learned("lacks", "wrong")[key]
        assert (paraphrased["question"], paraphrased["answer"]) == (row["question"], row["paraphrased_answer"])
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
    ("entry", "told"), [({"loss": "nobody"}, "one of altpo"), ({"loss": "npo", "lr": 1e-3, "epochs": 0}, "epochs")]
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
