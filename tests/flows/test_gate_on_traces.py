"""`lethe run --fail-on trace`, and the words on traces in the record of a run."""

import dataclasses

import pytest

from flows import record
from flows.alarms import ModelWords
from tests.flows.gates import asked
from tests.flows.told import write_words

RAN = {"report": record.StageEnd("Completed", "ran", 1.0)}
FOUND = {"word": "trace", "sentence": "npo: trace: its true secrets rank too low."}
NONE_FOUND = {"word": "no trace found", "sentence": "npo: no trace found: p .41."}
WEAK = {"word": "open", "sentence": "npo: open: p .41, but the test is too weak."}
NO_WORD = {"word": "none", "sentence": "npo: no word on a trace: the control rejects."}


@pytest.fixture
def gate(tmp_path, monkeypatch, capsys):
    """What a run with ``--fail-on trace`` says, and its exit status, where npo has this trace."""

    def said(trace, complete=True):
        written = record.write(tmp_path, RAN, complete=complete)
        words = ModelWords("forgot", "intact", "npo: forgot.", trace)
        news = dataclasses.replace(written, verdicts={"npo": words})
        return asked("trace", tmp_path, news, monkeypatch, capsys)

    return said


def test_a_trace_closes_the_gate_with_its_sentence(gate):
    status, said = gate(FOUND)

    assert status == 1
    assert "Gate closed: npo: trace:" in said
    assert "secrets rank too low." in said


def test_no_trace_found_opens_the_gate(gate):
    status, said = gate(NONE_FOUND)

    assert status == 0
    assert "Gate open: no trace" in said


def test_a_weak_test_opens_the_gate_and_is_named(gate):
    status, said = gate(WEAK)

    assert status == 0
    assert "too weak" in said
    assert "exclude one: npo." in said


@pytest.mark.parametrize(
    ("trace", "complete", "because"),
    [
        (NO_WORD, True, "the control rejects"),
        ({}, True, "no secret of npo was drawn"),
        (NONE_FOUND, False, "this run was not complete"),
    ],
)
def test_without_a_word_the_gate_is_closed(gate, trace, complete, because):
    status, said = gate(trace, complete)

    assert status == 1
    assert because in said


def test_a_run_prints_what_forgot_means_beside_a_trace(tmp_path):
    written = record.write(tmp_path, RAN, complete=True)
    words = ModelWords("forgot", "intact", "npo: forgot.", FOUND)
    news = dataclasses.replace(written, verdicts={"npo": words})

    lines = record.summary(news).splitlines()

    assert lines[-2] == "npo: forgot."
    assert lines[-1].startswith("npo: trace:")
    assert "It rarely says" in lines[-1]


def test_the_record_keeps_the_trace_of_each_model(tmp_path):
    models = {
        "npo": {
            "forgetting": {"word": "forgot"},
            "utility": {"word": "intact"},
            "verdict": "npo: forgot.",
            "trace": FOUND,
        }
    }
    write_words(tmp_path / "data", models)

    written = record.write(tmp_path, RAN, complete=True)

    assert written.as_json()["verdicts"]["npo"]["trace"] == FOUND
    assert record.read(tmp_path) == written
