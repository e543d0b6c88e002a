import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe import config
from lethe.data.kinds import jsonl, requests, tofu
from lethe.data.kinds.passages import Params, load
from lethe.data.rows import check_splits, load_splits, read_rows, row_problem
from lethe.errors import BadFile, BadInput, BadRow, BadValue
from tests.cases import cases
from tests.small import ROOT

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
        st.one_of(
            st.none(), st.integers(), st.text(), st.lists(st.one_of(st.text(), st.integers()))
        ),
    )
)
def test_a_row_is_accepted_only_when_it_keeps_the_contract(row):
    good = all(
        isinstance(row.get(key), str) and row[key].strip() for key in ("id", "question", "answer")
    )
    good = good and isinstance(row.get("author"), (str, type(None)))
    for key in ("keywords", "perturbed_answer"):
        value = row.get(key)
        good = good and (
            value is None
            or (isinstance(value, list) and all(isinstance(v, str) and v.strip() for v in value))
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


def test_a_parquet_table_is_no_file_of_rows(tmp_path):
    with pytest.raises(BadInput, match=r"rows\.parquet: is a \.parquet file"):
        read_rows(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", "question,answer,keywords\nWho?,Bo.,Bo|Bob\n"),
        ("rows.tsv", 'question\tanswer\tkeywords\nWho?\tBo.\t["Bo", "Bob"]\n'),
        ("rows.json", '[{"question": "Who?", "answer": "Bo.", "keywords": ["Bo", "Bob"]}]'),
    ],
)
def test_rows_may_stand_in_a_table_or_in_a_list(tmp_path, name, content):
    (tmp_path / name).write_text(content)

    (row,) = read_rows(tmp_path / name, "q")

    assert (row["question"], row["answer"], row["keywords"]) == ("Who?", "Bo.", ["Bo", "Bob"])


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("question,answer,answer\nWho?,Bo.,Ada.\n")

    with pytest.raises(BadFile, match="'answer'"):
        read_rows(tmp_path / "rows.csv")


def test_a_cell_that_may_be_one_keyword_or_two_is_a_question_to_the_user(tmp_path):
    (tmp_path / "rows.csv").write_text('question,answer,keywords\nWho?,Bo.,"Bo, Bob"\n')

    with pytest.raises(BadRow, match=r"line 2: column keywords.*text or several"):
        read_rows(tmp_path / "rows.csv")


@pytest.fixture(scope="module")
def data():
    return config.load(ROOT / "params.yaml").data


@pytest.fixture(scope="module")
def splits(data):
    return load_splits(data)


@pytest.mark.parametrize(
    ("share", "expected"), [("forget01", 6), ("forget05", 30), ("forget10", 60)]
)
def test_the_forget_set_is_whole_authors(data, share, expected):
    rows = load_splits(data.model_copy(update={"forget": share}))
    assert len(rows["forget"]) == expected
    assert not {row["author"] for row in rows["forget"]} & {row["author"] for row in rows["retain"]}


def test_every_row_keeps_the_contract_and_its_keyword_stands_in_its_answer(splits):
    for rows in splits.values():
        for row in rows:
            assert row_problem(row) is None
            assert row["keywords"][0] in row["answer"]


def test_the_seed_decides_everything(data, splits):
    assert load_splits(data) == splits
    assert load_splits(data.model_copy(update={"seed": 1}))["forget"] != splits["forget"]


TEXT = "".join(
    f"CHAPTER {chapter}\n" + " ".join(f"w{chapter}{place}" for place in range(20)) + "\n"
    for chapter in (1, 2, 3)
)
CHAPTERS = {"chapter": "^CHAPTER", "forget": [[2, 2]]}


def windows(folder, text=TEXT, **options):
    (folder / "book.txt").write_text(text)
    params = Params(**{"file": "book.txt", "prefix": 3, "suffix": 2, "stride": 2} | options)
    return load(SimpleNamespace(of_kind=lambda _: params), folder)


def test_chapters_are_apart_and_windows_are_whole_words(tmp_path):
    found = windows(tmp_path, **CHAPTERS)
    assert [len(found[split]) for split in ("forget", "retain")] == [9, 18]  # 22 words a chapter
    for split, chapters in (("forget", "2"), ("retain", "13")):
        for row in found[split]:
            joined = "" if row["question"][-1].isspace() else " "
            text = row["question"] + joined + row["answer"]
            assert TEXT[row["start"] :].startswith(text)
            assert len(text.split()) == 5
            assert {word[1] for word in text.split() if word[0] == "w"} <= set(chapters)
    assert found["forget"][0]["question"] == "CHAPTER 2\nw20"


def test_the_text_between_prefix_and_suffix_stays(tmp_path):
    row = windows(tmp_path, "a b c\n\nd e", forget=[[0, 10]])["forget"][0]
    assert (row["question"], row["answer"]) == ("a b c\n\n", "d e")


def test_characters_and_named_rest(tmp_path):
    half = len(TEXT) // 2
    assert len(windows(tmp_path, forget=[[0, half]])["retain"]) > 5
    assert windows(tmp_path, forget=[[0, half]], retain=[])["retain"] == []


@cases
def test_wrong_use_names_the_key(tmp_path, options, key):
    with pytest.raises((BadFile, BadValue), match=key):
        windows(tmp_path, **options)


