"""Epsilon* of language models by the paper's loss: the loss itself, who is a member, and the command."""

import json
import math

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from lethe import config
from lethe.cli.app import app
from lethe.errors import MissingArtifact
from lethe.io.files import write_jsonl
from lethe.models import checkpoints
from studies import text_epsilon_star
from studies.text_epsilon_star import measure, negative_logit
from tests.small import ROOT


def rows_of(split, count):
    return [
        {"id": f"{split}-{i}", "question": f"Who is {split} {i}?", "answer": f"{split} {i}"}
        for i in range(count)
    ]


@pytest.fixture
def finished(tmp_path, tiny):
    """A run of the demonstration's models, all of which are the same tiny one."""
    document = yaml.safe_load((ROOT / "params.yaml").read_text())
    prompt = document["sample"]["prompt"]
    (tmp_path / prompt).parent.mkdir(parents=True)
    (tmp_path / prompt).write_text((ROOT / prompt).read_text())
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "data/dataset").mkdir(parents=True)
    for split, count in (("forget", 4), ("retain", 9), ("heldout", 6)):
        write_jsonl(tmp_path / f"data/dataset/{split}.jsonl", rows_of(split, count))
    for path in {model["path"] for model in document["models"].values()}:
        checkpoints.save(tmp_path / path, *tiny)
    return tmp_path


def test_the_loss_is_the_negative_logit_of_each_token():
    p = np.array([0.9, 0.2, 0.5])

    expected = np.mean([-(math.log(x) - math.log(1 - x)) for x in p])

    assert negative_logit(np.log(p)) == pytest.approx(expected, rel=1e-12)


def test_it_ranks_answers_otherwise_than_the_likelihood():
    # One token that is nearly certain outweighs another that is not: the mean of ln p says the opposite.
    sure = np.log([1 - 1e-6, 0.1])
    even = np.log([0.4, 0.4])

    assert negative_logit(sure) < negative_logit(even)
    assert -sure.mean() > -even.mean()


def test_a_certain_token_has_a_finite_loss_and_no_token_has_none():
    assert np.isfinite(negative_logit(np.array([0.0, -0.1])))
    assert math.isnan(negative_logit(np.array([])))


def test_members_are_the_rows_that_a_model_was_trained_on(finished):
    values = measure(config.load(finished / "params.yaml"), finished)

    members = {row["model"]: row["paper"]["members"] for row in values["models"]}
    assert (members["base"], members["retrain"], members["npo"]) == (13, 9, 13)
    assert "npo_at" not in members  # npo at another temperature: the same losses
    assert {row["ours"]["members"] for row in values["models"]} == {4}
    assert {row["paper"]["population"] for row in values["models"]} == {6}


def test_the_command_prints_both_definitions(finished, monkeypatch):
    monkeypatch.chdir(finished)

    done = CliRunner().invoke(app, ["study", "epsilon-star-text", "--json"])

    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    kept = json.loads((finished / "data/studies/outcomes/epsilon-star-text.json").read_text())
    assert printed == kept["values"]
    assert 0 <= printed["one Gaussian not rejected"] <= 1


def test_a_run_without_its_dataset_says_what_is_missing(finished):
    (finished / "data/dataset/heldout.jsonl").unlink()

    with pytest.raises(MissingArtifact, match="stage prepare"):
        measure(config.load(finished / "params.yaml"), finished)


def test_with_the_paper_s_cut_no_estimate_exceeds_what_delta_allows():
    members, population = np.linspace(-6, 0, 500), np.linspace(-1, 9, 100)
    losses = text_epsilon_star.Losses(members, population)

    uncut = losses.audit()
    cut = losses.audit(cut=True)

    assert cut.epsilon_star <= math.log((1 - cut.delta) / cut.delta) < uncut.epsilon_star
