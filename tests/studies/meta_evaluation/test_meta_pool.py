"""The models of a meta-evaluation: what each learns, its seed, and the mistakes of params.yaml as sentences."""

import pytest

from lethe.errors import BadInput
from studies.meta_evaluation.observing import distinct_prefixes
from studies.meta_evaluation.settings import validate
from studies.meta_evaluation.workshop import Workshop, other_question
from tests.studies.small_meta import small_document, small_params


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return Workshop(small_params(), tmp_path_factory.mktemp("meta"))


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
    assert len({shop.key(model), *(shop.relearned_key(model, draw) for draw in (0, 1))}) == 3


def test_other_questions(shop):
    row = dict(shop.splits["forget"][0])
    assert other_question(row | {"paraphrased_question": "Whence?"}) == "Whence?"
    assert other_question(row | {"question": "Who?"}) is None
    with pytest.raises(BadInput, match="other_form"):
        own = Workshop(small_params(), shop.scratch)
        own.splits["forget"][0] = row | {"question": "Who?"}
        own.rows(next(model for model in own.models.values() if model.kind == "other_form"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pool": {"knows": {"all": 2}, "recipes": [{"epochs": 1, "lr": 1.0}]}}, "either lacks or lacks_paths"),
        ({"answers": [16, 4]}, "must increase"),
        ({"headline": ["a", "a"], "claims": []}, "twice"),
        ({"claims": [{"text": "t", "better": "nobody", "than": "mean@16"}]}, "does not list"),
        ({"pool": {"knows_paths": ["a", "b"], "lacks": {"wrong": 2}, "recipes": []}}, "recipes is empty"),
        (
            {"unlearned": {"methods": {"a": {"loss": "grad_ascent", "lr": 1e-3, "epochs": 1}}, "paths": ["a"]}},
            "either trained here or given",
        ),
    ],
)
def test_a_mistake_in_the_section_is_a_sentence(changes, told):
    with pytest.raises(BadInput, match=told):
        validate(small_document(**changes), "params.yaml")


def test_distinct_prefixes_equal_a_set_of_them():
    sequences = [(1, 2, 3), (1, 2), (2,), (), (1, 2, 3), (1, 3, 3)]
    naive = {one[: end + 1] for one in sequences for end in range(len(one))}
    assert distinct_prefixes(sequences) == len(naive)
