"""Several seeds in one table: medians, ranges, and the seeds in which each claim held."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.statistics.bound import Assumes, Bound, Covers
from studies.seeds import (
    ClaimCount,
    ClaimSummary,
    ModelSpread,
    SeedRun,
    SeedSummary,
    Spread,
    as_markdown,
    claim_table,
    model_table,
    points,
    summarise,
)
from tests.flows.miniature import wait_until
from tests.small import ROOT


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


BOUND = Bound(0.5, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "m", 8)
SETTINGS = ("data.seed", "train.recipe.seed", "unlearn.recipe.seed", "sample.seed")


def test_seed_0_is_params_yaml_and_no_two_seeds_share_a_value():
    chosen = points(ROOT, 5)
    assert dict(chosen[0].settings) == dict(zip(SETTINGS, (0, 1, 2, 3), strict=True))
    assert len({point.name for point in chosen}) == 5
    values = [value for point in chosen for _, value in point.settings]
    assert len(set(values)) == len(values)


def test_the_tables_have_the_columns_of_the_models_and_the_guarantee_of_each_bound():
    columns = {"m_bin_worst": Spread(0.010011, 0.01, 0.02, 2), "retain_mean": Spread(0.5, 0.5, 0.5, 2)}
    models = (ModelSpread("npo", columns, {"leaks, intact": 2}),)
    claim = ClaimSummary("more", 2, 0, 2, (ClaimCount("npo", 1, 1, 0), ClaimCount("ours", 2, 0, 0)))
    found = SeedSummary(("seed-0", "seed-1"), {"m_bin_worst": BOUND}, models, (claim,))
    shown, claims = model_table(found, 5), claim_table(found)
    assert shown[1][1:3] == ["m_bin_worst", "retain_mean"]
    assert shown[2] == [["npo", "0.0101 (0.01 to 0.02)", "0.5", "leaks, intact: 2"]]
    assert BOUND.guarantee("the forget questions") in shown[3][0]
    assert claims[2] == [["more", "0", "2", "ours 2, npo 1", "npo 1"]]
    assert "| more | 0 | 2 | ours 2, npo 1 | npo 1 |" in as_markdown(*claims).splitlines()


@pytest.mark.slow
def test_a_killed_call_is_continued_where_it_was(small):
    before = small.params()
    seeds = small.folder / ".lethe/seeds"
    (small.folder / "slow").write_text("metrics")
    process = small.start("study", "seeds", "--count", "2", "--jobs", "1")
    wait_until(lambda: (seeds / "seed-0/alive").exists(), seconds=180)
    process.kill()
    process.communicate()
    none = small.lethe("study", "seeds", "--count", "2", "--summary")
    assert none.returncode == 1
    assert "seeds" in none.stderr

    (small.folder / "slow").unlink()
    (seeds / "seed-0/slow").unlink()
    done = small.lethe("study", "seeds", "--count", "2", "-S", "metrics.alpha=0.02", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["seeds"], found["failed"]) == (["seed-0", "seed-1"], {})
    assert found["models"][0]["columns"]["mean"]["seeds"] == 2
    ends = json.loads((seeds / "seed-0/.lethe/last_run.json").read_text())["stages"]
    assert {name: end["why"] for name, end in ends.items()} == {
        "prepare": "clean", "unlearn@npo": "clean", "metrics@npo": "ran",
    }  # fmt: skip
    assert "seed: 10" in (seeds / "seed-1/params.yaml").read_text()
    assert all("alpha: 0.02" in (seeds / name / "params.yaml").read_text() for name in found["seeds"])
    assert small.params() == before
    assert not (small.folder / "data/models").exists()

    again = small.lethe("study", "seeds", "--count", "2", "--summary", "--json")
    assert json.loads(again.stdout) == found
