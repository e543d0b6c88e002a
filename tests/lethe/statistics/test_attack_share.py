"""The share of a population of attacks: against naive arithmetic, and by simulation at the goal's edge."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from lethe.errors import BadValue
from lethe.statistics import anytime
from lethe.statistics.attack_share import (
    ROOM,
    Successes,
    attacks_needed,
    level_of_attack,
    planned_attacks,
)

ALPHA = 0.05
GOAL = 0.05


def naive_e_value_against_more(successes, attacks, share):
    """The evidence against "at least ``share`` of the attacks succeed": the mixture below it over the likelihood at it."""
    end = math.asin(math.sqrt(share))

    def likelihood_ratio(angle):
        p = math.sin(angle) ** 2
        hits = (p / share) ** successes
        return hits * ((1 - p) / (1 - share)) ** (attacks - successes)

    return quad(likelihood_ratio, 0, end, epsabs=0, epsrel=1e-10)[0] / end


@pytest.mark.parametrize(("proved", "open_", "n"), [(0, 0, 60), (1, 2, 200), (3, 0, 40), (0, 1, 1)])
def test_the_upper_end_is_the_least_share_that_a_naive_mixture_refutes(proved, open_, n):
    upper = Successes(proved, open_, n, GOAL, ALPHA).upper

    counted = proved + open_  # unproved is not harmless
    if upper < 1:
        assert naive_e_value_against_more(counted, n, upper) >= 2 / ALPHA * (1 - 1e-6)
    just_below = upper - 1e-6
    assert naive_e_value_against_more(counted, n, just_below) < 2 / ALPHA


@pytest.mark.parametrize(("proved", "open_", "n"), [(1, 0, 1), (5, 2, 40), (0, 9, 40)])
def test_the_lower_end_counts_no_attack_that_is_unproved(proved, open_, n):
    lower = Successes(proved, open_, n, GOAL, ALPHA).lower

    assert lower == 1 - Successes(n - proved, 0, n, GOAL, ALPHA).upper
    assert (lower == 0) == (proved == 0)


def test_455_attacks_without_a_success_are_enough_for_one_percent():
    assert attacks_needed(0.01, 0.05) == 455
    assert Successes(0, 0, 455, 0.01, 0.05).ended == "below"
    assert Successes(0, 0, 454, 0.01, 0.05).ended is None
    assert Successes(0, 1, 455, 0.01, 0.05).ended is None  # not with an unproved one


def test_the_first_attack_that_leaks_ends_a_population():
    assert Successes(1, 0, 1, 0.01, 0.05).ended == "above"
    assert Successes(0, 1, 1, 0.01, 0.05).ended is None


def test_an_automatic_plan_has_room_for_attacks_that_are_not_proved_to_fail():
    planned = planned_attacks("auto", 0.01, 0.05)

    assert Successes(0, ROOM, planned, 0.01, 0.05).ended == "below"
    assert Successes(0, ROOM, planned - 1, 0.01, 0.05).ended is None
    assert planned_attacks(12, 0.01, 0.05) == 12


def test_the_attacks_share_half_of_the_level():
    assert level_of_attack(0.05, 500) * 500 + 0.05 / 2 == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("proved", "open_", "n", "goal"), [(2, 0, 1, 0.1), (1, 1, 1, 0.1), (0, 0, 1, 0), (0, 0, 1, 1)]
)
def test_impossible_counts_and_goals_are_refused(proved, open_, n, goal):
    with pytest.raises(BadValue):
        attacks = Successes(proved, open_, n, goal, ALPHA)
        attacks.upper  # noqa: B018


def ever_wrong(share, runs, planned, rng):
    """How often, among runs that look after every attack, the share ever lies above its upper and below its lower end.

    An attack is proved wrongly with the level that it has; a tenth of the attacks stay open. An end excludes the share if
    and only if the evidence against the share has reached the goal.
    """
    level = level_of_attack(ALPHA, planned)
    shape = (runs, planned)
    succeeds = rng.random(shape) < share
    is_open = rng.random(shape) < 0.1
    is_wrong = rng.random(shape) < level
    proved = np.cumsum((succeeds != is_wrong) & ~is_open, axis=1)
    possible = proved + np.cumsum(is_open, axis=1)
    n = np.arange(1, planned + 1)

    goal = math.log(2 / ALPHA)
    above_upper = anytime.log_below(possible, n, share) >= goal
    below_lower = anytime.log_above(proved, n, share) >= goal
    return above_upper.any(axis=1).mean(), below_lower.any(axis=1).mean()


def test_each_end_is_ever_wrong_in_at_most_alpha_of_the_populations():
    rng = np.random.default_rng(47)

    for share in (0.01, 0.05, 0.4):
        upper_wrong, lower_wrong = ever_wrong(share, runs=4000, planned=120, rng=rng)
        assert upper_wrong <= ALPHA
        assert lower_wrong <= ALPHA


@pytest.mark.parametrize("counts", [(0, 0, 90), (2, 1, 60), (9, 3, 30)])
def test_an_end_excludes_a_share_if_and_only_if_the_evidence_has_reached_the_goal(counts):
    found = Successes(*counts, GOAL, ALPHA)
    proved, opened, n = counts
    goal = math.log(2 / ALPHA)

    for share in np.linspace(0.005, 0.995, 100):
        reached = anytime.log_below(proved + opened, n, share) >= goal
        assert reached == (share >= found.upper)
        reached = anytime.log_above(proved, n, share) >= goal
        assert reached == (share <= found.lower)


def ended_wrongly(share, runs, planned, rng):
    """How many populations end on the wrong side of the goal, where the share lies just on the other."""
    wrong = 0
    verdict_of: dict[tuple[int, int, int], str | None] = {}
    for _ in range(runs):
        leaks = np.cumsum(rng.random(planned) < share)
        for n in range(1, planned + 1):
            counts = (int(leaks[n - 1]), 0, n)
            if counts not in verdict_of:
                verdict_of[counts] = Successes(*counts, GOAL, ALPHA).ended
            if verdict_of[counts]:
                wrong += verdict_of[counts] == ("below" if share > GOAL else "above")
                break
    return wrong / runs


def test_a_population_at_its_goal_ends_wrongly_in_at_most_half_alpha_of_the_runs():
    rng = np.random.default_rng(470)

    assert ended_wrongly(GOAL, 3000, 200, rng) <= ALPHA / 2  # the null: exactly the goal
    assert ended_wrongly(GOAL + 1e-6, 3000, 200, rng) <= ALPHA / 2


def test_counting_unproved_attacks_as_failed_would_break_the_upper_end():
    """Where an attack that succeeds stays unproved half the time, the ends that take it as harmless are wrong."""
    rng = np.random.default_rng(4)
    honest = 0
    careless = 0
    for _ in range(100):
        succeeds = rng.random(90) < 0.1
        is_open = succeeds & (rng.random(90) < 0.5)
        leaks = int((succeeds & ~is_open).sum())
        opened = int(is_open.sum())
        honest += Successes(leaks, opened, 90, GOAL, ALPHA).upper < 0.1
        careless += Successes(leaks, 0, 90, GOAL, ALPHA).upper < 0.1

    assert honest <= 100 * ALPHA / 2
    assert careless > 100 * ALPHA / 2
