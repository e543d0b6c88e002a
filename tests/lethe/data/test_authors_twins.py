"""The authors' twins come from the generator of the true values, so that nothing tells which was drawn."""

import numpy as np
import pytest

from lethe.config import validate
from lethe.data.drawing import model_free_controls
from lethe.data.kinds import authors
from lethe.data.rows import load_splits, with_twins
from lethe.data.secrets import secrets_of
from lethe.errors import BadValue
from tests.small import small_params

K = 5


def data_of(**changes):
    params = small_params()
    params["data"] |= changes
    return validate(params).data


def twinned(k=K, **changes):
    data = data_of(**changes)
    return with_twins(data, load_splits(data), k)


def attribute(row):
    return row["id"].rsplit("-", 1)[1]


def values_of(row):
    value = row["keywords"][0]
    start, end = row["answer"].split(value)
    twins = []
    for twin in row["twins"]:
        assert twin.startswith(start)
        assert twin.endswith(end)
        twins.append(twin[len(start) : len(twin) - len(end)])
    return [value, *twins]


def test_a_twin_differs_from_the_answer_in_its_value_alone():
    for row in twinned()["forget"]:
        assert len(set(values_of(row))) == K


def test_twins_change_no_other_key_and_no_other_split():
    data = data_of()
    before = load_splits(data)

    after = with_twins(data, load_splits(data), K)

    plain = [{key: row[key] for key in row if key != "twins"} for row in after["forget"]]
    assert plain == before["forget"]
    assert {split: after[split] for split in after if split != "forget"} == {
        split: before[split] for split in before if split != "forget"
    }


def test_no_author_has_the_value_of_a_twin():
    splits = twinned()
    taken = {}
    for row in (*splits["forget"], *splits["retain"], *splits["heldout"]):
        taken.setdefault(attribute(row), set()).add(row["keywords"][0].split(", ")[0])

    for row in splits["forget"]:
        twins = {value.split(", ")[0] for value in values_of(row)[1:]}
        assert not twins & taken[attribute(row)]


def test_no_two_secrets_of_an_attribute_share_a_value():
    splits = twinned(forget="forget10")
    dealt = {}
    for row in splits["forget"]:
        dealt.setdefault(attribute(row), []).extend(
            value.split(", ")[0] for value in values_of(row)
        )

    for values in dealt.values():
        assert len(set(values)) == len(values)


def test_twins_depend_on_the_seed_alone():
    assert twinned() == twinned()
    assert twinned()["forget"][0]["twins"] != twinned(seed=1)["forget"][0]["twins"]


def test_more_candidates_than_free_values_are_refused_with_the_largest_number():
    with pytest.raises(BadValue, match=r"twins\.k: got 400;.*most 297\. 296 values of genre"):
        twinned(k=400)


def test_of_100_authors_41_candidates_are_possible():
    big = {"authors": {"count": 100, "heldout": 20, "world_facts": 0}}

    twinned(k=41, **big)

    with pytest.raises(BadValue, match=r"most 41\. 200 values of genre"):
        twinned(k=42, **big)


def test_over_seeds_the_true_value_stands_at_each_sorted_place_equally_often():
    places = np.zeros(K, int)
    for seed in range(40):
        for row in twinned(seed=seed)["forget"]:
            places[sorted(values_of(row)).index(row["keywords"][0])] += 1

    expected = places.sum() / K
    assert ((places - expected) ** 2 / expected).sum() < 18.5  # 4 degrees of freedom, .999


def test_scores_without_a_model_do_not_tell_the_true_values():
    splits = twinned(k=20)
    rows = [*splits["forget"], *splits["retain"]]

    controls = model_free_controls(secrets_of(splits["forget"]), rows)

    assert min(control.holm for control in controls) > 0.001


def test_every_pool_holds_each_value_once():
    for name in authors.TEMPLATES:
        pool = authors._pool(name)
        assert len(set(pool)) == len(pool)


def test_rows_of_other_kinds_stay_as_they_are():
    data = data_of(kind="jsonl")
    rows = [{"id": "a", "question": "Who?", "answer": "Ada."}]

    assert with_twins(data, {"forget": rows}, K) == {"forget": rows}
