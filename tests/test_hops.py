"""The ways of things through the code, whose hops a benchmark counts."""

import pytest

from tests.benchmarks import hops
from tests.benchmarks.hops import WAYS, BrokenWay, hops_of


@pytest.mark.parametrize("name", WAYS)
def test_each_step_of_a_way_stands_in_the_source(name):
    _, way = WAYS[name]

    assert hops_of(way) > 0


@pytest.mark.parametrize("name", [name for name in WAYS if "--json" in name])
def test_a_result_reaches_json_in_the_hops_that_are_wanted(name):
    wanted, way = WAYS[name]

    assert hops_of(way) <= wanted


def test_a_step_that_nothing_before_it_calls_is_refused():
    way = "  stages.unlearn:run\n  lethe.statistics.counts:rate_bounds\n"

    with pytest.raises(BrokenWay, match="rate_bounds"):
        hops_of(way)


def test_a_function_that_is_gone_is_refused():
    with pytest.raises(BrokenWay, match="no_such_function"):
        hops.names_in("lethe.errors", "no_such_function")


def test_a_step_within_a_module_is_no_hop():
    way = "  stages.unlearn:run\n  stages.unlearn:forget\n  lethe.unlearning.loop:unlearn\n"

    assert hops_of(way) == 1
