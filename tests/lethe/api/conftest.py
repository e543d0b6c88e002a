"""A folder as a user of the library has it: a small model, rows, scores, and one evaluated run."""

import json
from pathlib import Path

import pytest

from tests.lethe.small_checkpoint import ROWS, save_small_checkpoint


@pytest.fixture(scope="session")
def user_folder(tmp_path_factory) -> Path:
    """``my-model``, ``forget.jsonl``, ``scores.csv``, and ``data``, the run of the model called mine."""
    import lethe

    folder = tmp_path_factory.mktemp("user")
    save_small_checkpoint(folder / "my-model")
    (folder / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "scores.csv").write_text("score\n" + "0\n" * 97 + "1\n" * 3)
    lethe.evaluate(
        folder / "my-model", ROWS, n=8, max_new_tokens=4, name="mine", folder=folder / "data"
    )
    return folder


@pytest.fixture
def here(user_folder, monkeypatch) -> Path:
    monkeypatch.chdir(user_folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return user_folder
