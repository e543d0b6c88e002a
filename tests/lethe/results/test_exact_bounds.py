"""Exact bounds and the excess over Retrain come back from their rows."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.results import table
from lethe.results.exact_bounds import RatioToRetrain, certificates_of, rows_of
from lethe.results.table import Results
from lethe.statistics.answer_tree import AgainstRetrain
from tests.lethe.verdict.deciding import certified, made, of_model, of_questions

RATIO = st.floats(0, 1e6) | st.just(math.inf)


SHARE = st.floats(0, 1)


def kept(rows: list[table.Result]) -> list[table.Result]:
    """Through a file."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "m.parquet")
        table.write(place, rows)
        return table.read_rows(place)


@given(st.lists(st.tuples(RATIO, SHARE, st.booleans()), min_size=1, max_size=4), RATIO)
def test_the_excess_over_retrain(rows, of_lowers):
    ratios, p_values, holds = zip(*rows, strict=True)
    names = tuple(f"q{place}" for place in range(len(rows)))
    against = AgainstRetrain(*map(np.array, (ratios, p_values, holds)), 10.0, 0.01, "Holm", "draws")
    excess = RatioToRetrain(names, against, of_lowers)
    found = kept(made(excess.to_rows))
    lowers = []
    for numbers in of_questions(found).values():
        lowers.append(numbers.row("excess", "exact").lower)
    assert tuple(of_questions(found)) == names
    assert lowers == list(ratios)
    values = of_model(found).values
    assert values["tree_above_retrain"] == sum(holds)
    assert values["tree_excess_median"] == excess.median


@pytest.mark.parametrize("rho", [0.0, 70.0])
def test_the_exact_bounds_with_their_trees(rho):
    found = certified(("a", "b"), 0.25, 0.5, rho, leaks=3 if rho else 0)
    rows = kept(rows_of(found))
    again = certificates_of(Results({"model": tuple(rows)}), "model")
    assert again.trees == found.trees
    assert (again.how, again.tau, again.skipped) == (found.how, found.tau, found.skipped)
    assert again.model.bounds == found.model.bounds
    question = of_questions(rows)["a"]
    for name in ("lower", "upper_certain", "lower_sampled", "upper"):
        assert question.bounds[f"tree_{name}"] == found.trees[0].bounds[name]
    assert certificates_of(Results({}), "model") is None
