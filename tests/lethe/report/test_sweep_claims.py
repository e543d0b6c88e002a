"""The verdict on a claim of a sweep: of one model's rows, in its direction, with what is missing left out."""

from __future__ import annotations

import pytest

from lethe.report.sweep_figure import Figure, SweepClaim, outcome, sweep_figure


def rows(effect, model="m", points=7):
    return [{"model": model, "cause": place, "effect": effect(place), "set": place % 2} for place in range(points)]


def claim(expected, within=None):
    return SweepClaim(says="It", cause="cause", effect="effect", expected=expected, within=within)


@pytest.mark.parametrize(
    ("expected", "effect", "verdict"),
    [
        ("falls", lambda x: -x, "held"),
        ("rises", lambda x: -x, "the opposite held"),
        ("falls", lambda x: x % 3, "did not show"),
        ("unrelated", lambda x: x, "a relation showed"),
        ("unrelated", lambda x: x % 3, "no relation showed"),
        ("falls", lambda x: 1.0, "did not show"),
    ],
)
def test_the_verdict_follows_the_numbers(expected, effect, verdict):
    others = rows(lambda x: 100 * x, model="other")
    found = outcome(claim(expected), "m", [*rows(effect), *others])
    assert found.verdict == verdict
    assert found.trend.points == 7
    assert verdict in found.sentence


def test_points_without_a_number_are_left_out():
    missing = [
        {"model": "m", "cause": 1, "effect": None},
        {"model": "m", "cause": "x", "effect": 1},
        {"model": "m"},
    ]
    assert outcome(claim("falls"), "m", [*rows(lambda x: -x), *missing]).trend.points == 7
    assert outcome(claim("falls"), "m", missing).verdict == "did not show"


def test_within_compares_equals_alone():
    """The effect falls with the cause in either set, and rises over both together."""
    both = [
        {"model": "m", "cause": 10 * group + place, "effect": 100 * group - place, "set": group}
        for group in range(2)
        for place in range(5)
    ]
    assert outcome(claim("falls", "set"), "m", both).verdict == "held"
    assert outcome(claim("falls"), "m", both).verdict == "did not show"


def test_the_figure_has_a_mark_per_point(tmp_path):
    figure = Figure(
        x="cause", y="effect", model="m", control="other", series="set", title="t", x_label="x", y_label="y"
    )
    drawn = sweep_figure(tmp_path / "new/f.png", figure, [*rows(float), *rows(float, "other"), {"model": "m"}])
    assert drawn == 7
    assert (tmp_path / "new/f.png").read_bytes().startswith(b"\x89PNG")
