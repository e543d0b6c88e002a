"""The privacy-utility landscape: strategies of the grid, resumed runs, an overfitted network above a private one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadParam, BadValue
from lethe.io import cache
from studies.landscape.settings import FILES, read
from studies.landscape.study import Landscape, frontier
from tests.small import one_after_another, touched

SMALL = [
    "data.points=600",
    "network.hidden=[32]",
    "baseline.epochs=[1,120]",
    "private.epochs=2",
    "private.epsilons=[1]",
    "private.clips=[1]",
    "private.microbatches=[null,4]",
    "runs=2",
    "goodness_of_fit=null",
]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def result(scratch):
    return Landscape(read("digits", SMALL), scratch).result(one_after_another)


@pytest.mark.parametrize("name", sorted(path.stem for path in FILES.glob("*.yaml")))
def test_every_file_of_settings_is_whole(name):
    settings = read(name, [])
    assert settings.runs == 5
    assert settings.private.epsilons == [1, 3, 10, 100]


@pytest.mark.parametrize(("name", "strategies"), [("adult-paper", 52), ("purchase100-paper", 51)])
def test_the_papers_grid_has_the_papers_size(name, strategies):
    assert len(Landscape(read(name, [])).strategies()) == strategies


def test_every_strategy_is_measured(result):
    assert [one.name for one in result.strategies] == [
        "1 epoch",
        "120 epochs",
        "ε 1, clip 1, batch 64, single records",
        "ε 1, clip 1, batch 64, 4 microbatches",
    ]
    assert result.utility == "accuracy"
    assert result.trained == 8
    for one in result.strategies:
        for key in ("utility_population", "epsilon_star", "epsilon_star_cut", "epsilon_lower"):
            assert getattr(one, key).min <= getattr(one, key).mean <= getattr(one, key).max
        assert len(one.runs) == 2
        assert one.mechanism.instances == 2
        assert one.epsilon_star_cut.mean <= one.epsilon_star.mean + 1e-9


def test_learning_by_heart_costs_more_than_dp(result):
    once, long, private, _ = result.strategies
    assert long.epsilon_star.mean > max(once.epsilon_star.mean, private.epsilon_star.mean)
    assert long.utility_population.mean > private.utility_population.mean
    assert 1 in result.frontier


@pytest.mark.parametrize(
    ("module", "moves"),
    [("lethe.models.dp_sgd", True), ("lethe.statistics.two_sample", True), ("studies.landscape.study", False)],
)
def test_edited_code_makes_the_runs_anew_that_it_made(tmp_path, monkeypatch, module, moves):
    study = Landscape(read("digits", SMALL), tmp_path)
    before = study.place(study.strategies()[0], 0)
    monkeypatch.setattr(cache, "library", lambda: touched(module))
    assert (study.place(study.strategies()[0], 0) != before) == moves


def test_mistakes_are_told_by_key():
    with pytest.raises(BadValue, match="one of adult"):
        read("nothing", [])
    for change, key in (("data.kind=mnist", "data.kind"), ("runs=0", "runs"), ("runz=1", "runz")):
        with pytest.raises(BadParam, match=key):
            read("digits", [change])


def naive(cost, benefit):
    """On the frontier: no other point and no convex combination of two others is at least as good and better in one."""
    kept = []
    shares = np.linspace(0, 1, 401)
    for i in range(len(cost)):
        beaten = False
        for a in range(len(cost)):
            for b in range(len(cost)):
                c, v = (shares * side[a] + (1 - shares) * side[b] for side in (cost, benefit))
                beaten |= bool(
                    np.any(
                        (c <= cost[i] + 1e-12)
                        & (v >= benefit[i] - 1e-12)
                        & ((c < cost[i] - 1e-9) | (v > benefit[i] + 1e-9))
                    )
                )
        if not beaten:
            kept.append(i)
    return set(kept)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=7, unique=True))
def test_equals_its_naive_twin_but_for_points_inside_an_edge(points):
    cost, benefit = np.array(points, float).T
    found = frontier(cost, benefit)
    assert set(found) <= naive(cost, benefit)
    # No point dominates a point on the line between two corners of the frontier; only the corners are returned.
    for i in naive(cost, benefit) - set(found):
        assert np.interp(cost[i], cost[found], benefit[found]) == pytest.approx(benefit[i])
    assert np.all(np.diff(cost[found]) > 0)
    assert np.all(np.diff(benefit[found]) > 0)
