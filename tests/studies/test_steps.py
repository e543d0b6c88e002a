"""A study in steps goes on where it ended."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from studies import outcome
from studies.steps import Outcomes, Steps, next_step, read_outcomes


@dataclass(frozen=True)
class Step:
    name: str
    size: int


STEPS = [Step("a", 1), Step("b", 2), Step("c", 3)]


@pytest.fixture
def study(tmp_path, monkeypatch) -> Steps[Step]:
    monkeypatch.setattr(outcome, "FOLDER", tmp_path)
    monkeypatch.setenv("LETHE_TRACKING", "off")
    return Steps(
        "small",
        listed=lambda _: STEPS,
        seeds=lambda step: [step.size],
        work=lambda step, outcomes: {"sum": step.size + sum(all_sums(outcomes))},
    )


def all_sums(outcomes: Outcomes) -> list[int]:
    return [values["sum"] for values in outcomes.values()]


def test_a_second_start_does_only_the_steps_without_an_outcome(study, tmp_path):
    said: list[str] = []

    first = study.run(keep=True, limit=1, said=said.append)
    before = (tmp_path / "small/a.json").read_bytes()
    rest = study.run(keep=True, said=said.append)

    assert (first, rest) == (["a"], ["b", "c"])
    assert said == ["small: a", "small: b", "small: c"]
    assert (tmp_path / "small/a.json").read_bytes() == before
    assert study.run(keep=True) == []


def test_a_step_sees_what_the_steps_before_it_brought(study):
    study.run(keep=True)

    assert read_outcomes("small", keep=True) == {"a": {"sum": 1}, "b": {"sum": 3}, "c": {"sum": 7}}


def test_an_outcome_names_the_study_its_step_and_the_seeds(study, tmp_path):
    study.run(keep=True, limit=1)

    kept = outcome.read(tmp_path / "small/a.json")
    assert (kept["name"], kept["command"]) == ("small/a", "lethe study small --keep")
    assert (kept["settings"], kept["seeds"]) == ({"preset": "small", "name": "a", "size": 1}, [1])


def test_steps_that_follow_from_outcomes_are_listed_anew(study):
    def listed(outcomes: Outcomes) -> Iterator[Step]:
        yield STEPS[0]
        if outcomes.get("a") == {"sum": 1}:
            yield STEPS[2]

    follows = Steps("small", listed, study.seeds, study.work)

    assert follows.run(keep=True) == ["a", "c"]


def test_there_is_no_next_step_when_all_are_done():
    assert next_step(STEPS, {}) == STEPS[0]
    assert next_step(STEPS, {"a": {}, "b": {}, "c": {}}) is None
