"""Broken logs: each is read, or refused in one sentence, in little time and memory."""

import csv
import json
import math

import pytest

from lethe.errors import BadFile, BadRow
from lethe.io.logs import FORMATS as READERS
from lethe.io.logs import _table, _untrusted, read_log
from tests.cases import read_cases
from tests.lethe.io.logs.small_logs import (
    FORMATS,
    KINDS,
    garak_attempt,
    garak_log,
    helm_log,
    lm_eval_line,
    openai_batch_line,
    small,
    write_lines,
)


@pytest.fixture(params=KINDS)
def good(request, tmp_path):
    path = small(request.param, tmp_path)
    log = read_log(path)
    assert log.format == FORMATS[request.param]
    return path, path.read_bytes()


def test_each_format_is_told_by_its_content_alone(good):
    path, content = good
    for name in ("x.csv", "x.eval", "samples_x.jsonl", "TOFU_EVAL.json"):
        renamed = path.with_name(name)
        renamed.write_bytes(content)
        assert read_log(renamed).format == read_log(path).format


def test_a_log_without_its_last_byte_is_refused(good):
    path, content = good
    path.write_bytes(content.rstrip()[:-1])
    with pytest.raises((BadFile, BadRow)):
        read_log(path)


@pytest.mark.parametrize("count", [50_000])
@pytest.mark.parametrize("opening", ["[", '{"a":', '{"doc_id":0,"resps":', '{"parameters":{"a":'])
def test_a_log_nested_too_deeply(tmp_path, opening, count):
    path = tmp_path / "deep"
    path.write_text(opening * count)
    with pytest.raises((BadFile, BadRow), match=r"deep|valid JSON|list|known tool"):
        read_log(path)


def test_a_key_that_stands_twice_hides_nothing(tmp_path):
    answers = '[{"test_case": "q", "generation": "a"}]'
    path = tmp_path / "a.json"
    path.write_text(f'{{"b": {answers},\n "b": {answers}}}')
    with pytest.raises(BadFile, match="'b'"):
        read_log(path)
    path.write_text('{"prompt": "q", "responses": [{"response": "a", "response": "b"}]}')
    with pytest.raises(BadRow, match=r"line 1: .*'response'"):
        read_log(path)


def test_numbers_beyond_floats_are_missing_and_beyond_reason_refused(tmp_path):
    path = write_lines(tmp_path / "a", [lm_eval_line(0, ["a"], acc=10**400, other=1.0)])
    assert read_log(path).answers["acc,none"].isna().all()
    path.write_text(
        json.dumps(lm_eval_line(0, ["a"])).replace('"doc_id": 0', '"doc_id": ' + "9" * 5000)
    )
    with pytest.raises(BadRow, match="line 1"):
        read_log(path)


def test_half_a_character_is_refused_by_name(tmp_path):
    path = tmp_path / "a"
    path.write_text(json.dumps(lm_eval_line(0, ["\ud83d"])))
    with pytest.raises(BadFile, match=r"prompt '0': the text .*surrogate"):
        read_log(path)


@pytest.mark.parametrize("name", ["table.jsonl", "table.txt"])
@pytest.mark.parametrize("column", ["prompt_id", "text"])
def test_half_a_character_in_a_table_is_refused_by_its_line_under_any_name(tmp_path, name, column):
    rows = [{"prompt_id": "a", "sample": place, "text": "x"} for place in range(2)]
    rows[1][column] = "\ud83d"
    path = tmp_path / name
    path.write_text("\n".join(map(json.dumps, rows)))

    with pytest.raises(BadRow, match=r"line 2: lone surrogate"):
        read_log(path)


def test_documents_beyond_the_bound_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(_untrusted, "LARGEST", 200)
    for kind in ("inspect-json", "open-unlearning", "harmbench"):
        with pytest.raises(BadFile, match="MiB"):
            read_log(small(kind, tmp_path))
    monkeypatch.setattr(_untrusted, "LARGEST", 600)
    with pytest.raises(BadRow, match=r"line 2: more than .*"):
        read_log(
            write_lines(tmp_path / "a", [lm_eval_line(0, ["a"]), lm_eval_line(1, ["a" * 600])])
        )


@pytest.mark.parametrize("count", [5_000_001, 2**63])
def test_completions_that_a_log_only_counts_are_refused_before_they_take_memory(tmp_path, count):
    path = helm_log(tmp_path / "scenario_state.json", [["Ron"]])
    content = json.loads(path.read_text())
    content["request_states"][0]["request"]["num_completions"] = count
    path.write_text(json.dumps(content))

    with pytest.raises(BadFile, match=f"plans {count:,} answers"):
        read_log(path)


