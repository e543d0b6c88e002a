import pytest

from lethe import config
from lethe.data import load_splits
from lethe.data.rows import row_problem
from tests.small import ROOT


@pytest.fixture(scope="module")
def data():
    return config.load(ROOT / "params.yaml").data


@pytest.fixture(scope="module")
def splits(data):
    return load_splits(data)


@pytest.mark.parametrize(("share", "expected"), [("forget01", 6), ("forget05", 30), ("forget10", 60)])
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
