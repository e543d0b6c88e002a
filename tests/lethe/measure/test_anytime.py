"""Rows of all answers that were drawn, however many each question has."""

import pandas as pd
import pytest

from lethe.io.files import SCHEMA_VERSION, write_json
from lethe.io.tables import write_parquet
from lethe.measure.anytime import add_counts
from lethe.results.evidence import upper_at_stop
from lethe.results.table import Rows

# By question, the verdicts of its answers in their order; None for a missing one.
VERDICTS = {"a": [0, 1, 0, None, 0], "b": [0, 0, 0]}
CUT = [("a", 0), ("a", 1), ("b", 2)]


def written(root, name, verdicts, cut=()):
    """The tables of generations and scores with these verdicts, each question with a greedy answer."""
    keys = []
    values = []
    ends = []
    for question, drawn in verdicts.items():
        for sample, verdict in enumerate([1, *drawn], start=-1):
            keys.append((question, sample))
            values.append(verdict)
            ends.append("length" if (question, sample) in cut else "stop")
    table = pd.DataFrame(keys, columns=["prompt_id", "sample"])
    answers = table.assign(text="", tokens=1, finish_reason=ends, mean_confidence=1.0)
    scores = table.assign(keyword_leak=pd.Series(values, dtype="float64"))
    for part, content in (("generations", answers), ("scores", scores)):
        path = root / part / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_parquet(path, content)


def recorded(root, **more):
    splits = {"forget": {"n": 3}}
    record = {"schema": SCHEMA_VERSION, "stream": "one", "splits": splits, **more}
    write_json(root / "generations/npo/about.json", record)


def rows_of(root, **settings):
    found = Rows("npo")
    add_counts(found, root, "keyword_leak", 0.01, **settings)
    return {row.item: row for row in found.rows}


def test_all_answers_of_each_question_are_counted(tmp_path):
    written(tmp_path, "npo/forget", VERDICTS, CUT)
    recorded(tmp_path, stop="word", word={"beside": {}})

    facts = {item: row.facts for item, row in rows_of(tmp_path).items()}

    keys = ("leaks", "n", "missing", "cut", "cut_or_leaks")
    assert [facts["a"][key] for key in keys] == [1, 5, 1, 2, 3]
    assert [facts["b"][key] for key in keys] == [0, 3, 0, 1, 1]


def test_a_cut_answer_without_a_leak_has_no_verdict_where_the_settings_say_so(tmp_path):
    written(tmp_path, "npo/forget", VERDICTS, CUT)
    recorded(tmp_path)

    found = rows_of(tmp_path, cut_is_missing=True)

    assert (found["a"].facts["leaks"], found["a"].missing) == (1, 2)
    assert found["b"].missing == 1


def test_a_question_that_the_scorer_cannot_judge_has_no_row(tmp_path):
    written(tmp_path, "npo/forget", VERDICTS)
    recorded(tmp_path)

    assert rows_of(tmp_path, inapplicable={"a"}).keys() == {"b"}


@pytest.fixture
def rows(tmp_path):
    """The rows of a model beside which a Retrain was asked one of its questions."""
    written(tmp_path, "npo/forget", VERDICTS)
    written(tmp_path, "npo/beside/retrain", {"a": [0, 0, 1, 1]})
    recorded(tmp_path, stop="word", word={"beside": {"retrain": {"stream": "two"}}})
    return rows_of(tmp_path)


def test_the_ends_of_a_question_hold_at_any_number_of_answers(rows):
    row = rows["a"]

    assert (row.quantity, row.basis, row.estimate, row.missing) == ("leak", "anytime", 0.25, 1)
    assert row.upper == upper_at_stop(2, 5, 0.01)[0]
    assert row.lower == 1 - upper_at_stop(4, 5, 0.01)[0]
    assert row.alpha_upper == 0.01


def test_the_answers_of_retrain_beside_the_model_stand_in_the_evidence(rows):
    found = [rows[item].facts["beside"][0] for item in ("a", "b")]

    keys = ("name", "stream", "leaks", "n", "missing")
    assert [found[0][key] for key in keys] == ["retrain", "two", 2, 4, 0]
    assert [found[1][key] for key in keys] == ["retrain", "two", 0, 0, 0]
    assert rows["a"].facts["stream"] == "one"
