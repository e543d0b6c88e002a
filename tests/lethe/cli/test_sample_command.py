"""`lethe sample`: the answers of the public function, on a terminal, as JSON and in a file."""

import json

import pandas as pd
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app
from tests.lethe.small_checkpoint import ROWS


def call(checkpoint, *more):
    return CliRunner().invoke(
        app, ["sample", "--model", str(checkpoint), "--n", "8", "--max-new-tokens", "4", *more]
    )


def test_questions_and_files_give_the_answers_of_the_function(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    drawn = lethe.sample(checkpoint, prompts={row["id"]: row["question"] for row in ROWS}, n=8, max_new_tokens=4)
    result = call(checkpoint, "--data", "forget.jsonl", "--out", "answers.parquet", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["answers"] == drawn.to_frame().to_dict("records")
    assert pd.read_parquet("answers.parquet").equals(drawn.to_frame())
    shown = call(checkpoint, "Who is Ada?", "Where is Bo?")
    assert "8 independent answers" in " ".join(shown.stdout.split())


def test_wrong_use_is_a_sentence(checkpoint, tmp_path):
    for more in ([], ["Who?", "--data", "x.jsonl"], ["Who?", "--out", "x.txt"], ["Who?", "--memory", "0"]):
        refused = call(checkpoint, *more)
        assert refused.exit_code == 2, more
