import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.data.kinds import jsonl
from lethe.data.rows import check_splits, read_rows, row_problem
from lethe.errors import BadInput, BadRow

texts = st.text(min_size=1).filter(str.strip)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_any_text_survives_the_file(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("rows") / "forget.jsonl"
    rows = [{"id": str(i), "question": q, "answer": a} for i, (q, a) in enumerate(pairs)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert read_rows(path) == rows


@given(
    st.dictionaries(
        st.sampled_from(["id", "question", "answer", "keywords", "perturbed_answer", "author"]),
        st.one_of(st.none(), st.integers(), st.text(), st.lists(st.one_of(st.text(), st.integers()))),
    )
)
def test_a_row_is_accepted_only_when_it_keeps_the_contract(row):
    good = all(isinstance(row.get(key), str) and row[key].strip() for key in ("id", "question", "answer"))
    good = good and isinstance(row.get("author"), (str, type(None)))
    for key in ("keywords", "perturbed_answer"):
        value = row.get(key)
        good = good and (
            value is None or (isinstance(value, list) and all(isinstance(v, str) and v.strip() for v in value))
        )
    assert (row_problem(row) is None) == good


def write(tmp_path, *lines):
    path = tmp_path / "forget.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_a_broken_row_is_named_by_file_and_line(tmp_path):
    good = '{"id": "a", "question": "q", "answer": "a"}'
    with pytest.raises(BadRow, match=r"forget\.jsonl, line 2: no key 'answer'"):
        read_rows(write(tmp_path, good, '{"id": "b", "question": "q"}'))
    with pytest.raises(BadRow, match="line 2: id 'a' already"):
        read_rows(write(tmp_path, good, good))
    with pytest.raises(BadRow, match="line 1: key keywords: got"):
        read_rows(write(tmp_path, good[:-1] + ', "keywords": "x"}'))


def test_an_id_may_be_a_whole_number_or_the_line(tmp_path):
    body = '"question": "q", "answer": "a"'
    path = write(tmp_path, '{"id": 0, ' + body + "}", "", "{" + body + "}")
    assert [row["id"] for row in read_rows(path)] == ["0", "3"]
    assert [row["id"] for row in read_rows(path, "retain-")] == ["0", "retain-3"]
    for broken in ("true", "1.5", '""', "[1]"):
        with pytest.raises(BadRow, match="line 1: key id"):
            read_rows(write(tmp_path, '{"id": ' + broken + ", " + body + "}"))


def test_empty_splits_and_shared_ids_are_refused():
    row = {"id": "a", "question": "q", "answer": "a"}
    with pytest.raises(BadInput, match="forget set is empty"):
        check_splits({"forget": [], "retain": [row]})
    with pytest.raises(BadInput, match="splits forget and retain"):
        check_splits({"forget": [row], "retain": [row]})


def test_the_users_own_files(tmp_path):
    for name, number in (("forget", 1), ("retain", 2), ("heldout", 3)):
        row = {"id": str(number), "question": "q", "answer": "a"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    assert set(jsonl.load(None, tmp_path)) == {"forget", "retain", "heldout"}
    (tmp_path / "retain.jsonl").unlink()
    with pytest.raises(BadInput, match=r"retain\.jsonl: no such file"):
        jsonl.load(None, tmp_path)


def test_a_misspelt_key_is_an_error_and_an_unknown_one_is_named_once(tmp_path, capsys):
    body = '{"id": "%s", "question": "q", "answer": "a", "%s": ["x"]}'
    for wrong in ("Keywords", "keyword", "key words", "paraphrased_anwser"):
        with pytest.raises(BadRow, match=f"unknown key '{wrong}'; did you mean"):
            read_rows(write(tmp_path, body % ("a", wrong)))
    assert len(read_rows(write(tmp_path, body % ("a", "notes"), body % ("b", "notes")))) == 2
    assert capsys.readouterr().err.count("'notes' (line 1)") == 1


def test_a_table_is_no_file_of_rows(tmp_path):
    with pytest.raises(BadInput, match=r"rows\.csv: is a \.csv file"):
        read_rows(tmp_path / "rows.csv")
