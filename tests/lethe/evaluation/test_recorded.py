"""What measures write as rows comes back from the table as it was written."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.evaluation.prompts import SHOWN_QUERIES, MeasureSettings, measure_prompts
from lethe.evaluation.run import Model, tails
from lethe.evaluation.scores import as_prompts
from lethe.results import table
from lethe.results.exact_bounds import Excess, certificates_of, rows_of
from lethe.results.table import Results
from lethe.statistics.answer_tree import AgainstRetrain
from lethe.statistics.judge_error import Calibration
from tests.lethe.evaluation.deciding import certified, made, of_model, of_questions
from tests.lethe.evaluation.test_measure import LEAK, LEAKED, stopped
from tests.lethe.evaluation.test_measure import rows_of as measured_rows

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
    excess = Excess(names, against, of_lowers)
    found = kept(made(excess.to_rows))
    rows = {name: own.row("excess", "exact") for name, own in of_questions(found).items()}
    assert {name: row.lower for name, row in rows.items()} == dict(zip(names, ratios, strict=True))
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


def test_a_model_of_the_table_has_its_curves_and_bands():
    rows = kept(measured_rows(LEAK, LEAKED))
    model = Model("m", "subject", "m", numbers=of_model(rows))
    assert [(point.x, point.empirical) for point in tails(model.numbers)][25] == (0.5, 0.25)
    lower, upper = model.asked(SHOWN_QUERIES)
    assert (lower, upper) == (model.bounds["leak_at_1000_worst_lower"], model.bounds["leak_at_1000_worst"])
    assert model.asked(3) is None
    assert model.calibration is model.epsilon_star is None
    assert not model.stopped
    assert Model("m", "subject", "m", numbers=of_model(kept(stopped()))).stopped


def test_what_is_kept_of_the_judge_is_enough_to_measure_again():
    judge = Calibration(leaks=60, leaks_called=54, clean=140, clean_called=7)
    verdicts = as_prompts({"a": [0.0] * 180 + [1.0] * 20, "b": [0.0] * 150 + [1.0] * 50})
    rows = kept(made(measure_prompts, verdicts, MeasureSettings(alpha=0.03, calibration=judge)))
    numbers, second = of_model(rows), of_questions(rows)["b"]
    model = Model("m", "subject", "m", numbers=numbers)
    assert model.calibration == judge
    assert model.bounds["judged_worst"].value == second.upper("leak", "judged").value
    first = numbers.series("leak_at_k_worst", "judged")[0]
    assert (first.at, first.upper, first.lower) == (
        1,
        model.values["judged_worst"],
        model.values["judged_worst_lower"],
    )
    assert (model.values["judge_labelled"], model.values["judge_fits"]) == (200, True)
    (asked,) = (row for row in numbers.series("leak_at_k_worst", "judged") if row.at == SHOWN_QUERIES)
    assert model.asked(SHOWN_QUERIES) == (asked.lower_bound, asked.upper_bound)
