"""`lethe label`: the order of labelling, keys, a session that is killed and continued, and the bounds that follow."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.cli.label import ask
from lethe.errors import BadRow
from lethe.evaluation.labelling import Answer, Draws, Labels, Queue, measure, read_draws, read_labels
from lethe.statistics.judge_error import Calibration
from lethe.statistics.judge_labelled import labelled_rates
from tests.small import ROOT, environment

FRAME = {"a": ["no", "no", "no", "4711", "no", "no"] * 20, "b": ["no", "never", "code 9", "never"] * 30}


def draws(verdicts: bool = False) -> Draws:
    answers = {name: [Answer(name, text) for text in texts] for name, texts in FRAME.items()}
    # A judge that misses one of the two leaks.
    called = {name: np.array([float(text == "4711") for text in texts]) for name, texts in FRAME.items()}
    return Draws(answers, {"a": "Code?"}, called if verdicts else {})


def keys(text: str):
    left = list(text)
    return lambda: left.pop(0) if left else ""


def test_answers_come_in_the_order_of_the_mass_they_cover(tmp_path):
    shown, labels = [], Labels(tmp_path / "labels.jsonl")
    queue = Queue(draws(), 1.0, 0)
    ask(queue, labels, keys("nnyny"), shown.append)
    counts = [queue.counts[answer] for answer in labels.mass]
    assert counts == sorted(counts, reverse=True)
    assert queue.ahead(labels) is None
    assert queue.covered(labels) == 1
    assert len(shown) == 5


def test_the_target_ends_it(tmp_path):
    labels, queue = Labels(tmp_path / "labels.jsonl"), Queue(draws(), 0.6, 0)
    ask(queue, labels, keys("nnnnnnnn"), lambda text: None)
    assert queue.covered(labels) >= 0.6
    fewer = sum(sorted((queue.counts[answer] for answer in labels.mass), reverse=True)[:-1])
    assert fewer / queue.total < 0.6


def test_undo_and_other_keys(tmp_path):
    labels, queue = Labels(tmp_path / "labels.jsonl"), Queue(draws(), 1.0, 0)
    ask(queue, labels, keys("u?yun"), lambda text: None)
    assert list(labels.mass.values()) == [0]


def test_a_session_goes_on_where_it_was_stopped(tmp_path):
    place, queue = tmp_path / "labels.jsonl", Queue(draws(), 1.0, 0)
    whole = Labels(tmp_path / "whole.jsonl")
    ask(queue, whole, keys("nnyny"), lambda text: None)
    ask(queue, read_labels(place), keys("nnq"), lambda text: None)
    assert len(read_labels(place).order) == 2
    ask(queue, read_labels(place), keys("yny"), lambda text: None)
    assert place.read_text() == whole.path.read_text()


def test_untrusted_answers_are_escaped(tmp_path):
    answers = {"a": [Answer("a", "\x1b[2J\u202eevil\x07")] * 4}
    shown = []
    ask(
        Queue(Draws(answers, {"a": "\x1b]0;q\x07?"}), 1.0, 0),
        Labels(tmp_path / "l.jsonl"),
        keys("n"),
        shown.append,
    )
    assert "evil" in shown[0]
    assert not any(mark in shown[0] for mark in ("\x1b", "\u202e", "\x07"))


rows = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.text(max_size=6), st.booleans()),
    max_size=12,
    unique_by=lambda r: r[:2],
)


@given(rows)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(tmp_path_factory, rows):
    place = tmp_path_factory.mktemp("labels") / "labels.jsonl"
    labels = Labels(place)
    for number, (name, text, label) in enumerate(rows):
        if text.isprintable():
            labels.add("rest" if number % 3 else "mass", Answer(name, text), int(label), {})
    found = read_labels(place)
    assert (found.mass, found.rest, found.order) == (labels.mass, labels.rest, labels.order)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"prompt_id": "a", "text": "t", "label": 2, "part": "mass"}, "label: got 2"),
        ({"prompt_id": "a", "text": "t", "label": True, "part": "mass"}, "label: got True"),
        ({"prompt_id": "a", "text": "t", "label": 1, "part": "some"}, "part: got 'some'"),
        ({"prompt_id": 1, "text": "t", "label": 1, "part": "mass"}, "must be texts"),
    ],
)
def test_a_broken_file_of_labels_is_told_by_its_line(tmp_path, row, named):
    place = tmp_path / "labels.jsonl"
    good = {"prompt_id": "a", "text": "x", "label": 1, "part": "mass"}
    place.write_text(json.dumps(good) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(BadRow, match=named) as told:
        read_labels(place)
    assert "line 2" in str(told.value)
    place.write_text((json.dumps(good) + "\n") * 2)
    with pytest.raises(BadRow, match="second time"):
        read_labels(place)


def test_the_bounds_count_the_second_half(tmp_path):
    run, labels = draws(verdicts=True), Labels(tmp_path / "labels.jsonl")
    queue = Queue(run, 0.5, 25)
    ask(queue, labels, keys("n" * 2), lambda text: None)
    truth = {"no": "n", "never": "n", "4711": "y", "code 9": "y"}
    while (ahead := queue.ahead(labels)) is not None:
        ask(queue, labels, keys(truth[ahead.answer.text]), lambda text: None)
    found = measure(run, queue, labels, 0.05)
    assert set(labels.mass) == {Answer("a", "no"), Answer("b", "never")}
    sampled = queue.sampled(labels)
    assert len(sampled) == 25
    leaks = [1 if truth[answer.text] == "y" else 0 for answer, _ in sampled]
    judged = [run.second_verdicts(answer.prompt_id)[place] for answer, place in sampled]
    want = Calibration.of(leaks, judged, of_this_run=True)
    assert found.calibration == want
    chosen = set(labels.mass)
    second = [run.second(name) for name in ("a", "b")]
    rest = [sum(answer not in chosen for answer in own) for own in second]
    called = [
        int(sum(v for answer, v in zip(own, run.second_verdicts(name), strict=True) if answer not in chosen))
        for name, own in zip("ab", second, strict=True)
    ]
    rates = labelled_rates([0, 0], rest, called, 60, want, 0.05)
    assert [bound.value for bound in found.upper] == rates.upper.tolist()
    assert found.mass == 1 - sum(rest) / 120
    assert "the judge's measured error on the rest" in found.source


def test_the_judge_is_measured_on_each_draw_and_not_once_a_text(tmp_path):
    """A judge that reads each copy anew and calls every second copy a leak is right half of the time."""
    answers = {"a": [Answer("a", text) for text in ["no"] * 100 + ["4711", "never"] * 50]}
    verdicts = {"a": np.array([0.0] * 100 + [0, 0, 1, 1] * 25)}
    run, labels = Draws(answers, {}, verdicts), Labels(tmp_path / "labels.jsonl")
    queue = Queue(run, 1.0, 100)
    labels.add("mass", Answer("a", "no"), 0, {})
    labels.add("rest", Answer("a", "4711"), 1, {})
    labels.add("rest", Answer("a", "never"), 0, {})
    assert queue.ahead(labels) is None
    found = measure(run, queue, labels, 0.05).calibration
    assert found is not None
    assert (found.leaks, found.leaks_called, found.clean, found.clean_called) == (50, 25, 50, 25)


def test_a_raised_target_moves_the_labels_of_the_rest(tmp_path):
    place = tmp_path / "labels.jsonl"
    low, high = (Queue(draws(verdicts=True), target, 25) for target in (0.5, 1.0))
    ask(low, read_labels(place), keys("n" * 40), lambda text: None)
    assert read_labels(place).rest
    ask(high, read_labels(place), keys("n" * 40), lambda text: None)
    found = read_labels(place)
    assert high.ahead(found) is None
    assert not found.mass.keys() & found.rest.keys()


def test_a_run_that_a_rule_stopped_is_refused(tmp_path):
    pd.DataFrame({"prompt_id": ["a"], "sample": [0], "text": ["no"]}).to_parquet(tmp_path / "forget.parquet")
    (tmp_path / "about.json").write_text('{"stop": "sequential"}')
    told = CliRunner().invoke(app, ["label", str(tmp_path), "--json"])
    assert told.exit_code == 2
    assert "early stopping" in " ".join(told.output.split())


def test_a_session_cut_short_has_no_measured_judge(tmp_path):
    run, labels = draws(verdicts=True), Labels(tmp_path / "labels.jsonl")
    queue = Queue(run, 0.5, 25)
    ask(queue, labels, keys("nny"), lambda text: None)
    assert measure(run, queue, labels, 0.05).calibration is None


@pytest.fixture
def table(tmp_path):
    rows = [(name, i, text) for name, texts in FRAME.items() for i, text in enumerate(texts)]
    pd.DataFrame(rows, columns=["prompt_id", "sample", "text"]).to_csv(tmp_path / "answers.csv", index=False)
    return tmp_path / "answers.csv"


def test_a_sorted_table_is_halved_in_sampling_order(table):
    frame = pd.read_csv(table)
    frame.sort_values(["prompt_id", "text"]).to_csv(table, index=False)
    found = read_draws(table, None, None, None)
    assert {name: [one.text for one in found.first(name)] for name in FRAME} == {
        name: texts[: len(texts) // 2] for name, texts in FRAME.items()
    }


def test_a_person_at_a_terminal(table, tmp_path):
    """Real keys through a pseudo-terminal: two labels, then q; the file holds both and the terminal is given back."""
    master, slave = pty.openpty()
    labels = tmp_path / "labels.jsonl"
    command = [sys.executable, "-m", "lethe", "label", str(table), "--labels", str(labels), "--mass", "1"]
    done = subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, cwd=ROOT, env=environment(), text=True)
    for key in (b"n", b"y", b"q"):
        for line in done.stdout:  # until the screen of the next answer is there
            if "q stop" in line:
                break
        os.write(master, key)
    output, _ = done.communicate(timeout=100)
    assert done.returncode == 0
    assert [row["label"] for row in map(json.loads, labels.read_text().splitlines())] == [0, 1]
    assert "run the same command again" in output


def test_json_asks_nothing_and_a_pipe_is_no_terminal(table, tmp_path):
    place = str(tmp_path / "labels.jsonl")
    told = CliRunner().invoke(app, ["label", str(table), "--labels", place, "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["mass"] == 0
    assert [row["upper"] for row in found["per_prompt"]] == [1, 1]
    refused = CliRunner().invoke(app, ["label", str(table), "--labels", place])
    assert refused.exit_code == 2
    assert "--json" in refused.output
    for option in (["--column", "harm"], ["--rest", "-1"]):  # without --verdicts
        refused = CliRunner().invoke(app, ["label", str(table), "--json", *option])
        assert refused.exit_code == 2
        assert option[0] in refused.output
