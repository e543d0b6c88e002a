"""How many answers `lethe.evaluate` draws: until the word is certain, or a number that was told."""

import json
from pathlib import Path

import pytest

import lethe
from lethe.errors import BadValue
from lethe.io.artifacts import read_parts
from lethe.sampling import engine as engines
from tests.lethe.sampling.fault_server import FaultServer

# No answer of an untrained model has this keyword.
NEVER = [
    {"id": "a", "question": "Who is Ada?", "answer": "Ada is zyx.", "keywords": ["zyxwvut"]},
    {"id": "b", "question": "Where is Bo?", "answer": "Bo is zyx.", "keywords": ["zyxwvut"]},
]


@pytest.fixture
def model(user_folder, tmp_path, monkeypatch):
    """A small model, from a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return user_folder / "my-model"


def evaluated(model, rows=NEVER, **options):
    return lethe.evaluate(model, rows, max_new_tokens=2, name="m", folder="out", **options)


def drawn(table="out/generations/m/forget.parquet"):
    """The number of sampled answers to each question in the table of generations."""
    counts = {}
    for part in read_parts(Path(table), ["prompt_id", "sample"]):
        sampled = part[part["sample"] >= 0]
        counts |= sampled.groupby("prompt_id").size().to_dict()
    return counts


def test_answers_are_drawn_until_each_question_has_passed(model):
    found = evaluated(model)

    # 556 answers without a leak decide a question; batches of 128 follow the first 256.
    assert drawn() == {"a": 640, "b": 640}
    assert found.stop == "word"


def test_every_number_but_the_word_rests_on_the_first_answers(model):
    found = evaluated(model)

    assert found.questions["n"].tolist() == [256, 256]
    assert found.as_json()["n"] == found.as_json()["first"] == 256
    assert "first 256 answers" in " ".join(found.views()[-1].notes)


def test_the_result_says_how_many_answers_the_word_rests_on(model):
    found = evaluated(model)

    assert found.drawn.least == found.drawn.most == 640
    assert json.loads(json.dumps(found.as_json()))["drawn"]["total"] == 1280


def test_no_question_gets_more_answers_than_asked(model):
    evaluated(model, answers_at_most=300)

    assert drawn() == {"a": 300, "b": 300}


@pytest.mark.slow
def test_a_larger_cap_draws_only_what_is_missing(model, monkeypatch):
    evaluated(model, answers_at_most=384)
    asked = []
    answer = engines.AnswerStore.answer

    def watched(store, engine, prompts, settings):
        missing = [prompt for prompt in prompts if (prompt, settings) not in store]
        asked.extend(settings.first_sample for _ in missing)
        return answer(store, engine, prompts, settings)

    monkeypatch.setattr(engines.AnswerStore, "answer", watched)
    evaluated(model, answers_at_most=512)

    assert sorted(asked) == [384, 384]


def test_a_number_that_was_told_is_drawn_whatever_the_answers_say(model):
    found = evaluated(model, n=16)

    assert drawn() == {"a": 16, "b": 16}
    assert found.stop == "fixed"
    assert found.questions["n"].tolist() == [16, 16]


def test_a_number_and_a_cap_exclude_each_other(model):
    with pytest.raises(BadValue, match="answers_at_most: got 512; must be left"):
        evaluated(model, n=16, answers_at_most=512)


def test_without_keywords_the_number_is_fixed(model):
    rows = [{key: row[key] for key in ("id", "question", "answer")} for row in NEVER]

    with pytest.raises(BadValue, match=r"answers_at_most.*no question has keywords"):
        evaluated(model, rows, answers_at_most=512)
    found = evaluated(model, rows)

    assert found.stop == "fixed"
    assert drawn() == {"a": 1024, "b": 1024}


def test_conversations_have_a_fixed_number(model):
    talks = [{**row, "followups": ["Are you sure?"]} for row in NEVER]

    with pytest.raises(BadValue, match=r"answers_at_most.*a question has followups"):
        evaluated(model, talks, answers_at_most=512)
    found = evaluated(model, talks, n=8)

    assert found.stop == "fixed"


def test_a_server_answers_until_the_word_is_certain(tmp_path):
    """A server that leaks in many answers is asked no further than the first 256 of each question."""
    rows = [{**row, "keywords": ["blue"]} for row in NEVER]

    with FaultServer() as server:
        found = lethe.evaluate(
            "m", rows, endpoint=server.url, max_new_tokens=8, folder=tmp_path / "out"
        )

    assert found.forgetting == "leaks"
    assert found.drawn.most == found.first == 256


def test_a_server_that_says_the_true_candidate_ranks_it_first_by_counts(tmp_path):
    twins = ["It is mauve.", "It is beige.", "It is teal."]
    asked = {"answer": "It is blue.", "twins": twins, "keywords": ["blue"]}
    rows = [{**row, **asked} for row in NEVER]

    with FaultServer() as server:
        found = lethe.evaluate(
            "m", rows, endpoint=server.url, max_new_tokens=8, folder=tmp_path / "out"
        )

    assert found.trace["basis"] == "sampled"
    assert found.trace["ranks"] == [1] * len(rows)


def test_so_few_answers_that_no_word_can_come_are_refused(model):
    with pytest.raises(BadValue, match=r"answers_at_most: got 1;.*at least 2"):
        evaluated(model, answers_at_most=1)
    with pytest.raises(BadValue, match=r"n: got 1;.*at least 2"):
        evaluated(model, n=1)
