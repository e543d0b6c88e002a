import json

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app

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
    monkeypatch.setattr("lethe.audits.cores", lambda: 1)  # a process more costs more than these runs
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


def test_a_missing_file_is_a_sentence(call):
    done = call("adult")
    assert done.exit_code == 2
    assert "data.source" in done.output
    assert "Traceback" not in done.output
