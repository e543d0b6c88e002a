"""`lethe plan --cost`: each number follows from the sizes and rates, and no rate of a GPU is invented."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.statistics.planning import expected_sequential
from lethe.steps.fleet import MEASURED
from tests.small import ROOT


def call(*arguments):
    return CliRunner().invoke(app, ["plan", "--cost", *map(str, arguments)])


def told(*arguments) -> dict:
    return json.loads(call("--json", *arguments).stdout)


def test_the_default_is_the_fleet_of_the_documentation():
    cost = told()
    ways = {way["name"]: way for way in cost["ways"]}
    assert ways["plain"]["answers"] == 1000 * 4000 * 1025
    assert ways["plain"]["tokens"] == 40 * ways["plain"]["answers"]
    assert ways["exact enumeration alone"]["tokens"] == 1000 * 4000 * 5000
    assert {way["gpu_hours"] for way in cost["ways"]} == {None}  # no GPU was measured
    assert cost["weight_bytes"] == 14e12


def test_gpu_hours_follow_from_the_users_rate():
    cost = told("--rate", 1000, "--checkpoints", 9, "--prompts", 10, "--answers", 99, "--new-tokens", 36)
    plain, shared, early, _ = cost["ways"]
    assert plain["gpu_hours"] == pytest.approx(9 * 10 * 100 * 36 / 1000 / 3600)
    assert plain["tokens"] == shared["tokens"]  # the rate is one of seconds, not of tokens
    assert plain["gpu_hours"] / shared["gpu_hours"] == pytest.approx(MEASURED["sharing"].value)
    assert plain["gpu_hours"] / early["gpu_hours"] == pytest.approx(100 / (cost["samples"] + 1))


def test_early_stopping_takes_the_expected_number_of_answers():
    for leak in (0.0, 0.02, 0.5):
        cost = told("--leak", leak, "--checkpoints", 1, "--prompts", 1)
        assert cost["samples"] == expected_sequential(leak, 0.05, 0.1, 0.01, 1024).samples
        assert cost["ways"][2]["answers"] == pytest.approx(cost["samples"] + 1)


def test_every_rate_is_measured_by_a_target_and_can_be_given():
    targets = (ROOT / "Makefile").read_text()
    for name, rate in MEASURED.items():
        assert f"\n{rate.measured_by.removeprefix('make ')}:" in targets
        before, after = told("--rate", 9), told("--rate", 9, "--measured", f"{name}={rate.value * 2}")
        assert after["rates"][name]["measured_by"] == "given"
        del before["rates"], after["rates"]
        assert before != after, name


def test_project_folders_divide_the_time_of_dvc():
    whole, divided = told("--folder-models", 50)["dvc"]
    assert (whole["stages"], divided["folders"], divided["stages"]) == (6003, 20, 303)
    assert divided["hours"] < whole["hours"] / 5


def test_what_is_refused():
    for arguments, sentence in [
        (("--measured", "score"), "NAME=NUMBER"),
        (("--measured", "speed=3"), "one of sharing"),
        (("--measured", "score=0"), "above 0"),
        (("--rate", -1), "--rate"),
        (("--width", 0.1), "--width"),
        (("--tau", 3), "tau"),
    ]:
        done = call(*arguments)
        assert done.exit_code == 2
        assert sentence in done.output
    alone = CliRunner().invoke(app, ["plan", "--tau", "0.1", "--leak", "0.1"])
    assert alone.exit_code == 2
    assert "--leak" in alone.output
    assert "GPU hours" in call().output
    assert "unknown" in call().output
