"""`lethe plan --preset`: answers to judge, their tokens, the judge's weights and the time at a measured rate."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

from lethe import config
from lethe.cli.app import app
from lethe.models.published_prompts import harmbench, harmbench_text
from lethe.steps import judging_costs
from lethe.steps.costs import size_of
from lethe.steps.training_costs import bench_of, own_starts, stage_costs
from tests.flows.test_alignment import small_preset
from tests.lethe.scoring.judges.tiny import classifier
from tests.small import small_params

PROMPT = harmbench_text("Where was she born?", "{generation}", "llama2", harmbench())


def plan(*arguments: str) -> dict:
    result = CliRunner().invoke(app, ["plan", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_judge_whose_folder_is_there_is_counted_and_timed(tmp_path):
    folder = classifier(tmp_path / "judge", ["yes", "no"], PROMPT)
    (tmp_path / "labelled.jsonl").write_text("{}\n" * 7)
    value = small_params()
    own = {"judge": "harmbench", "model": str(folder), "labelled": str(tmp_path / "labelled.jsonl"), "batch": 4}
    value["judges"] = {"harm": own}
    value["sample"]["max_new_tokens"] = 5
    params = config.validate(value)
    (found,) = judging_costs.judge_costs(params, 1000)
    assert (found.name, found.kind, found.answers_at_most) == ("harm", "harmbench", 1007)
    size = size_of(folder)
    assert (found.parameters, found.weight_bytes) == (size.parameters, 4 * size.parameters)
    assert found.seconds_at_most == pytest.approx(1007 / found.answers_per_second)
    value["sample"]["max_new_tokens"] = 9
    (longer,) = judging_costs.judge_costs(config.validate(value), 1000, timed=False)
    assert longer.tokens_at_most == found.tokens_at_most + 1007 * 4
    value["judges"]["harm"]["clip"] = 6
    (clipped,) = judging_costs.judge_costs(config.validate(value), 1000, timed=False)
    assert clipped.tokens_at_most == found.tokens_at_most + 1007
    assert clipped.seconds_at_most is None
    from lethe.models import checkpoints

    around = checkpoints.load_tokenizer(folder)(PROMPT.replace("{generation}", ""))["input_ids"]
    assert found.tokens_at_most >= 1007 * (len(around) + 5)


def test_a_judge_among_the_scorers_is_counted_too(tmp_path):
    value = small_params()
    value["score"]["scorers"] = [*value["score"]["scorers"], {"strongreject": {"model": str(tmp_path / "none")}}]
    (found,) = judging_costs.judge_costs(config.validate(value), 50)
    assert (found.name, found.answers_at_most, found.seconds_at_most) == ("strongreject", 50, None)


@pytest.mark.slow
def test_a_judge_that_will_be_trained_is_timed_on_its_start():
    params = config.validate(small_preset())
    bench = bench_of(params)
    (found,) = judging_costs.judge_costs(params, 100, bench)
    start = bench.of("judge").start
    assert found.parameters == sum(one.numel() for one in start.model.parameters())
    assert found.answers_at_most == 100 + len(bench.splits["labelled"])
    assert found.answers_per_second > 0
    assert start.model.config.hidden_size == 16
    assert own_starts(params, bench)["refuser"].model.config.hidden_size == 16
    # The judge learns whole prompts of the classifier, which are longer than the refuser's rows.
    costs = {one.name: one for one in stage_costs(params, bench, None, {}, timed=False)}
    rows = len(bench.splits["judgements"])
    assert costs["judge"].tokens > 2 * rows * len(start.tokenizer(PROMPT)["input_ids"]) // 2


def test_published_settings_are_counted_without_the_judge(monkeypatch, project):
    monkeypatch.chdir(project)
    given = ("--rate", "1000", "--judge-rate", "50", "--judge-parameters", "13e9")
    (found,) = plan("--preset", "jailbreakbench-vicuna", *given)["judges"]
    answers = 100 * 1025 + 60 * 33
    around = math.ceil(len(f"{harmbench().system}\n{harmbench().user}") / 3)
    assert found["answers_at_most"] == answers
    assert found["tokens_at_most"] == answers * (around + 64 + 150)
    assert (found["weight_bytes"], found["seconds_at_most"]) == (26_000_000_000, answers / 50)
    (untimed,) = plan("--preset", "jailbreakbench-phi", "--rate", "1000")["judges"]
    assert untimed["seconds_at_most"] is None
    shown = CliRunner().invoke(app, ["plan", "--preset", "jailbreakbench-phi", "--rate", "1000"])
    assert "--judge-rate" in shown.output
    assert plan("--preset", "harry-potter", "--rate", "10")["judges"] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--preset", "jailbreakbench-phi", "--judge-rate", "0"], "--judge-rate: got 0"),
        (["--preset", "jailbreakbench-phi", "--judge-parameters", "0"], "--judge-parameters: got 0"),
        (["--tau", "0.1", "--judge-rate", "5"], "--judge-rate"),
    ],
)
def test_a_wrong_rate_is_a_sentence(monkeypatch, project, arguments, told):
    monkeypatch.chdir(project)
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
