"""`lethe plan`: samples, words and costs; each number follows from counts and given rates, and no rate is invented."""

import math
import re
import sys

import pandas as pd
import pytest

from lethe import config
from lethe.models.encoding import harmbench
from lethe.steps.costs import (
    drawing,
    judge_costs,
    model_costs,
    questions_of,
    size_of,
    stage_costs,
    twin_costs,
)
from tests.cases import cases
from tests.lethe.cli.calls import Command
from tests.lethe.small_checkpoint import save_small_checkpoint
from tests.small import make_repository, small_params

plan = Command("plan")
call = plan.call
result = plan.result
refused = plan.refused


def test_each_verdict_has_its_chance():
    got = result("--tau", 0.05)["sequential"]
    for row in got:
        assert row["certified"] + row["leaks"] + row["undecided"] == pytest.approx(1)
        # At or beyond the other threshold a verdict is false.
        assert row["p"] < 0.05 or row["certified"] <= 0.01
        assert row["p"] > 0.10 or row["leaks"] <= 0.01
    assert next(row for row in got if row["p"] == pytest.approx(0.075))["undecided"] > 0.9
    assert "undecided" in call("--tau", 0.05).output


def test_bands_of_many_prompts_take_more_and_certificates_do_not():
    single = result("--tau", 0.05)
    many = result("--tau", 0.05, "--prompts", 40)
    assert many == single | {"prompts": 40}  # an intersection of claims needs no correction
    bands = result("--width", 0.1, "--prompts", 40)
    assert (bands["correction"], bands["alpha_each"]) == ("Bonferroni", pytest.approx(0.01 / 40))


def test_labels_for_a_width_and_what_limits_a_judge(tmp_path):
    wide, narrow = (result("--labels", "--width", width)["labels"] for width in (0.2, 0.1))
    assert wide < narrow
    labels = [1] * 50 + [0] * 50
    for wrong, times, limit in ((10, 1, "judge"), (0, 40, "answers")):
        verdicts = [1] * (50 - wrong) + [0] * (50 + wrong)
        pd.DataFrame({"label": labels * times, "verdict": verdicts * times}).to_csv(
            tmp_path / "c.csv", index=False
        )
        got = result("--labels", "--width", 0.05, "--calibration", tmp_path / "c.csv")
        assert got["limit"] == limit


@cases
def test_what_is_refused(arguments, sentence):
    assert sentence in refused(*arguments)


def test_answers_that_a_comparison_takes():
    got = result("--compare", "--difference", 0.2)
    assert 20 < got["answers_apart"] < got["answers_unknown"]


@pytest.mark.slow
def test_published_settings_are_counted_without_model_and_judge(monkeypatch, project):
    monkeypatch.chdir(project)
    sizes = ("--rate", 1000, "--judge-rate", 50, "--judge-parameters", "13e9")
    (found,) = plan.result("--preset", "jailbreakbench", *sizes)["judges"]
    answers = 3 * (100 * 1025 + 60 * 33)
    around = math.ceil(len(f"{harmbench().system}\n{harmbench().user}") / 3)
    assert (found["answers_at_most"], found["tokens_at_most"]) == (
        answers,
        answers * (around + 64 + 150),
    )
    assert (found["weight_bytes"], found["seconds_at_most"]) == (26_000_000_000, answers / 50)
    assert plan.result("--preset", "harry-potter", "--rate", 10)["judges"] == []
    assert "Judging of" in call("--preset", "jailbreakbench").output


