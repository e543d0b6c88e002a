"""`lethe score tofu-log` as a user runs it, on small logs and on those of TOFU's authors."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.scoring.tofu import SECTIONS


def score(*arguments):
    return CliRunner().invoke(app, ["score", "tofu-log", *map(str, arguments)])


@pytest.fixture
def log(tmp_path):
    section = {
        "avg_gt_loss": {"0": 0.0, "1": None},
        "avg_paraphrased_loss": {"0": 1.0, "1": 1.0},
        "average_perturb_loss": {"0": [3.0, 5.0], "1": [1.0, 1.0]},
        "generated_text": {"0": ["Who?", "[bold]Ron\x1b[31m", "Ron"], "1": ["Who?", "Ron", "Ron"]},
        "rougeL_recall": {"0": 1.0, "1": 0.5},
    }
    path = tmp_path / "log.json"
    path.write_text(json.dumps(dict.fromkeys(SECTIONS.values(), section)))
    return path


def test_bad_input_is_a_sentence_and_exit_status_2(tmp_path, log):
    bad = tmp_path / "bad.json"
    for content in ("", "{}", "[]", '{"eval_log.json": 1}'):
        bad.write_text(content)
        for arguments in ((bad,), (log, "--retain", bad)):
            result = score(*arguments)
            assert result.exit_code == 2
            assert "bad.json" in result.output
            assert "Traceback" not in result.output
    assert score(tmp_path / "absent.json").exit_code == 2


@pytest.mark.parametrize(("name", "utility"), [("phi_full", 0.522074), ("phi_retain90", 0.531991)])
def test_logs_of_the_authors(shared, name, utility):
    logs = shared / "data/tofu-eval-logs"
    result = score(logs / f"{name}.json", "--retain", logs / "phi_retain90.json", "--json")
    answer = json.loads(result.stdout)
    assert answer["rougeL_recall_mismatches"] == 0
    assert sum(term["missing"] for term in answer["utility_terms"].values()) == 0
    assert answer["model_utility"] == pytest.approx(utility, abs=5e-7)
    expected = {"phi_full": 2.194e-16, "phi_retain90": 1}[name]
    assert answer["forget_quality"] == pytest.approx(expected, rel=5e-4)
