"""`lethe sweep`: every combination in a separate folder, shared stages run once, params.yaml unchanged."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from flows import settings, sweep
from flows.grid import PRESETS, axes_of, grid_of, random_points, range_of, read_sweep_preset
from flows.workspace import only_run
from lethe.errors import BadInput
from tests.cases import cases
from tests.flows.miniature import DVC_YAML, Repository, mlflow_runs, processes_of, wait_until
from tests.small import ROOT


def test_all_combinations_the_last_axis_fastest():
    points = grid_of(axes_of(["a.b=1,2", "c=x,null"]))
    assert [dict(point.settings) for point in points] == [
        {"a.b": 1, "c": "x"}, {"a.b": 1, "c": None}, {"a.b": 2, "c": "x"}, {"a.b": 2, "c": None},
    ]  # fmt: skip
    assert [dict(point.settings) for point in grid_of(axes_of(["a=[[1, 2], [3]]"]))] == [
        {"a": [1, 2]},
        {"a": [3]},
    ]


@pytest.mark.parametrize("axes", [["a"], ["a="], ["a=[]"], ["a=1,2", "a=3"]])
def test_bad_axes(axes):
    with pytest.raises(BadInput):
        grid_of(axes_of(axes))


def test_a_point_shows_its_steps_while_it_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "python").write_text(
        '#!/bin/sh\necho "a ran after 1 s (1 of 2)\nb" >&2\necho "{}"\n'
    )
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr(sweep, "FIRST_PAUSE", 0.0)
    assert sweep.run_point.fn(str(tmp_path), 1) == {}
    assert capsys.readouterr().err == f"{tmp_path.name}: a ran after 1 s (1 of 2)\n"


def row_of(point: str, model: str, retain: float | None, leakage: float, word: str | None = "open"):
    """A row of a sweep; the references have no word."""
    values = {"binary_mean": leakage, "retain_mean": retain, "bounds": {}}
    return {"point": point, "lr": point, "model": model, "forgetting": word, **values}


def swept(*rows):
    return {"points": {point: {"lr": point} for point in ("low", "high")}, "rows": list(rows)}


BASES = (row_of("low", "base", 0.8, 1.0, None), row_of("high", "base", 0.5, 1.0, None))


def test_at_matched_utility_a_model_has_its_least_leakage_where_it_keeps_nine_tenths_of_base():
    """Base is that of the point: 0.48 is more than nine tenths of the second Base, and little of the first."""
    result = swept(
        *BASES,
        row_of("low", "npo", 0.8, 0.5),
        row_of("high", "npo", 0.48, 0.25),
        row_of("low", "rmu", 0.4, 0.0),
        row_of("high", "rmu", 0.1, 0.125),
    )

    npo, rmu = sweep.at_matched_utility(result, "base")

    assert (npo.chosen.title, npo.chosen.kept, npo.chosen.leakage) == ("high", 0.96, 0.25)
    assert (rmu.chosen, rmu.most_kept, rmu.tried) == (None, 0.5, 2)
    result["matched_utility"] = [dataclasses.asdict(npo), dataclasses.asdict(rmu)]
    caveat, *lines = sweep.matched_sentences(result)
    assert "optimistic estimate" in caveat
    assert lines == [
        "npo (2 points): high keeps 0.960 and leaks 0.250.",
        "rmu (2 points): none keeps so much, at most 0.500.",
    ]


def test_a_model_that_the_sweep_does_not_change_was_not_tried_at_matched_utility():
    same = [row_of(point, "idle", 0.4, 0.5) for point in ("low", "high")]

    assert sweep.at_matched_utility(swept(*BASES, *same), "base") == []


@pytest.mark.parametrize("base", [None, "base"])
def test_without_the_score_of_a_base_nothing_is_at_matched_utility(base):
    points = [row_of("low", "npo", 0.8, 0.5), row_of("high", "npo", None, 0.25)]
    result = swept(*BASES, *points) | {"matched_utility": []}

    assert sweep.at_matched_utility(result, base) == []
    assert sweep.matched_sentences(result) == []


@pytest.mark.slow
def test_points_share_what_they_have_in_common(small):
    before = small.params()
    del small.environment["LETHE_TRACKING"]
    word = {"forgetting": {"word": "leaks"}, "utility": {"word": "open"}, "verdict": "It leaks."}
    (small.folder / "words.json").write_text(json.dumps({"npo": word}))
    (small.folder / "dvc.yaml").write_text(DVC_YAML)  # with a report
    axes = ["-S", "metrics.alpha=0.01,0.0625"]
    result = small.lethe("sweep", *axes, "--name", "alphas", "--at-once", "1", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert json.loads((small.folder / "data/sweeps/alphas.json").read_text()) == found
    assert [values["metrics.alpha"] for values in found["points"].values()] == [0.01, 0.0625]
    assert {row["point"] for row in found["rows"]} == set(found["points"])
    assert found["failed"] == {}
    assert small.params() == before
    assert not (small.folder / "data/models").exists()
    folders = [small.folder / ".lethe/sweeps/alphas" / point for point in found["points"]]
    ends = [
        json.loads((folder / ".lethe/last_run.json").read_text())["stages"] for folder in folders
    ]
    assert ends[0]["prepare"]["why"] == "ran"
    assert ends[1]["unlearn@npo"]["why"] == "restored"
    assert ends[1]["metrics@npo"]["why"] == "ran"
    assert "MLflow: " in result.stderr
    assert "2 points to run" in result.stderr
    assert "is done (2 of 2)" in result.stderr
    assert "distributed" not in result.stderr
    assert (small.folder / "data/sweeps/alphas.png").read_bytes().startswith(b"\x89PNG")
    assert {row["forgetting"] for row in found["rows"] if row["model"] == "npo"} == {"leaks"}
    n_models = [
        yaml.safe_load((folder / "params.yaml").read_text())["report"]["models"]
        for folder in folders
    ]
    assert n_models == [2, 2], "all points share alpha"
    assert sum(run.info.run_name.startswith("npo ") for run in mlflow_runs(small)) == 2

    again = small.lethe("sweep", *axes, "--name", "alphas", "--json")
    assert json.loads(again.stdout)["rows"] == found["rows"]
    assert again.stderr.count("was up to date") == len(found["points"])
    ends = [
        json.loads((folder / ".lethe/last_run.json").read_text())["stages"] for folder in folders
    ]
    assert {stage["why"] for point in ends for stage in point.values()} == {"clean"}


@pytest.mark.slow
def test_no_point_survives_the_death_of_the_sweep(small):
    small.use_its_own_server()
    (small.folder / "slow").write_text("dataset")
    process = small.start("sweep", "-S", "metrics.alpha=0.01", "--name", "s")
    points = small.folder / ".lethe/sweeps/s"
    wait_until(lambda: list(points.glob("*/alive")), seconds=180)
    process.kill()
    process.communicate()
    (point,) = points.glob("[!.]*")
    wait_until(lambda: not list(processes_of(Repository(point, {"PREFECT_HOME": ""}))), seconds=40)


def test_a_second_sweep_of_the_name_changes_no_point(small):
    with only_run(small.folder / ".lethe/sweeps/s"):
        result = small.lethe("sweep", "-S", "metrics.alpha=0.01", "--name", "s")
    assert result.returncode == 1
    assert f"process {os.getpid()}" in result.stderr
    assert not list((small.folder / ".lethe/sweeps/s").glob("[!.]*"))


LR = "unlearn.methods.npo.lr"


def test_laws_of_the_ranges():
    axes = axes_of(["a=uniform(-1, 2)", "b=log(1e-5, 1e-2)", "c=whole(1, 3)", "d=x,y"])
    points = [dict(point.settings) for point in random_points(axes, 2_000, 0)]
    columns = {key: [point[key] for point in points] for key in "abcd"}
    assert kstest((np.array(columns["a"]) + 1) / 3, "uniform").pvalue > 0.01
    assert kstest((np.log10(columns["b"]) + 5) / 3, "uniform").pvalue > 0.01
    for key, values in (("c", [1, 2, 3]), ("d", ["x", "y"])):
        counts = [columns[key].count(value) for value in values]
        assert sum(counts) == 2_000
        assert min(counts) > 0.9 * 2_000 / len(values)
    assert isinstance(columns["c"][0], int)


def test_equal_points_run_once():
    """Points of one name share a folder, and a claim that counts a model twice has too small a p-value."""
    axes = axes_of(["a=1,2", "b=whole(1, 2)"])
    few, many = random_points(axes, 3, 0), random_points(axes, 40, 0)
    assert sorted(point.settings for point in many) == sorted(
        point.settings for point in grid_of(axes_of(["a=1,2", "b=1,2"]))
    )
    assert many[: len(few)] == few
    assert len(grid_of(axes_of(["a=1,1,2"]))) == 2


@given(st.sampled_from(["uniform", "log", "whole"]), st.floats(-10, 10), st.floats(-10, 10))
def test_a_range_is_read_or_refused(law, low, high):
    legal = (
        low < high
        and (law != "log" or low > 0)
        and (law != "whole" or (low.is_integer() and high.is_integer()))
    )
    text = f" {law}( {low!r},{high!r} ) "
    if not legal:
        with pytest.raises(BadInput, match="log"):
            range_of("k", text)
        return
    drawn = range_of("k", text).draw(np.random.default_rng(0))
    assert low - 1e-9 <= drawn <= high + 1e-9


POINTS = {
    "fig-4a": 6,
    "fig-4a-both": 12,
    "fig-4b": 12,
    "fig-5a": 6,
    "fig-5a-real-authors": 6,
    "fig-5c": 18,
    "fig-5c-untouched": 18,
}


@pytest.mark.parametrize("name", sorted(path.stem for path in PRESETS.glob("*.yaml")))
def test_every_point_of_a_preset_is_valid(name, tmp_path):
    preset = read_sweep_preset(name)
    (tmp_path / "data/source").mkdir(parents=True)
    (tmp_path / "lethe").symlink_to(ROOT / "lethe")
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    for point in {repr(sorted(dict(point.settings))): point for point in preset.points}.values():
        settings.changed(tmp_path / "params.yaml", [*preset.params.items(), *point.settings])
    assert len(preset.points) == POINTS[name]
    for claim in preset.claims:
        assert claim.cause in preset.axes


def test_bad_presets_are_sentences(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="fig-4a, fig-4a-both"):
        read_sweep_preset("fig-9")
    monkeypatch.setattr("flows.grid.PRESETS", tmp_path)
    value = yaml.safe_load((ROOT / "flows/sweeps/fig-4a.yaml").read_text())
    value["claims"][0]["expected"] = "wiggles"
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(value))
    with pytest.raises(BadInput, match=r"claims\.0\.expected"):
        read_sweep_preset("mine")


@cases
def test_wrong_use(small, arguments, named):
    assert named in small.refused("sweep", *arguments)
    assert not (small.folder / ".lethe/sweeps").exists()


@pytest.mark.slow
def test_a_failed_point_is_named_and_the_rest_goes_on(small):
    """The stage of one point fails by its value; a later call runs that point alone."""
    step = small.folder / "step.py"
    text = step.read_text()
    step.write_text(
        text.replace(
            '    while Path("slow")',
            '    if text and float(text) > 0.5: raise BadFile("rows", "broken")\n    while Path("slow")',
        )
    )
    axes = [
        "-S",
        f"{LR}=uniform(0, 1)",
        "--random",
        "3",
        "--seed",
        "4",
        "--name",
        "r",
        "--at-once",
        "1",
        "--json",
    ]
    wanted = [dict(point.settings)[LR] for point in random_points({LR: "uniform(0, 1)"}, 3, 4)]
    assert 0 < sum(value > 0.5 for value in wanted) < 3
    result = small.lethe("sweep", *axes)
    assert result.returncode == 1
    found = json.loads((small.folder / "data/sweeps/r.json").read_text())
    assert [values[LR] for values in found["points"].values()] == wanted
    failed = {name for name, values in found["points"].items() if values[LR] > 0.5}
    assert set(found["failed"]) == failed
    for name in failed:
        assert name in result.stderr
    assert {row["point"] for row in found["rows"]} == set(found["points"]) - failed

    step.write_text(text)  # mended: what failed runs, in the same folders
    again = small.lethe("sweep", *axes)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["failed"] == {}


@pytest.mark.slow
def test_a_preset_draws_its_figure_and_says_what_held(small):
    """The miniature's metric ``mean`` is the length of the text of metrics.alpha."""
    value = {
        "params": {"metrics.rho": 1.0},
        "axes": {"metrics.alpha": [0.1, 0.01, 0.001]},
        "random": None,
        "figure": {
            "x": "metrics.alpha", "y": "mean", "model": "npo", "control": None, "series": None, "title": "t",
            "x_label": "x", "y_label": "y",
        },
        "claims": [{"says": "Shorter", "cause": "metrics.alpha", "effect": "mean", "expected": "falls"}],
    }  # fmt: skip
    (small.folder / "flows").unlink()
    shutil.copytree(
        ROOT / "flows", small.folder / "flows", ignore=shutil.ignore_patterns("__pycache__")
    )
    (small.folder / "flows/sweeps/mine.yaml").write_text(yaml.safe_dump(value))
    (small.folder / "flows/presets/wide.yaml").write_text(
        yaml.safe_dump({"metrics.share_above": 0.5, "metrics.rho": 3.0})
    )
    result = small.lethe("sweep", "--preset", "mine", "--base", "wide", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["common"] == {"metrics.share_above": 0.5, "metrics.rho": 1.0}
    (claim,) = found["claims"]
    assert claim["trend"]["tau"] == -1.0
    assert claim["trend"]["points"] == 3
    assert claim["verdict"] == "did not show"  # no three points show a trend at 0.05
    picture = (small.folder / "data/sweeps/mine.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert found["figure"]["points"] == 3
