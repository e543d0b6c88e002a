"""Several seeds in one table: medians, ranges, and the seeds in which each claim held."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.statistics.bound import Assumes, Bound, Covers
from studies.seeds import SeedRun, as_markdown, cell, claim_table, model_table, points, summarise
from tests.flows.miniature import wait_until
from tests.small import ROOT


def run(seed: str, verdicts: dict, **leaks: float) -> SeedRun:
    bound = Bound(0.5, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "m", 8)
    values = {name: {"m_bin_worst": leak} for name, leak in leaks.items()}
    return SeedRun(seed, values, {"m_bin_worst": bound}, dict.fromkeys(values, "leaks, intact"), verdicts)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_median_and_range_are_those_of_the_values(leaks):
    (model,) = summarise([run(str(place), {}, npo=leak) for place, leak in enumerate(leaks)])["models"]
    spread = model["columns"]["m_bin_worst"]
    assert spread["median"] == pytest.approx(float(np.median(leaks)))
    assert (spread["low"], spread["high"], spread["seeds"]) == (min(leaks), max(leaks), len(leaks))
    assert model["words"] == {"leaks, intact": len(leaks)}


def test_a_model_that_one_seed_lacks_is_counted_over_the_others():
    models = summarise([run("0", {}, npo=0.25), run("1", {}, npo=0.5, ours=0.75)])["models"]
    assert [model["model"] for model in models] == ["npo", "ours"]
    assert models[1]["columns"]["m_bin_worst"] == {"median": 0.75, "low": 0.75, "high": 0.75, "seeds": 1}
    assert "mean" not in models[0]["columns"]


def counted(model: str, holds: int, opposite: int, not_shown: int) -> dict[str, object]:
    return {"model": model, "holds": holds, "opposite": opposite, "not_shown": not_shown}


def test_each_claim_is_counted_per_model_and_per_seed():
    verdicts = [
        {"more": {"npo": "holds", "ours": "holds"}, "less": {"npo": "did not show"}},
        {"more": {"npo": "holds", "ours": "did not show"}, "less": {"npo": "the opposite holds"}},
        {"more": {"npo": "the opposite holds", "ours": "did not show"}},
    ]
    runs = [run(str(seed), own, npo=0.5) for seed, own in enumerate(verdicts)]
    assert summarise(runs)["claims"] == [
        {"claim": "more", "seeds": 3, "every": 1, "some": 2, "models": [counted("npo", 2, 1, 0), counted("ours", 1, 0, 2)]},
        {"claim": "less", "seeds": 2, "every": 0, "some": 0, "models": [counted("npo", 0, 1, 1)]},
    ]  # fmt: skip


BOUND = Bound(0.5, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "m", 8)
SETTINGS = ("data.seed", "train.recipe.seed", "unlearn.recipe.seed", "sample.seed")


def test_seed_0_is_params_yaml_and_no_two_seeds_share_a_value():
    chosen = points(ROOT, 5)
    assert dict(chosen[0].settings) == dict(zip(SETTINGS, (0, 1, 2, 3), strict=True))
    assert len({point.name for point in chosen}) == 5
    values = [value for point in chosen for _, value in point.settings]
    assert len(set(values)) == len(values)


def test_the_tables_round_bounds_away_from_their_claim():
    (model,) = summarise([run("0", {}, npo=0.010011), run("1", {}, npo=0.02)])["models"]
    spread = model["columns"]["m_bin_worst"] | {"median": 0.010011}
    assert cell(spread, BOUND) == "0.0101 (0.0101 to 0.02)"
    assert cell(spread, None) == "0.01 (0.01 to 0.02)"
    assert cell(None, BOUND) == "–"
    claim = {"claim": "more", "every": 0, "some": 2, "models": [counted("npo", 1, 1, 0), counted("ours", 2, 0, 0)]}
    summary = {"seeds": ["0", "1"], "bounds": {"m_bin_worst": BOUND}, "models": [model], "claims": [claim]}
    _, columns, ((name, *_, words),), notes = model_table(summary, 5)
    assert (columns[1], name, words) == ("m_bin_worst", "npo", "leaks, intact: 2")
    assert BOUND.guarantee("the forget questions") in notes[0]
    lines = as_markdown(*claim_table(summary)).splitlines()
    assert "| more | 0 | 2 | ours 2, npo 1 | npo 1 |" in lines


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
