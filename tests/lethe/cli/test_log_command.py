"""`lethe log` as a user runs it."""

import csv
import json

import pytest

from tests.lethe.cli.calls import Command
from tests.lethe.io.logs.small_logs import KINDS, eval_log, header, sample, small

command = Command("log")
call, refused = command.call, command.refused


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_shown_and_written(tmp_path, kind):
    path, out = small(kind, tmp_path), tmp_path / "out.csv"
    done = call(path, "--json", "--table", out)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    with out.open(newline="") as file:
        columns, *rows = csv.reader(file)
    assert columns[:2] == ["prompt_id", "sample"]
    assert len(rows) == told["answers"] == sum(one["answers"] for one in told["per_prompt"])
    assert set(told["scores"]) <= set(columns)
    shown = call(path)
    assert shown.exit_code == 0
    for part in (told["tool"], f"{told['answers']}: {told['prompts']} prompts", *told["scores"]):
        assert part in shown.stdout


def test_refusals_warnings_and_what_is_missing_are_shown(tmp_path):
    greedy = header(["q"], 3, generate={"temperature": 0.0, "best_of": 2})
    shown = call(eval_log(tmp_path / "a", greedy, [sample(epoch=1), sample(epoch=2)])).stdout
    for part in ("refused   temperature 0.0", "warning   best_of 2", "missing   1 not written"):
        assert part in shown


def test_bad_input_is_a_sentence_and_exit_status_2(tmp_path):
    path = small("harmbench", tmp_path)
    broken = tmp_path / "broken"
    broken.write_bytes(path.read_bytes()[:-3])
    for arguments in ((broken,), (tmp_path / "nowhere",), (path, "--table", "out.txt"), (tmp_path,)):
        refused(*arguments)
