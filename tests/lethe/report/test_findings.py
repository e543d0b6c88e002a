"""What holds: the outcome follows the numbers in either direction."""

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest

from flows.workspace import plots_page
from lethe.evaluation.findings import MORE_THAN_RETRAIN, findings, leak_share
from lethe.report.page import plots
from lethe.results import table
from lethe.results.table import Rows
from lethe.statistics.bound import Bound, Covers
from tests.lethe.report import chromium
from tests.lethe.report.conftest import load


def set_scores(root, model, scores, split="forget", scorer="rouge_l"):
    """Replace a score of a model's answers: ``scores(question number, n)`` are n values, the greedy one first."""
    path = root / f"data/scores/{model}/{split}.parquet"
    table = pd.read_parquet(path)
    for place, (_, rows) in enumerate(table.groupby("prompt_id", sort=False).groups.items()):
        table.loc[rows, scorer] = np.asarray(scores(place, len(rows)), dtype=float)
    table.to_parquet(path)


def claim(run, title):
    found = [claim for claim in findings(run).claims if claim.title.startswith(title)]
    assert len(found) == 1
    return {row.subject: row for row in found[0].rows}


def halves(low, high):
    return lambda place, n: np.where(np.arange(n) % 2, low, high)


@pytest.mark.parametrize(
    ("entropy", "control", "verdict"),
    [
        (halves(0.4, 0.6), halves(0, 1), "holds"),
        (halves(0, 1), halves(0.4, 0.6), "the opposite holds"),
        (halves(0, 1), halves(0, 1), "did not show"),
    ],
)
def test_spread_of_entropy_against_its_control(own_artifacts, entropy, control, verdict):
    set_scores(own_artifacts, "npo_entropy", entropy)
    set_scores(own_artifacts, "npo_matched", control)
    row = claim(load(own_artifacts), "Entropy optimisation narrows")["npo_entropy"]
    assert row.verdict == verdict
    assert {"npo_entropy 0.", "npo_matched 0."} <= set(re.findall(r"\w+ 0\.", row.sentence))


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "holds"), (0.0, "did not show")])
def test_leakage_against_retrain(own_artifacts, share, verdict):
    set_scores(own_artifacts, "retrain", lambda place, n: np.zeros(n), scorer="keyword_leak")
    set_scores(own_artifacts, "npo", lambda place, n: np.arange(n) % 2 < 2 * share, scorer="keyword_leak")
    assert claim(load(own_artifacts), MORE_THAN_RETRAIN)["npo"].verdict == verdict


def test_diversity_lost_by_adaptive_temperature(own_artifacts):
    for model, same in (("npo", False), ("npo_at", True)):
        rows = [
            (f"retain-{q:03d}", s, "always this" if same else f"answer {s}")
            for q in range(60)
            for s in range(-1, 64)
        ]
        table = pd.DataFrame(rows, columns=["prompt_id", "sample", "text"])
        table.to_parquet(own_artifacts / f"data/generations/{model}/retain.parquet")
        scores = table.drop(columns="text").assign(rouge_l=0.5, keyword_leak=0.0)
        scores.to_parquet(own_artifacts / f"data/scores/{model}/retain.parquet")
    row = claim(load(own_artifacts), "Adaptive temperature costs diversity on retain")["npo_at"]
    assert row.verdict == "holds"


def write_leaks(root, name, sampled, greedy, judged=None):
    """Results of questions that hold only these shares of sampled answers, greedy leaks and lower bounds by a judge."""
    rows = Rows(name)
    for place, (share, first) in enumerate(zip(sampled, greedy, strict=True)):
        where = {"item": str(place), "split": "forget"}
        rows.add("question", "leak", "sampled", share, **where)
        rows.add("question", "leak", "greedy", float(first), **where)
        if judged:
            lower = Bound(judged[place], "lower", 0.01, Covers.ONE_PROMPT, "draws", "made up")
            rows.add("question", "leak", "judged", None, lower, None, **where)
    table.write(table.place(root / "data", "metrics", name), rows.rows)


def test_hidden_leakage_is_counted_and_compared_with_retrain(own_artifacts):
    sampled, greedy = [0.1] * 6, [0] * 6
    write_leaks(own_artifacts, "npo", sampled, greedy)
    write_leaks(own_artifacts, "npo_at", [0.1, 0.1, 0.1, 0.0, 0.0, 0.0], [1, 0, 0, 0, 0, 0])
    write_leaks(own_artifacts, "retrain", [0.0] * 6, [0] * 6)
    run = load(own_artifacts)
    rows = claim(run, "More questions leak")
    assert rows["npo"].verdict == "holds"
    assert re.findall(r"\d of \d", rows["npo"].sentence) == ["6 of 6", "0 of 6"]
    assert rows["npo_at"].verdict == "did not show"  # 2 of 6 beside 0 of 6 is no proof
    write_leaks(own_artifacts, "retrain", sampled, greedy)
    assert claim(load(own_artifacts), "More questions leak")["npo"].verdict == "did not show"


