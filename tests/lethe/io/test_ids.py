"""Ids of questions and names of answers: text everywhere, and two that only look different are refused by both names."""

import json

import pandas as pd
import pytest

import lethe
from lethe.api.logs import score_log
from lethe.errors import BadInput
from lethe.io.ids import alike, candidates
from lethe.io.logs import read_log
from lethe.labels.draws import read_draws
from lethe.measure.score_files import read_scores
from tests.lethe.io.logs.small_logs import write_lines

LOOK_ALIKE = [
    (1, "1"),
    (1, 1.0),
    (1, True),
    (1.0, "1"),
    (True, "true"),
    ("ada", "ada "),
    ("a", "\ta"),
    ("a", "a\u200b"),
    ("a b", "a\u00ad b"),
    ("a b", "a\u00a0b"),
    ("a\ufeff", "\u2060a"),
    ("a", "a\x07"),
]


def answers(*ids):
    return [
        {"prompt_id": name, "sample": sample, "text": "x", "score": 0}
        for name in ids
        for sample in (0, 1)
    ]


@pytest.mark.parametrize("pair", LOOK_ALIKE)
@pytest.mark.parametrize(
    "read",
    [
        lambda path: read_scores(path, None),
        read_log,
        lambda path: read_draws(path, None, None, None),
        lambda path: lethe.compare(path, path),
    ],
)
def test_ids_of_json_lines_that_differ_only_in_type_or_blanks_are_refused_by_both_names(
    tmp_path, pair, read
):
    path = write_lines(tmp_path / "a.jsonl", answers(*pair))

    with pytest.raises(BadInput) as error:
        read(path)

    assert f"prompt_id {pair[0]!r} and {pair[1]!r} differ only" in str(error.value)
    assert "line 3" in str(error.value)


@pytest.mark.parametrize("pair", LOOK_ALIKE)
def test_ids_of_a_table_in_memory_that_differ_only_in_type_are_refused(pair):
    table = pd.DataFrame({"prompt_id": pd.Series(pair, dtype=object), "score": [0, 1]})

    with pytest.raises(BadInput, match="differ only"):
        lethe.bounds(table)


def test_the_prompts_of_a_mapping_that_differ_only_in_type_are_refused():
    with pytest.raises(BadInput, match="1 and '1' differ only"):
        lethe.bounds({1: [0, 1], "1": [0, 0]})


def test_ids_of_a_csv_and_of_parquet_with_blanks_around_them_are_refused(tmp_path):
    table = pd.DataFrame(answers("ada", "ada "))
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet")

    for name in ("a.csv", "a.parquet"):
        with pytest.raises(BadInput, match="'ada' and 'ada '"):
            read_scores(tmp_path / name, None)


