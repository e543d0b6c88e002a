"""Several seeds in one table: medians, ranges, and the seeds in which each claim held."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.errors import BadValue
from lethe.statistics.bound import Assumes, Bound, Covers
from studies.seeds import SeedRun, as_markdown, cell, claim_table, model_table, points, summarise
from studies.simulation import fit_p_values, gamma_epsilon_star, simulate
from tests.flows.miniature import wait_until
from tests.small import ROOT

BOUND = Bound(0.5, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "m", 8)
SETTINGS = ("data.seed", "train.recipe.seed", "unlearn.recipe.seed", "sample.seed")


def run(seed: str, verdicts: dict, **leaks: float) -> SeedRun:
    values = {name: {"m_bin_worst": leak} for name, leak in leaks.items()}
    return SeedRun(
        seed, values, {"m_bin_worst": BOUND}, dict.fromkeys(values, "leaks, intact"), verdicts
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_median_and_range_are_those_of_the_values(leaks):
    (model,) = summarise([run(str(place), {}, npo=leak) for place, leak in enumerate(leaks)])[
        "models"
    ]
    spread = model["columns"]["m_bin_worst"]
    assert spread["median"] == pytest.approx(float(np.median(leaks)))
    assert (spread["low"], spread["high"], spread["seeds"]) == (min(leaks), max(leaks), len(leaks))
    assert model["words"] == {"leaks, intact": len(leaks)}


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
    claim = {
        "claim": "more",
        "every": 0,
        "some": 2,
        "models": [counted("npo", 1, 1, 0), counted("ours", 2, 0, 0)],
    }
    summary = {
        "seeds": ["0", "1"],
        "bounds": {"m_bin_worst": BOUND},
        "models": [model],
        "claims": [claim],
    }
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
    assert all(
        "alpha: 0.02" in (seeds / name / "params.yaml").read_text() for name in found["seeds"]
    )
    assert small.params() == before
    assert not (small.folder / "data/models").exists()

    again = small.lethe("study", "seeds", "--count", "2", "--summary", "--json")
    assert json.loads(again.stdout) == found


# gap: truth, truth with the cut, parametric with the cut and empirical with the cut at n = 1e5
TABLE = {
    0: (0, 0, 0.05, 0.18),
    1: (5.55, 4.32, 5.00, 2.76),
    2: (11.92, 6.62, 7.45, 4.24),
    3: (18.64, 8.04, 8.87, 5.14),
}


def naive_truth(gap, delta, cut=None):
    x = np.concatenate([np.geomspace(1e-6, 1, 4000), np.linspace(1, 300, 40_000)])
    f, g = stats.gamma(2, scale=5), stats.gamma(2 + gap, scale=5)
    if cut is not None:
        x = x[(g.cdf(x) > cut) & (g.cdf(x) < 1 - cut) & (f.sf(x) > cut) & (f.sf(x) < 1 - cut)]
    pairs = ((f.cdf(x), g.cdf(x)), (g.sf(x), f.sf(x)), (f.sf(x), g.sf(x)), (g.cdf(x), f.cdf(x)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return max(
            0.0,
            *(np.nanmax(np.where(a > delta, np.log((a - delta) / b), -np.inf)) for a, b in pairs),
        )


@pytest.mark.parametrize("gap", TABLE)
def test_the_truth_is_the_specifications_and_the_naive_twins(gap):
    for cut, expected in ((None, TABLE[gap][0]), (1e-5, TABLE[gap][1])):
        value = gamma_epsilon_star(gap, 1e-5, cut)
        assert value == pytest.approx(expected, abs=0.006)
        assert value == pytest.approx(naive_truth(gap, 1e-5, cut), abs=0.02)


@pytest.mark.parametrize("gap", TABLE)
def test_the_specifications_table(gap):
    """At 1e5 losses per side, within two standard deviations over the ten runs of `lethe study epsilon-star-simulation`."""
    cell = simulate(gap, 100_000, 1e-5, runs=10)
    for name, expected in zip(
        ("parametric, cut delta", "empirical, cut .001"), TABLE[gap][2:], strict=True
    ):
        assert abs(cell.mean(name) - expected) <= 2 * cell.sd(name) + 0.005, (
            name
        )  # the table has two decimals
    assert cell.values["split lower bound"].max() <= cell.truth
    assert np.isinf(cell.values["empirical"]).any()
    assert math.isnan(cell.sd("empirical"))


def test_what_is_refused():
    with pytest.raises(BadValue, match="delta"):
        gamma_epsilon_star(1, 0.0)
    with pytest.raises(BadValue, match="runs"):
        simulate(1, 100, 1e-3, 0)
    with pytest.raises(BadValue, match="losses"):
        fit_p_values(np.arange(100.0), [1, 2], [99])


SMALL = ("--runs", "2", "--size", "200", "--size", "400", "--components", "2", "--delta", "1e-3")


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *more: CliRunner().invoke(
        app, ["study", "epsilon-star-simulation", *SMALL, *more]
    )


def test_table_and_pictures_from_one_command(call, tmp_path):
    done = call("--out", "drawn", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [(cell["n"], cell["gap"]) for cell in result["cells"]] == [
        (n, gap) for n in (200, 400) for gap in range(4)
    ]
    assert len(result["goodness_of_fit"]["p_values"]["training losses"]) == 2
    for number in (3, 4, 5, 6):
        assert (tmp_path / f"drawn/figure-{number}.png").read_bytes().startswith(b"\x89PNG")
    before = {path.name: path.read_bytes() for path in (tmp_path / "drawn").iterdir()}
    assert "The pictures: drawn" in call("--out", "drawn").stdout
    assert {path.name: path.read_bytes() for path in (tmp_path / "drawn").iterdir()} == before


@pytest.mark.parametrize("delta", ["0", "0.6"])
def test_a_delta_out_of_range_is_a_sentence(call, tmp_path, delta):
    done = call("--delta", delta, "--out", "drawn")
    assert (done.exit_code, "--delta: got 0" in done.output) == (2, True)
    assert not (tmp_path / "drawn").exists()
