from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lethe.errors import BadInput
from lethe.scoring.likelihood import LIKELIHOODS, score_likelihoods


def answer(prompt_id, kind, number, *log_probs):
    shape = np.zeros(len(log_probs))
    row = {"prompt_id": prompt_id, "kind": kind, "number": number, "log_probs": np.array(log_probs, float)}
    return {**row, "expected": shape - 1, "spread": shape + 1, "greedy": shape == 0}


def test_a_row_a_prompt_with_every_measure():
    given = pd.DataFrame(
        [
            answer("b", "answer", 0, -1.0),
            answer("b", "perturbed", 1, -4.0),
            answer("b", "perturbed", 0, -2.0),
            answer("b", "paraphrased", 0, -2.0, -2.0),
            answer("a", "answer", 0, -3.0),
        ]
    )
    got = score_likelihoods(given, {"a": {"answer": "A"}, "b": {"answer": "B"}})
    assert list(got["prompt_id"]) == ["b", "a"]
    assert list(got.columns[1:]) == list(LIKELIHOODS)
    assert (got.dtypes.iloc[1:] == np.float64).all()
    np.testing.assert_allclose(got["probability"], np.exp([-1, -3]))
    np.testing.assert_allclose(got["truth_ratio"], [np.exp(2 - 3), np.nan])


def test_a_prompt_the_dataset_lacks_is_refused():
    with pytest.raises(BadInput, match="'a'"):
        score_likelihoods(pd.DataFrame([answer("a", "answer", 0, -1.0)]), {})
