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
    rows = []
    for number, (question, answer) in enumerate(pairs):
        rows.append({"id": str(number), "question": question, "answer": answer})
    path.write_text(lines(rows), encoding="utf-8")

    assert read_rows(path) == rows


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def is_text(value):
    return isinstance(value, str) and value.strip() != ""


def is_list_of_texts(value):
    return isinstance(value, list) and all(map(is_text, value))


def keeps_the_contract(row):
    for key in ("id", "question", "answer"):
        if not is_text(row.get(key)):
            return False
    for key in ("keywords", "perturbed_answer"):
        if row.get(key) is not None and not is_list_of_texts(row[key]):
            return False
    return row.get("author") is None or isinstance(row["author"], str)


keys = st.sampled_from(["id", "question", "answer", "keywords", "perturbed_answer", "author"])
list_values = st.lists(st.text() | st.integers())


@given(st.dictionaries(keys, st.none() | st.integers() | st.text() | list_values))
def test_a_row_is_accepted_only_when_it_keeps_the_contract(row):
    assert (row_problem(row) is None) == keeps_the_contract(row)


def write(tmp_path, *lines):
    path = tmp_path / "forget.jsonl"
    path.write_text("\n".join(lines))
    return path


GOOD = '{"id": "a", "question": "q", "answer": "a"}'


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([GOOD, '{"id": "b", "question": "q"}'], r"forget\.jsonl, line 2: no key 'answer'"),
        ([GOOD, GOOD], "line 2: id 'a' already"),
        ([GOOD[:-1] + ', "keywords": "x"}'], "line 1: key keywords: got"),
    ],
)
def test_a_broken_row_is_named_by_file_and_line(tmp_path, rows, problem):
    with pytest.raises(BadRow, match=problem):
        read_rows(write(tmp_path, *rows))


BODY = '"question": "q", "answer": "a"'


@pytest.mark.parametrize(("prefix", "ids"), [("", ["0", "3"]), ("retain-", ["0", "retain-3"])])
def test_an_id_may_be_a_whole_number_or_the_line(tmp_path, prefix, ids):
    path = write(tmp_path, '{"id": 0, ' + BODY + "}", "", "{" + BODY + "}")

    assert [row["id"] for row in read_rows(path, prefix)] == ids


@pytest.mark.parametrize("value", ["true", "1.5", '""', "[1]"])
def test_other_ids_are_refused(tmp_path, value):
    path = write(tmp_path, '{"id": ' + value + ", " + BODY + "}")

    with pytest.raises(BadRow, match="line 1: key id"):
        read_rows(path)


@pytest.mark.parametrize(
    ("forget", "problem"),
    [([], "forget set is empty"), ([json.loads(GOOD)], "splits forget and retain")],
)
def test_empty_splits_and_shared_ids_are_refused(forget, problem):
    with pytest.raises(BadInput, match=problem):
        check_splits({"forget": forget, "retain": [json.loads(GOOD)]})


@pytest.fixture
def users_folder(tmp_path):
    for number, name in enumerate(("forget", "retain", "heldout")):
        row = {"id": str(number), "question": "q", "answer": "a"}
        (tmp_path / f"{name}.jsonl").write_text(lines([row]))
    return tmp_path


def test_the_users_files_are_splits(users_folder):
    assert set(jsonl.load(None, users_folder)) == {"forget", "retain", "heldout"}


def test_a_split_that_is_not_there_is_named(users_folder):
    (users_folder / "retain.jsonl").unlink()

    with pytest.raises(BadInput, match=r"retain\.jsonl: no such file"):
        jsonl.load(None, users_folder)


ROW_WITH_KEY = '{"id": "%s", "question": "q", "answer": "a", "%s": ["x"]}'


@pytest.mark.parametrize("key", ["Keywords", "keyword", "key words", "paraphrased_anwser"])
def test_a_misspelt_key_is_an_error(tmp_path, key):
    with pytest.raises(BadRow, match=f"unknown key '{key}'; did you mean"):
        read_rows(write(tmp_path, ROW_WITH_KEY % ("a", key)))


def test_an_unknown_key_is_named_once(tmp_path, capsys):
    path = write(tmp_path, ROW_WITH_KEY % ("a", "notes"), ROW_WITH_KEY % ("b", "notes"))

    rows = read_rows(path)

    assert len(rows) == 2
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


