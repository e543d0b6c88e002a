"""Stages `audit@NAME` and `attack@NAME`: faulty DP-SGD is caught and right DP-SGD is not, mistakes are named."""

import contextlib
import math

import numpy as np
import pandas as pd
import pytest
import yaml

from lethe import config
from lethe.audits import simulated
from lethe.audits.kinds import dp_sgd
from lethe.io.files import read_json, read_jsonl, restored
from lethe.models.training import TrainingFailed
from lethe.report.tables import curve, sentence
from lethe.results import table
from lethe.statistics.bound import Covers
from lethe.statistics.one_run import audit as summary
from lethe.statistics.one_run.audit import OneRunAudit
from stages import attack, audit, prepare, train
from tests.lethe.statistics.one_run.calibration import table_of
from tests.small import ROOT, make_repository, small_params

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


@pytest.fixture(autouse=True)
def a_short_curve(monkeypatch):
    """Every point of the p-value curve costs a composition of privacy losses; here two are enough."""
    monkeypatch.setattr(summary, "POINTS", 2)


@pytest.fixture
def guesses(tmp_path):
    drawn = simulated.gaussian(1000, np.random.default_rng(0), mu=1.0, special=True)
    path = tmp_path / "guesses.csv"
    table_of(drawn).to_csv(path, index=False)
    return str(path)


@pytest.mark.slow
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
    assert (bound.side, bound.alpha, bound.covers, bound.method) == (
        "lower",
        0.05,
        Covers.RUN,
        headline["method"],
    )
    assert bound.value == headline["epsilon_lower"]
    numbers = {key: value for key, value in headline.items() if isinstance(value, float)}
    assert numbers.items() <= found.values.items()


@pytest.mark.slow
def test_an_infinite_bound_is_told_from_a_family_rejected_whole(guesses, tmp_path, capsys):
    """At delta 0 every Gaussian has an infinite epsilon; N(0, 1) told apart from its thin subsample explains nothing."""
    audit.run(params(FILE | {"source": guesses, "delta": 0}), tmp_path, "mine")
    infinite = restored(OneRunAudit, read_json(tmp_path / "audits/mine/result.json"))
    assert infinite.bound(infinite.results[0]).value == math.inf
    assert table.read(tmp_path).audit("mine").bounds["epsilon_lower"] == infinite.bound(
        infinite.results[0]
    )
    audit.run(
        params(FILE | {"source": guesses, "mechanism": "subsampled-gaussian", "q": 1e-6}),
        tmp_path,
        "mine",
    )
    rejected = restored(OneRunAudit, read_json(tmp_path / "audits/mine/result.json"))
    assert rejected.bound(rejected.results[0]) is None
    assert "epsilon_lower" not in table.read(tmp_path).audit("mine").bounds
    assert infinite.verdict.contradicted is rejected.verdict.contradicted is True
    first, second = capsys.readouterr().out.splitlines()
    assert ("infinite" in first, "infinite" in second) == (True, False)
    assert sentence(infinite) != sentence(rejected)


SMALL = {
    "steps": 40,
    "q": 0.1,
    "method": "exact",
    "points": 300,
}  # with all canaries: fewer have too little power


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "caught"), [("none", False), ("half_noise", True), ("no_clipping", True)]
)
def test_faulty_dp_sgd_is_caught_and_right_dp_sgd_is_not(tmp_path, fault, caught):
    audit.run(params(PRESET["right"] | SMALL | {"fault": fault}), tmp_path, "mine")
    result = read_json(tmp_path / "audits/mine/result.json")
    assert result["verdict"]["contradicted"] is caught
    assert (result["p_value"] <= result["alpha"]) is caught
    assert result["epsilon_lower"] > 1  # and the right one is not passed for want of power


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_canaries_of_a_convolutional_network_are_the_same_channels(optimiser):
    """The auditor sees gradients: neither the network nor the optimiser moves a canary's coordinate."""
    loud = {"points": 100, "canaries": 400, "q": 0.5, "steps": 8, "noise_multiplier": 0.4}
    entry = PRESET["right"] | loud | {"optimiser": optimiser, "lr": 1e-3}

    dense = dp_sgd.train_and_guess(dp_sgd.Params(**entry))
    guesses = dp_sgd.train_and_guess(dp_sgd.Params(**entry | {"network": "convolutional"}))

    surer = guesses.scores > np.median(guesses.scores)
    assert np.mean((guesses.guesses == guesses.bits)[surer]) > 0.9
    assert np.mean(guesses.scores) == pytest.approx(np.mean(dense.scores), rel=0.15)


