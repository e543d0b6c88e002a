"""DVC tracks what is read where params.yaml names no file of the user's: a chat template, a fresh model."""

from __future__ import annotations

import json
import types

import pandas as pd
import pytest

from lethe.config.schema import CHAT_FILE, FRESH
from lethe.io.json_files import read_json
from lethe.models import checkpoints
from tests.small import make_repository, run, small_params, write_params

pytestmark = pytest.mark.slow
CHAT = "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }}\n{% endfor %}<assistant>"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Sampling by DVC from a tiny chat model that was fine-tuned from one of the user's own."""
    import torch

    params = small_params()
    params["data"]["authors"] |= {"heldout": 0, "world_facts": 0}
    params["train"]["recipe"] |= {"start_from": "data/mine", "prompt": CHAT_FILE, "epochs": 1, "knowledge": []}
    params["sample"] |= {"prompt": CHAT_FILE, "n": 2, "utility_n": 1, "utility_questions": 1, "max_new_tokens": 2}
    folder = make_repository(tmp_path_factory.mktemp("chat") / "lethe", params, git=False)
    (folder / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    torch.manual_seed(0)
    recipe = types.SimpleNamespace(
        vocabulary=300, hidden=16, layers=1, heads=2, kv_heads=1, feed_forward=32, context=512
    )
    model, tokenizer = checkpoints.fresh(recipe, ["Who is Ada? Ada is a painter."])
    tokenizer.chat_template = CHAT
    checkpoints.save(folder / "data/mine", model, tokenizer)
    run(folder, "dvc", "repro", "sample@base")
    return folder


def stale(folder):
    """The stages among `STAGES` that would run again, with what DVC says of their dependencies."""
    found = json.loads(run(folder, "dvc", "status", "--json", *STAGES).stdout)
    return {
        stage: {k: v for part in parts for k, v in part.get("changed deps", {}).items()}
        for stage, parts in found.items()
    }


STAGES = ("train@base", "sample@base")


def test_questions_are_asked_in_the_models_own_template(repository):
    answers = pd.read_parquet(repository / "data/generations/base/forget.parquet")
    assert set(answers["sample"]) == {-1, 0, 1}
    assert read_json(repository / "data/models/base/training.json")["steps"]
    assert not stale(repository)


def test_the_content_of_the_model_that_training_begins_with_is_a_dependency(repository):
    (repository / "data/mine/chat_template.jinja").write_text(CHAT + " ")
    assert stale(repository)["train@base"] == {"data/mine": "modified"}


def test_a_fresh_model_begins_in_a_folder_that_dvc_tracks(repository):
    write_params(repository, small_params())
    assert FRESH in stale(repository)["train@base"]
