"""The simulations of docs/validation.md: the page has each by its name, and each prints the figures of the page."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import worst_cases
from tests.benchmarks.simulations import SIMULATIONS

# Of the studies, or more than a second of a processor.
SLOW = (
    *("s02b", "s03b", "s05", "s06", "s08", "s11", "s12", "s14", "s15", "s22", "s24", "verdict"),
    *("twins_level", "twins_power_100", "twins_power_400", "twins_product"),
)
# Of torch's kernels, which round otherwise on another machine; the page has a finished demonstration beside it.
OF_KERNELS = ("s25",)
PAGE = (Path(__file__).parents[1] / "docs/validation.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * name.startswith(SLOW)) for name in SIMULATIONS],
)
def test_a_simulation_prints_the_row_of_the_page(name):
    """Seeds are those of the names: a figure that moves is another bound, or another law."""
    statement, before, now = SIMULATIONS[name]
    figure = now(np.random.default_rng(zlib.crc32(name.encode())))
    assert f"\n{name}: {statement} | {before} | {'' if name in OF_KERNELS else figure}" in PAGE


@pytest.mark.slow
def test_worst_cases_keep_their_level():
    assert worst_cases.main(["--runs", "400"]) == 0


def test_worst_cases_stand_on_the_page():
    assert all(f"\n{name}|" in PAGE for name in worst_cases.BOUNDS)
