import json
from dataclasses import make_dataclass

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from studies.landscape.study import _without_what_is_common

SMALL = (
    "data.points=300",
    "network.hidden=[8]",
    "baseline.epochs=[1,20]",
    "private.epochs=1",
    "private.epsilons=[10]",
    "private.clips=[1]",
    "runs=2",
    "goodness_of_fit={components: 2, samples: [20, 40]}",
)


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "lethe.audits.finished_models.cores", lambda: 1
    )  # a process more costs more than these runs
    monkeypatch.setattr("studies.landscape.training.noise_multiplier", lambda *_: 1.0)  # spares a search
    changes = [part for change in SMALL for part in ("-S", change)]
    return lambda *arguments: CliRunner().invoke(app, ["study", "landscape", *arguments, *changes])


def test_results_and_pictures_from_one_command(call, tmp_path):
    done = call("digits", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert len(result["strategies"]) == 3
    folder = tmp_path / "data/landscapes/digits"
    for name in ("landscape.png", "goodness-of-fit.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "result.json").read_text())["frontier"] == result["frontier"]
    again = call("digits")
    assert "Trained now: 0 runs" in again.stdout


def test_the_table_names_once_what_all_strategies_share():
    names = ["5 epochs", "ε 1, clip 1, batch 64", "ε 1, clip 10, batch 64", "ε 3, clip 1, batch 64"]
    strategy = make_dataclass("Strategy", ["name"], frozen=True)
    strategies, common = _without_what_is_common([strategy(name) for name in names])
    assert [one.name for one in strategies] == ["5 epochs", "ε 1, clip 1", "ε 1, clip 10", "ε 3, clip 1"]
    assert common == "batch 64"
    assert _without_what_is_common([strategy(names[1])]) == ([strategy(names[1])], "")


def test_a_missing_file_is_a_sentence(call):
    done = call("adult")
    assert done.exit_code == 2
    assert "data.source" in done.output
    assert "Traceback" not in done.output
