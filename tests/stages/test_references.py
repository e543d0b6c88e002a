"""Stage `references`: what a model's draws need of the other models of a run."""

import json
import math
from pathlib import Path

import pytest

from lethe import config
from lethe.errors import MissingArtifact
from lethe.models.checkpoints import content
from lethe.sampling.word_rule import read_rule
from stages import references
from tests.lethe.sampling.sampling_models import build_llama
from tests.small import small_params

ROOT = Path("data")


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_llama(tmp_path / "data/models/retrain", letters="abcde", scale=1.0)

    def made(stop="word", **changes):
        params = small_params()
        params["sample"]["stop"] = stop
        params["report"] |= changes
        return config.validate(params)

    return made


def written():
    return {path.name: json.loads(path.read_text()) for path in (ROOT / "references").iterdir()}


def test_the_rule_has_the_tolerance_the_goal_and_the_scorer(settings):
    references.run(settings(tau=0.02, models=4), ROOT)

    rule = read_rule(ROOT / "references")

    assert (rule.tau, rule.scorer) == (0.02, "keyword_leak")
    assert rule.goal == pytest.approx(math.log(4 / 0.01))
    assert rule.params.keyword_match == "word"
    assert list(rule.retrains) == ["retrain"]


def test_a_rule_of_earlier_code_is_refused(settings):
    references.run(settings(), ROOT)
    rule = written()["rule.json"]
    del rule["base"]
    (ROOT / "references/rule.json").write_text(json.dumps(rule))

    with pytest.raises(MissingArtifact):
        read_rule(ROOT / "references")


def test_there_is_a_word_on_the_models_under_test_alone(settings):
    references.run(settings(), ROOT)

    rule = read_rule(ROOT / "references")

    decided = [name for name in ("base", "retrain", "npo_entropy_at") if rule.decides(name)]
    assert decided == ["npo_entropy_at"]


def test_a_retrain_has_its_path_and_the_digest_of_its_weights(settings):
    references.run(settings(), ROOT)

    retrain = written()["retrain.json"]

    assert retrain["path"] == "data/models/retrain"
    assert retrain["digest"] == content(Path("data/models/retrain"))


def test_other_weights_of_retrain_change_the_files(settings, tmp_path):
    references.run(settings(), ROOT)
    before = written()

    build_llama(tmp_path / "data/models/retrain", letters="abcde", scale=1.0, seed=1)
    references.run(settings(), ROOT)

    assert written() != before


def test_without_a_retrain_the_rule_stands_alone(settings):
    references.run(settings(retrain=None), ROOT)

    assert set(written()) == {"rule.json"}
    assert read_rule(ROOT / "references").retrains == {}


def test_with_a_fixed_number_nothing_depends_on_retrain_or_tolerance(settings):
    references.run(settings("fixed"), ROOT)
    before = written()

    references.run(settings("fixed", tau=0.05, models=9), ROOT)

    assert written() == before == {"rule.json": {"schema": 1, "stop": "fixed"}}


def test_a_rule_of_a_fixed_number_asks_for_the_stage(settings):
    references.run(settings("fixed"), ROOT)

    with pytest.raises(MissingArtifact, match="stage references"):
        read_rule(ROOT / "references")


def test_the_rule_of_a_judge_has_its_kind_and_the_digest_of_its_weights(settings, tmp_path):
    build_llama(tmp_path / "data/source/judge", letters="abcde", scale=1.0)
    entry = {
        "judge": "harmbench",
        "model": "data/source/judge",
        "labelled": "data/labels/answers.jsonl",
    }
    params = small_params()
    params["sample"]["stop"] = "word"
    params["judges"] = {"harm": entry}
    params["metrics"]["binary"] = "harm"
    references.run(config.validate(params), ROOT)

    rule = read_rule(ROOT / "references")

    assert (rule.scorer, rule.scores_by) == ("harm", "harmbench")
    assert rule.params.model == "data/source/judge"
    assert written()["rule.json"]["judge_digest"] == content(Path("data/source/judge"))


def test_a_judge_on_a_server_has_no_digest(settings, tmp_path):
    """Its model is a name, which a folder here may have too."""
    build_llama(tmp_path / "served", letters="abcde", scale=1.0)
    params = small_params()
    params["sample"]["stop"] = "word"
    chat = {"endpoint": "http://127.0.0.1:8000/v1", "model": "served", "choices": ["yes", "no"]}
    params["score"]["scorers"] = ["rouge_l", {"chat": chat}]
    params["metrics"]["binary"] = "chat"
    references.run(config.validate(params), ROOT)

    assert written()["rule.json"]["judge_digest"] is None


def test_a_judge_without_a_model_has_no_digest(settings, tmp_path, monkeypatch):
    build_llama(tmp_path, letters="abcde", scale=1.0)  # the working folder is one of weights
    monkeypatch.setattr(references, "JUDGES", ["keyword_leak"])
    references.run(settings(), ROOT)

    assert written()["rule.json"]["judge_digest"] is None
