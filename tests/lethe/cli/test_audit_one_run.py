import numpy as np
import pandas as pd
import pytest

import lethe
from lethe.io.tables import read_table
from lethe.results.table import read_rows
from tests.lethe.cli.calls import Command

COUNTS = ("--n", 1000, "--r", 200, "--errors", 26)


command = Command("audit", "one-run")
call, result = command.call, command.result


def by_method(whole):
    return {row["method"]: row for row in whole["results"]}


def test_dp_sgd_of_one_full_step_is_the_gaussian():
    """With q = 1 and one step, sigma is 1 / mu: the accountant's distributions must give the same audit."""
    gaussian = result(*COUNTS, "--method", "exact", "--null", 1.0)["results"][0]
    sgd = result(*COUNTS, "--method", "exact", "--null", 1.0, "--mechanism", "dp-sgd", "--q", 1, "--steps", 1)
    assert sgd["results"][0]["p_value"] == pytest.approx(gaussian["p_value"], rel=0.01)
    assert sgd["results"][0]["epsilon_lower"] == pytest.approx(gaussian["epsilon_lower"], rel=0.01)


def test_a_trade_off_function_is_one_null(tmp_path):
    from scipy.special import ndtr, ndtri

    alpha = np.linspace(0, 1, 401)
    with np.errstate(invalid="ignore"):
        beta = np.nan_to_num(ndtr(ndtri(1 - alpha) - 1.0), nan=0.0)
    pd.DataFrame({"alpha": alpha, "beta": beta}).to_csv(tmp_path / "f.csv", index=False)
    options = ("--mechanism", "tradeoff", "--tradeoff", tmp_path / "f.csv")
    row = by_method(result("--n", 1000, "--r", 200, "--errors", 26, *options))["exact"]
    assert row["p_value"] == pytest.approx(0.5298, abs=0.02)
    assert row["rejected"] is False
    assert row["epsilon_lower"] == 0
    rejected = by_method(result("--n", 1000, "--r", 200, "--errors", 5, *options))["exact"]
    assert rejected["rejected"] is True
    # The grid's chords are a little more private than the Gaussian with 4.377 through its points.
    assert 3 < rejected["epsilon_lower"] < 4.378


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("alpha,beta\n0,1\n\n0.5,2\n1,0\n", "line 4: beta: got 2.0; must be a number in [0, 1]"),
        ("alpha,beta\n0,1\n0,0.5\n", "line 3: alpha: got 0.0; must be above the one before (0)"),
        ("alpha,beta\n0,1\n0.5,0.6\n", "line 3: beta: got 0.6; must be at most 1 - alpha = 0.5"),
        ("alpha,beta\n0,0.2\n0.1,0.3\n", "line 3: beta: got 0.3; must be at most the one before"),
        ("alpha,beta\n0,1\n", "alpha, beta: got 1 and 1 points"),
    ],
)
def test_a_broken_trade_off_file_is_named_with_its_line(tmp_path, text, sentence):
    (tmp_path / "f.csv").write_text(text)
    done = call(*COUNTS, "--mechanism", "tradeoff", "--tradeoff", tmp_path / "f.csv")
    assert done.exit_code == 2
    assert "f.csv" in done.output
    assert sentence in done.output


@pytest.fixture
def guesses(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 500)
    outputs = rng.normal(size=500) + bits
    table = pd.DataFrame({"bit": bits, "guess": (outputs > 0.5).astype(int), "score": np.abs(outputs - 0.5)})
    path = tmp_path / "g.csv"
    table.to_csv(path, index=False)
    return path, table


def test_guesses_from_a_file(guesses):
    path, table = guesses
    whole = result("--guesses", path, "--r", 100)
    top = table.nlargest(100, "score")
    assert (whole["n"], whole["r"], whole["errors"]) == (500, 100, int((top.bit != top.guess).sum()))
    assert {"independent", "clopper-pearson"} <= set(by_method(result("--guesses", path, "--r", 500)))