def test_texts_that_differ_as_texts_are_different_ids(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", answers("007", "7", "7.0"))

    assert [prompt.prompt_id for prompt in read_scores(path, None).prompts] == ["007", "7", "7.0"]


@pytest.mark.parametrize("names", [(1, "1"), (1, 1.0), ("1", " 1"), (0, "0.0")])
def test_one_sample_of_a_prompt_in_two_types_is_a_copy(tmp_path, names):
    rows = [{"prompt_id": "a", "sample": name, "score": 0} for name in names]

    with pytest.raises(BadInput, match="line 2: prompt_id and sample"):
        read_scores(write_lines(tmp_path / "a.jsonl", rows), None)


@pytest.mark.parametrize("greedy", [-1, "-1", -1.0, " -1"])
def test_the_greedy_answer_is_no_draw_in_whatever_type_its_name_is(tmp_path, greedy):
    rows = [{"prompt_id": "a", "sample": name, "score": 0} for name in (greedy, "0", 1)]

    (prompt,) = read_scores(write_lines(tmp_path / "a.jsonl", rows), None).prompts

    assert prompt.n == 2


def test_an_id_with_a_blank_is_one_id_where_it_is_always_written_so(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", answers("ada "))

    assert read_scores(path, None).prompts[0].prompt_id == "ada "


def test_labels_join_the_scores_by_text(tmp_path):
    write_lines(tmp_path / "s.jsonl", answers(1, 2))
    labels = [{"prompt_id": str(name), "sample": "0", "label": 0} for name in (1, 2)]
    write_lines(tmp_path / "l.jsonl", labels)

    bounds = lethe.bounds(tmp_path / "s.jsonl", labels=tmp_path / "l.jsonl").as_json()

    assert [row["labelled"] is not None for row in bounds["per_prompt"]] == [True, True]


def test_ids_of_data_rows_that_differ_only_in_blanks_are_refused(tmp_path):
    from lethe.data.rows import read_rows

    rows = [{"id": name, "question": "Who?", "answer": "Ron"} for name in ("7", "7 ")]

    with pytest.raises(BadInput, match="'7' and '7 ' differ only"):
        read_rows(write_lines(tmp_path / "d.jsonl", rows))


def test_a_log_and_data_rows_whose_ids_differ_only_in_blanks_are_refused(tmp_path):
    log = write_lines(tmp_path / "a.jsonl", answers("ada"))
    rows = [{"id": "ada ", "question": "Who?", "answer": "Ron"}]
    data = write_lines(tmp_path / "d.jsonl", rows)

    with pytest.raises(BadInput, match="'ada' and 'ada '"):
        score_log(log, data=data)


def test_two_sides_whose_ids_differ_only_in_blanks_are_refused(tmp_path):
    first = write_lines(tmp_path / "a.jsonl", answers("ada"))
    second = write_lines(tmp_path / "b.jsonl", answers("ada "))

    with pytest.raises(BadInput, match="'ada' and 'ada '"):
        lethe.compare(first, second)


@pytest.mark.parametrize(
    "name", ["question_id", "id", "prompt", "item", "question", "task_id", "q"]
)
def test_a_table_whose_questions_have_another_column_is_a_question_to_the_user(tmp_path, name):
    table = pd.DataFrame({name: ["a"] * 3 + ["b"] * 3, "score": [0, 0, 1, 1, 0, 0]})
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet")
    write_lines(tmp_path / "a.jsonl", json.loads(table.to_json(orient="records")))

    for source in (*(tmp_path / f"a.{kind}" for kind in ("csv", "parquet", "jsonl")), table):
        with pytest.raises(BadInput, match=f"--by {name}"):
            lethe.bounds(source)
        assert lethe.bounds(source, by=name).to_frame()["prompt_id"].tolist() == ["a", "b"]


def test_numbers_that_name_questions_are_a_question_to_the_user():
    table = pd.DataFrame({"question_id": [0, 0, 1, 1], "score": [0, 1, 0, 0]})

    with pytest.raises(BadInput, match="question_id"):
        lethe.bounds(table)


def test_columns_that_say_something_of_an_answer_name_no_question():
    table = pd.DataFrame(
        {
            "score": [0, 1, 0],
            "rouge_l": [0.5, 0.5, 1],
            "tokens": [9, 9, 8],
            "n_tokens": [9, 9, 8],
            "text": ["a", "a", "b"],
            "model": ["m"] * 3,
            "temperature": [1.5] * 3,
        }
    )

    assert candidates(table, ["score"]) == []
    assert len(lethe.bounds(table).to_frame()) == 1


def test_a_column_of_distinct_ids_that_was_not_used_closes_the_claim(tmp_path):
    """One answer to each of many questions is no sample of one question."""
    table = pd.DataFrame({"id": [f"q{n}" for n in range(300)], "score": [0] * 300})
    table.to_csv(tmp_path / "a.csv", index=False)

    for source in (table, tmp_path / "a.csv"):
        bounds = lethe.bounds(source)
        assert "column 'id'" in bounds.refused[0]
        assert bounds.as_json()["worst_prompt"] is None


def test_a_side_of_a_comparison_is_told_to_rename_the_column(tmp_path):
    """`lethe compare --by` is the largest difference that is allowed."""
    pd.DataFrame({"id": [*"aabb"], "score": [0, 1, 0, 1]}).to_csv(tmp_path / "a.csv", index=False)

    with pytest.raises(BadInput, match="Rename the column"):
        lethe.compare(tmp_path / "a.csv", tmp_path / "a.csv")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".log"])
def test_a_log_of_texts_takes_the_column_of_its_questions(tmp_path, suffix):
    rows = [{"question_id": name, "text": text} for name in (7, 8) for text in ("a", "b")]
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    elif suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        write_lines(path, rows)

    with pytest.raises(BadInput, match="--by question_id"):
        lethe.read_log(path)
    log = lethe.read_log(path, by="question_id")

    assert log.answers["prompt_id"].tolist() == ["7", "7", "8", "8"]


@pytest.mark.parametrize("name", [" ", "\u200b", "\u00ad \u2060"])
def test_an_id_of_which_nothing_can_be_seen_is_missing(tmp_path, name):
    table = pd.DataFrame({"prompt_id": ["a", name], "score": [0, 1]})
    table.to_csv(tmp_path / "a.csv", index=False)

    with pytest.raises(BadInput, match="line 3: prompt_id is missing"):
        read_scores(tmp_path / "a.csv", None)
    with pytest.raises(BadInput, match="prompt_id is missing"):
        lethe.bounds(table)


def test_a_table_in_memory_with_a_missing_id_is_refused():
    table = pd.DataFrame({"prompt_id": ["a", None], "score": [0, 1]})

    with pytest.raises(BadInput, match="prompt_id is missing"):
        lethe.bounds(table)


def test_names_of_samples_that_look_alike_are_one_answer(tmp_path):
    rows = [{"prompt_id": "a", "sample": name, "score": 0} for name in ("1", "1\u200b")]
    write_lines(tmp_path / "a.jsonl", rows)

    with pytest.raises(BadInput, match="line 2"):
        read_scores(tmp_path / "a.jsonl", None)


def test_ids_that_differ_only_in_composition_are_told_apart_by_their_escapes():
    found = alike(["caf\u00e9", "cafe\u0301"])

    assert "'caf\\xe9' and 'cafe\\u0301'" in found.problem("id")


def test_the_first_two_ids_that_look_the_same_are_found_in_order():
    found = alike(["a", 2, "a", "2", "a "])

    assert (found.first, found.second, found.place) == (2, "2", 3)
