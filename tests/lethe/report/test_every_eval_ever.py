"""Files of Every Eval Ever: both of its schemas accept them, no end is invented, and texts come back as they were.

The schemas are those of every-eval-ever 0.3.0 (MIT, the licence is beside them).
"""

import hashlib
import json
import math
from pathlib import Path

import pytest
from jsonschema.validators import validator_for

from lethe.api.exporting import export_run
from lethe.io.logs import read_log
from lethe.report.every_eval_ever import Export, export
from lethe.results.table import Result, Rows
from lethe.statistics.bound import Assumes, Bound, Covers
from tests.lethe.certificates.small_run import write_run
from tests.lethe.small_checkpoint import ROWS

SCHEMAS = Path(__file__).with_name("every_eval_ever")
SCORES = {"a": [1.0, 0.0, math.nan], "b": [0.0] * 3}


def problems(schema, value):
    schema = json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))
    return [error.message for error in validator_for(schema)(schema).iter_errors(value)]


def exported(folder, *rows):
    evaluated = Export("m", "forget", rows, time=1, version="0")
    done = export(folder, evaluated)
    return done, json.loads(done.aggregate.read_text())["evaluation_results"]


def upper(value=0.25):
    bound = Bound(value, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS_WITHIN, "CP", 64)
    rows = Rows("m")
    rows.add("model", "leak_worst", "sampled", None, None, bound)
    return rows.rows[0]


@pytest.fixture
def run(tmp_path):
    return export_run(
        write_run(tmp_path / "run", Path("mine"), SCORES, ROWS), "mine", "rows.jsonl", tmp_path
    )


def test_both_schemas_accept_a_run(run):
    lines = run.instances.read_text().splitlines()

    assert problems("eval", json.loads(run.aggregate.read_text())) == []
    assert [problems("instance_level_eval", json.loads(line)) for line in lines] == [[]] * 6


def test_the_aggregate_names_the_file_of_answers_with_its_digest(run):
    detailed = json.loads(run.aggregate.read_text())["detailed_evaluation_results"]

    assert Path(detailed["file_path"]).name == run.instances.name
    assert detailed["checksum"] == hashlib.sha256(run.instances.read_bytes()).hexdigest()
    assert detailed["total_rows"] == 6


def test_an_answer_without_a_score_is_an_error_and_no_zero(run):
    lines = [json.loads(line) for line in run.instances.read_text().splitlines()]

    assert ["error" in line for line in lines] == [False, False, True, False, False, False]
    assert [line["evaluation"]["is_correct"] for line in lines[:2]] == [True, False]


def test_sampled_answers_alone_are_lines(run):
    lines = [json.loads(line) for line in run.instances.read_text().splitlines()]

    assert [line["metadata"]["lethe.sample"] for line in lines] == ["0", "1", "2"] * 2
    assert lines[1]["output"]["raw"] == ["answer 1 to a"]


def test_an_end_that_does_not_exist_is_the_range_s_and_the_details_say_so(tmp_path):
    _, (entry,) = exported(tmp_path, upper())

    details = entry["score_details"]
    interval = details["uncertainty"]["confidence_interval"]
    assert (interval["lower"], interval["upper"]) == (0.0, 0.25)
    assert interval["confidence_level"] == 0.99
    assert details["details"]["side"] == "upper"
    assert "upper end" in details["details"]["score_is"]


def test_a_number_without_direction_or_value_is_left_out_and_counted(tmp_path):
    unmeasured = Result("m", "model", "score", "sampled")
    counted = Result("m", "model", "questions", "sampled", estimate=2.0)

    done, entries = exported(tmp_path, upper(), unmeasured, counted)

    assert done.left_out == 2
    assert [entry["evaluation_result_id"] for entry in entries] == ["leak_worst/sampled"]


def test_a_leak_is_better_low(tmp_path):
    _, (entry,) = exported(tmp_path, upper())

    assert entry["metric_config"]["lower_is_better"] is True


def test_no_name_of_a_model_leaves_the_folder(tmp_path):
    done = export(tmp_path, Export("../../m", "forget", [upper()], time=1, version="0"))

    assert done.aggregate.resolve().is_relative_to(tmp_path / "data/lethe/local")


def test_exported_answers_are_read_as_they_were(run):
    log = read_log(run.instances)

    assert log.answers[["prompt_id", "sample", "text"]].values.tolist()[:2] == [
        ["a", 0, "answer 0 to a"],
        ["a", 1, "answer 1 to a"],
    ]
    assert log.answers[log.scores[0]].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert log.missing == {"error": 1}