@pytest.mark.parametrize(
    ("column", "value", "legal"), [("bit", 2, "0 or 1"), ("guess", -1, "0 or 1"), ("score", None, "a number")]
)
def test_a_broken_guess_is_named_by_row(guesses, tmp_path, column, value, legal):
    table = guesses[1].astype(float)
    table.loc[3, column] = value
    table.to_csv(tmp_path / "b.csv", index=False)
    done = call("--guesses", tmp_path / "b.csv", "--r", 10)
    assert done.exit_code == 2
    assert f"line 5: {column}" in done.output
    assert legal in done.output


def test_ties_at_the_cut_are_broken_without_the_bits(tmp_path):
    """All scores tied, the bits sorted: released in file order, half the file's errors would be hidden."""
    pd.DataFrame({"bit": [0] * 200 + [1] * 200, "guess": 0, "score": 1.0}).to_csv(tmp_path / "t.csv", index=False)
    assert 60 < result("--guesses", tmp_path / "t.csv", "--r", 200)["errors"] < 140


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--n", 0, "--r", 1, "--errors", 0), "n: got 0"),
        (("--n", 10, "--r", 11, "--errors", 0), "r: got 11"),
        (("--n", 10, "--r", 5, "--errors", 6), "errors: got 6"),
        ((*COUNTS, "--delta", 1), "delta: got 1"),
        ((*COUNTS, "--alpha", 0), "alpha: got 0"),
        ((*COUNTS, "--mechanism", "dp-sgd", "--q", 1e-5, "--steps", 10**9), "--steps: got 1000000000"),
        ((*COUNTS, "--mechanism", "subsampled-gaussian"), "--q"),
        ((*COUNTS, "--mechanism", "tradeoff"), "--tradeoff"),
        ((*COUNTS, "--mechanism", "dp-sgd", "--q", 0.1, "--steps", 2, "--null", 0), "null: got 0"),
        ((*COUNTS, "--mechanism", "dp-sgd", "--q", 1, "--steps", 1, "--delta", 1e-15), "delta: got 1e-15"),
        ((*COUNTS, "--mechanism", "approx-dp", "--null", 1e9), "a finite epsilon from 0 to 600"),
        ((*COUNTS, "--mechanism", "approx-dp", "--delta0", 0.1, "--delta", 0.01), "delta0: got 0.1"),
        (("--n", 10), "--errors"),
        ((*COUNTS, "--r", 100), "--r: got [200, 100]"),
        ((*COUNTS, "--q", 0.1), "--q: the mechanism gaussian takes none"),
        ((*COUNTS, "--method", "independent"), "method independent"),
        ((*COUNTS, "--method", "clopper-pearson"), "method clopper-pearson"),
        ((*COUNTS, "--claimed-epsilon", -1), "--claimed-epsilon: got -1"),
    ],
)
def test_what_is_refused(options, sentence):
    done = call(*options)
    assert done.exit_code == 2, done.output
    assert sentence in " ".join(done.output.split())
    assert "Traceback" not in done.output


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


def test_the_rows_are_the_json(tmp_path):
    whole = result(*COUNTS, "--curve", "--table", tmp_path / "t.parquet")
    rows = read_rows(tmp_path / "t.parquet")
    found = {row.item: row for row in rows if row.quantity == "epsilon"}
    assert set(found) == set(by_method(whole))
    for method, row in by_method(whole).items():
        assert (found[method].lower, found[method].alpha_lower) == (row["epsilon_lower"], 0.05)
        assert found[method].evidence["assumes"] == row["assumes"]
        assert ("nominal" in found[method].assumes) == (method == "chernoff")
        curve = {row.at: row.estimate for row in rows if row.quantity == "p_value" and row.item == method}
        assert curve == {point["epsilon"]: point[method] for point in whole["curve"]}
    (record,) = [row.evidence for row in rows if row.quantity == "record"]
    assert record == {key: whole[key] for key in ("n", "r", "errors", "delta", "alpha", "mechanism")}
    kept = lethe.audit.one_run(n=1000, r=200, errors=26, curve=True).to_results()
    assert kept.equals(read_table(tmp_path / "t.parquet"))