@pytest.mark.parametrize(("share", "n"), [("forget01", 6), ("forget05", 30), ("forget10", 60)])
def test_the_forget_set_is_whole_authors(data, share, n):
    rows = load_splits(data.model_copy(update={"forget": share}))

    assert len(rows["forget"]) == n
    assert authors_of(rows["forget"]).isdisjoint(authors_of(rows["retain"]))


def authors_of(rows):
    return {row["author"] for row in rows}


def test_every_row_keeps_the_contract_and_its_keyword_stands_in_its_answer(splits):
    for rows in splits.values():
        for row in rows:
            assert row_problem(row) is None
            assert row["keywords"][0] in row["answer"]


def test_the_same_seed_gives_the_same_splits(data, splits):
    assert load_splits(data) == splits


def test_another_seed_gives_other_rows(data, splits):
    other = load_splits(data.model_copy(update={"seed": 1}))

    assert other["forget"] != splits["forget"]


def chapter(number):
    words = " ".join(f"w{number}{place}" for place in range(20))
    return f"CHAPTER {number}\n{words}\n"


TEXT = chapter(1) + chapter(2) + chapter(3)
CHAPTERS = {"chapter": "^CHAPTER", "forget": [[2, 2]]}


def windows(folder, text=TEXT, **options):
    (folder / "book.txt").write_text(text)
    params = Params(**{"file": "book.txt", "prefix": 3, "suffix": 2, "stride": 2} | options)
    return load(SimpleNamespace(of_kind=lambda _: params), folder)


def passage_of(row):
    separator = "" if row["question"][-1].isspace() else " "
    return row["question"] + separator + row["answer"]


def test_windows_are_counted_by_chapter(tmp_path):
    splits = windows(tmp_path, **CHAPTERS)

    assert len(splits["forget"]) == 9  # 22 words a chapter
    assert len(splits["retain"]) == 18


@pytest.mark.parametrize(("split", "chapters"), [("forget", "2"), ("retain", "13")])
def test_chapters_are_apart_and_windows_are_whole_words(tmp_path, split, chapters):
    for row in windows(tmp_path, **CHAPTERS)[split]:
        passage = passage_of(row)

        assert TEXT[row["start"] :].startswith(passage)
        words = passage.split()
        assert len(words) == 5
        assert {word[1] for word in words if word[0] == "w"} <= set(chapters)


def test_a_window_begins_at_the_chapter(tmp_path):
    assert windows(tmp_path, **CHAPTERS)["forget"][0]["question"] == "CHAPTER 2\nw20"


def test_the_text_between_prefix_and_suffix_stays(tmp_path):
    row = windows(tmp_path, "a b c\n\nd e", forget=[[0, 10]])["forget"][0]

    assert (row["question"], row["answer"]) == ("a b c\n\n", "d e")


