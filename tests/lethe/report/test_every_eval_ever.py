"""Files of Every Eval Ever: both of its schemas accept them, no end is invented, and texts come back as they were.

The schemas are those of every-eval-ever 0.3.0 (MIT, the licence is beside them).
"""

import hashlib
import json
import math
from pathlib import Path

import pytest
from jsonschema.validators import validator_for

from lethe.api.exporting import export_run, export_trees
from lethe.api.probabilities import ExactBounds
from lethe.io.logs import read_log
from lethe.report.every_eval_ever import Export, _tell_apart, export
from lethe.results import table
from lethe.results.table import Result, Rows
from lethe.statistics.answer_tree import Masses, Remainder, Rounding, leak_interval
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.leak_trees import AnswerTree, Certificates, How
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


def test_a_run_names_its_template_and_the_files_of_its_splits(tmp_path):
    folder = write_run(tmp_path / "run", Path("mine"), SCORES, ROWS)
    (folder / "dataset" / "retain.jsonl").write_text("{}\n")
    record = json.loads((folder / "evaluated.json").read_text())
    (folder / "evaluated.json").write_text(json.dumps(record | {"prompt": "Q: {question}"}))
    place = table.place(folder, "metrics", "mine")
    kept = Result("mine", "model", "kept", "sampled", split="retain", estimate=0.5)
    table.write(place, [*table.read_rows(place), kept])

    made = json.loads(export_run(folder, "mine", "rows.jsonl", tmp_path).aggregate.read_text())

    *_, forget, retain = made["evaluation_results"]
    assert problems("eval", made) == []
    assert retain["generation_config"]["generation_args"]["prompt_template"] == "Q: {question}"
    assert retain["evaluation_result_id"] == "kept/sampled/retain"
    assert retain["source_data"]["dataset_name"] == "retain"
    digests = [entry["source_data"]["additional_details"]["sha256"] for entry in (forget, retain)]
    assert digests[1] == hashlib.sha256(b"{}\n").hexdigest() != digests[0]


def test_ends_of_unlike_guarantees_are_results_of_unlike_names(tmp_path):
    guarantee = (Covers.ONE_PROMPT, "exact", "tree")
    rows = Rows("m")
    rows.add("question", "leak", "tree", None, Bound(0.1, "lower", 0.0, *guarantee), item="a")
    rows.add(
        "question", "leak", "tree", None, None, Bound(0.2, "upper", 0.01, *guarantee), item="a"
    )

    _, entries = exported(tmp_path, *rows.rows)

    names = [entry["evaluation_result_id"] for entry in entries]
    assert names == ["leak/tree/a/lower", "leak/tree/a/upper"]


def test_a_number_that_stands_twice_is_numbered(tmp_path):
    _, entries = exported(tmp_path, upper(), upper())

    assert len({entry["evaluation_result_id"] for entry in entries}) == 2


def test_a_numbered_name_is_none_that_another_result_has():
    names = ["leak/sampled", "leak/sampled", "leak/sampled/2", "leak/sampled"]
    entries = [{"evaluation_result_id": name, "score_details": {"details": {}}} for name in names]

    _tell_apart(entries)

    numbered = [entry["evaluation_result_id"] for entry in entries]
    assert numbered == [*names[:1], "leak/sampled/3", "leak/sampled/2", "leak/sampled/4"]


def test_an_end_beside_an_infinite_one_keeps_its_number_of_answers(tmp_path):
    end = Bound(0.1, "lower", 0.01, Covers.MODEL, Assumes.DRAWS, "m", 64)
    rows = Rows("m")
    rows.add("model", "trace_epsilon", "given answers", None, end)

    _, (entry,) = exported(tmp_path, *rows.rows)

    assert entry["score_details"]["uncertainty"] == {"num_samples": 64}


def test_trees_name_the_settings_that_they_were_asked_under(tmp_path):
    how = How("keyword_leak", 0.7, 5, 0.9, None, 4, "float32", 1e-6)
    masses = Masses((0.1,), (0.7,))
    rest = Remainder(rho=1000, sampled=200)
    ends = leak_interval(masses, rest, 0.01, Rounding(1e-6, 4))
    tree = AnswerTree.of("a", ends, masses, rest, (1,), rows=9, heaviest_leaks=())
    trees = ExactBounds(Certificates("m", (tree,), how, 0.05))

    done = export_trees(trees, Path("m"), tmp_path / "rows.jsonl", tmp_path, "Q: {question}")

    made = json.loads(done.aggregate.read_text())
    generation = made["evaluation_results"][0]["generation_config"]
    settings = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "max_tokens": 4}
    assert problems("eval", made) == []
    assert generation["generation_args"] == settings | {"prompt_template": "Q: {question}"}
    assert generation["additional_details"]["dtype"] == "float32"