def test_verdicts_of_a_judge_that_errs_are_not_counted_as_leaks(own_artifacts):
    write_leaks(own_artifacts, "npo", [0.1] * 6, [0] * 6, judged=[0.01, 0, 0, 0, 0, 0])
    (found,) = (one for one in findings(load(own_artifacts)).claims if one.title.startswith("More questions leak"))
    row = next(row for row in found.rows if row.subject == "npo")
    assert "1 of 6" in row.sentence
    assert "judge" in found.measured
    assert "counted" not in found.measured


def test_all_intervals_share_alpha(run):
    found = findings(run)
    compared = [claim for claim in found.claims if not claim.title.startswith("More questions leak")]
    assert found.comparisons == sum(len(claim.rows) for claim in compared)
    share = run.params.metrics.alpha / (2 * found.comparisons)
    models = {model.name: model for model in run.models}
    quantity = leak_share("keyword_leak")
    told = [f"{name} {quantity.worded(quantity.measure(models[name], share))}" for name in ("npo", "retrain")]
    assert claim(run, MORE_THAN_RETRAIN)["npo"].sentence == f"{', '.join(told)}."


def test_nothing_is_shown_on_null_data(run):
    """All models draw from one distribution: at alpha .01 none of twenty runs may show a difference."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        models = [dataclasses.replace(model, answers=null_answers(rng)) for model in run.models]
        for found in findings(dataclasses.replace(run, models=models)).claims:
            if not found.title.startswith("More questions leak"):  # a count of questions, no inference
                assert {row.verdict for row in found.rows} == {"did not show"}


def null_answers(rng):
    index = [(f"q{question}", sample) for question in range(6) for sample in range(200)]
    table = pd.DataFrame(index, columns=["prompt_id", "sample"])
    table["rouge_l"], table["keyword_leak"] = (
        rng.beta(1, 3, len(table)),
        (rng.random(len(table)) < 0.1).astype(float),
    )
    table["text"] = rng.integers(40, size=len(table)).astype(str)
    return dict.fromkeys(("forget", "retain", "world"), table)


def test_answers_that_were_stopped_early_are_not_compared(own_artifacts):
    text = (own_artifacts / "params.yaml").read_text().replace("stop: fixed", "stop: sequential")
    (own_artifacts / "params.yaml").write_text(text)
    titles = [claim.title for claim in findings(load(own_artifacts)).claims]
    assert MORE_THAN_RETRAIN not in titles
    assert not any("leakage of Base" in title or "narrows" in title for title in titles)


def test_a_panel_has_one_checkpoint_beside_base_and_retrain(run):
    drawn = plots(run)
    for name in ("m_gen.json", "per_question.json"):
        panels: dict[str, set[str]] = {}
        for row in drawn[name]:
            panels.setdefault(row["panel"], set()).add(row["model"])
        assert set(panels) == {"grad_ascent", "npo", "npo_matched", "npo_entropy"}
        assert panels["npo"] == {"base", "retrain", "npo", "npo_at"}
        assert all({"base", "retrain"} < models and len(models) <= 4 for models in panels.values())
    lines = {row["model"]: row["line"] for row in drawn["m_gen.json"]}
    assert {lines[name] for name in ("base", "retrain")} == {"reference"}
    assert (lines["npo"], lines["npo_at"]) == ("weights", "adaptive")
    assert all(row["panel"] == row["model"] for row in drawn["training_loss.json"] if row["loss"] is not None)


@pytest.mark.slow
@pytest.mark.skipif(chromium.found() is None, reason="no chromium: install the package of that name")
def test_the_page_of_dvc_draws_and_asks_for_nothing(tmp_path):
    values = [{"x": 1, "y": 2}, {"x": 2, "y": 3}]
    axis = {"type": "quantitative"}
    plot = {"data": {"values": values}, "mark": "bar", "encoding": {key: {"field": key, **axis} for key in "xy"}}
    drawn = f"<div id='plot'></div><script>drawn = vegaEmbed('#plot', {json.dumps(plot)})</script>"
    tried = "<img src='http://127.0.0.1:8/x.png'>"
    path = tmp_path / "plots.html"
    path.write_text(
        plots_page().replace("{refresh_tag}", "").replace("{plot_divs}", drawn + tried), encoding="utf-8"
    )
    with chromium.page() as tab:
        tab.open(path)
        tab.call("Runtime.evaluate", expression="drawn", awaitPromise=True)
        assert tab.evaluate("document.querySelectorAll('#plot canvas, #plot svg').length") > 0
        (refused,) = map(str, tab.logged)
        assert "x.png" in refused
        assert "Content Security Policy" in refused
