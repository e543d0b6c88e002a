"""`lethe study sweep`: the claims of a finished sweep become an outcome, and rows of docs/papers.md."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.errors import BadFile
from studies import outcome, papers, sweeps
from tests.small import ROOT

CLAIM = {
    "says": "The deviation falls",
    "cause": "unlearn.methods.npo_entropy.entropy.forget",
    "effect": "sd",
    "expected": "falls",
    "within": None,
    "verdict": "held",
    "trend": {"tau": -0.9, "p_falls": 0.01, "p_rises": 1.0, "points": 6},
    "sentence": "The deviation falls: held.",
}


def sweep(folder, **changes):
    """A folder with a finished sweep of the name fig-4a."""
    document = {
        "name": "fig-4a",
        "common": {"sample.n": 256},
        "points": {"point-1": {CLAIM["cause"]: 0.0}, "point-2": {CLAIM["cause"]: 1.0}},
        "failed": {},
        "figure": {"file": "fig-4a.png"},
        "claims": [CLAIM],
    }
    place = folder / "data/sweeps/fig-4a.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(document | changes))
    place.with_suffix(".png").write_bytes(b"")
    shutil.copy(ROOT / "params.yaml", folder)
    return folder


def trend(tau, p_falls, p_rises):
    return {"tau": tau, "p_falls": p_falls, "p_rises": p_rises, "points": 6}


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (trend(-0.9, 0.01, 1.0), "holds"),
        (trend(0.9, 1.0, 0.01), "does not hold here"),
        (trend(-0.4, 0.2, 0.8), "not decided"),
        (trend(None, 1.0, 1.0), "not decided"),
    ],
)
def test_the_word_of_a_direction_is_that_of_its_test(found, word):
    claims = [sweeps.claim_of(CLAIM | {"trend": found})]
    document = {"name": "sweep-fig-4a", "values": {"claims": claims}}

    compared = papers._compared(["claims/effect=sd/tau", "<=", 0], document)

    assert papers._word([compared]) == word


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (trend(-0.59, 0.002, 1.0), "does not hold here"),
        (trend(0.59, 1.0, 0.002), "does not hold here"),
        (trend(0.02, 0.5, 0.5), "not decided"),
    ],
)
def test_no_relation_that_showed_is_no_proof_that_there_is_none(found, word):
    claims = [sweeps.claim_of(CLAIM | {"trend": found})]
    document = {"name": "sweep-fig-5c", "values": {"claims": claims}}

    compared = papers._compared(["claims/effect=sd/strength", "<=", 0.1], document)

    assert papers._word([compared]) == word


def test_the_command_writes_the_outcome_of_a_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(sweep(tmp_path))

    done = CliRunner().invoke(app, ["study", "sweep", "fig-4a"])

    assert done.exit_code == 0, done.output
    assert "The deviation falls" in done.output
    document = outcome.read(tmp_path / "data/studies/outcomes/sweep-fig-4a.json")
    assert document["command"] == "lethe study sweep fig-4a"
    assert document["seeds"] == [0, 1, 2, 3]
    (claim,) = document["values"]["claims"]
    assert claim["tau"] == {"mean": -0.9, "smallest": -1.0, "largest": -0.9}
    assert claim["p"] == 0.02


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"failed": {"point-2": "out of memory"}}, r"points that failed \(point-2\)"),
        ({"claims": []}, "states no claim"),
    ],
)
def test_a_sweep_that_decides_nothing_is_refused(tmp_path, changes, said):
    folder = sweep(tmp_path, **changes)

    with pytest.raises(BadFile, match=said):
        sweeps.study(folder, "fig-4a")


def test_a_sweep_that_did_not_run_is_named(tmp_path):
    with pytest.raises(BadFile, match="Run lethe sweep --preset fig-4a first"):
        sweeps.study(tmp_path, "fig-4a")
