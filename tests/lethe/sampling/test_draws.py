"""The cuts against their definitions, and the block-wise search against the plain inverse transform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.sampling.draws import BITS, draw, random_table, weigh
from tests.lethe.sampling.sampling_models import step_probabilities

torch = pytest.importorskip("torch")


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    vocabulary=st.integers(1, 200),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, 1000]),
    top_p=st.sampled_from([1.0, 0.9, 0.3, 1e-6]),
)
def test_cuts_are_as_defined(seed, vocabulary, temperature, top_k, top_p):
    logits = 3 * np.random.default_rng(seed).standard_normal((4, vocabulary))
    top, weights = weigh(torch.from_numpy(logits).float(), temperature, top_k, top_p)
    shares = weights.double().numpy()[:, :vocabulary]
    assert weights[:, vocabulary:].eq(0).all()
    for row in range(4):
        expected = step_probabilities(logits[row], temperature, top_p, top_k)
        assert shares[row] / shares[row].sum() == pytest.approx(expected, abs=1e-5)
        assert top[row].item() == pytest.approx(step_probabilities(logits[row], 1, 1, 0).max(), rel=1e-5)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), vocabulary=st.integers(1, 300), rows=st.integers(1, 6))
def test_a_draw_is_the_first_token_whose_cumulated_share_exceeds_it(seed, vocabulary, rows):
    random = np.random.default_rng(seed)
    weights = np.zeros((rows, -(-vocabulary // 64) * 64))
    # Whole numbers, so that every sum is exact; many zeros, so that cut tokens and empty blocks are met.
    weights[:, :vocabulary] = random.integers(0, 4, (rows, vocabulary)) * (random.random((rows, vocabulary)) < 0.2)
    weights[:, random.integers(vocabulary)] += 1
    row = random.integers(rows, size=500)
    values = random_table(np.random.SeedSequence(seed), 500, 1)[:, 0]
    values[:2] = 0, (1 << BITS) - 1
    tokens = draw(torch.from_numpy(weights).float(), torch.from_numpy(row), torch.from_numpy(values)).numpy()
    for sample, token in enumerate(tokens):
        shares = np.cumsum(weights[row[sample]]) / weights[row[sample]].sum()
        # One unit of 2**-BITS of leave at a border: shares are rounded down to it, block by block.
        low, high = (shares[token - 1] if token else 0), shares[token]
        assert low - 2.0 ** (2 - BITS) <= values[sample] / 2**BITS < high + 2.0 ** (2 - BITS)
        assert weights[row[sample], token] > 0


def test_a_draw_does_not_depend_on_the_rows_beside_it():
    random = np.random.default_rng(1)
    weights = torch.from_numpy(random.random((300, 128))).float()
    row, values = (
        torch.from_numpy(random.integers(300, size=4000)),
        torch.from_numpy(random.integers(1 << BITS, size=4000)),
    )
    together = draw(weights, row, values)
    for one in range(0, 300, 37):
        own = row == one
        assert torch.equal(draw(weights[one : one + 1], torch.zeros_like(row[own]), values[own]), together[own])
