import numpy as np
import pandas as pd
import pytest

from tests.cases import cases
from tests.lethe.cli.calls import Command

COUNTS = ("--n", 1000, "--r", 200, "--errors", 26)


command = Command("audit", "one-run")
call, result, refused = command.call, command.result, command.refused


def by_method(whole):
    return {row["method"]: row for row in whole["results"]}


def test_dp_sgd_of_one_full_step_is_the_gaussian():
    """With q = 1 and one step, sigma is 1 / mu: the accountant's distributions must give the same audit."""
    gaussian = result(*COUNTS, "--method", "exact", "--null", 1.0)["results"][0]
    sgd = result(*COUNTS, "--method", "exact", "--null", 1.0, "--mechanism", "dp-sgd", "--q", 1, "--steps", 1)
    assert sgd["results"][0]["p_value"] == pytest.approx(gaussian["p_value"], rel=0.01)
    assert sgd["results"][0]["epsilon_lower"] == pytest.approx(gaussian["epsilon_lower"], rel=0.01)


@cases
def test_a_broken_trade_off_file_is_named_with_its_line(tmp_path, text, sentence):
    (tmp_path / "f.csv").write_text(text)
    done = refused(*COUNTS, "--mechanism", "tradeoff", "--tradeoff", tmp_path / "f.csv")
    assert "f.csv" in done
    assert sentence in done


@pytest.fixture
def guesses(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 500)
    outputs = rng.normal(size=500) + bits
    table = pd.DataFrame({"bit": bits, "guess": (outputs > 0.5).astype(int), "score": np.abs(outputs - 0.5)})
    path = tmp_path / "g.csv"
    table.to_csv(path, index=False)
    return path, table


@cases
def test_what_is_refused(options, sentence):
    assert sentence in refused(*options)


@pytest.mark.parametrize("options", [(), ("--mechanism", "laplace"), ("--mechanism", "approx-dp")])
def test_the_p_value_curve_crosses_alpha_at_the_bound(options):
    whole = result(*COUNTS, "--curve", *options)
    for row in whole["results"]:
        for point in whole["curve"]:
            rejected = point[row["method"]] <= whole["alpha"]
            assert rejected == (point["epsilon"] <= row["epsilon_lower"]), (row["method"], point)
    assert "p-values by epsilon" in call(*COUNTS, "--curve").output


def test_several_declared_r_share_alpha(guesses):
    """Each r at its share: no bound is better than the best of single audits at that share, and none worse."""
    path, _ = guesses
    several = result("--guesses", path, "--r", 100, "--r", 200, "--r", 500, "--null", 1.0)
    single = [result("--guesses", path, "--r", r, "--alpha", 0.05 / 3, "--null", 1.0) for r in (100, 200, 500)]
    assert several["r"] == [100, 200, 500]
    assert several["errors"] == [one["errors"] for one in single]
    for method, row in by_method(several).items():
        found = [by_method(one)[method] for one in single if method in by_method(one)]
        assert row["epsilon_lower"] == max(one["epsilon_lower"] for one in found)
        assert row["p_value"] == pytest.approx(min(1, 3 * min(one["p_value"] for one in found)))
        assert "alpha / 3" in row["note"]