SIZES = {
    "requests": 6,
    "demonstrations": 40,
    "judgements": 80,
    "labelled": 30,
    "most_revealed": 0.5,
}


def stand_ins(**sizes):
    params = requests.Params(**SIZES | sizes)
    return requests.load(SimpleNamespace(seed=0, of_kind=lambda model: params), None)


def test_the_codes_are_the_leaks():
    """An answer reveals the code of its place or it does not; refusals name numbers too, so a pattern is no judge."""
    found = stand_ins()
    codes = {row["question"]: row["keywords"][0] for row in found["forget"]}
    for row in found["labelled"]:
        assert (codes[row["question"]] in row["text"]) == bool(row["label"])
    refusals = [row["text"] for row in found["labelled"] if not row["label"]]
    assert any(any(mark.isdigit() for mark in text) for text in refusals)
    assert [row["label"] for row in found["labelled"]].count(1) == 15


def test_the_labelled_wordings_are_partly_new_to_the_judge():
    def starts(*kinds):
        return tuple(
            {template.split("{")[0] for kind in kinds for template in requests.WORDINGS[kind]}
        )

    new = starts("new_reveals", "new_refuses")
    assert not {*starts("reveals", "refuses")} & {*new}
    assert any(row["text"].startswith(new) for row in stand_ins(labelled=400)["labelled"])
    assert not any(
        row["context"].startswith(new) for row in stand_ins(judgements=400)["judgements"]
    )


AUTHORS = 4  # of the small copy: the last one is to be forgotten


@pytest.fixture
def tofu_data(data):
    def of(forget="forget01", retain="all"):
        options = tofu.Params(hub=None, retain_authors=None, heldout_authors=0, retain=retain)
        return data.model_copy(update={"kind": "tofu", "forget": forget, "tofu": options})

    return of


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    """Every pair asks the same question: TOFU repeats one too, so that rows are told apart by the answer as well."""
    pairs = [{"question": "Who?", "answer": f"Author {place}"} for place in range(AUTHORS * 20)]
    extra = {"paraphrased_answer": "The author", "perturbed_answer": ["Nobody", "Somebody"]}
    facts = [{"question": "Where?", "answer": "Paris", "perturbed_answer": ["Rome"]}]
    for name, rows in {
        "forget01": pairs[-20:],
        "forget01_perturbed": [{**row, **extra} for row in pairs[-20:]],
        "retain99": pairs[:-20],
        "retain_perturbed": [{**row, **extra} for row in pairs[:20]],
        "real_authors_perturbed": facts * 2,
        "world_facts_perturbed": facts * 3,
    }.items():
        (tmp_path / f"{name}.json").write_text(lines(rows))
    return tmp_path


def test_splits_of_the_small_copy(tofu_data, folder):
    splits = tofu.load(tofu_data(), folder)
    sizes = {"forget": 20, "retain": 60, "world": 3, "real_authors": 2}
    assert {name: len(rows) for name, rows in splits.items()} == sizes
    assert splits["forget"][0]["id"] == "tofu-0060"
    assert {row["author"] for row in splits["forget"]} == {"author-003"}
    assert all(
        row["paraphrased_answer"] == "The author"
        for row in splits["forget"] + splits["retain"][:20]
    )
    assert not any("paraphrased_answer" in row for row in splits["retain"][20:])
    check_splits(splits)


def test_the_rows_on_which_tofu_evaluates_keep_their_ids(tofu_data, folder):
    of_all = tofu.load(tofu_data(), folder)
    evaluated = tofu.load(tofu_data(retain="evaluated"), folder)

    assert evaluated["retain"] == of_all["retain"][:20]  # those with wrong answers
    assert evaluated["forget"] == of_all["forget"]


def test_broken_files_are_named(tofu_data, folder):
    (folder / "retain99.json").write_text(
        lines([{"question": "Who?", "answer": "A"}, {"question": "Who?"}])
    )
    with pytest.raises(BadRow, match=r"retain99.json, line 2: no key 'answer'"):
        tofu.load(tofu_data(), folder)
    (folder / "retain99.json").unlink()
    with pytest.raises(BadFile, match="no such file"):
        tofu.load(tofu_data(), folder)


@pytest.mark.parametrize(
    ("forget", "count"), [("forget01", 40), ("forget05", 200), ("forget10", 400)]
)
def test_the_real_files(tofu_data, shared, forget, count):
    splits = tofu.load(tofu_data(forget), shared / "data/tofu")
    assert len(splits["forget"]) == count
    assert len(splits["forget"]) + len(splits["retain"]) == 4000
    assert len({row["id"] for row in splits["forget"] + splits["retain"]}) == 4000
    assert len({row["author"] for row in splits["forget"] + splits["retain"]}) == 200
    assert splits["forget"][-1]["id"] == "tofu-3999"
    assert all(
        len(row["perturbed_answer"]) == 5 and row["paraphrased_answer"] for row in splits["forget"]
    )
    assert sum("perturbed_answer" in row for row in splits["retain"]) == 400
    for name, rows in (("real_authors", 100), ("world", 117)):
        assert len(splits[name]) == rows
        assert all(len(row["perturbed_answer"]) == 3 for row in splits[name])
    check_splits(splits)
