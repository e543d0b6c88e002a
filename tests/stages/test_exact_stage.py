"""Stage `exact`, and what `metrics`, `compare`, the report and MLflow read from its output."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from lethe import config
from lethe.evaluation.likelihood_metrics import ATTACKS
from lethe.io.json_files import write_jsonl
from lethe.io.tables import write_parquet
from lethe.results import table
from lethe.results.ends import Ends
from lethe.results.exact_bounds import certificates_of, excess_over_retrain
from lethe.statistics.bound import CERTAIN, Covers
from lethe.statistics.leak_trees import Certificates
from stages import compare
from stages import exact as stage
from tests.lethe.sampling.sampling_models import build_llama
from tests.small import ROOT

ROWS = [
    {"id": "one", "question": "ab", "answer": "d", "keywords": ["edbb", "d"]},
    {"id": "two", "question": "c", "answer": "ae", "keywords": ["ae"]},
    {"id": "bare", "question": "d", "answer": "cb"},
]


def params(place: Path, **more) -> config.Params:
    value = config.read_yaml(ROOT / "params.yaml")
    (place / "letters.txt").write_text("{question}")
    value["sample"] |= {"prompt": str(place / "letters.txt"), "max_new_tokens": 4}
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


def test_its_rows_are_read_by_the_other_stages(root):
    results, found = table.read(root), certificates(root, "base")
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
        own = results.questions("base")[tree.id].bounds
        assert {key.removeprefix("tree_"): bound for key, bound in own.items()} == tree.bounds


def test_the_evidence_gives_the_ends_at_the_level_of_the_stage(root):
    """The masses and the sample of the rest, from which an end at another level is computed."""
    found, results = certificates(root, "base"), table.read(root)
    ids = [tree.id for tree in found.trees]
    rows = [own for own in results.rows("base") if own.scope == "question"]
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
    excess = excess_over_retrain(both, "retrain", settings.exact.ratio, settings.exact.alpha)["base"]
    ratios = [own.bounds["tree_excess"].value for own in results.questions("base").values()]
    assert ratios == excess.against.ratio.tolist()
    assert results.model("base").values["tree_above_retrain"] == excess.against.holds.sum()
    assert results.model("base").values["forget_quality"] == 1
    assert results.model("retrain").row("excess", "exact") is None