def test_many_lost_requests_beside_one_of_many_choices_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_table, "MOST_PLANNED", 10)
    lost = [openai_batch_line(name, response=None) for name in "abcd"]
    path = write_lines(tmp_path / "out.jsonl", [openai_batch_line("q", *"xyz"), *lost])

    with pytest.raises(BadFile, match="plans 11 answers"):
        read_log(path)


def test_an_unknown_log_names_the_known_ones(tmp_path):
    path = tmp_path / "a"
    path.write_text('{"hello": 1, "there": {}}')
    with pytest.raises(BadFile, match="'hello', 'there'") as error:
        read_log(path)
    for form in READERS:
        assert form.holds in str(error.value)


LOGS = read_cases(__file__)[
    "logs"
]  # public logs: the format of each, and where it is told what is missing and how it was drawn
UNFINISHED = ("inspect/failed", "inspect/started")
OF_THE_TOOL = ("tool_asr", "by_test_case")  # of the tool's summary, not in its log


@pytest.fixture(params=LOGS)
def log(request, shared):
    place = shared / "data/eval-logs" / request.param
    path = (
        place
        if place.is_file()
        else next(place.glob("*.expected.csv")).with_suffix("").with_suffix("")
    )
    read = read_log(path)
    beside = path.with_name(path.name + ".expected.json")
    return (
        request.param,
        read,
        path.with_name(path.name + ".expected.csv"),
        json.loads(beside.read_text()),
    )


def test_the_table_is_the_expected_one(log):
    name, read, table, _ = log
    assert read.format == LOGS[name]["format"]
    with table.open(encoding="utf-8", newline="") as file:
        columns, *rows = csv.reader(file)
    assert list(read.answers.columns) == columns
    assert len(read.answers) == len(rows)
    for got, expected in zip(read.answers.itertuples(index=False), rows, strict=True):
        for column, value, cell in zip(columns, got, expected, strict=True):
            if column in read.scores:
                assert math.isnan(value) if cell == "" else value == float(cell)
            else:
                assert str(value) == cell


def test_the_counts_are_the_expected_ones(log):
    name, read, _, expected = log
    assert (
        dict(zip(read.prompts["prompt_id"], read.prompts["answers"], strict=True))
        == expected["samples_per_prompt"]
    )
    summary = read.summary()
    assert (summary["prompts"], summary["answers"]) == (expected["prompts"], expected["samples"])
    for score, told in expected["scores"].items():
        got = summary["scores"][score]
        assert (got["scored"], got["unscored"]) == (told["scored"], told["unscored"])
        assert got["mean"] == pytest.approx(told["mean_over_samples"], rel=1e-12)
    for key in LOGS[name].keys() - {"format"}:
        assert getattr(read, key) == LOGS[name][key]
    if read.format == "inspect":
        assert read.stopping == ("unfinished" if name in UNFINISHED else "fixed")
        problems = expected.get("samples_with_problems", [])
        for kind in ("error", "limit"):
            told = {
                (problem["prompt_id"], problem["sample"]) for problem in problems if kind in problem
            }
            rows = read.problems[read.problems["reason"] == kind]
            assert set(zip(rows["prompt_id"], rows["sample"], strict=True)) == told


def test_the_prompts_and_their_own_scores_are_the_expected_ones(log):
    _, read, _, expected = log
    prompts = read.prompts.set_index("prompt_id")
    for prompt_id, told in expected["per_prompt"].items():
        if "prompt" in told:
            assert prompts.loc[prompt_id, "prompt"] == told["prompt"]
        for score, value in told.get("prompt_level_scores", {}).items():
            if score not in OF_THE_TOOL and not isinstance(value, list):
                assert prompts.loc[prompt_id, score] == (
                    pytest.approx(math.nan, nan_ok=True) if value is None else value
                )


def test_reports_of_two_runs_in_one_file_are_refused(tmp_path):
    first = garak_log(
        tmp_path / "a.report.jsonl", garak_attempt(0, ["a", "b"], {"dan.DAN": [0, 0]})
    )
    second = garak_log(tmp_path / "b.report.jsonl", [], ended=False)
    both = tmp_path / "both.report.jsonl"
    both.write_text(second.read_text() + first.read_text())

    with pytest.raises(BadRow, match="second run"):
        read_log(both)
