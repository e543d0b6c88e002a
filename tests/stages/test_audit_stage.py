"""Stage `audit@NAME`: every kind of entry runs, faulty DP-SGD is caught and right DP-SGD is not, mistakes are named."""

import math

import numpy as np
import pandas as pd
import pytest
import yaml

from lethe import config
from lethe.errors import BadInput
from lethe.io.json_files import read_json, restored
from lethe.models.training import TrainingFailed
from lethe.report.audits import curve, sentence
from lethe.results import table
from lethe.statistics.bound import Covers
from lethe.statistics.one_run import audit as summary
from lethe.statistics.one_run.audit import OneRunAudit
from stages import audit
from tests.lethe.statistics.one_run.simulated_mechanisms import gaussian
from tests.small import ROOT

PRESET = yaml.safe_load((ROOT / "flows/presets/audit-dp-sgd.yaml").read_text())["audits"]
FILE = {
    "kind": "guesses",
    "source": "guesses.csv",
    "mechanism": "gaussian",
    "claimed_epsilon": 1.0,
    "r": [200],
    "delta": 1e-5,
    "alpha": 0.05,
    "method": "all",
    "seed": 0,
}


def params(change: dict) -> config.Params:
    value = config.read_yaml(ROOT / "params.yaml")
    value["audits"] = {"mine": change}
    return config.validate(value)


def entry(change: dict):
    return params(change).audits["mine"]


@pytest.fixture(autouse=True)
def a_short_curve(monkeypatch):
    """Every point of the p-value curve costs a composition of privacy losses; here two are enough."""
    monkeypatch.setattr(summary, "POINTS", 2)


@pytest.fixture
def guesses(tmp_path):
    drawn = gaussian(1000, np.random.default_rng(0), mu=1.0, guess="threshold")
    path = tmp_path / "guesses.csv"
    pd.DataFrame({"bit": drawn.bits, "guess": drawn.guesses, "score": drawn.scores}).to_csv(path, index=False)
    return str(path)


def test_a_file_of_guesses(guesses, tmp_path):
    audit.run(params(FILE | {"source": guesses, "r": [100, 200]}), tmp_path, "mine")
    result = read_json(tmp_path / "audits/mine/result.json")
    assert result["verdict"]["contradicted"] is True
    assert 1 < result["epsilon_lower"] < 4.377
    assert result["claimed_epsilon"] == 1.0
    assert "contradicts" in sentence(restored(OneRunAudit, result))
    assert "<svg" in curve("mine", restored(OneRunAudit, result))
    assert len(pd.read_parquet(tmp_path / "audits/mine/guesses.parquet")) == 1000
    headline = read_json(tmp_path / "audits/mine.json")  # what `dvc metrics` shows
    assert headline["contradicted"] is True
    assert headline["epsilon_lower"] == result["epsilon_lower"]
    found = table.read(tmp_path).audit("mine")
    bound = found.bounds["epsilon_lower"]
    assert (bound.side, bound.alpha, bound.covers, bound.method) == ("lower", 0.05, Covers.RUN, headline["method"])
    assert bound.value == headline["epsilon_lower"]
    numbers = {key: value for key, value in headline.items() if isinstance(value, float)}
    assert numbers.items() <= found.values.items()


def test_an_infinite_bound_is_told_from_a_family_rejected_whole(guesses, tmp_path, capsys):
    """At delta 0 every Gaussian has an infinite epsilon; N(0, 1) told apart from its thin subsample explains nothing."""
    audit.run(params(FILE | {"source": guesses, "delta": 0}), tmp_path, "mine")
    infinite = restored(OneRunAudit, read_json(tmp_path / "audits/mine/result.json"))
    assert infinite.bound(infinite.results[0]).value == math.inf
    assert table.read(tmp_path).audit("mine").bounds["epsilon_lower"] == infinite.bound(infinite.results[0])
    audit.run(params(FILE | {"source": guesses, "mechanism": "subsampled-gaussian", "q": 1e-6}), tmp_path, "mine")
    rejected = restored(OneRunAudit, read_json(tmp_path / "audits/mine/result.json"))
    assert rejected.bound(rejected.results[0]) is None
    assert "epsilon_lower" not in table.read(tmp_path).audit("mine").bounds
    assert infinite.verdict.contradicted is rejected.verdict.contradicted is True
    first, second = capsys.readouterr().out.splitlines()
    assert ("infinite" in first, "infinite" in second) == (True, False)
    assert sentence(infinite) != sentence(rejected)


SMALL = {"steps": 40, "q": 0.1, "method": "exact", "points": 300}  # with all canaries: fewer have too little power


@pytest.mark.parametrize(("fault", "caught"), [("none", False), ("half_noise", True), ("no_clipping", True)])
def test_faulty_dp_sgd_is_caught_and_right_dp_sgd_is_not(tmp_path, fault, caught):
    audit.run(params(PRESET["right"] | SMALL | {"fault": fault}), tmp_path, "mine")
    result = read_json(tmp_path / "audits/mine/result.json")
    assert result["verdict"]["contradicted"] is caught
    assert (result["p_value"] <= result["alpha"]) is caught
    assert result["epsilon_lower"] > 1  # and the right one is not passed for want of power


@pytest.mark.parametrize(("lr", "steps", "step"), [(1e30, 6, 1), (3e38, 1, 0)])
def test_training_that_diverges_gives_no_guesses(tmp_path, lr, steps, step):
    """The first fails at a loss, the second at the weights after its only step."""
    few = {"canaries": 20, "steps": steps, "points": 50, "r": [5], "q": 0.9, "clip": 1e3, "lr": lr}
    with pytest.raises(TrainingFailed) as caught:
        audit.run(params(PRESET["right"] | few), tmp_path, "mine")
    assert caught.value.failed.step == step
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "swap"}, "audits.mine.*a key kind, one of guesses, dp_sgd"),
        ({"mechanism": "dp-sgd"}, "audits.mine.*q: the mechanism"),
        ({"q": 0.5}, "q: the mechanism"),
        ({"alpha": 2}, r"audits.mine.alpha: got 2"),
        ({"r": []}, r"audits.mine.r"),
        ({"pears": 1}, "audits.mine.pears.*one of the keys"),
    ],
)
def test_a_mistake_is_named_by_its_key(change, said):
    with pytest.raises(BadInput, match=said):
        entry(FILE | change)
