"""Tables as people have them: separators, packing, words, percent signs and records, and what was understood of them."""

import gzip

import pandas as pd
import pyarrow as pa
import pytest

import lethe
from lethe.errors import BadFile, BadRow, LetheError
from lethe.io.packed import opened
from lethe.io.tables import read_table
from lethe.measure.score_files import read_any_scores

ROWS = "prompt_id,score\na,1\na,0\nb,0\n"


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def scores_of(path, **options):
    read = read_any_scores(path, None, **options)
    return {prompt.prompt_id: prompt.scores.tolist() for prompt in read.prompts}, read.understood


def _stream(content):
    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, "zstd") as stream:
        stream.write(content)
    return target.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content", "understood"),
    [
        ("a.csv", ROWS, "comma table, prompt_id as prompt, score: 1 = leak"),
        ("a.csv", ROWS.replace(",", ";"), "semicolon table, prompt_id as prompt, score: 1 = leak"),
        ("a.tsv", ROWS.replace(",", "\t"), "tab table, prompt_id as prompt, score: 1 = leak"),
        (
            "a.csv.gz",
            gzip.compress(ROWS.encode(), mtime=0),
            "comma table, prompt_id as prompt, score: 1 = leak",
        ),
        ("a.csv.zst", _stream(ROWS.encode()), "comma table, prompt_id as prompt, score: 1 = leak"),
        (
            "a.csv",
            "prompt_id;leaked\na;yes\na;no\nb;No\n",
            "semicolon table, prompt_id as prompt, leaked: yes = leak",
        ),
        (
            "a.json",
            '[{"prompt_id": "a", "score": 1}, {"prompt_id": "a", "score": 0}, {"prompt_id": "b", "score": 0}]',
            "JSON records, prompt_id as prompt, score: 1 = leak",
        ),
        (
            "a.json",
            '[\n{"prompt_id": "a", "score": true},\n{"prompt_id": "a", "score": false},\n'
            '{"prompt_id": "b", "score": 0}]',
            "JSON records, prompt_id as prompt, score: true = leak",
        ),
    ],
)
def test_each_form_of_a_table_has_the_same_scores_and_says_how_it_was_read(
    tmp_path, name, content, understood
):
    scores, said = scores_of(written(tmp_path / name, content))

    assert scores == {"a": [1, 0], "b": [0]}
    assert said == understood


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ("3%\n40 %\n0", [0.03, 0.4, 0]),
        ("0,5\n1\n0,25", [0.5, 1, 0.25]),
        ("TRUE\nfalse\n1", [1, 0, 1]),
        ("y\nn\n0", [1, 0, 0]),
    ],
)
def test_numbers_are_read_in_the_form_in_which_people_write_them(tmp_path, cells, values):
    table = "id;score\n" + "\n".join(f"a;{cell}" for cell in cells.split("\n"))

    scores, _ = scores_of(written(tmp_path / "a.csv", table), by="id")

    assert scores == {"a": values}


def test_the_only_column_of_leaks_is_the_score_and_two_are_a_question(tmp_path):
    path = written(tmp_path / "a.csv", "prompt_id,leaked,keyword_leak\na,1,0\na,0,0\n")

    with pytest.raises(BadFile, match="--score keyword_leak or leaked"):
        read_any_scores(path, None)


def test_what_was_understood_is_in_the_json_and_follows_the_user(tmp_path):
    path = written(tmp_path / "a.csv", "question_id;passed\n1;yes\n1;no\n")

    result = lethe.bounds(path, by="question_id", score="passed", leak_is="low")

    said = "semicolon table, question_id as prompt, passed: yes = no leak"
    assert result.as_json()["understood"] == said


def test_a_broken_cell_of_a_packed_table_is_named_by_its_line(tmp_path):
    path = written(tmp_path / "a.csv.gz", gzip.compress(b"prompt_id,score\na,1\n\na,x\n"))

    with pytest.raises(LetheError, match=r"a\.csv\.gz, line 4: column score:.*'x'"):
        read_any_scores(path, None)


def test_a_packed_file_that_is_cut_off_is_refused(tmp_path):
    path = written(tmp_path / "a.csv.gz", gzip.compress(ROWS.encode() * 1000)[:-20])

    with pytest.raises(BadFile, match="cannot be unpacked"):
        read_table(path)


def test_a_packed_bomb_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("lethe.io.packed.ALWAYS_LEGAL", 1 << 20)
    path = written(tmp_path / "a.csv.gz", gzip.compress(bytes(8 << 20)))

    with pytest.raises(BadFile, match="more than 400 times"), opened(path) as file:
        file.read()


@pytest.mark.parametrize("cell", [[0.0], ["1"], {"score": 1}, pd.Timestamp(0), pd.Timedelta(1)])
def test_a_cell_of_parquet_that_holds_no_number_is_refused(tmp_path, cell):
    table = pd.DataFrame({"prompt_id": ["a", "a"], "score": [cell, cell]})
    table.to_parquet(tmp_path / "a.parquet")

    with pytest.raises(BadRow, match="expected a number"):
        read_any_scores(tmp_path / "a.parquet", None)
