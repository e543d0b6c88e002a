"""`lethe.load_run` and its figures: the tables are the artifacts', the figures draw them."""

import json
import shutil
from dataclasses import replace

import pytest
import yaml

import lethe
from lethe.errors import BadInput, LetheError
from lethe.results import table


@pytest.fixture
def two_models(here, tmp_path):
    """A pipeline's folder: the run's model under two names, and one that params.yaml no longer names."""
    data = tmp_path / "data"
    shutil.copytree(here / "data", data)
    rows = table.read_rows(table.place(data, "metrics", "mine"))
    for name in ("first", "gone"):
        for folder in ("generations", "scores"):
            shutil.copytree(data / folder / "mine", data / folder / name)
        table.write(table.place(data, "metrics", name), [replace(row, model=name) for row in rows])
    audit = table.Rows("canaries")
    audit.add("audit", "p_value", "run", 0.5, item="exact")
    table.write(table.place(data, "audit", "canaries"), audit.rows)
    (tmp_path / "params.yaml").write_text(
        yaml.safe_dump({"models": {"mine": {}, "first": {}, "later": {}}}, sort_keys=False)
    )
    return data


def test_the_tables_are_views_of_the_table_of_results(here):
    run = lethe.load_run("data")
    rows = table.read_rows(table.place(here / "data", "metrics", "mine"))
    assert len(run.results) == len(rows)
    assert run.results["upper"].notna().sum() == sum(row.upper is not None for row in rows)
    questions = run.questions.set_index("prompt_id")
    shown = 0
    for row in rows:
        for pattern, name, value in zip(
            row.kind.names, row.names(), (row.value, row.lower, row.upper), strict=True
        ):
            single = row.at is None or row.at in row.kind.exported_at
            if name and value is not None and (single or (row.scope == "question" and "{at}" in pattern)):
                found = questions.loc[row.item] if row.scope == "question" else run.metrics.loc["mine"]
                assert found[name] == value
                shown += row.scope == "question"
    assert shown > 100
    assert {"m_gen_0.5", "m_gen_lower_0.5", "exceedance_0.5"} < set(questions)
    assert {"leak_at_100", "leak_at_100_lower", "leak_at_2_estimate"} < set(questions)
    assert questions["question"].tolist() == ["Who is Ada?", "Where is Bo?"]
    worst = next(row for row in rows if row.quantity == "leak_worst")
    assert run.bounds["mine"]["m_bin_worst"] == worst.upper_bound
    exported = json.loads((here / "data/metrics/mine.json").read_text())
    assert {key: run.metrics.loc["mine", key] for key in exported if key != "schema"}.items() <= exported.items()
    assert set(run.answers) >= {"model", "split", "prompt_id", "sample", "text", "rouge_l", "keyword_leak"}
    told = json.loads((here / "data/report/summary.json").read_text())["models"]["mine"]["bounds"]
    assert {key: bound.as_dict() for key, bound in run.bounds["mine"].items()} == told
    greedy = run.answers[run.answers["sample"] == -1]["rouge_l"]
    assert run.metrics.loc["mine", "greedy_mean"] == pytest.approx(greedy.mean())


def test_the_figures_draw_the_tables(two_models):
    run = lethe.load_run(two_models)
    axes = run.plot_bounds()
    marks = {line.get_label().split(",")[0]: line.get_xdata() for line in axes.lines}
    assert marks["sampled answers"].tolist() == run.metrics["mean"].tolist()
    assert [label.get_text() for label in axes.get_yticklabels()] == run.models
    rows = run.questions[run.questions["model"] == "first"].sort_values("m_mu", ascending=False)
    axes = run.plot_questions("first")
    (mean,) = [line for line in axes.lines if line.get_label().startswith("mean")]
    assert sorted(mean.get_ydata().tolist()) == sorted(rows["mean"].tolist())
    tops = [segment[1][1] for segment in axes.collections[0].get_segments()]
    assert tops == rows["m_mu"].tolist()
    axes = run.plot_tails()
    assert axes.lines[0].get_ydata().tolist() == run.tails[run.tails["model"] == "mine"]["bound"].tolist()


def test_what_is_no_run_is_told(tmp_path):
    with pytest.raises(BadInput, match="none: no such folder"):
        lethe.load_run(tmp_path / "none")
    with pytest.raises(LetheError, match="metrics is missing"):
        lethe.load_run(tmp_path)
