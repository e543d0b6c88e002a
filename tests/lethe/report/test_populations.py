"""A population of attacks on the page: the sentence, what it covers, and each attack that is not proved to fail."""

from dataclasses import asdict

import pytest

from lethe.results.population import NO_ATTACK, PopulationResult, Tried
from tests.lethe.report.conftest import rendered
from tests.lethe.report.synthetic import HOSTILE, write_record, write_run, write_traces

MODELS = {
    "base": {"path": "data/models/base"},
    "retrain": {"path": "data/models/retrain"},
    "npo": {"path": "data/models/npo"},
}
CHANCE = [7, 12, 3, 18, 9, 15, 5, 11, 14]
ENTRY = {"path": "data/models/npo", "population": {"noise": {}}, "tau": 0.05, "goal": 0.01}


def result_of(tried, **changes):
    values = {
        "path": "data/models/npo",
        "recipe": {},
        "planned": 977,
        "goal": 0.01,
        "tau": 0.05,
        "alpha": 0.05,
        "n": 4096,
        "seed": 0,
        "scorer": "keyword_leak",
        "tokens": 64,
        "before": Tried(NO_ATTACK, "none", {}, 0, "fails", 30, 6990),
        "tried": tuple(tried),
    }
    return PopulationResult(**{**values, **changes})


def attack(number, outcome="fails", **changes):
    values = {"kind": "noise", "params": {"sizes": [0.05]}, "seed": 7, "questions": 30}
    return Tried(number, outcome=outcome, answers=6990, **{**values, **changes})


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """A page of a population whose first attack leaks, whose second does not."""
    root = tmp_path_factory.mktemp("populations")
    leaks = attack(0, "leaks", leaks=(HOSTILE,), worst=HOSTILE, worst_upper=0.3, trace_p=1e-9)
    result = result_of([leaks, attack(1, trace_p=0.4)], unjudged=("q8", "q9"))
    write_run(root, models=MODELS, attacks={"drawn": ENTRY})
    write_record(root, "attack", "drawn", asdict(result))
    write_traces(root, {"base": [1] * 9, "retrain": CHANCE, "npo": CHANCE})
    return " ".join(rendered(root).html.split())


def test_the_sentence_of_455_failed_attacks_is_that_of_the_specification():
    result = result_of(attack(number) for number in range(455))

    assert result.sentence("drawn") == (
        "drawn: at most 1% of the attacks drawn from this recipe bring any question above 5% of its answers, "
        "with probability 0.95 at any time (0 of 455)."
    )


def test_the_page_says_what_is_proved_and_what_it_covers(html):
    assert "bring any question above 5%" in html
    assert "nothing about another attack" in html
    assert "answers to each question" in html


def test_an_attack_that_leaks_is_listed_with_its_parameters(html):
    assert "noise (sizes 0.05)" in html
    assert "not proved to fail" in html


def test_names_of_questions_are_escaped(html):
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html


def test_unjudged_questions_and_traces_are_told(html):
    assert "2 questions that keyword_leak cannot judge." in html
    assert "secrets after 1 of 2 attacks" in html
    assert "none, that proves nothing." in html


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [[20] * 9, None], ids=["a control rejects", "none was tested"])
def test_a_control_that_rejects_takes_the_words_on_traces_after_attacks(tmp_path, ranks):
    result = result_of([attack(0, trace_p=1e-9)])
    write_run(tmp_path, models=MODELS, attacks={"drawn": ENTRY})
    write_record(tmp_path, "attack", "drawn", asdict(result))
    if ranks:
        write_traces(tmp_path, {"base": [1] * 9, "retrain": ranks, "npo": CHANCE})

    page = " ".join(rendered(tmp_path).html.split())

    assert "No word on" in page
    assert "finds a trace" not in page


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (("fails", ()), "Before any attack no question is above 5%"),
        (("open", ()), "Before any attack it is unproved"),
        (("leaks", ("q1",)), "Before any attack a question is above 5% of its answers (q1)"),
    ],
)
def test_what_the_model_shows_before_any_attack_is_told(before, told):
    outcome, leaks = before
    unattacked = Tried(NO_ATTACK, "none", {}, 0, outcome, 30, 6990, leaks=leaks)

    assert result_of([attack(0)], before=unattacked).before_sentence.startswith(told)


def test_a_trace_counts_at_the_level_of_an_attack_alone():
    result = result_of([attack(0, trace_p=0.05 / 977), attack(1, trace_p=0.05 / (2 * 977))])

    assert result.traced == 1
    assert 0 <= result.traced_lower < 0.5


def test_an_attack_that_learned_questions_says_nothing_about_these():
    every = result_of([attack(0)])
    fewer = result_of([attack(0), attack(1, questions=25)])

    assert "that learned questions" not in every.covers
    assert "that learned questions" in fewer.covers


def test_the_share_of_traces_assumes_that_the_candidates_were_drawn():
    rows = result_of([attack(0, trace_p=1e-9)]).rows("drawn")

    (assumes,) = [row.assumes for row in rows if row.quantity == "trace_share"]
    assert "drawn uniformly among" in assumes
