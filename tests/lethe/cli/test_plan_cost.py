"""`lethe plan --cost` and `--preset`: each number follows from counts and given rates, and no rate is invented."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

import lethe
from lethe import config
from lethe.cli.app import app
from lethe.models.encoding import harmbench
from lethe.statistics.planning import expected_sequential
from lethe.steps.costs import judge_costs, model_costs, size_of, stage_costs
from tests.lethe.cli.calls import Command
from tests.lethe.small_checkpoint import save_small_checkpoint
from tests.small import small_params

cost, plan = Command("plan", "--cost"), Command("plan")


def test_the_default_is_the_table_of_the_documentation():
    found = cost.result()
    ways = {way["name"]: way for way in found["ways"]}
    assert ways["plain"]["answers"] == 1000 * 4000 * 1025
    assert ways["plain"]["tokens"] == 64 * ways["plain"]["answers"]
    assert ways["exact enumeration alone"]["tokens"] == 1000 * 4000 * 15_000
    assert {way["gpu_hours"] for way in found["ways"]} == {None}
    assert found["weight_bytes"] == 14e12
    assert "unknown" in cost.call().output


def test_gpu_hours_follow_from_the_users_rate():
    found = cost.result("--rate", 1000, "--checkpoints", 9, "--prompts", 10, "--answers", 99, "--new-tokens", 36)
    plain, early, _ = found["ways"]
    assert plain["gpu_hours"] == pytest.approx(9 * 10 * 100 * 36 / 1000 / 3600)
    assert plain["gpu_hours"] / early["gpu_hours"] == pytest.approx(100 / (found["samples"] + 1))


def test_early_stopping_takes_the_expected_number_of_answers():
    for leak in (0.0, 0.02, 0.5):
        found = lethe.plan(cost=True, leak=leak, checkpoints=1, prompts=1)
        assert found["samples"] == expected_sequential(leak, 0.05, 0.1, 0.01, 1024).samples
        assert found["ways"][1]["answers"] == pytest.approx(found["samples"] + 1)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--cost", "--rate", -1), "--rate"),
        (("--cost", "--width", 0.1), "--width"),
        (("--cost", "--tau", 3), "tau"),
        (("--cost", "--checkpoints", 0), "--checkpoints"),
        (("--cost", "--verdict"), "--verdict"),
        (("--tau", 0.1, "--leak", 0.1), "--leak"),
        (("--tau", 0.1, "--judge-rate", 5), "--judge-rate"),
        (("--preset", "jailbreakbench-phi", "--judge-rate", 0), "--judge-rate: got 0"),
        (("--preset", "jailbreakbench-phi", "--judge-parameters", 0), "--judge-parameters: got 0"),
    ],
)
def test_what_is_refused_names_the_option(monkeypatch, project, arguments, name):
    monkeypatch.chdir(project)
    assert name in plan.refused(*arguments)


def test_published_settings_are_counted_without_model_and_judge(monkeypatch, project):
    monkeypatch.chdir(project)
    sizes = ("--rate", 1000, "--judge-rate", 50, "--judge-parameters", "13e9")
    (found,) = plan.result("--preset", "jailbreakbench-vicuna", *sizes)["judges"]
    answers = 100 * 1025 + 60 * 33
    around = math.ceil(len(f"{harmbench().system}\n{harmbench().user}") / 3)
    assert (found["answers_at_most"], found["tokens_at_most"]) == (answers, answers * (around + 64 + 150))
    assert (found["weight_bytes"], found["seconds_at_most"]) == (26_000_000_000, answers / 50)
    assert plan.result("--preset", "harry-potter", "--rate", 10)["judges"] == []
    assert "Judging of" in CliRunner().invoke(app, ["plan", "--preset", "jailbreakbench-phi"]).output


def test_a_model_and_a_judge_in_their_folders_are_measured_by_their_files(tmp_path):
    folder = save_small_checkpoint(tmp_path / "mine")
    value = small_params()
    value["models"], value["unlearn"]["methods"] = {"mine": {"path": str(folder)}}, {}
    value["report"] |= {"base": None, "retrain": None}
    (tmp_path / "labelled.jsonl").write_text("{}\n" * 7)
    own = {"judge": "harmbench", "model": str(folder), "labelled": str(tmp_path / "labelled.jsonl")}
    value["judges"] = {"harm": own}
    params = config.validate(value)
    (model,) = model_costs(params, {"forget": 10}, 100.0, None)
    size = size_of(folder)
    assert (model.parameters, model.weight_bytes) == (size.parameters, 4 * size.parameters)
    assert model.cache_bytes_at_most > 0
    assert model.seconds_at_most == model.tokens_at_most / 100
    (judge,) = judge_costs(params, 1000, None)
    assert (judge.answers_at_most, judge.seconds_at_most) == (1007, None)
    value["judges"]["harm"]["clip"] = 2
    (clipped,) = judge_costs(config.validate(value), 1000, None)
    assert clipped.tokens_at_most == judge.tokens_at_most - 1007 * (params.sample.max_new_tokens - 2)


def test_trained_tokens_answers_and_kept_values_are_counted():
    value = small_params()
    common = {"lr": 1e-4, "epochs": 2}
    value["unlearn"]["methods"] = {
        "kl": {"loss": "kl", "retain_weight": 1.0, **common},
        "rmu": {"loss": "rmu", "block": 0, **common},
        "npo": {"loss": "npo", "beta": 0.1, "retain_weight": 1.0, **common},
    }
    value["models"] |= {name: {"path": f"data/models/{name}"} for name in value["unlearn"]["methods"]}
    value["attacks"] = {
        "a": {"path": "x", "after": {"kind": "noise", "sizes": [0.1, 0.2]}, "n": 7, "seeds": [0, 1, 2]}
    }
    params = config.validate(value)
    stages = {one.name: one for one in stage_costs(params, 100.0)}
    assert stages["base"].tokens > stages["retrain"].tokens > 0
    assert stages["kl"].tokens == stages["npo"].tokens > 0
    assert stages["a"].answers % (3 * 3 * 8) == 0
    assert stages["a"].seconds == pytest.approx(stages["a"].answers * params.sample.max_new_tokens / 100)
    needs = {name: stages[name].reference.needs for name in ("kl", "rmu", "npo")}
    assert needs == {"kl": "logits", "rmu": "states", "npo": "nothing"}
    kept = {name: stages[name].reference.cached_bytes for name in ("kl", "rmu")}
    recipe = params.train.recipe
    assert kept["kl"] * recipe.hidden == kept["rmu"] * recipe.vocabulary
    assert json.dumps(lethe.plan(tau=0.1).as_json())