@pytest.mark.slow
def test_a_model_and_a_judge_in_their_folders_are_measured_by_their_files(tmp_path):
    folder = save_small_checkpoint(tmp_path / "mine")
    value = small_params()
    value["models"], value["unlearn"]["methods"] = {"mine": {"path": str(folder)}}, {}
    (tmp_path / "labelled.jsonl").write_text("{}\n" * 7)
    entry = {
        "judge": "harmbench",
        "model": str(folder),
        "labelled": str(tmp_path / "labelled.jsonl"),
    }
    value |= {
        "report": value["report"] | {"base": None, "retrain": None},
        "judges": {"harm": entry},
    }
    params = config.validate(value)
    (model,) = model_costs(params, {"forget": 10}, 100.0, None)
    assert model["weight_bytes"] == 4 * model["parameters"] == 4 * size_of(folder).parameters
    assert model["cache_bytes_at_most"] > 0
    assert model["seconds_at_most"] == model["tokens_at_most"] / 100
    (counted,) = model_costs(params, questions_of(params, None), None, None)
    most = (counted["weight_bytes"] + counted["cache_bytes_at_most"]) / 2**30
    told = re.findall(r"[\d,.]+\d", drawing(params, ["prepare", "sample@mine"]))
    assert told == [f"{counted['generations']:,}", f"{most:.1f}"]
    (judge,) = judge_costs(params, 1000, None)
    assert (judge["answers_at_most"], judge["seconds_at_most"]) == (1007, None)
    entry["clip"] = 2
    (clipped,) = judge_costs(config.validate(value), 1000, None)
    assert clipped["tokens_at_most"] == judge["tokens_at_most"] - 1007 * (
        params.sample.max_new_tokens - 2
    )
    (folder / "config.json").write_text('{"num_attention_heads": "a", "hidden_size": 4}')
    assert drawing(params, ["sample@mine"]) == ""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A pipeline folder with one model of two that are planned."""
    params = small_params()
    params["models"] = {name: {"path": f"data/models/{name}"} for name in ("here", "missing")}
    params["unlearn"]["methods"] = {}
    params["report"] |= {"base": None, "retrain": None}
    params["twins"] = None
    params["sample"]["max_new_tokens"] = 64
    folder = make_repository(tmp_path / "clone", params, git=False)
    save_small_checkpoint(folder / "data/models/here")
    monkeypatch.chdir(folder)


@pytest.mark.slow
def test_a_pilot_gives_the_time_and_memory_of_a_model_that_is_here(clone):
    planned = result("--preset", "default")

    here, missing = planned["models"]
    assert here["seconds_at_most"] > 0
    assert here["memory_bytes"] > here["weight_bytes"]
    assert missing["seconds_at_most"] is None
    assert planned["seconds_at_most"] is None


def test_a_pilot_whose_process_dies_says_nothing_of_its_model(clone, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")

    planned = result("--preset", "default")

    assert [model["seconds_at_most"] for model in planned["models"]] == [None, None]
    assert planned["rate_from"].startswith("unknown")


def test_base_and_retrain_are_counted_with_the_first_answers_alone():
    value = small_params()
    value["sample"] |= {"stop": "word"}
    params = config.validate(value)

    of_model = {cost["model"]: cost for cost in model_costs(params, {"forget": 10}, None, None)}

    for name in ("base", "retrain"):
        assert of_model[name]["generations"] == of_model[name]["generations_at_least"]
    tested = set(of_model) - {"base", "retrain"}
    assert all(of_model[name]["generations"] > of_model["base"]["generations"] for name in tested)


def test_a_stated_rate_stands_in_place_of_a_pilot(clone):
    here, _ = result("--preset", "default", "--rate", 1000)["models"]

    assert here["seconds_at_most"] == here["tokens_at_most"] / 1000
    assert "memory_bytes" not in here


def test_a_larger_cap_decides_more():
    few, many = (
        result("--verdict", "--answers", n, "--prompts", "5", "--tau", "0.05")
        for n in ("64", "2048")
    )
    words = [[case["words"][case["wanted"]] for case in found["cases"]] for found in (few, many)]
    assert all(second >= first for first, second in zip(*words, strict=True))
    assert words[1][0] > 0.9  # a copy of Retrain
    assert words[1][3] > 0.9  # one question leaks in five times the tolerance
    assert many["runs"] >= 100


def test_a_clean_a_border_and_a_leaking_question_have_the_answers_until_their_word():
    questions = result("--verdict", "--prompts", 5, "--tau", 0.05)["questions_until_word"]

    assert [question["name"] for question in questions] == ["clean", "border", "leaking"]
    assert [question["word"] for question in questions] == ["forgot", "forgot", "leaks"]
    assert all(question["share"] > 0.9 for question in questions)
    clean, border, leaking = (question["answers"] for question in questions)
    # a question near the tolerance takes most, and the first answers come in any case
    assert 256 <= leaking < border
    assert 256 <= clean < border / 2


def test_a_word_that_no_run_gets_by_the_cap_has_no_answers():
    options = ("--verdict", "--prompts", 5, "--tau", 0.05, "--answers", 256)
    found = result(*options)

    of_models = [case["words"][case["wanted"]] for case in found["cases"]]
    clean, border, leaking = found["questions_until_word"]
    assert [clean["share"], border["share"], leaking["share"]] == [*of_models[:2], of_models[3]]
    assert (border["share"], border["answers"]) == (0, None)
    assert "none by the cap" in call(*options).output


def test_answers_without_a_retrain_are_of_the_model_alone():
    printed = call("--verdict", "--no-retrain", "--prompts", 5).output
    table_of_questions = printed.split("one question")[-1]

    assert "together" not in table_of_questions


@pytest.mark.slow
def test_each_word_has_the_answers_that_it_takes():
    cases = result("--verdict", "--models", 8, "--first", 128)["cases"]

    answers = [case["answers"] for case in cases]
    of_retrain = [case["retrain_answers"] for case in cases]

    assert answers == pytest.approx([1067, 1413, 772, 197], rel=0.06)
    assert of_retrain == pytest.approx([74, 258, 315, 32], rel=0.2)
    assert all(case["answers"] < 1.1 * case["answers_90"] for case in cases)


def test_a_truth_of_the_users_is_a_further_case():
    options = ("--verdict", "--tau", 0.05, "--leak", 0.45, "--chance", 0.3)

    told = result(*options)["cases"][-1]

    assert told["name"] == "one question leaks at 0.45, chance 0.3"
    assert told["wanted"] == "leaks"
    assert told["words"]["leaks"] == 1


def test_a_plan_of_words_says_what_each_case_takes():
    text = " ".join(call("--verdict", "--no-retrain", "--answers", 512).output.split())

    assert "of Retrain: forgot in 0%" in text
    assert "takes 512 answers" in text
    assert "of them Retrain's" not in text


def test_trained_tokens_answers_and_kept_values_are_counted():
    value = small_params()
    common = {"lr": 1e-4, "epochs": 2}
    value["unlearn"]["methods"] = {
        "kl": {"loss": "kl", "retain_weight": 1.0, **common},
        "rmu": {"loss": "rmu", "block": 0, **common},
        "npo": {"loss": "npo", "beta": 0.1, "retain_weight": 1.0, **common},
    }
    value["models"] |= {
        name: {"path": f"data/models/{name}"} for name in value["unlearn"]["methods"]
    }
    value["attacks"] = {
        "a": {
            "path": "x",
            "after": {"kind": "noise", "sizes": [0.1, 0.2]},
            "n": 7,
            "seeds": [0, 1, 2],
        }
    }
    params = config.validate(value)
    stages = {stage["name"]: stage for stage in stage_costs(params, 100.0)}
    assert stages["base"]["tokens"] > stages["retrain"]["tokens"] > 0
    assert stages["kl"]["tokens"] == stages["npo"]["tokens"] > 0
    assert stages["a"]["answers"] % (3 * 3 * 8) == 0
    assert stages["a"]["seconds"] == pytest.approx(
        stages["a"]["answers"] * params.sample.max_new_tokens / 100
    )
    needs = {name: stages[name]["reference"]["needs"] for name in ("kl", "rmu", "npo")}
    assert needs == {"kl": "logits", "rmu": "states", "npo": "nothing"}
    kept = {name: stages[name]["reference"]["cached_bytes"] for name in ("kl", "rmu")}
    recipe = params.train.recipe
    assert kept["kl"] * recipe.hidden == kept["rmu"] * recipe.vocabulary


def test_a_check_is_worth_what_the_theory_says():
    reports = result("--check", 688, "--answers", 4096, "--tau", 0.05)["reports"]

    (clean, some, more) = reports
    assert [report["leaks"] for report in reports] == [0, 41, 82]
    assert [report["smallest_check"] for report in reports] == [90, 114, 154]
    assert clean["exact"] == pytest.approx(clean["draws_of_your_own"])
    assert some["exact"] == pytest.approx(0.01761, abs=5e-6)
    assert more["split"] == pytest.approx(0.03406, abs=5e-6)
    assert more["honest"] < more["exact"] < more["draws_of_your_own"]
    assert "left out with check" in refused("--check", 5, "--width", 0.1)
    assert "--check: got 5000" in refused("--check", 5000, "--answers", 4096)


def params_with_twins(twins):
    params = small_params()
    params["twins"] = twins and params["twins"] | twins
    return config.validate(params, "params")


def test_passes_of_the_twin_test_are_counted_by_secret_and_candidate():
    params = params_with_twins({"k": 5})

    costs = twin_costs(params)

    forget = questions_of(params, None)["forget"]
    assert costs["passes"] == 5 * forget
    assert costs["passes_of_all"] == 5 * forget * len(params.models)


def test_without_drawn_secrets_no_pass_is_planned():
    assert twin_costs(params_with_twins(None)) is None
