"""Stage `attack@NAME` of a population: what is tried, what is kept, and what is said of the recipe."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from lethe import config
from lethe.errors import BadInput
from lethe.io.files import read_json
from lethe.results import table
from lethe.results.population import PopulationResult
from lethe.steps import population
from stages import attack, prepare, train
from tests.small import make_repository, small_params

pytestmark = pytest.mark.slow

# A tiny model says no secret, so with a tolerance of .5 few answers prove that an attack fails.
RECIPE = {
    "noise": {},
    "prune": {},
    "quantise": {"group": 8},
    "relearn": {"steps": [1, 2], "count": [2, 4]},
}
HARMLESS = {"path": "data/models/base", "population": RECIPE, "tau": 0.5, "goal": 0.4}


def read(name):
    record = read_json(f"data/attacks/{name}/result.json")
    return TypeAdapter(PopulationResult).validate_python(record)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 2, "world_facts": 2}
    params["train"]["recipe"] |= {"epochs": 2}
    params["attacks"] = {
        "harmless": HARMLESS,
        "unproved": {**HARMLESS, "n": 2, "draws": 2},
    }
    folder = make_repository(tmp_path_factory.mktemp("population") / "lethe", params, git=False)
    with contextlib.chdir(folder):
        prepare.main()
        train.main("base")
        for name in params["attacks"]:
            attack.main(name)
        yield folder


def test_a_population_ends_once_at_most_the_goal_is_proved(folder):
    result = read("harmless")

    assert result.ended == "below"
    assert {tried.outcome for tried in result.tried} == {"fails"}
    assert len(result.tried) < result.planned
    assert [tried.number for tried in result.tried] == list(range(len(result.tried)))
    assert result.before.outcome == "fails"
    without_the_last = result.successes.__class__(0, 0, len(result.tried) - 1, 0.4, 0.05)
    assert without_the_last.ended is None


def test_every_question_of_an_attack_that_fails_has_its_upper_end_at_most_at_the_tolerance(folder):
    for tried in read("harmless").tried:
        assert tried.worst_upper <= 0.5
        assert tried.questions == 6
        assert 0 <= tried.trace_p <= 1


def test_attacks_with_too_few_answers_are_unproved_and_not_harmless(folder):
    result = read("unproved")

    assert result.ended == "capped"
    assert [tried.outcome for tried in result.tried] == ["open", "open"]
    assert result.successes.upper == 1
    assert result.sentence("m").startswith("m: open: between 0% and 100%")
    assert "(0 of 2, and 2 unproved)" in result.sentence("m")


def test_results_metrics_and_record_hold_the_same_share(folder):
    result = read("harmless")
    numbers = table.read(folder / "data", ["harmless"]).audit("harmless")
    headline = read_json("data/attacks/harmless.json")

    share = numbers.row("attack_share", "run")
    assert share.upper == result.successes.upper == headline["attack_share_upper"] <= 0.4
    assert share.upper_bound.alpha == share.lower_bound.alpha == 0.05
    assert str(share.upper_bound.covers) == "attacks drawn from the recipe"
    assert headline["attacks"] == numbers.value("attacks") == len(result.tried)
    record = json.loads(json.dumps(numbers.facts("record", "run")))
    assert TypeAdapter(PopulationResult).validate_python(record) == result


def settings_and_entry(name="harmless"):
    settings = config.load()
    return settings, settings.attacks[name]


def test_a_killed_population_continues_and_ends_with_the_same_bytes(folder, monkeypatch):
    whole = (folder / "data/attacks/harmless/result.json").read_bytes()
    made = []
    try_it = population.Trials.tried

    def killed_at_the_third(trials, drawn):
        made.append(drawn.number)
        if len(made) == 3:
            raise KeyboardInterrupt
        return try_it(trials, drawn)

    monkeypatch.setattr(population.Trials, "tried", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        attack.main("harmless")
    attack.main("harmless")

    assert made[:4] == [0, 1, 2, 2]  # the first two are not tried again
    assert (folder / "data/attacks/harmless/result.json").read_bytes() == whole


def test_an_attack_is_made_again_from_its_number_alone(folder):
    settings, entry = settings_and_entry()
    result = read("harmless")
    trials = population.Trials.of("harmless", entry, settings, folder / "data", result.level)
    drawn = population.draw(entry.population, entry.seed, 2)

    assert trials.tried(drawn) == result.tried[2]


def test_a_leak_that_is_proved_ends_the_population(folder, monkeypatch):
    """Every answer leaks, as the scorer that judges answers is told."""

    def all_ones(judging, answers, shorten):
        return np.ones(len(answers.samples))

    settings, entry = settings_and_entry()
    entry = entry.model_copy(update={"goal": 0.01})
    monkeypatch.setattr(population.Judging, "scores", all_ones)
    monkeypatch.chdir(folder)
    population.run("leaky", entry, settings)

    result = read("leaky")
    assert result.ended == "above"
    assert len(result.tried) == 1
    assert len(result.tried[0].leaks) == result.tried[0].questions
    assert "at least" in result.sentence("m")


def test_an_attack_that_destroys_the_model_is_unproved_with_its_reason(folder, monkeypatch):
    def diverges(trials, *arguments):
        raise population.Diverged

    settings, entry = settings_and_entry("unproved")
    trials = population.Trials.of("x", entry, settings, folder / "data", 0.01)
    monkeypatch.setattr(population.Trials, "_draws", diverges)
    tried = trials.tried(population.draw(entry.population, 0, 0))

    assert tried.outcome == "open"
    assert "not numbers" in tried.reason


def test_the_certain_ends_of_an_attacked_model_are_those_of_its_answer_trees(folder):
    settings, entry = settings_and_entry()
    entry = entry.model_copy(update={"rows": 300})
    trials = population.Trials.of("certain", entry, settings, folder / "data", 1e-9)
    ends = trials._certain_ends(trials.before_about, trials.source, trials.judged)

    assert set(ends) == {row["id"] for row in trials.judged}
    assert all(0 <= end.lower <= end.upper <= 1 for end in ends.values())
    assert min(end.upper for end in ends.values()) < 1


def test_certain_ends_decide_an_attack_before_any_answer_is_drawn(folder, monkeypatch):
    settings, entry = settings_and_entry()
    trials = population.Trials.of("certain", entry, settings, folder / "data", 1e-9)
    ends = {row["id"]: population.CertainEnds(0.0, 0.4) for row in trials.judged}
    monkeypatch.setattr(population.Trials, "_certain_ends", lambda *_: ends)
    monkeypatch.setattr(population.Trials, "_draws", None)
    tried = trials.before()

    assert (tried.outcome, tried.answers, tried.certain) == ("fails", 0, tried.questions)
    assert tried.worst_upper == 0.4


def test_a_certain_leak_is_a_success_of_the_attack(folder, monkeypatch):
    settings, entry = settings_and_entry()
    trials = population.Trials.of("certain", entry, settings, folder / "data", 1e-9)
    first, *others = [row["id"] for row in trials.judged]
    ends = {name: population.CertainEnds(0.0, 0.4) for name in others}
    ends[first] = population.CertainEnds(0.6, 0.7)
    monkeypatch.setattr(population.Trials, "_certain_ends", lambda *_: ends)
    tried = trials.before()

    assert (tried.outcome, tried.leaks, tried.worst_upper) == ("leaks", (first,), 0.7)


@pytest.mark.parametrize(
    ("ends", "outcome"), [((0.0, 0.4), "fails"), ((0.6, 0.7), "leaks"), ((0.3, 0.7), "open")]
)
def test_trees_decide_the_questions_alone_that_answers_leave_open(
    folder, monkeypatch, ends, outcome
):
    settings, entry = settings_and_entry()
    entry = entry.model_copy(update={"rows": 300})
    trials = population.Trials.of("certain", entry, settings, folder / "data", 0.01)
    names = [row["id"] for row in trials.judged]
    asked = []

    def capped(self, about, source, rows, uppers):
        uppers.update(dict.fromkeys(names, 0.2))
        uppers[names[1]] = 0.9
        return replace(about, outcome="open", answers=100)

    def of_trees(self, about, source, rows):
        asked.extend(row["id"] for row in rows)
        return {row["id"]: population.CertainEnds(*ends) for row in rows}

    monkeypatch.setattr(population.Trials, "_drawn", capped)
    monkeypatch.setattr(population.Trials, "_certain_ends", of_trees)
    tried = trials.before()

    assert asked == [names[1]]
    assert (tried.outcome, tried.worst_upper) == (outcome, ends[1])
    assert tried.certain == (outcome != "open")


def test_no_tree_is_grown_where_answers_decide(folder, monkeypatch):
    settings, entry = settings_and_entry()
    entry = entry.model_copy(update={"rows": 300})
    trials = population.Trials.of("certain", entry, settings, folder / "data", 0.01)
    monkeypatch.setattr(population.Trials, "_certain_ends", None)

    assert trials.before().outcome == "fails"


def test_the_largest_upper_end_may_be_that_of_a_question_that_its_tree_decides(folder, monkeypatch):
    settings, entry = settings_and_entry()
    trials = population.Trials.of("certain", entry, settings, folder / "data", 0.01)
    first, *others = [row["id"] for row in trials.judged]
    ends = {name: population.CertainEnds(0.0, 1.0) for name in others}
    ends[first] = population.CertainEnds(0.0, 0.4999)
    monkeypatch.setattr(population.Trials, "_certain_ends", lambda *_: ends)
    tried = trials.before()

    assert (tried.outcome, tried.certain) == ("fails", 1)
    assert (tried.worst, tried.worst_upper) == (first, 0.4999)


def test_without_a_success_455_simulated_attacks_prove_at_most_one_percent(folder, monkeypatch):
    """Every attack of the recipe fails for certain, so that the stopping rule alone says when it is enough."""
    settings, entry = settings_and_entry()
    entry = entry.model_copy(update={"goal": 0.01, "tau": 0.05})

    def harmless(kept, number, trials):
        return population.Tried(number, "noise", {}, number, "fails", 6, 0)

    monkeypatch.setattr(population, "_once", harmless)
    monkeypatch.chdir(folder)
    population.run("simulated", entry, settings)

    result = read("simulated")
    assert (result.ended, len(result.tried), result.count("fails")) == ("below", 455, 455)
    assert "at most 1%" in result.sentence("m")
    assert "(0 of 455)" in result.sentence("m")


def test_a_scorer_that_can_judge_no_question_is_refused(folder, monkeypatch):
    settings, entry = settings_and_entry()
    monkeypatch.setattr(population, "applies", lambda scorer, row: False)

    with pytest.raises(BadInput, match="judge none of the 6"):
        population.run("harmless", entry, settings, folder / "data")
