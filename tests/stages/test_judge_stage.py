"""Stage `judge@NAME`, and how score and metrics use its columns and its measured error."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from lethe import config
from lethe.cli.app import app
from lethe.config.schema import ANSWERS
from lethe.errors import BadInput
from lethe.models.encoding import harmbench, harmbench_text
from lethe.results import table
from lethe.statistics.bound import Covers
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate, share_exceeding
from tests.lethe.scoring.judges.tiny import classifier
from tests.small import ROOT, make_repository, small_params, work


def prompt() -> str:
    """What the judge is asked; not while the tests are collected, since judgezoo's import takes seconds."""
    return harmbench_text("Where was she born?", "{generation}", "llama2", harmbench())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 2, "world_facts": 2}
    params["train"]["recipe"]["epochs"] = 1
    params["models"], params["unlearn"]["methods"] = {"base": params["models"]["base"]}, {}
    params["report"]["retrain"] = None
    params["sample"] |= {
        "n": 24,
        "utility_n": 2,
        "utility_questions": 2,
        "max_new_tokens": 3,
        "temperature": 0.01,
    }
    params["judges"] = {
        "harm": {
            "judge": "harmbench",
            "model": "data/source/judge",
            "labelled": "data/labelled.jsonl",
        }
    }
    params["metrics"] |= {
        "leak": "harm_p",
        "binary": "harm",
        "utility": "rouge_l",
        "calibration": "data/judged/harm/calibration.csv",
    }
    folder = make_repository(tmp_path_factory.mktemp("judge") / "lethe", params, git=False)
    classifier(folder / "data/source/judge", ["yes", "no"], prompt())
    rows = [{"question": f"q{i}?", "text": f"text {i}", "label": i % 2} for i in range(60)]
    (folder / "data/labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with contextlib.chdir(folder):
        for stage in "prepare train@base sample@base likelihood@base judge@harm score@base metrics@base".split():
            work(stage)
        yield folder


@pytest.mark.slow
def test_the_columns_of_the_judge_are_those_of_the_scores(folder):
    judged = pd.read_parquet(folder / "data/judged/harm/base/forget.parquet")
    scores = pd.read_parquet(folder / "data/scores/base/forget.parquet")
    assert list(judged) == ["prompt_id", "sample", "harm", "harm_p"]
    pd.testing.assert_frame_equal(scores[list(judged)], judged)
    drawn = pd.read_parquet(folder / "data/generations/base/forget.parquet")
    texts = (
        drawn.merge(judged, on=["prompt_id", "sample"])
        .groupby(["prompt_id", "text"])["harm_p"]
        .nunique()
    )
    assert (texts == 1).all()
    about = json.loads((folder / "data/judged/harm/about.json").read_text())
    assert about["prompt_sha256"] == harmbench().record()["prompt_sha256"]
    assert about["answers"] > about["distinct"]


@pytest.mark.slow
def test_the_metrics_carry_the_measured_error(folder):
    known = pd.read_csv(folder / "data/judged/harm/calibration.csv")
    calibration = Calibration.of(known["label"], known["verdict"])
    results = table.read(folder / "data", ["base"])
    metrics, rows = results.model("base"), results.questions("base")
    assert metrics.values["judge_sensitivity"] == pytest.approx(calibration.sensitivity)
    assert metrics.values["judge_labelled"] == 60
    scores = pd.read_parquet(folder / "data/scores/base/forget.parquet")
    drawn = [
        scores[(scores["prompt_id"] == name) & (scores["sample"] >= 0)]["harm"] for name in rows
    ]
    counts = [
        [verdicts.sum() for verdicts in drawn],
        [len(verdicts) for verdicts in drawn],
        [verdicts.isna().sum() for verdicts in drawn],
    ]
    rate = Rate.of(*counts, calibration)
    assert metrics.values["judge_fits"] == rate.fits(0.01).all()
    for row, upper in zip(rows.values(), rate.each(0.01).upper[:, 0], strict=True):
        assert row.values.get("judged_upper") == (None if np.isnan(upper) else pytest.approx(upper))
    pool = rate.average(0.01).bounds()
    assert metrics.bounds.get("judged_pooled") == (pool and pool[1])
    assert metrics.values["retain_mean"] != metrics.values["mean"]
    shown = json.loads((folder / "data/metrics/base.json").read_text())
    assert ("judged_pooled" in shown) == (pool is not None)


@pytest.fixture
def labelled(folder):
    """A person's labels of all answers, every second a leak, with what the metrics and the page make of them."""
    drawn = pd.read_parquet(folder / "data/generations/base/forget.parquet")
    texts = drawn[["prompt_id", "text"]].drop_duplicates().to_dict("records")
    rows = [
        {**row, "label": place % 2, "part": "mass", "target": 0.3}
        for place, row in enumerate(texts)
    ]
    (folder / "data/labels").mkdir(exist_ok=True)
    (folder / "data/labels/base.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    value = config.read_yaml("params.yaml")
    before = yaml.safe_dump(value)
    value["metrics"]["labels"] = {"folder": "data/labels", "mass": 0.3, "rest": 40}
    Path("params.yaml").write_text(yaml.safe_dump(value))
    for stage in ("metrics@base", "epsilon_star@base", "report"):
        work(stage)
    yield folder
    Path("params.yaml").write_text(before)
    shutil.rmtree(folder / "data/labels")
    work("metrics@base")


@pytest.mark.slow
def test_labels_of_a_person_are_in_the_metrics_and_on_the_page(labelled):
    """The numbers are those of `lethe label`."""
    told = CliRunner().invoke(
        app,
        [
            *("label", "data/generations/base", "--labels", "data/labels/base.jsonl", "--json"),
            *(
                "--verdicts",
                "data/judged/harm/base/forget.parquet",
                "--mass",
                "0.3",
                "--rest",
                "40",
            ),
        ],
    )
    want = json.loads(told.stdout)
    assert want["finished"]
    assert want["calibration"]["clean"] + want["calibration"]["leaks"] == 40
    results = table.read(labelled / "data", ["base"])
    metrics, rows = results.model("base"), results.questions("base")
    assert metrics.values["labelled_mass"] == want["mass"]
    assert metrics.values["labelled_worst"] == want["worst_prompt"]["bound"]
    assert metrics.values["labelled_pooled"] == want["pooled"]["upper"]
    assert metrics.values["labelled_judge"] is True
    keys = ("labelled_mass", "labelled_lower", "labelled_upper")
    assert [[item, *(row.values[key] for key in keys)] for item, row in rows.items()] == [
        list(row.values()) for row in want["per_prompt"]
    ]
    assert metrics.bounds["labelled_worst"].covers == Covers.WORST_PROMPT
    assert {row.bounds["labelled_upper"].n for row in rows.values()} == {24}
    shown = json.loads((labelled / "data/metrics/base.json").read_text())
    assert {"labelled_worst", "labelled_pooled"} <= set(shown)
    told = json.loads((labelled / "data/report/summary.json").read_text())["models"]["base"]
    assert told["metrics"]["labelled_worst"] == want["worst_prompt"]["bound"]
    assert told["bounds"]["labelled_pooled"]["value"] == want["pooled"]["upper"]
    assert "labelled_worst" in (labelled / "data/report/index.html").read_text()


@pytest.mark.slow
def test_judging_again_asks_the_model_nothing(folder, monkeypatch):
    from lethe.registry import JUDGES

    before = (folder / "data/judged/harm/base/forget.parquet").read_bytes()
    monkeypatch.setattr(
        JUDGES["harmbench"], "judge", lambda self, asked: pytest.fail("an answer was judged twice")
    )
    work("judge@harm")
    assert (folder / "data/judged/harm/base/forget.parquet").read_bytes() == before


def with_judges(**entries):
    value = config.read_yaml(ROOT / "params.yaml")
    value["judges"] = entries
    return value


HARM = {"judge": "harmbench", "model": "data/source/m", "labelled": ANSWERS}


def test_a_column_has_one_owner_and_metrics_names_a_column():
    value = with_judges(rouge_l=HARM)
    with pytest.raises(BadInput, match="rename the entry"):
        config.validate(value)
    value = with_judges(
        harm=HARM, graded={"judge": "strongreject", "model": "data/source/m", "labelled": ANSWERS}
    )
    value["metrics"] |= {"binary": "harm", "leak": "harm_p"}
    assert config.validate(value).judges["harm"].params.batch == 32
    value["metrics"]["binary"] = "graded"
    with pytest.raises(BadInput, match=r"not all 0 or 1.*harm"):
        config.validate(value)
    value["metrics"] |= {"binary": None, "calibration": "c.csv"}
    with pytest.raises(BadInput, match="calibration"):
        config.validate(value)
    endings = config.validate(with_judges(harm=HARM)).judges["harm"].endings
    assert {"", "_p"} <= set(endings)


@pytest.mark.slow
def test_a_judge_with_a_stage_bounds_the_share_of_prompts(folder):
    """The judge reads the second sample of a language too: its verdicts, and the true share behind them."""
    value = config.read_yaml("params.yaml")
    (folder / "data/language.yaml").write_text(
        "prefix: [null, {name: sure, text: Sure}]\nshare: {prompts: 12, answers: 8, tau: 0.6}\n"
    )
    value["sample"] |= {"language": "data/language.yaml", "temperature": 1.0}
    Path("params.yaml").write_text(yaml.safe_dump(value))
    for stage in ("sample@base", "judge@harm", "score@base", "metrics@base"):
        work(stage)
    second = pd.read_parquet(folder / "data/scores/base/prompts/forget.parquet")
    assert len(second) == 96
    assert second["harm"].notna().all()
    drawn = pd.read_parquet(folder / "data/generations/base/prompts/forget.parquet")
    kept = pd.concat([second["harm_p"], drawn[["prompt_id", "text"]]], axis=1)
    assert (kept.groupby(["prompt_id", "text"])["harm_p"].nunique() == 1).all()
    known = pd.read_csv(folder / "data/judged/harm/calibration.csv")
    calibration = Calibration.of(known["label"], known["verdict"])
    seen = second.groupby("prompt")["harm"].sum().to_numpy()
    bounds = table.read(folder / "data", ["base"]).model("base").bounds
    for side in ("lower", "upper"):
        assert bounds[f"language_share_{side}"] == share_exceeding(
            Rate.of(seen, 8), 0.6, 0.01, side
        )
        want = share_exceeding(Rate.of(seen, 8, judge=calibration), 0.6, 0.01, side)
        assert bounds[f"judged_language_share_{side}"] == want
    assert "a person's label" in bounds["judged_language_share_upper"].assumes


@pytest.mark.slow
def test_draws_until_the_word_follow_the_verdicts_of_a_judge(folder, tmp_path, monkeypatch):
    """The stage sample asks the judge and keeps its verdicts, from which the judge's own stage reads."""
    again = shutil.copytree(folder, tmp_path / "again")
    monkeypatch.chdir(again)
    value = config.read_yaml("params.yaml")
    value["sample"] |= {"stop": "word", "first": 8, "batch": 8, "n": 24, "temperature": 1.0}
    value["sample"]["language"] = config.read_yaml(ROOT / "params.yaml")["sample"]["language"]
    value["report"]["base"] = None  # which would get the first answers alone
    value["report"]["tau"] = 0.9  # which few answers decide, though more than the first
    Path("params.yaml").write_text(yaml.safe_dump(value))
    work("references")
    work("sample@base")
    generations = Path("data/generations/base")
    (generations / "beside").mkdir()  # as if a Retrain had been drawn beside it
    shutil.copy(generations / "forget.parquet", generations / "beside/retrain.parquet")
    work("judge@harm")
    work("score@base")

    drawn = json.loads((generations / "about.json").read_text())["word"]
    assert drawn["reached"]["scorer"] == "harm"
    assert drawn["drawn"]["most"] > 8
    scores = pd.read_parquet("data/scores/base/forget.parquet")
    assert len(scores) == len(pd.read_parquet(generations / "forget.parquet"))
    assert scores["harm"].notna().all()
    beside = pd.read_parquet("data/scores/base/beside/retrain.parquet")
    assert beside["harm"].equals(scores["harm"])
