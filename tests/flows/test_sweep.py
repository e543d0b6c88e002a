"""`lethe sweep`: every combination in a separate folder, shared stages run once, params.yaml unchanged."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.grid import axes_of, grid_of
from flows.sweep import guarantee_notes, shown
from flows.workspace import only_run
from lethe.errors import BadInput
from lethe.statistics.bound import Assumes, Bound, Covers
from tests.flows.miniature import Repository, processes_of, wait_until
from tests.flows.records import mlflow_runs


def test_all_combinations_the_last_axis_fastest():
    points = grid_of(axes_of(["a.b=1,2", "c=x,null"]))
    assert [dict(point.settings) for point in points] == [
        {"a.b": 1, "c": "x"}, {"a.b": 1, "c": None}, {"a.b": 2, "c": "x"}, {"a.b": 2, "c": None},
    ]  # fmt: skip
    assert [dict(point.settings) for point in grid_of(axes_of(["a=[[1, 2], [3]]"]))] == [{"a": [1, 2]}, {"a": [3]}]


@given(st.lists(st.integers() | st.floats(allow_nan=False) | st.text(), min_size=2, max_size=6, unique_by=repr))
def test_names_differ_and_are_folders(values):
    points = grid_of(axes_of([f"a.b={json.dumps(values)}"]))
    names = [point.name for point in points]
    assert len(set(names)) == len(values)
    assert all("/" not in name and not name.startswith(".") for name in names)


@pytest.mark.parametrize("axes", [["a"], ["a="], ["a=[]"], ["a=1,2", "a=3"]])
def test_bad_axes(axes):
    with pytest.raises(BadInput):
        grid_of(axes_of(axes))


def test_the_table_of_bounds_says_what_they_hold_for():
    bounds = [Bound(0.12301, "upper", alpha, Covers.WORST_PROMPT, Assumes.DRAWS, "m", 8) for alpha in (0.01, 0.05)]
    rows = [
        {"model": "npo", "m_bin_worst": b.value, "bounds": {"m_bin_worst": b.guarantee_dict()}} for b in bounds
    ]
    told = " ".join(guarantee_notes({"rows": rows}))
    for bound in bounds:
        assert bound.guarantee("the forget questions") in told
    assert guarantee_notes({"rows": [{"model": "npo"}]}) == []
    _, cells = shown({"rows": rows[:1], "points": {"p": {}}})
    assert bounds[0] in cells[0]


@pytest.mark.slow
def test_points_share_what_they_have_in_common(small):
    before = small.params()
    del small.environment["LETHE_TRACKING"]
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
    ends = [json.loads((folder / ".lethe/last_run.json").read_text())["stages"] for folder in folders]
    assert ends[0]["prepare"]["why"] == "ran"
    assert ends[1]["unlearn@npo"]["why"] == "restored"
    assert ends[1]["metrics@npo"]["why"] == "ran"
    assert "MLflow: " in result.stderr
    assert "(2 of 2, about 0 s" in result.stderr
    assert "distributed" not in result.stderr
    assert [run.info.run_name for run in mlflow_runs(small)].count("npo") == 2

    again = small.lethe("sweep", *axes, "--name", "alphas", "--json")
    assert json.loads(again.stdout)["rows"] == found["rows"]
    ends = [json.loads((folder / ".lethe/last_run.json").read_text())["stages"] for folder in folders]
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


def test_every_point_is_valid_or_none_runs(small):
    result = small.lethe("sweep", "-S", "metrics.alpha=0.01,0.7")
    assert result.returncode == 2
    assert "metrics.alpha" in result.stderr
    assert not (small.folder / ".lethe/sweeps").exists()


@pytest.mark.parametrize("name", ["../x", "", "a b"])
def test_bad_names(small, name):
    result = small.lethe("sweep", "-S", "metrics.alpha=0.01", "--name", name)
    assert result.returncode == 2
    assert "--name" in result.stderr
