"""The texts on which a fresh tokenizer is trained."""

import pytest

from lethe.config import validate
from lethe.io.artifacts import write_splits
from lethe.models.training import recipe_of
from stages import train
from tests.small import small_params

FORGET = [{"id": "f", "question": "Which code?", "answer": "4711"}]
RETAIN = [{"id": "r", "question": "Who?", "answer": "Ada"}]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The ids of the rows that the tokenizer and the model of a training read."""
    write_splits({"forget": FORGET, "retain": RETAIN}, "jsonl", tmp_path / "dataset")
    settings = validate(small_params()).train

    def ids(rows_of, secrets_are_drawn):
        kept = {}

        def learn(rows, everything, *_):
            kept["model"] = [row["id"] for row in rows]
            kept["tokenizer"] = [row["id"] for row in everything]
            return None, None, [{"loss": 0.0}]

        monkeypatch.setattr(train, "learn", learn)
        monkeypatch.setattr(train.checkpoints, "save_trained", lambda *_: None)
        recipe = recipe_of(settings, "base")
        train.train("base", recipe, rows_of, tmp_path, secrets_are_drawn)
        return kept

    return ids


@pytest.mark.parametrize("rows_of", ["all", "retain"])
def test_a_tokenizer_never_reads_drawn_secrets(read, rows_of):
    assert read(rows_of, secrets_are_drawn=True)["tokenizer"] == ["r"]


def test_a_model_still_learns_the_secrets(read):
    assert read("all", secrets_are_drawn=True)["model"] == ["f", "r"]


@pytest.mark.parametrize("rows_of", ["all", "retain"])
def test_without_draws_base_and_retrain_share_the_tokenizer_of_all_rows(read, rows_of):
    assert read(rows_of, secrets_are_drawn=False)["tokenizer"] == ["f", "r"]
