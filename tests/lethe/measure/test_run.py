"""A model of a run, read from its rows: curves, bands and the judge."""

from lethe.measure.prompts import SHOWN_QUERIES, MeasureSettings, measure_prompts
from lethe.measure.run import RunModel, tails
from lethe.measure.scores import as_prompts
from lethe.statistics.judge_error import Calibration
from tests.lethe.measure.test_measure import LEAK, LEAKED
from tests.lethe.measure.test_measure import rows_of as measured_rows
from tests.lethe.results.test_exact_bounds import kept
from tests.lethe.verdict.deciding import made, of_model, of_questions


def test_a_model_of_the_table_has_its_curves_and_bands():
    rows = kept(measured_rows(LEAK, LEAKED))
    model = RunModel("m", "subject", "m", numbers=of_model(rows))
    assert [(point.x, point.empirical) for point in tails(model.numbers)][25] == (0.5, 0.25)
    lower, upper = model.asked(SHOWN_QUERIES)
    assert (lower, upper) == (
        model.bounds["leak_at_1000_worst_lower"],
        model.bounds["leak_at_1000_worst"],
    )
    assert model.asked(3) is None
    assert model.calibration is model.epsilon_star is None


def test_what_is_kept_of_the_judge_is_enough_to_measure_again():
    judge = Calibration(leaks=60, leaks_called=54, clean=140, clean_called=7)
    verdicts = as_prompts({"a": [0.0] * 180 + [1.0] * 20, "b": [0.0] * 150 + [1.0] * 50})
    rows = kept(made(measure_prompts, verdicts, MeasureSettings(alpha=0.03, calibration=judge)))
    numbers = of_model(rows)
    second = of_questions(rows)["b"]
    model = RunModel("m", "subject", "m", numbers=numbers)
    assert model.calibration == judge
    assert model.bounds["judged_worst"].value == second.upper("leak", "judged").value
    first = numbers.series("leak_at_k_worst", "judged")[0]
    assert (first.at, first.upper, first.lower) == (
        1,
        model.values["judged_worst"],
        model.values["judged_worst_lower"],
    )
    assert (model.values["judge_labelled"], model.values["judge_fits"]) == (200, True)
    (asked,) = (
        row for row in numbers.series("leak_at_k_worst", "judged") if row.at == SHOWN_QUERIES
    )
    assert model.asked(SHOWN_QUERIES) == (asked.lower_bound, asked.upper_bound)
