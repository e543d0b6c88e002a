"""Many answers: each distinct answer is judged once, across questions, and a killed run judges only the rest."""

import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.config.measuring import ScorerParams
from lethe.errors import BadInput
from lethe.scoring import judges
from lethe.scoring.verdicts import AnsweredRow, VerdictStore, judged
from tests.small import ROOT, environment


class Params(ScorerParams):
    batch: int = 4
    shift: float = 0.0


class Counting(judges.Judge[Params], params=Params):
    """Judges by a hash of question and text; counts what it was asked, and dies after ``dies`` answers."""

    COLUMNS = ("", "_p")
    prompt = "one"

    def __init__(self, params=None):
        super().__init__(params or Params())
        self.asked = []
        self.sizes = []
        self.dies = None

    @property
    def batch(self):
        return self.params.batch

    def record(self):
        return {"prompt": self.prompt}

    def judge(self, asked):
        if self.dies is not None and len(self.asked) + len(asked) > self.dies:
            raise KeyboardInterrupt
        self.asked += [(answer.item["id"], answer.text) for answer in asked]
        self.sizes.append(len(asked))
        values = [sum(map(ord, answer.text + answer.item["id"])) % 7 / 7 for answer in asked]
        return np.array(
            [[np.nan, np.nan] if value == 0 else [value > 0.4, value] for value in values]
        )


def question(name, *texts):
    return AnsweredRow(list(texts), {"id": name, "question": f"{name}?"})


answers = st.lists(st.none() | st.sampled_from(["a", "bb", "ccc", "dddd", ""]), max_size=6)


@given(st.lists(answers, min_size=1, max_size=5))
@settings(max_examples=60)
def test_every_answer_gets_the_verdict_of_its_own_text(drawn):
    questions = [question(f"q{number}", *texts) for number, texts in enumerate(drawn)]
    judge = Counting()
    found = judged(judge, questions)
    for verdicts, (texts, item) in zip(found, questions, strict=True):
        assert verdicts.shape == (len(texts), 2)
        for row, text in zip(verdicts, texts, strict=True):
            want = (
                [[np.nan, np.nan]]
                if text is None
                else Counting().judge([judges.JudgedAnswer(text, item)])
            )
            np.testing.assert_array_equal(row[None], want)
    distinct = {
        (item["id"], text) for texts, item in questions for text in texts if text is not None
    }
    assert sorted(judge.asked) == sorted(distinct)
    assert all(size == 4 for size in judge.sizes[:-1])


class OfTheQuestion(Counting):
    """A judge that reads the question's text alone."""

    def read_of(self, item):
        return {"question": item["question"]}


def test_an_answer_is_judged_once_across_questions_that_read_alike(tmp_path, capsys):
    rows = [
        {"id": f"q{n}", "question": ask, "label": n}
        for n, ask in enumerate(["a?", "b?", "a?", "a?"])
    ]
    questions = [AnsweredRow(["x", "y", "x", None], row) for row in rows]
    judge = OfTheQuestion()
    store = VerdictStore(judge, tmp_path)
    first = judged(judge, questions, store)
    assert sorted(judge.asked) == [("q0", "x"), ("q0", "y"), ("q1", "x"), ("q1", "y")]
    np.testing.assert_array_equal(first[0], first[2])
    judged(
        judge,
        [AnsweredRow(["y", "z"], {"id": "labelled", "question": "a?"})],
        VerdictStore(judge, tmp_path),
    )
    assert judge.asked[4:] == [("labelled", "z")]
    assert capsys.readouterr().err == ""
    whole = Counting()
    judged(whole, questions, label="harm")
    assert {"harm:", "8", "2"} <= set(capsys.readouterr().err.split())
    assert len(whole.asked) == 8  # a judge that does not say what it reads is asked about each row


class Slow(Counting):
    """Writes down what it is asked, and takes its time."""

    log = ""
    seconds = 0.0

    def judge(self, asked):
        with open(self.log, "a") as log:
            log.writelines(f"{answer.item['id']} {answer.text}\n" for answer in asked)
        time.sleep(self.seconds)
        return super().judge(asked)


WORK = """
import sys
from pathlib import Path
from lethe.scoring.verdicts import VerdictStore, judged
from tests.lethe.scoring.judges.test_verdicts import Slow, question

Slow.__module__ = "lethe.scoring.judges.nli"  # verdicts are kept under the code of a judge of the library
judge = Slow()
judge.log, judge.seconds = sys.argv[2], float(sys.argv[3])
questions = [question(f"q{n}", *(f"{'x' * (i % 5)}{i % 9}" for i in range(40))) for n in range(6)]
judged(judge, questions, VerdictStore(judge, Path(sys.argv[1])))
"""


@pytest.mark.seconds
def test_a_run_under_sigkill_judges_no_finished_answer_again(tmp_path):
    """A process is killed in the middle of its work; the next one asks only for what was not finished."""
    command = [sys.executable, "-c", WORK, str(tmp_path / "kept"), str(tmp_path / "log")]
    there = {"cwd": tmp_path, "env": environment() | {"PYTHONPATH": str(ROOT)}}
    first = subprocess.Popen([*command, "0.2"], **there)
    deadline = time.monotonic() + 300
    while (
        len(list((tmp_path / "kept").rglob("*.json"))) < 3
        and first.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    first.kill()
    first.wait()
    kept = len(list((tmp_path / "kept").rglob("*.json")))
    before = (tmp_path / "log").read_text().splitlines()
    subprocess.run([*command, "0"], **there, check=True)
    after = (tmp_path / "log").read_text().splitlines()[len(before) :]
    every = {f"q{n} {'x' * (i % 5)}{i % 9}" for n in range(6) for i in range(40)}
    assert kept >= 3
    assert len(after) > 0
    assert not set(before[: 4 * kept]) & set(after)  # batches of 4
    assert len(after) == len(set(after)) == len(every) - 4 * kept
    assert set(before[: 4 * kept]) | set(after) == every


def test_another_judge_prompt_or_row_is_judged_again(tmp_path):
    def count(judge, item):
        judged(judge, [AnsweredRow(["a", "b"], item)], VerdictStore(judge, tmp_path))
        return len(judge.asked)

    row = {"id": "q", "question": "q?"}
    assert count(Counting(), row) == 2
    assert count(Counting(Params(batch=9)), row) == 0  # how many at once decides no verdict
    assert count(Counting(Params(shift=1.0)), row) == 2
    assert count(Counting(), row | {"question": "other?"}) == 2
    other = Counting()
    other.prompt = "two"
    assert count(other, row) == 2


def test_a_judge_out_of_its_range_is_told():
    judge = Counting()
    judge.judge = lambda asked: np.full((len(asked), 2), 1.5)
    with pytest.raises(BadInput, match="outside"):
        judged(judge, [question("q", "a")])
    judge.judge = lambda asked: np.zeros(len(asked))
    with pytest.raises(BadInput, match="shape"):
        judged(judge, [question("q", "a")])
