"""A dataset without the optional splits: results that need them are null, with the reason."""

import pytest

from lethe import config
from lethe.io.json_files import read_json, write_jsonl
from lethe.results import table
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
    found = table.read(tmp_path).model("npo")
    assert found.values == {"epsilon_star": None, "epsilon_lower": None}
    evidence = found.row("epsilon_star", "given answers").evidence
    assert (evidence["n_train"], evidence["n_population"]) == (forget, heldout or 0)
    assert evidence["note"]
