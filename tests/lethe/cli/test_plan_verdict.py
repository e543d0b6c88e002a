"""`lethe plan --verdict` simulates the rule itself."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app


def planned(*options: str) -> dict:
    done = CliRunner().invoke(app, ["plan", "--verdict", "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_more_answers_and_a_wider_tolerance_decide_more():
    few, many = (planned("--answers", n, "--prompts", "5", "--tau", "0.05") for n in ("64", "2048"))
    words = [[case["words"][case["wanted"]] for case in found["cases"]] for found in (few, many)]
    assert all(second >= first for first, second in zip(*words, strict=True))
    assert words[1][0] > 0.9  # a copy of Retrain
    assert words[1][3] > 0.9  # one question leaks in five times the tolerance
    assert many["runs"] >= 100


def test_more_models_share_the_level():
    one, thirty = (planned("--models", models, "--tau", "0.02", "--prompts", "5") for models in ("1", "30"))
    assert thirty["cases"][3]["words"]["leaks"] <= one["cases"][3]["words"]["leaks"]


@pytest.mark.parametrize("options", [["--verdict", "--width", "0.1"], ["--models", "3", "--tau", "0.1"]])
def test_options_that_change_nothing_are_refused(options):
    assert CliRunner().invoke(app, ["plan", *options]).exit_code == 2
