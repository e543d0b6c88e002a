"""The metrics of one model from tables small enough to count by hand."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from lethe.config.evaluating import Metrics
from lethe.evaluation.measure import measure, measure_stopped
from lethe.evaluation.model_measures import ModelMeasures
from lethe.statistics.bands import dkw
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.sequential import Decision

METRICS = Metrics(
    alpha=0.05, rho=2.0, thresholds=[0.5], leak="rouge_l", binary="keyword_leak", share_above=0.1, together="none"
)


def table(values, column="rouge_l", prompts=("p", "q")):
    """{prompt: [greedy, sample 0, sample 1, ...]} as a long table."""
    return pd.DataFrame(
        [
            {"prompt_id": prompt, "sample": place - 1, column: value}
            for prompt in prompts
            for place, value in enumerate(values[prompt])
        ]
    )


def measures(leak, leaked, inapplicable=(), **changes) -> ModelMeasures:
    scores = table(leak).assign(keyword_leak=table(leaked, "keyword_leak")["keyword_leak"])
    retain = table({"r": [1.0, 1.0, 0.5]}, prompts=("r",)).assign(text=["a", "a", "b"])
    return measure(
        "m",
        {"forget": scores.assign(text="x"), "retain": retain},
        {"forget": scores, "retain": retain},
        {"p": "P?", "q": "Q?"},
        METRICS.model_copy(update=changes),
        inapplicable,
    )


def measured(leak, leaked, inapplicable=(), **changes):
    found = measures(leak, leaked, inapplicable, **changes)
    return found.flat() | found.further_flat(), found.curves()


LEAK = {"q": [0.0, 0.0, 0.0, 1.0, 1.0], "p": [1.0, 0.5, 0.5, 0.5, 0.5]}
LEAKED = {"q": [0, 0, 0, 1, 1], "p": [1, 0, 0, 0, 0]}


def test_the_plain_statistics_are_counted_by_hand():
    flat, curves = measured(LEAK, LEAKED)
    assert flat["greedy_mean"] == 0.5
    assert flat["mean"] == 0.5
    assert flat["sd"] == 0.25
    assert flat["ed_score"] == 1.0
    assert flat["keyword_greedy"] == 0.5
    assert flat["keyword_mean"] == 0.25
    assert flat["keyword_any"] == 0.5
    assert [flat[f"binary_{name}"] for name in ("greedy", "mean", "any")] == [0.5, 0.25, 0.5]
    assert flat["retain_greedy"] == 1.0
    assert flat["retain_mean"] == 0.75
    assert flat["retain_distinct"] == 1.0
    assert (flat["n"], flat["n_questions"], flat["missing"]) == (4, 2, 0)
    p, q = curves["per_question"]
    assert [p["prompt_id"], q["prompt_id"]] == ["p", "q"]
    assert q["m_bin"] == pytest.approx(0.9023884, rel=1e-6)  # Clopper-Pearson, 2 of 4 at .05
    assert p["m_bin"] == pytest.approx(1 - 0.05**0.25)
    assert flat["m_bin_worst"] == q["m_bin"]
    assert flat["share_m_bin_above"] == 1.0
    assert [row["x"] for row in p["m_gen"]] == [0.5]
    assert p["m_gen"][0]["bound"] == pytest.approx(dkw(4, 0.05))
    assert p["leaking"] == p["leaking_answers"] == 0
    assert q["leaking"] == q["leaking_answers"] == 2
    assert 0.5 < flat["tighter_mean_worst"] <= 1
    assert flat["m_bin_pooled"] < q["m_bin"]


def test_the_tail_curve_averages_the_questions():
    _, curves = measured(LEAK, LEAKED)
    at = {row["x"]: row for row in curves["m_gen"]}
    assert at[0.5]["empirical"] == 0.25
    assert at[0.48]["empirical"] == 0.75
    e = dkw(4, 0.05)
    assert at[0.5]["bound"] == pytest.approx((min(1, 0 + e) + min(1, 0.5 + e)) / 2)
    assert at[1.0]["empirical"] == 0.0


def test_the_convergence_follows_the_question_with_the_largest_bound():
    _, curves = measured(LEAK, LEAKED)
    assert [row["n"] for row in curves["convergence"]] == [2, 4]
    assert {row["prompt_id"] for row in curves["convergence"]} == {"q"}


def test_a_missing_judgement_is_worst_on_each_side_and_counted():
    nan = math.nan
    whole, _ = measured(LEAK, LEAKED)
    flat, curves = measured({**LEAK, "p": [1.0, 0.5, nan, 0.5, 0.5]}, {**LEAKED, "p": [1, 0, nan, 0, 0]})
    p = curves["per_question"][0]
    assert flat["missing"] == p["missing"] == 1
    assert (p["mean"], p["keyword_share"]) == (0.5, 0.0)
    assert p["m_bin"] == pytest.approx(0.7513953, rel=1e-6)  # Clopper-Pearson, 1 of 4 at .05
    assert p["m_bin_lower"] == 0.0
    for key in ("m_mu_worst", "m_sigma_worst", "tighter_mean_worst", "tighter_sd_worst", "m_bin_worst"):
        assert flat[key] >= whole[key], key


def test_a_question_nobody_judged_is_missing_not_zero():
    nan = math.nan
    flat, curves = measured({**LEAK, "p": [nan] * 5}, {**LEAKED, "p": [nan] * 5})
    p = curves["per_question"][0]
    assert math.isnan(p["mean"])
    assert (p["m_mu"], p["m_bin"], p["leaking"], p["m_bin_lower"]) == (1.0, 1.0, 4, 0.0)
    assert flat["m_bin_worst"] == 1.0
    assert flat["m_sigma_worst"] >= 0.5  # a score's largest standard deviation
    assert flat["keyword_any"] == 1.0


def test_of_a_question_without_keywords_nothing_binary_is_said():
    flat, curves = measured(LEAK, {**LEAKED, "p": [math.nan] * 5}, inapplicable={"p"})
    p, q = curves["per_question"]
    assert p["m_bin"] is None
    assert flat["m_bin_worst"] == q["m_bin"]
    assert math.isnan(flat["m_bin_pooled"])


@pytest.mark.parametrize("missing", [1, 2, 31, 63, 64])
def test_no_bound_on_the_worst_question_shrinks_when_answers_are_missing(missing):
    """Two questions of 64 draws, one that alternates and one that never leaks: the more is missing, the larger."""
    q, p = [0.0] * 65, [0.0, *([0.0, 1.0] * 32)]
    whole, _ = measured({"p": p, "q": q}, {"p": p, "q": q})
    p = p[:1] + [math.nan] * missing + p[1 + missing :]
    flat, _ = measured({"p": p, "q": q}, {"p": p, "q": q})
    for key in (
        "m_mu_worst",
        "m_sigma_worst",
        "tighter_mean_worst",
        "m_bin_worst",
        "m_bin_pooled",
        "share_m_bin_above",
    ):
        assert flat[key] >= whole[key] - 1e-12, key
    assert flat["tighter_sd_worst"] >= 0.5  # that of the alternating one


def test_without_a_binary_scorer_the_binary_claims_are_missing():
    flat, _ = measured(LEAK, LEAKED, binary=None)
    assert math.isnan(flat["m_bin_worst"])
    assert math.isnan(flat["keyword_any"])
    assert flat["mean"] == 0.5


DECISION = Decision("leaks", 3, 100, 0.05, 0.1, 0.01, mean_upper=1.0, mean_lower=0.2, sd_upper=0.5)
DECISIONS = {"p": replace(DECISION, verdict="undecided", n=4, mean_upper=0.9, mean_lower=0.0), "q": DECISION}


def stopped() -> ModelMeasures:
    scores = table(LEAK).assign(keyword_leak=table(LEAKED, "keyword_leak")["keyword_leak"])
    scores = scores.drop(scores[(scores.prompt_id == "q") & (scores["sample"] == 3)].index)
    names = {"p": "P?", "q": "Q?"}
    return measure_stopped("m", {"forget": scores}, {"forget": scores}, names, METRICS, DECISIONS, "keyword_leak")


def test_where_questions_stopped_early_only_anytime_valid_values_are_given():
    flat, curves = stopped().flat() | stopped().further_flat(), stopped().curves()
    for key in ("m_mu_worst", "m_bin_worst", "m_bin_pooled", "m_sigma_worst", "tighter_mean_worst"):
        assert math.isnan(flat[key])
    assert "anytime" in flat["fixed_bounds"]
    assert (flat["leaking"], flat["certified"], flat["undecided"]) == (1, 0, 1)
    assert flat["leaking_questions"] == 1
    assert (flat["samples_drawn"], flat["samples_saved"]) == (7, 193)
    assert (flat["anytime_upper_worst"], flat["anytime_sd_upper_worst"]) == (1.0, 0.5)
    q = curves["per_question"][1]
    assert (q["m_mu"], q["m_bin"], q["verdict"], q["n"]) == (None, None, "leaks", 3)
    assert q["mean"] == pytest.approx(1 / 3)
    assert "leaking_answers" not in q


WORST = {"m_mu_worst", "m_sigma_worst", "tighter_mean_worst", "tighter_sd_worst", "m_bin_worst"}
ASKED = {"leak_at_1000_worst", "leak_at_1000_worst_lower"}


@pytest.mark.parametrize(
    ("found", "worst", "others", "alpha"),
    [
        (measures(LEAK, LEAKED), WORST | ASKED, {"m_bin_pooled": Covers.AVERAGE}, 0.05),
        (stopped(), {"anytime_upper_worst", "anytime_sd_upper_worst"}, {}, 0.01),
    ],
    ids=["fixed", "stopped"],
)
def test_every_bound_of_the_flat_metrics_has_its_guarantee(found, worst, others, alpha):
    flat, guarantees = found.flat() | found.further_flat(), found.guarantees()["metrics"]
    assert {key: bound["covers"] for key, bound in guarantees.items()} == {
        **dict.fromkeys(worst, Covers.WORST_PROMPT),
        **others,
    }
    for key, guarantee in guarantees.items():
        bound = Bound.from_dict({"value": flat[key], **guarantee})
        assert (bound.side, bound.alpha) == ("lower" if key.endswith("_lower") else "upper", alpha)
        assert found.bounds()[key] == bound


def test_every_bound_of_a_question_has_its_guarantee():
    found = measures(LEAK, LEAKED)
    shared, row = found.guarantees()["per_question"], found.curves()["per_question"][0]
    for key, guarantee in shared.items():
        assert guarantee["side"] == ("lower" if key.endswith("_lower") else "upper")
        assert (guarantee["covers"], guarantee["n"]) == (Covers.ONE_PROMPT, 4)
        if not key.startswith(("m_gen", "leak_at_k")):
            Bound.from_dict({"value": row[key], **guarantee})
    assert {"m_gen", "m_gen_lower", "m_gen_tighter", "m_mu", "m_bin_lower", "tighter_sd_upper"} < set(shared)
    assert {"leak_at_k_lower", "leak_at_k_upper"} < set(shared)
    anytime = stopped().guarantees()["per_question"]
    assert anytime["anytime_lower"]["side"] == "lower"
    assert anytime["anytime_upper"]["n"] is None  # the questions stopped at different n


@pytest.mark.parametrize("together", ["bonferroni", "holm"])
def test_a_correction_adds_keys_and_changes_none(together):
    plain, (corrected, curves) = measured(LEAK, LEAKED)[0], measured(LEAK, LEAKED, together=together)
    assert corrected == {**plain, "certified_together": 0}
    for own in curves["per_question"]:
        assert own["certified"] is False
        assert (own["together_bound"] is None) == (together == "holm")
        assert together == "holm" or own["together_bound"] > own["m_bin"]
    assert measures(LEAK, LEAKED, together=together).guarantees()["together"]["correction"] == together


def test_questions_that_the_binary_scorer_cannot_judge_are_not_certified():
    inapplicable = {**LEAKED, "p": [math.nan] * 5}
    _, curves = measured(LEAK, inapplicable, {"p"}, together="bonferroni")
    p, q = curves["per_question"]
    assert (p["together_bound"], p["certified"]) == (None, None)
    assert q["together_bound"] == pytest.approx(q["m_bin"])  # one prompt alone: nothing to correct


def test_leak_at_k_of_each_question_of_the_worst_and_of_the_mean():
    found = measures(LEAK, LEAKED)
    flat, curves, guarantees = found.further_flat(), found.curves(), found.guarantees()
    rows = {(row["of"], row["k"]): row for row in curves["leak_at_k"]}
    p, q = ({point["k"]: point for point in row["leak_at_k"]} for row in curves["per_question"])
    assert (p[1]["upper"], q[1]["upper"]) == tuple(row["m_bin"] for row in curves["per_question"])
    assert rows["worst", 1000]["upper"] == flat["leak_at_1000_worst"] == q[1000]["upper"]
    # Some question leaks at least so much: either could say so falsely.
    assert rows["worst", 1]["lower"] == pytest.approx(0.0675855, rel=1e-5)  # Clopper-Pearson, 2 of 4 at .025
    assert flat["leak_at_1000_worst_lower"] == pytest.approx(1 - (1 - rows["worst", 1]["lower"]) ** 1000)
    assert rows["mean", 1]["estimate"] == pytest.approx(0.25)
    assert rows["mean", 1]["lower"] <= 0.25 <= rows["mean", 1]["upper"]
    covers = {
        of: {side: told["covers"] for side, told in sides.items()} for of, sides in guarantees["leak_at_k"].items()
    }
    assert covers == {
        "worst": dict.fromkeys(("lower", "upper"), Covers.WORST_PROMPT),
        "mean": dict.fromkeys(("lower", "upper"), Covers.AVERAGE),
    }


def test_leak_at_k_leaves_out_questions_that_cannot_be_judged():
    flat, curves = measured(LEAK, {**LEAKED, "p": [math.nan] * 5}, inapplicable={"p"})
    p, q = curves["per_question"]
    assert (p["leak_at_k"], p["binary_missing"]) == (None, None)
    assert q["binary_missing"] == 0
    assert flat["leak_at_1000_worst"] == {point["k"]: point for point in q["leak_at_k"]}[1000]["upper"]
    none, curves = measured(LEAK, LEAKED, binary=None)
    assert "leak_at_1000_worst" not in none
    assert curves["leak_at_k"] == []


def test_a_missing_binary_judgement_widens_leak_at_k_on_both_sides():
    _, curves = measured(LEAK, {**LEAKED, "q": [0, math.nan, 0, 1, 1]})
    q = curves["per_question"][1]
    one = q["leak_at_k"][0]
    assert (q["binary_missing"], q["missing"]) == (1, 0)
    assert one["estimate"] == pytest.approx(2 / 3)
    assert (one["lower"], one["upper"]) == (q["m_bin_lower"], q["m_bin"])
    assert q["m_bin"] == pytest.approx(0.9872585, rel=1e-6)  # Clopper-Pearson, 3 of 4 at .05


def test_a_question_that_stopped_early_has_no_leak_at_k():
    found = stopped()
    row = found.curves()["per_question"][0]
    assert row["leak_at_k"] is None
    assert "anytime" in row["fixed_bounds"]
    assert found.curves()["leak_at_k"] == []
    assert "leak_at_1000_worst" not in found.further_flat()


def test_the_measuring_of_many_sizes_shows_its_progress(monkeypatch):
    import numpy as np

    from lethe.evaluation import ragged

    shown = []
    monkeypatch.setattr(ragged, "progress", lambda items, *told: shown.append((len(items), *told)) or items)
    rows = [np.zeros(size) for size in range(1, ragged.MANY + 2)]
    assert ragged.by_length(rows, lambda matrix: matrix.shape[1:] * len(matrix)) == [len(row) for row in rows]
    assert shown == [(ragged.MANY + 1, "measure", "parts")]
    ragged.by_length(rows[1:], lambda matrix: [0] * len(matrix))
    assert len(shown) == 1


def test_equally_long_rows_are_measured_a_bounded_matrix_at_a_time(monkeypatch):
    import numpy as np

    from lethe.evaluation import ragged

    monkeypatch.setattr(ragged, "VALUES", 12)
    shapes = []
    rows = [np.full(size, place) for place, size in enumerate([5, 3, 5, 5, 20, 3, 5])]

    def first_values(matrix):
        shapes.append(matrix.shape)
        return matrix[:, 0].tolist()

    assert ragged.by_length(rows, first_values) == list(range(len(rows)))
    assert shapes == [(2, 3), (2, 5), (2, 5), (1, 20)]
    assert ragged.by_length([], first_values) == []


def test_asking_whether_a_split_has_answers_reads_no_table(tmp_path):
    from lethe.evaluation.answer_tables import AnswerTables
    from lethe.io.parts import Tables

    (tmp_path / "forget.parquet").write_bytes(b"no Parquet")
    place = tmp_path / "forget.parquet"
    for tables in (AnswerTables({"forget": (place, place)}), Tables(tmp_path, "score@m")):
        assert "forget" in tables
        assert "retain" not in tables
