"""The figures of the one-run paper as a command, and the outcome files of experiments."""

import json

import pytest
import yaml

from lethe.errors import BadInput
from lethe.io.yaml import read_yaml
from studies import outcome
from studies.one_run import figures


def test_a_figure_is_drawn_as_two_files_with_its_numbers_beside_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = list(figures.draw(["10"], tmp_path))

    assert names == ["10"]
    assert (tmp_path / "figure-10.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figure-10.svg").read_text()
    assert outcome.read(tmp_path / "data/studies/outcomes/one-run-10.json")["values"]


def test_at_delta_a_tenth_steinke_cannot_reject_what_exact_rejects():
    values = figures.p_values().values["delta 0.1"]["p"]

    assert values["exact"] < values["steinke"]


def test_the_bounds_of_a_small_run_stay_below_the_truth_with_its_probability():
    point = figures.bounds_at(
        100,
        figures.partial(figures.simulated.gaussian, mu=1.0),
        figures.gaussian(),
        100,
        20,
        1e-5,
        truth=4.38,
    )

    means = {method: point.mean(method) for method in figures.METHODS}

    assert all(0 <= mean < 4.38 for mean in means.values())
    assert means["exact"] >= means["steinke"]


@pytest.mark.slow
def test_figure_6_has_a_panel_for_each_optimiser_and_a_point_for_each_claim(tmp_path):
    preset = read_yaml(figures.DP_SGD)
    preset |= {"epsilons": [2, 8], "seeds": [0, 1]}
    preset["entry"] |= {"images": "digits", "points": 60, "canaries": 200, "r": [100], "steps": 5}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(preset, sort_keys=False))

    drawn = figures.dp_sgd(tmp_path / "small.yaml")

    assert list(drawn.values) == ["sgd", "adam"]
    for points in drawn.values.values():
        assert [point["x"] for point in points] == [2, 8]
        # The same seeds give the same canaries: more noise cannot give the larger bound.
        assert points[0]["accuracy"] < points[1]["accuracy"]
    assert [axes.get_title() for axes in drawn.figure.axes] == ["sgd", "adam"]


def test_an_outcome_names_its_command_its_commit_and_its_seeds(tmp_path):
    path = outcome.write(
        "small", "lethe study x", [0, 1], {"n": 5}, {"a": 1.5}, commit="abc", folder=tmp_path
    )

    read = outcome.read(path)

    assert (read["command"], read["seeds"], read["values"]) == ("lethe study x", [0, 1], {"a": 1.5})
    assert read["commit"] == "abc"


def test_an_outcome_without_a_commit_is_refused(tmp_path):
    (tmp_path / "old.json").write_text(json.dumps({"name": "old", "values": 1}))

    with pytest.raises(BadInput, match="commit"):
        outcome.read(tmp_path / "old.json")