FIRST_HALF = [[0, len(TEXT) // 2]]


def test_without_a_named_retain_set_the_rest_is_retained(tmp_path):
    assert len(windows(tmp_path, forget=FIRST_HALF)["retain"]) > 5


def test_an_empty_retain_set_may_be_named(tmp_path):
    assert windows(tmp_path, forget=FIRST_HALF, retain=[])["retain"] == []


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


def test_an_answer_leaks_if_it_reveals_the_code_of_its_place():
    rows = stand_ins()

    code_of_question = {row["question"]: row["keywords"][0] for row in rows["forget"]}
    for row in rows["labelled"]:
        assert (code_of_question[row["question"]] in row["text"]) == bool(row["label"])


def test_refusals_name_numbers_too_so_that_a_pattern_is_no_judge():
    refusals = [row["text"] for row in stand_ins()["labelled"] if not row["label"]]

    assert any(map(str.isdigit, "".join(refusals)))


def test_half_of_the_labelled_answers_leak():
    assert sum(row["label"] for row in stand_ins()["labelled"]) == 15


def starts_of(*kinds):
    """How the wordings of these kinds begin."""
    starts = set()
    for kind in kinds:
        starts |= {template.split("{")[0] for template in requests.WORDINGS[kind]}
    return starts


NEW = tuple(starts_of("new_reveals", "new_refuses"))


def test_new_wordings_are_none_that_the_judge_learns_from():
    assert starts_of("reveals", "refuses").isdisjoint(NEW)


def test_the_labelled_wordings_are_partly_new_to_the_judge():
    assert any(row["text"].startswith(NEW) for row in stand_ins(labelled=400)["labelled"])


def test_no_judgement_has_a_new_wording():
    assert not any(
        row["context"].startswith(NEW) for row in stand_ins(judgements=400)["judgements"]
    )


AUTHORS = 4  # of the small copy: the last one is to be forgotten


@pytest.fixture
def tofu_data(data):
    def of(forget="forget01", retain="all"):
        options = tofu.Params(hub=None, retain_authors=None, heldout_authors=0, retain=retain)
        return data.model_copy(update={"kind": "tofu", "forget": forget, "tofu": options})

    return of


@pytest.fixture
def folder(tmp_path):
    """Every pair asks the same question: TOFU repeats one too, so that rows are told apart by the answer as well."""
    pairs = [{"question": "Who?", "answer": f"Author {place}"} for place in range(AUTHORS * 20)]
    extra = {"paraphrased_answer": "The author", "perturbed_answer": ["Nobody", "Somebody"]}
    facts = [{"question": "Where?", "answer": "Paris", "perturbed_answer": ["Rome"]}]
    rows_of_file = {
        "forget01": pairs[-20:],
        "forget01_perturbed": [{**row, **extra} for row in pairs[-20:]],
        "retain99": pairs[:-20],
        "retain_perturbed": [{**row, **extra} for row in pairs[:20]],
        "real_authors_perturbed": facts * 2,
        "world_facts_perturbed": facts * 3,
    }
    for name, rows in rows_of_file.items():
        (tmp_path / f"{name}.json").write_text(lines(rows))
    return tmp_path


def sizes_of(splits):
    return {name: len(rows) for name, rows in splits.items()}


def test_splits_of_the_small_copy(tofu_data, folder):
    splits = tofu.load(tofu_data(), folder)

    assert sizes_of(splits) == {"forget": 20, "retain": 60, "world": 3, "real_authors": 2}
    check_splits(splits)


def test_the_last_author_is_forgotten(tofu_data, folder):
    forget = tofu.load(tofu_data(), folder)["forget"]

    assert forget[0]["id"] == "tofu-0060"
    assert authors_of(forget) == {"author-003"}


def test_the_rows_on_which_tofu_evaluates_have_other_answers(tofu_data, folder):
    splits = tofu.load(tofu_data(), folder)

    for row in splits["forget"] + splits["retain"][:20]:
        assert row["paraphrased_answer"] == "The author"
    for row in splits["retain"][20:]:
        assert "paraphrased_answer" not in row


def test_the_rows_on_which_tofu_evaluates_keep_their_ids(tofu_data, folder):
    of_all = tofu.load(tofu_data(), folder)
    evaluated = tofu.load(tofu_data(retain="evaluated"), folder)

    assert evaluated["retain"] == of_all["retain"][:20]  # those with wrong answers
    assert evaluated["forget"] == of_all["forget"]


def test_a_broken_row_of_tofu_is_named(tofu_data, folder):
    rows = [{"question": "Who?", "answer": "A"}, {"question": "Who?"}]
    (folder / "retain99.json").write_text(lines(rows))

    with pytest.raises(BadRow, match=r"retain99.json, line 2: no key 'answer'"):
        tofu.load(tofu_data(), folder)


def test_a_missing_file_of_tofu_is_named(tofu_data, folder):
    (folder / "retain99.json").unlink()

    with pytest.raises(BadFile, match="no such file"):
        tofu.load(tofu_data(), folder)


@pytest.mark.parametrize(
    ("forget", "count"), [("forget01", 40), ("forget05", 200), ("forget10", 400)]
)
def test_the_real_files(tofu_data, shared, forget, count):
    splits = tofu.load(tofu_data(forget), shared / "data/tofu")

    sizes = {"forget": count, "retain": 4000 - count, "real_authors": 100, "world": 117}
    assert sizes_of(splits) == sizes
    rows = splits["forget"] + splits["retain"]
    assert len({row["id"] for row in rows}) == 4000
    assert len(authors_of(rows)) == 200
    assert splits["forget"][-1]["id"] == "tofu-3999"
    check_splits(splits)


def test_the_real_rows_have_the_wrong_answers_of_their_set(tofu_data, shared):
    splits = tofu.load(tofu_data("forget10"), shared / "data/tofu")

    for row in splits["forget"]:
        assert len(row["perturbed_answer"]) == 5
        assert row["paraphrased_answer"]
    for row in splits["real_authors"] + splits["world"]:
        assert len(row["perturbed_answer"]) == 3
    assert sum("perturbed_answer" in row for row in splits["retain"]) == 400
