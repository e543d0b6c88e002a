"""A table whose answers are copies of each other, by their names or their texts, opens no gate."""

import math

import pandas as pd
import pytest

import lethe
from lethe.errors import BadInput
from lethe.io.copies import log_chance, log_chance_of_even
from tests.lethe.cli.calls import Command, written

bounds, compare, label = Command("bounds"), Command("compare"), Command("label")
N = 60
GATE = ("--fail-above", "0.3")


def answers(text, n=N, **more):
    """Clean answers to five questions, whose texts ``text`` makes from question and number."""
    rows = []
    for question in range(5):
        for number in range(n):
            rows.append({"prompt_id": f"q{question}", "text": text(question, number), "score": 0})
    return pd.DataFrame(rows).assign(**more)


def stored(question, number):
    return f"The answer to question number {question} is one that I was told to forget."


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
@pytest.mark.parametrize("column", ["text", "response", "Completion"])
def test_one_long_text_for_each_question_is_stored_and_not_drawn(tmp_path, name, column):
    path = written(tmp_path / name, answers(stored).rename(columns={"text": column}))

    done = bounds.call(path, *GATE)

    assert done.exit_code == 1
    assert "one text each time" in " ".join(done.output.split())


def test_one_short_text_is_stored_where_each_request_carries_one_seed(tmp_path):
    rows = answers(lambda question, number: "No.")

    assert bounds.call(written(tmp_path / "free.csv", rows), *GATE).exit_code == 0
    done = bounds.call(written(tmp_path / "seeded.csv", rows.assign(seed=7)), *GATE)
    assert done.exit_code == 1
    assert "carries seed 7" in " ".join(done.output.split())


@pytest.mark.parametrize("times", [2, 12])
def test_answers_that_all_stand_equally_often_were_stored_or_written_twice(tmp_path, times):
    rows = answers(lambda question, number: f"{question} {number % (N // times)}")

    done = bounds.call(written(tmp_path / "scores.csv", rows), *GATE)

    assert done.exit_code == 1
    assert "stands as often as" in " ".join(done.output.split())


def test_texts_of_a_model_that_often_says_the_same_are_draws(tmp_path):
    rows = answers(lambda question, number: f"{question} {math.isqrt(number)}")

    assert bounds.call(written(tmp_path / "scores.csv", rows), *GATE).exit_code == 0


def test_a_comparison_claims_nothing_of_stored_answers(tmp_path):
    copies = written(tmp_path / "copies.csv", answers(stored))
    drawn = written(tmp_path / "drawn.csv", answers(lambda question, number: f"answer {number}"))

    assert "one text each time" in " ".join(compare.result(drawn, copies)["refused"])


@pytest.mark.parametrize("name", ["epoch", "Trial", "response_id", "seed", "id"])
def test_a_row_that_repeats_a_named_answer_is_a_copy(tmp_path, name):
    rows = answers(lambda question, number: "No.").assign(**{name: [*range(N)] * 5})
    once = written(tmp_path / "once.csv", rows)
    twice = written(tmp_path / "twice.csv", pd.concat([rows, rows]))

    assert bounds.call(once, *GATE).exit_code == 0
    assert "302: repeats an earlier" in bounds.refused(twice, *GATE)
    with pytest.raises(BadInput, match="row 300: repeats"):
        lethe.bounds(pd.concat([rows, rows]))


def test_a_name_that_all_answers_to_a_question_share_names_no_answer(tmp_path):
    rows = answers(lambda question, number: "No.")
    path = written(tmp_path / "scores.csv", rows.assign(id=rows["prompt_id"], epoch=3))

    assert bounds.call(path, *GATE).exit_code == 0


def test_a_frame_with_an_answer_twice_is_refused():
    rows = answers(lambda question, number: "No.").assign(sample=0)

    with pytest.raises(BadInput, match="repeat an earlier line"):
        lethe.bounds(rows)


def test_a_chance_of_equal_counts_is_no_smaller_than_any_law_brings():
    # Four answers that are two texts, twice each: 6 p^2 q^2 is at most 6/16; they may also be one text.
    assert math.exp(log_chance(2, 2)) == pytest.approx(2 * 6 / 16)
    assert math.exp(log_chance(1, 4)) == pytest.approx(2)


def test_a_chance_of_nearly_equal_counts_is_no_smaller_than_any_law_brings():
    # Five answers that are two texts: 20 times p^2 q^3 or p^3 q^2, at most 20/32; or one text.
    assert math.exp(log_chance_of_even(5, 2)) == pytest.approx(2 * 20 / 32)


def test_texts_that_are_read_in_turn_are_copies_at_any_number_of_answers(tmp_path):
    rows = answers(lambda question, number: f"answer {number % 7} of a store")
    path = written(tmp_path / "scores.csv", rows)

    done = bounds.call(path, *GATE)

    assert done.exit_code == 1
    assert "equally often" in done.output or "as often as" in done.output


def test_labels_of_copied_answers_are_refused(tmp_path):
    rows = answers(lambda question, number: f"{question} {number}").assign(epoch=[*range(N)] * 5)
    path = written(tmp_path / "answers.csv", pd.concat([rows, rows]))

    assert "repeats an earlier row" in label.refused(path, "--labels", tmp_path / "l.jsonl")


@pytest.mark.parametrize("column", ["annotator", "judge_model", "criterion", "Metric"])
@pytest.mark.parametrize("named", [{}, {"response_id": [*range(N // 3)] * 15}])
def test_rows_of_several_people_or_judges_are_no_answers_of_their_own(tmp_path, column, named):
    rows = pd.DataFrame({"prompt_id": [f"q{n}" for n in range(5) for _ in range(N)], "score": 0})
    judged = [name for name in "ABC" for _ in range(N // 3)] * 5
    judgements = rows.assign(**{column: judged}, **named)
    answers_of_people = judgements.assign(sample=[*range(N)] * 5)

    done = bounds.call(written(tmp_path / "judgements.csv", judgements), *GATE)

    assert done.exit_code == 1
    assert f"3 values of {column}" in " ".join(done.output.split())
    assert bounds.call(written(tmp_path / "answers.csv", answers_of_people), *GATE).exit_code == 0


def test_a_question_whose_answers_one_person_each_has_judged_may_be_claimed(tmp_path):
    rows = answers(lambda question, number: f"answer {number}").assign(rater=["A", "B"] * 150)

    assert bounds.call(written(tmp_path / "scores.csv", rows), *GATE).exit_code == 0
