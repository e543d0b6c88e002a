"""A text cut into windows: the ranges of the splits, the words of a window, what is refused."""

from types import SimpleNamespace

import pytest

from lethe.data.kinds.passages import Params, load
from lethe.errors import BadFile, BadValue

TEXT = "".join(
    f"CHAPTER {chapter}\n" + " ".join(f"w{chapter}{place}" for place in range(20)) + "\n" for chapter in (1, 2, 3)
)
CHAPTERS = {"chapter": "^CHAPTER", "forget": [[2, 2]]}


def splits(folder, text=TEXT, **options):
    (folder / "book.txt").write_text(text)
    params = Params(**{"file": "book.txt", "prefix": 3, "suffix": 2, "stride": 2} | options)
    return load(SimpleNamespace(own=lambda _: params), folder)


def test_chapters_are_apart_and_windows_are_whole_words(tmp_path):
    found = splits(tmp_path, **CHAPTERS)
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
    row = splits(tmp_path, "a b c\n\nd e", forget=[[0, 10]])["forget"][0]
    assert (row["question"], row["answer"]) == ("a b c\n\n", "d e")


def test_characters_and_named_rest(tmp_path):
    half = len(TEXT) // 2
    assert len(splits(tmp_path, forget=[[0, half]])["retain"]) > 5
    assert splits(tmp_path, forget=[[0, half]], retain=[])["retain"] == []


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"forget": [[0, 9999]]}, "forget"),
        ({"forget": [[5, 5]]}, "forget"),
        ({"forget": [[0, 50]], "retain": [[40, 90]]}, "apart"),
        (CHAPTERS | {"forget": [[2, 4]]}, "forget"),
        (CHAPTERS | {"chapter": "^BOOK"}, "chapter"),
        (CHAPTERS | {"chapter": "("}, "chapter"),
        ({"file": "none.txt", "forget": [[0, 9]]}, "none.txt"),
    ],
)
def test_wrong_use_names_the_key(tmp_path, options, key):
    with pytest.raises((BadFile, BadValue), match=key):
        splits(tmp_path, **options)
