"""Epsilon* of simulated losses: the truth, its estimates, and tables and pictures from one command."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.errors import BadValue
from studies.simulation import fit_p_values, gamma_epsilon_star, simulate

# gap: truth, truth with the cut, parametric with the cut and empirical with the cut at n = 1e5
TABLE = {
    0: (0, 0, 0.05, 0.18),
    1: (5.55, 4.32, 5.00, 2.76),
    2: (11.92, 6.62, 7.45, 4.24),
    3: (18.64, 8.04, 8.87, 5.14),
}


def naive_truth(gap, delta, cut=None):
    x = np.concatenate([np.geomspace(1e-6, 1, 4000), np.linspace(1, 300, 40_000)])
    f = stats.gamma(2, scale=5)
    g = stats.gamma(2 + gap, scale=5)
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


@pytest.mark.slow
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


@pytest.mark.slow
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
