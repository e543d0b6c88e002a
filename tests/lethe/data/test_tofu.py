"""The kind `tofu`: on a small copy of its layout, from a folder and by name, and on the real files."""

import json

import pytest

from lethe import config
from lethe.data.kinds import tofu
from lethe.data.rows import check_splits
from lethe.errors import BadFile, BadRow
from tests.small import ROOT

AUTHORS = 4  # of the small copy: the last one is to be forgotten


@pytest.fixture
def data():
    whole = config.load(ROOT / "params.yaml").data

    def with_options(forget="forget01", hub=None, retain_authors=None, heldout_authors=0):
        options = {"hub": hub, "retain_authors": retain_authors, "heldout_authors": heldout_authors}
        changes = {"kind": "tofu", "forget": forget, "tofu": tofu.Params(**options)}
        return whole.model_copy(update=changes)

    return with_options


def files():
    """Every pair asks the same question: TOFU repeats one too, so that rows are told apart by the answer as well."""
    pairs = [{"question": "Who?", "answer": f"Author {place}"} for place in range(AUTHORS * 20)]
    extra = {"paraphrased_answer": "The author", "perturbed_answer": ["Nobody", "Somebody"]}
    facts = [{"question": "Where?", "answer": "Paris", "perturbed_answer": ["Rome"]}]
    return {
        "forget01": pairs[-20:],
        "forget01_perturbed": [{**row, **extra} for row in pairs[-20:]],
        "retain99": pairs[:-20],
        "retain_perturbed": [{**row, **extra} for row in pairs[:20]],
        "real_authors_perturbed": facts * 2,
        "world_facts_perturbed": facts * 3,
    }


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path):
    for name, rows in files().items():
        (tmp_path / f"{name}.json").write_text(lines(rows))
    return tmp_path


def test_splits_of_the_small_copy(data, folder):
    splits = tofu.load(data(), folder)
    assert {name: len(rows) for name, rows in splits.items()} == {
        "forget": 20,
        "retain": 60,
        "world": 3,
        "real_authors": 2,
    }
    assert splits["forget"][0]["id"] == "tofu-0060"
    assert {row["author"] for row in splits["forget"]} == {"author-003"}
    assert all(row["paraphrased_answer"] == "The author" for row in splits["forget"] + splits["retain"][:20])
    assert not any("paraphrased_answer" in row for row in splits["retain"][20:])
    check_splits(splits)


def test_broken_files_are_named(data, folder):
    (folder / "retain99.json").write_text(lines([{"question": "Who?", "answer": "A"}, {"question": "Who?"}]))
    with pytest.raises(BadRow, match=r"retain99.json, line 2: no key 'answer'"):
        tofu.load(data(), folder)
    (folder / "retain99.json").unlink()
    with pytest.raises(BadFile, match="no such file"):
        tofu.load(data(), folder)


@pytest.mark.parametrize(("forget", "count"), [("forget01", 40), ("forget05", 200), ("forget10", 400)])
def test_the_real_files(data, shared, forget, count):
    splits = tofu.load(data(forget), shared / "data/tofu")
    assert len(splits["forget"]) == count
    assert len(splits["forget"]) + len(splits["retain"]) == 4000
    assert len({row["id"] for row in splits["forget"] + splits["retain"]}) == 4000
    assert len({row["author"] for row in splits["forget"] + splits["retain"]}) == 200
    assert splits["forget"][-1]["id"] == "tofu-3999"
    assert all(len(row["perturbed_answer"]) == 5 and row["paraphrased_answer"] for row in splits["forget"])
    assert sum("perturbed_answer" in row for row in splits["retain"]) == 400
    for name, rows in (("real_authors", 100), ("world", 117)):
        assert len(splits[name]) == rows
        assert all(len(row["perturbed_answer"]) == 3 for row in splits[name])
    check_splits(splits)
