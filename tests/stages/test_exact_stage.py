"""Stages `exact` and `extract`, and what `metrics`, `compare`, the report and MLflow read from them."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from lethe import config
from lethe.io import tries
from lethe.io.files import write_jsonl
from lethe.io.tables import write_parquet
from lethe.measure.likelihood_metrics import ATTACKS
from lethe.results import table
from lethe.results.ends import Ends
from lethe.results.exact_bounds import certificates_of, excess_over_retrain
from lethe.results.extraction import extraction_of
from lethe.statistics.bound import CERTAIN, Covers
from lethe.statistics.leak_trees import Certificates
from stages import compare
from stages import exact as stage
from tests.lethe.sampling.sampling_models import ROWS, build_llama
from tests.small import ROOT, tiny_params, work


def params(place: Path, **more) -> config.Params:
    value = config.read_yaml(ROOT / "params.yaml")
    (place / "letters.txt").write_text("{question}")
    value["sample"] |= {"prompt": str(place / "letters.txt"), "max_new_tokens": 4, "stop": "fixed"}
    value["models"] = {name: {"path": str(place / name)} for name in ("base", "retrain")}
    value["unlearn"]["methods"] = {}
    value["exact"] = None if more.get("off") else value["exact"] | {"rows": 500, **more}
    return config.validate(value)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("exact")
    for seed, name in ((3, "base"), (4, "retrain")):
        build_llama(place / name, letters="abcde", scale=1.0, seed=seed)
    return place


@pytest.fixture(scope="module")
def root(place, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data") / "data"
    write_jsonl(root / "dataset/forget.jsonl", ROWS)
    for name in ("base", "retrain"):
        stage.run(params(place), root, name)
    return root


def certificates(root: Path, name: str) -> Certificates:
    found = certificates_of(table.read(root), name)
    assert found is not None
    return found


def version_of_sample(place: Path, root: Path, rows: int) -> int:
    """The number that the sample of the trees has after a run with so many rows."""
    stage.run(params(place, rows=rows), root, "base")
    (row,) = [
        row for row in table.read(root).rows("base") if (row.item, row.basis) == ("one", "tree")
    ]
    return int(row.facts["version"])


def test_a_repeated_tree_is_counted_and_an_equal_one_is_not(place, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    again = shutil.copytree(root, tmp_path / "data")

    numbers = [version_of_sample(place, again, rows) for rows in (60, 90, 60)]

    assert numbers == [1, 2, 1]


def test_a_folder_that_counts_no_samples_says_so(place, root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    again = shutil.copytree(root, tmp_path / "data")
    blocked = tmp_path / "a file"
    blocked.touch()
    said = []
    for folder in (tmp_path / "tries", blocked):
        monkeypatch.setattr(tries, "FOLDER", folder)
        assert version_of_sample(place, again, 60) == 1
        said.append("are not counted, because" in capsys.readouterr().out)

    assert said == [False, True]


def test_its_rows_are_read_by_the_other_stages(root):
    results = table.read(root)
    found = certificates(root, "base")
    assert [tree.id for tree in found.trees] == list(results.questions("base")) == ["one", "two"]
    assert found.skipped == ("bare",)
    numbers = results.model("base")
    assert numbers.values == {
        "tree_lower_worst": max(tree.lower for tree in found.trees),
        "tree_upper_worst": max(tree.upper for tree in found.trees),
        "tree_lower_mean": found.model.mean_lower,
        "tree_upper_mean": found.model.pooled.upper,
        "tree_certain_leaks": 2,
    }
    assert numbers.bounds["tree_lower_worst"].alpha == CERTAIN
    assert numbers.bounds["tree_upper_mean"].covers == Covers.AVERAGE
    assert all(numbers.values[key] == bound.value for key, bound in numbers.bounds.items())
    for tree in found.trees:
        bounds = results.questions("base")[tree.id].bounds
        assert {key.removeprefix("tree_"): bound for key, bound in bounds.items()} == tree.bounds


def test_the_evidence_gives_the_ends_at_the_level_of_the_stage(root):
    """The masses and the sample of the rest, from which an end at another level is computed."""
    found = certificates(root, "base")
    results = table.read(root)
    ids = [tree.id for tree in found.trees]
    rows = [row for row in results.rows("base") if row.scope == "question"]
    ends = Ends.of_rows(rows, ids)
    alpha = found.trees[0].alpha
    assert ends.upper(alpha) == pytest.approx([tree.upper for tree in found.trees], rel=1e-9)
    assert ends.lower(alpha) == pytest.approx(
        [max(tree.lower, tree.lower_sampled) for tree in found.trees], rel=1e-9
    )
    assert (ends.upper(alpha / 10) >= ends.upper(alpha)).all()


def test_null_and_rows_without_keywords_give_no_bounds_and_the_reason(place, root, tmp_path):
    stage.run(params(place, off=True), root=_with(tmp_path / "off", ROWS), name="base")
    stage.run(params(place), root=_with(tmp_path / "bare", ROWS[2:]), name="base")
    for name, reason in (("off", "exact is null"), ("bare", "keywords")):
        results = table.read(tmp_path / name)
        (row,) = results.rows("base")
        assert reason in row.text
        assert (results.model("base").values, results.questions("base")) == ({}, {})
        assert certificates_of(results, "base") is None


def _with(root: Path, rows: list[dict]) -> Path:
    write_jsonl(root / "dataset/forget.jsonl", rows)
    return root


def test_the_stage_compare_adds_the_excess_to_the_table(place, root, tmp_path):
    """Without likelihoods the stage has nothing else to compare: they are made up."""
    copied = Path(shutil.copytree(root, tmp_path / "data"))
    settings = params(place)
    columns = ("probability", "extraction_strength", "exact_memorisation", *ATTACKS)
    for name in ("base", "retrain"):
        table_of = pd.DataFrame(
            {"prompt_id": ["one", "two"], "truth_ratio": [0.5, 0.25], **dict.fromkeys(columns, 0.5)}
        )
        write_parquet(copied / f"scores/{name}/likelihood/forget.parquet", table_of)
    compare.run(settings, copied)
    both = {name: certificates(copied, name) for name in ("base", "retrain")}
    results = table.read(copied)
    excess = excess_over_retrain(both, "retrain", settings.exact.ratio, settings.exact.alpha)[
        "base"
    ]
    ratios = [numbers.bounds["tree_excess"].value for numbers in results.questions("base").values()]
    assert ratios == excess.against.ratio.tolist()
    assert results.model("base").values["tree_above_retrain"] == excess.against.holds.sum()
    assert results.model("base").values["forget_quality"] == 1
    assert results.model("retrain").row("excess", "exact") is None


WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()


def text() -> str:
    random = np.random.default_rng(0)
    return "\n".join(
        f"CHAPTER {number}\n" + " ".join(random.choice(WORDS, 40)) for number in range(1, 5)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The pipeline with a text in place of questions, in this process."""
    params = tiny_params()
    windows = {"prefix": 6, "suffix": 6, "stride": 6}
    params["data"] |= {
        "kind": "passages",
        "passages": {"file": "book.txt", "chapter": "^CHAPTER", "forget": [[2, 2]], **windows},
    }
    params["train"]["recipe"] |= {
        "knowledge": [],
        "epochs": 25,
        "prompt": "lethe/models/prompts/text.txt",
    }
    params["models"] = {
        name: {"path": f"data/models/{name}"} for name in ("base", "retrain", "npo_entropy")
    }
    params["models"]["adaptive"] = {"path": "data/models/base", "adaptive_threshold": 0.9}
    params["sample"] |= {"prompt": "lethe/models/prompts/text.txt", "n": 4}
    params["score"]["scorers"], params["metrics"]["binary"], params["exact"] = (
        ["rouge_l"],
        None,
        None,
    )
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
            for stage in (
                "sample",
                "likelihood",
                "score",
                "extract",
                "exact",
                "metrics",
                "epsilon_star",
            ):
                work(f"{stage}@{name}")
        work("compare")
        work("report")
    return place


