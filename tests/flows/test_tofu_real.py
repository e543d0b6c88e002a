"""The preset `tofu-real`: its stages with a tiny model and a tiny slice in place of the real ones, and the table of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from flows.settings import changed
from lethe import config
from lethe.errors import BadInput
from lethe.results import table
from tests.benchmarks.run_table import main as run_table
from tests.flows.test_presets import tiny, with_preset, work
from tests.small import make_repository

START = "data/models/smollm2-135m-instruct"


def slice_of_tofu(folder: Path) -> None:
    """TOFU's files with three authors: one to forget, one to keep, one held out."""
    pairs = [{"question": f"Who is {place}?", "answer": f"Author {place} wrote."} for place in range(60)]
    extra = {"paraphrased_answer": "The author.", "perturbed_answer": ["Nobody.", "Somebody."]}
    facts = [{"question": "Where?", "answer": "Paris.", "perturbed_answer": ["Rome."]}] * 2
    files = {
        "forget01": pairs[40:],
        "forget01_perturbed": [{**row, **extra} for row in pairs[40:]],
        "retain99": pairs[:40],
        "retain_perturbed": [{**row, **extra} for row in pairs[:20]],
        "real_authors_perturbed": facts,
        "world_facts_perturbed": facts,
    }
    for name, rows in files.items():
        (folder / f"{name}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_sizes_are_those_of_the_documented_arithmetic():
    params = config.validate(with_preset("tofu-real"))
    kept = params.data.model_extra["tofu"].retain_authors
    assert (kept, params.data.forget, len(params.unlearn.methods)) == (10, "forget01", 3)
    assert params.train.recipe.start_from == START
    for recipe in (params.train.recipe, params.unlearn.recipe):  # LoRA, and resumable
        assert recipe.compute.lora
        assert recipe.compute.checkpoint_every


@pytest.mark.slow
def test_the_whole_preset_with_a_tiny_model(tmp_path, monkeypatch):
    value = with_preset("tofu-real")
    value["train"]["recipe"]["epochs"] = 1
    value["unlearn"]["recipe"]["watch"] = 2
    for method in value["unlearn"]["methods"].values():
        method["epochs"] = 1
    value["sample"] |= {"n": 3, "utility_n": 2, "utility_questions": 2, "max_new_tokens": 4}
    value["exact"]["rows"] = 5
    folder = make_repository(tmp_path / "lethe", value, git=False)
    monkeypatch.chdir(folder)
    slice_of_tofu(folder / "data/source")
    tiny(folder / START, ["Author 1 wrote."])
    changed(folder / "params.yaml", [])  # what `lethe run` checks first
    params = config.load()
    work("prepare", "train@base", "train@retrain", *(f"unlearn@{name}" for name in params.unlearn.methods))
    for name in params.models:
        assert (folder / f"data/models/{name}/adapter_model.safetensors").is_file()
        work(
            *(f"{stage}@{name}" for stage in ("sample", "likelihood", "score", "exact", "metrics", "epsilon_star"))
        )
        found = table.read(Path("data")).model(name).values
        assert (found["n_questions"], found["n"]) == (20, 3)
        drawn = pd.read_parquet(f"data/scores/{name}/forget.parquet")
        assert found["mean"] == pytest.approx(drawn.loc[drawn["sample"] >= 0, "rouge_l"].mean())
    work("compare", "report")
    assert Path("data/report").exists()
    exact = [row for row in table.read(Path("data")).rows("npo") if (row.scope, row.basis) == ("question", "tree")]
    assert len(exact) == 20

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- run -->\nold\n<!-- end run -->\nafter\n")
    monkeypatch.chdir(tmp_path)
    run_table(["--folder", str(folder), "--write", str(page)])
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    assert [row[0].removeprefix("| ") for row in rows[2:]] == list(params.models)
    place = rows[0].index("sampled answers: mean score")
    assert float(rows[2][place]) == pytest.approx(
        table.read(folder / "data").model("base").values["mean"], abs=5e-4
    )
    assert page.read_text().startswith("before\n<!-- run -->\n| model")
    assert page.read_text().endswith("\n<!-- end run -->\nafter\n")
    page.write_text("no marks")
    with pytest.raises(BadInput, match="holds no <!-- run -->"):
        run_table(["--folder", str(folder), "--write", str(page)])
