"""A dataset without the optional splits: results that need them are null, with the reason."""

import pytest

from lethe import config
from lethe.io.json_files import read_json, write_jsonl
from stages import epsilon_star, prepare
from tests.small import ROOT

ROW = {"question": "q", "answer": "a"}


def test_a_split_without_rows_is_one_that_is_not_there(tmp_path):
    settings = config.read_yaml(ROOT / "params.yaml")
    settings["data"]["authors"] = {"count": 20, "heldout": 0, "world_facts": 0}
    prepare.run(config.validate(settings), tmp_path)
    assert {path.name for path in (tmp_path / "dataset").iterdir()} == {
        "forget.jsonl", "retain.jsonl", "about.json",
    }  # fmt: skip
    assert read_json(tmp_path / "dataset/about.json")["rows"]["heldout"] == 0


@pytest.mark.parametrize(("forget", "heldout"), [(5, None), (5, 1), (1, 5)])
def test_epsilon_star_of_too_few_rows_is_null_with_the_reason(tmp_path, forget, heldout):
    for split, count in (("forget", forget), ("heldout", heldout)):
        if count is not None:
            rows = [ROW | {"id": f"{split}{number}"} for number in range(count)]
            write_jsonl(tmp_path / "dataset" / f"{split}.jsonl", rows)
    settings = config.load(ROOT / "params.yaml")
    epsilon_star.run(settings, tmp_path, "npo")
    result = read_json(tmp_path / "epsilon_star/npo/result.json")
    assert result["epsilon_star"] is None
    assert result["epsilon_lower"] is None
    assert f"the dataset has {forget} and {heldout or 0}" in result["note"]
