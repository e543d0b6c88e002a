"""`lethe run --fail-on attack`: open where every population is proved to succeed in at most its goal."""

import dataclasses

import pytest

from flows import record
from lethe.io.files import SCHEMA_VERSION, write_json
from lethe.results.population import NO_ATTACK, PopulationResult, Tried
from tests.flows.gates import asked
from tests.small import make_repository, tiny_params

ENTRY = {"path": "data/models/base", "population": {"noise": {}}, "goal": 0.4, "tau": 0.5}
RAN = record.StageEnd("Completed", "ran", 1.0)
FAILED = record.StageEnd("Failed", "failed", 1.0)


def result_of(*outcomes):
    tried = []
    for number, outcome in enumerate(outcomes):
        tried.append(Tried(number, "noise", {"sizes": [0.1]}, 7, outcome, 6, 120))
    before = Tried(NO_ATTACK, "none", {}, 0, "fails", 6, 120)
    rest = ("keyword_leak", 64, before, tuple(tried))
    return PopulationResult("data/models/base", {}, 20, 0.4, 0.5, 0.05, 4096, 0, *rest)


@pytest.fixture
def gate(tmp_path, monkeypatch, capsys):
    """What a run with ``--fail-on attack`` says, and its exit status, after these attacks."""

    def said(outcomes, end=RAN, attacks=None, **changed):
        params = tiny_params()
        params["attacks"] = {"mine": ENTRY} if attacks is None else attacks
        root = tmp_path / "lethe"
        if not root.exists():
            make_repository(root, params, git=False)
        result = dataclasses.asdict(result_of(*outcomes)) | changed
        place = root / "data/attacks/mine/result.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_json(place, {"schema": SCHEMA_VERSION, **result})
        news = record.write(root, {"attack@mine": end}, complete=False)
        return asked("attack", root, news, monkeypatch, capsys)

    return said


def test_attacks_that_are_proved_to_fail_open_the_gate(gate):
    status, said = gate(["fails"] * 12)

    assert status == 0
    assert "Gate open: mine:" in said
    assert "at most 40% of the" in said


def test_another_seed_is_another_try_and_needs_a_smaller_alpha(gate):
    """Else seeds could be tried until the attacks of one fail."""
    first = gate(["fails"] * 12)
    second, said_of_second = gate(["fails"] * 12, seed=1)
    third, said_of_third = gate(["fails"] * 40, seed=2, alpha=0.008)

    assert "This is try 1" in first[1]
    assert second == 1
    assert "at most 0.0167" in said_of_second
    assert third == 0
    assert "This is try 3" in said_of_third
    assert gate(["fails"] * 12) == first


def test_attacks_that_leak_close_the_gate(gate):
    status, said = gate(["leaks"] * 6)

    assert status == 1
    assert "closed: mine: at least" in said


def test_attacks_that_are_unproved_close_the_gate(gate):
    status, said = gate(["open"] * 12)

    assert status == 1
    assert "closed: mine: open: between" in said


def test_a_stage_that_failed_closes_the_gate_whatever_an_earlier_run_left(gate):
    status, said = gate(["fails"] * 12, end=FAILED)

    assert status == 1
    assert "lethe run attack@mine" in said


def test_a_run_without_a_population_closes_the_gate(gate):
    status, said = gate(["fails"] * 12, attacks={})

    assert status == 1
    assert "tried no population" in said


def test_a_population_that_the_run_did_not_try_closes_the_gate(gate):
    status, said = gate(["fails"] * 12, attacks={"mine": ENTRY, "other": ENTRY})

    assert status == 1
    assert "of other did not" in said
