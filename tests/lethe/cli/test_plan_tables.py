"""The notes of `lethe plan --preset`."""

import pytest

from lethe.cli.plan_tables import FASTER, LONG, _stage_table
from lethe.steps.training_costs import StageCost


@pytest.mark.parametrize(
    ("seconds", "kernels", "told"), [(LONG + 1, None, True), (LONG - 1, None, False), (LONG + 1, "machine", False)]
)
def test_a_long_plan_names_the_faster_kernels_where_they_are_not_chosen(monkeypatch, seconds, kernels, told):
    monkeypatch.delenv("LETHE_KERNELS", raising=False)
    if kernels:
        monkeypatch.setenv("LETHE_KERNELS", kernels)
    stages = [StageCost("train", "base", 10, 0, seconds), StageCost("attack", "a", 0, 10, None)]
    assert (FASTER in _stage_table(stages)[2]) is told
