"""Every scorer of the registry keeps the contract that the score stage relies on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.config.evaluating import is_binary
from lethe.errors import BadValue
from lethe.registry import SCORERS
from lethe.scoring import scorer

ITEM = {"id": "1", "question": "Who?", "answer": "It was Ron Weasley.", "keywords": ["Ron"]}


@pytest.mark.parametrize("name", SCORERS)
@settings(max_examples=30)
@given(
    texts=st.lists(st.none() | st.text(max_size=30), max_size=5), item=st.sampled_from([ITEM, {}, {"answer": ""}])
)
def test_one_value_a_generation_in_the_unit_interval_or_nan(name, texts, item):
    got = scorer(name)(texts, item)
    assert got.dtype == np.float64
    assert got.shape == (len(texts),)
    assert ((got >= 0) & (got <= 1) | np.isnan(got)).all()


@pytest.mark.parametrize("name", SCORERS)
def test_the_answer_itself_scores_one_and_its_repeats_alike(name):
    assert scorer(name)([ITEM["answer"], "nothing", ITEM["answer"]], ITEM).tolist() == [1, 0, 1]


def test_an_unknown_scorer_is_refused():
    with pytest.raises(BadValue, match="rouge_l"):
        scorer("rouge_w")


def test_binary_scorers_and_no_others_give_0_and_1_alone():
    item = {"id": "a", "question": "Who?", "answer": "Ada is a painter of seas", "keywords": ["painter"]}
    texts = ["Ada is a painter of seas", "Ada is a painter", "Ada paints", "no", "Ada, of all, is a seaman"]
    found = {name for name in SCORERS if np.isin(scorer(name)(texts, item), (0.0, 1.0)).all()}
    assert found == {name for name in SCORERS if is_binary(name)}


def test_only_the_answer_itself_is_an_exact_match():
    score = scorer("exact_match")
    texts = ["Jane Austen", " jane\n AUSTEN", "Jane Austen.", "Jane", "It was Jane Austen", "<b>Jane Austen</b>"]
    assert score(texts, {"answer": "Jane Austen"}).tolist() == [1, 1, 0, 0, 0, 0]
    np.testing.assert_array_equal(score(["a", "", " ", None], {"answer": "a"}), [1, 0, 0, np.nan])
    for answer in (None, "", " "):
        assert np.isnan(score(["a", ""], {"answer": answer})).all()
