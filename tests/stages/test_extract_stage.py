"""Stage `extract` on a text of the user's own: from the file to the table and the page."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from lethe import config
from lethe.results import table
from lethe.results.ends import Ends
from lethe.results.extraction import extraction_of
from tests.small import ROOT, tiny_params, work

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()


def text() -> str:
    random = np.random.default_rng(0)
    return "\n".join(f"CHAPTER {number}\n" + " ".join(random.choice(WORDS, 40)) for number in range(1, 5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The pipeline with a text in place of questions, in this process."""
    params = tiny_params()
    windows = {"prefix": 6, "suffix": 6, "stride": 6}
    params["data"] |= {
        "kind": "passages",
        "passages": {"file": "book.txt", "chapter": "^CHAPTER", "forget": [[2, 2]], **windows},
    }
    params["train"]["recipe"] |= {"knowledge": [], "epochs": 25, "prompt": "lethe/models/prompts/text.txt"}
    params["models"] = {name: {"path": f"data/models/{name}"} for name in ("base", "retrain", "npo_entropy")}
    params["models"]["adaptive"] = {"path": "data/models/base", "adaptive_threshold": 0.9}
    params["sample"] |= {"prompt": "lethe/models/prompts/text.txt", "n": 4}
    params["score"]["scorers"], params["metrics"]["binary"], params["exact"] = ["rouge_l"], None, None
    params["extract"] = {
        "prefix": 12,
        "suffix": 8,
        "top_k": 0,
        "near": 3,
        "distance": 1,
        "unit": "words",
        "samples": 20,
    }
    place = tmp_path_factory.mktemp("passages")
    (place / "data/source").mkdir(parents=True)
    (place / "data/source/book.txt").write_text(text())
    for name in ("lethe", "flows"):
        (place / name).symlink_to(ROOT / name)
    (place / "params.yaml").write_text(yaml.safe_dump(params))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for stage in ("prepare", "train@base", "train@retrain", "unlearn@npo_entropy"):
            work(stage)
        for name in params["models"]:
            for stage in ("sample", "likelihood", "score", "extract", "exact", "metrics", "epsilon_star"):
                work(f"{stage}@{name}")
        work("compare")
        work("report")
    return place


def test_each_answer_is_a_window_of_the_table(folder):
    results = table.read(folder / "data")
    rows = [row for row in results.rows("base") if row.quantity == "verbatim" and row.scope == "question"]
    assert {row.split for row in rows} == {"forget", "retain"}
    forget = [row.item for row in rows if row.split == "forget"]
    assert list(results.questions("base")) == forget  # what stays is no question
    assert all(row.lower <= row.estimate <= row.upper for row in rows)
    assert results.model("base").values["windows"] == len(forget)
    assert results.model("base").values["p_z_mean"] == pytest.approx(
        np.mean([row.estimate for row in rows if row.split == "forget"])
    )
    assert results.model("base").values["p_z_mean"] != results.model("retrain").values["p_z_mean"]
    assert "fixed temperature" in results.model("adaptive").row("windows", "exact").text


def test_the_table_gives_back_the_windows_and_their_ends(folder):
    results = table.read(folder / "data")
    found = extraction_of(results, "base")
    assert len(found.searched) == 3
    for quantity, ends in (("verbatim", found.verbatim_ends()), ("near_verbatim", found.near_ends())):
        again = Ends.of_rows(results.rows("base"), ends.items, quantity)
        assert again.lower(0.01) == pytest.approx(ends.lower(0.01), abs=1e-12)
        assert again.upper(0.01) == pytest.approx(ends.upper(0.01), abs=1e-12)
    assert extraction_of(results, "adaptive") is None


def test_the_page_has_the_strips_and_the_word_on_each_model(folder):
    page = (folder / "data/report/index.html").read_text()
    assert page.count('class="strip"') == 3
    assert page.count("base") > 3
    assert "Passages" in page
    assert "npo_entropy, within 1 word edit" in page
    assert not (folder / "data/report/summary.json").read_text().count("extract@")


def test_null_writes_an_empty_table(folder, monkeypatch, tmp_path):
    from stages import extract

    params = yaml.safe_load((folder / "params.yaml").read_text()) | {"extract": None}
    monkeypatch.chdir(folder)
    extract.run(config.validate(params), tmp_path, "base")
    assert table.read_rows(table.place(tmp_path, "extract", "base")) == []