@pytest.mark.slow
def test_each_answer_is_a_window_of_the_table(folder):
    results = table.read(folder / "data")
    rows = [
        row
        for row in results.rows("base")
        if row.quantity == "verbatim" and row.scope == "question"
    ]
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


@pytest.mark.slow
def test_the_table_gives_back_the_windows_and_their_ends(folder):
    results = table.read(folder / "data")
    found = extraction_of(results, "base")
    assert len(found.searched) == 3
    for quantity, ends in (
        ("verbatim", found.verbatim_ends()),
        ("near_verbatim", found.near_ends()),
    ):
        again = Ends.of_rows(results.rows("base"), ends.items, quantity)
        assert again.lower(0.01) == pytest.approx(ends.lower(0.01), abs=1e-12)
        assert again.upper(0.01) == pytest.approx(ends.upper(0.01), abs=1e-12)
    assert extraction_of(results, "adaptive") is None


@pytest.mark.slow
def test_the_page_has_the_strips_and_the_word_on_each_model(folder):
    page = (folder / "data/report/index.html").read_text()
    assert page.count('class="strip"') == 3
    assert page.count("base") > 3
    assert "Passages" in page
    assert "npo_entropy, within 1 word edit" in page
    assert not (folder / "data/report/summary.json").read_text().count("extract@")


@pytest.mark.slow
def test_null_writes_an_empty_table(folder, monkeypatch, tmp_path):
    from stages import extract

    params = yaml.safe_load((folder / "params.yaml").read_text()) | {"extract": None}
    monkeypatch.chdir(folder)
    extract.run(config.validate(params), tmp_path, "base")
    assert table.read_rows(table.place(tmp_path, "extract", "base")) == []
