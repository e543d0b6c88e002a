"""Several seeds in one table: medians, ranges, and the seeds in which each claim held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.statistics.bound import Assumes, Bound, Covers
from studies.seeds import ClaimCount, SeedRun, Spread, summarise


def run(seed: str, verdicts: dict, **leaks: float) -> SeedRun:
    bound = Bound(0.5, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "m", 8)
    values = {name: {"m_bin_worst": leak} for name, leak in leaks.items()}
    return SeedRun(seed, values, {"m_bin_worst": bound}, dict.fromkeys(values, "leaks, intact"), verdicts)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_median_and_range_are_those_of_the_values(leaks):
    found = summarise([run(str(place), {}, npo=leak) for place, leak in enumerate(leaks)])
    spread = found.models[0].columns["m_bin_worst"]
    assert spread.median == pytest.approx(float(np.median(leaks)))
    assert (spread.low, spread.high, spread.seeds) == (min(leaks), max(leaks), len(leaks))
    assert found.models[0].words == {"leaks, intact": len(leaks)}


def test_a_model_that_one_seed_lacks_is_counted_over_the_others():
    found = summarise([run("0", {}, npo=0.25), run("1", {}, npo=0.5, ours=0.75)])
    assert [model.model for model in found.models] == ["npo", "ours"]
    assert found.models[1].columns["m_bin_worst"] == Spread(0.75, 0.75, 0.75, 1)
    assert "mean" not in found.models[0].columns


def test_each_claim_is_counted_per_model_and_per_seed():
    verdicts = [
        {"more": {"npo": "holds", "ours": "holds"}, "less": {"npo": "did not show"}},
        {"more": {"npo": "holds", "ours": "did not show"}, "less": {"npo": "the opposite holds"}},
        {"more": {"npo": "the opposite holds", "ours": "did not show"}},
    ]
    more, less = summarise([run(str(seed), told, npo=0.5) for seed, told in enumerate(verdicts)]).claims
    assert (more.claim, more.seeds, more.every, more.some) == ("more", 3, 1, 2)
    assert more.models == (ClaimCount("npo", 2, 1, 0), ClaimCount("ours", 1, 0, 2))
    assert (less.seeds, less.every, less.some) == (2, 0, 0)
    assert less.models == (ClaimCount("npo", 0, 1, 1),)