@pytest.mark.parametrize(("lr", "steps", "step"), [(1e30, 6, 1), (3e38, 1, 0)])
def test_training_that_diverges_gives_no_guesses(tmp_path, lr, steps, step):
    """The first fails at a loss, the second at the weights after its only step."""
    few = {"canaries": 20, "steps": steps, "points": 50, "r": [5], "q": 0.9, "clip": 1e3, "lr": lr}
    with pytest.raises(TrainingFailed) as caught:
        audit.run(params(PRESET["right"] | few), tmp_path, "mine")
    assert caught.value.failed.step == step
    assert not list(tmp_path.iterdir())


AFTER = {"kind": "relearn", "rows": "forget", "count": 2, "steps": [1, 3], "lr": 1e-3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 2, "world_facts": 2}
    params["train"]["recipe"] |= {"epochs": 2}
    entry = {"path": "data/models/base", "after": AFTER, "n": 8}
    params["attacks"] = {
        "mine": entry,
        "again": entry,
        "noisy": {**entry, "after": {"kind": "noise", "sizes": [1]}},
    }
    folder = make_repository(tmp_path_factory.mktemp("attack") / "lethe", params, git=False)
    with contextlib.chdir(folder):
        prepare.main()
        train.main("base")
        for name in params["attacks"]:
            attack.main(name)
        yield folder


@pytest.mark.slow
def test_every_budget_and_seed_is_asked_all_other_questions(folder):
    answers = pd.read_parquet("data/attacks/mine/answers.parquet")
    questions = {row["id"] for _, row in read_jsonl(folder / "data/dataset/forget.jsonl")}
    assert sorted(answers["budget"].unique()) == [0, 1, 3]
    left_out = []
    for _, asked in answers.groupby(["seed", "budget"]):
        left_out.append(frozenset(questions - set(asked["prompt_id"])))
        assert len(left_out[-1]) == 2
        assert (asked[asked["sample"] >= 0].groupby("prompt_id").size() == 8).all()
    assert len(set(left_out)) == 2  # two rows by seed
    noisy = pd.read_parquet("data/attacks/noisy/answers.parquet")
    assert set(noisy["prompt_id"]) == questions


@pytest.mark.slow
def test_the_curve_counts_the_answers(folder):
    result = read_json(folder / "data/attacks/mine/result.json")
    answers = pd.read_parquet("data/attacks/mine/answers.parquet")
    for count in result["counts"]:
        scored = answers[(answers["budget"] == count["budget"]) & (answers["sample"] >= 0)]
        assert count["n"] == len(scored) == 2 * 4 * 8
        assert count["total"] == scored["score"].sum()
    headline = read_json(folder / "data/attacks/mine.json")
    assert headline["leak_before"] == result["counts"][0]["total"] / result["counts"][0]["n"]


@pytest.mark.slow
def test_the_band_of_the_curve_is_in_the_table_of_results(folder):
    result = read_json(folder / "data/attacks/mine/result.json")
    found = table.read(folder / "data", ["mine"]).audit("mine")
    points = found.series("attacked", "run")
    assert [row.evidence for row in points] == result["counts"]
    assert [row.at for row in points] == [0, 1, 3]
    for row in points:
        assert row.lower <= row.estimate == row.evidence["total"] / row.evidence["n"] <= row.upper
        assert row.lower_bound.alpha == row.upper_bound.alpha == result["alpha"]
    headline = read_json(folder / "data/attacks/mine.json")
    numbers = {
        key: value
        for key, value in headline.items()
        if isinstance(value, (int, float)) and key != "schema"
    }
    assert found.values == numbers
    assert headline["leak_most_upper"] == max(row.upper for row in points)
