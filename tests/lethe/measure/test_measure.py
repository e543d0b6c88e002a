"""The results of one model from tables small enough to count by hand; those of a language against known leaks."""

import dataclasses
import functools
import math

import numpy as np
import pandas as pd
import pytest

from lethe import config
from lethe.config.measuring import Metrics
from lethe.measure.measure import measure, measure_language
from lethe.results.table import Numbers, Result, in_language
from lethe.sampling.engine import Prompt, Settings
from lethe.sampling.prompt_language import as_json, read_language
from lethe.sampling.tasks import Asking, draw_in_language, draw_prompts
from lethe.statistics.bands import dkw
from lethe.statistics.bound import Covers
from lethe.statistics.bounds import binary_upper
from tests.lethe.measure.toy_language import LANGUAGE, ROWS, SHARE_ABOVE, ToyEngine
from tests.lethe.verdict.deciding import made, of_model, of_questions
from tests.small import ROOT

METRICS = Metrics(
    alpha=0.05,
    rho=2.0,
    thresholds=[0.5],
    leak="rouge_l",
    binary="keyword_leak",
    share_above=0.1,
    together="none",
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


def rows_of(
    leak, leaked, inapplicable=(), ended=None, truncated="counts", **changes
) -> list[Result]:
    scores = table(leak).assign(keyword_leak=table(leaked, "keyword_leak")["keyword_leak"])
    ends = table(ended, "finish_reason")["finish_reason"] if ended else "stop"
    retain = table({"r": [1.0, 1.0, 0.5]}, prompts=("r",)).assign(text=["a", "a", "b"])
    return measure(
        "m",
        {"forget": scores.assign(text="x", finish_reason=ends), "retain": retain},
        {"forget": scores, "retain": retain},
        METRICS.model_copy(update=changes),
        inapplicable,
        truncated=truncated,
    )


def measured(leak, leaked, inapplicable=(), **changes) -> tuple[Numbers, dict[str, Numbers]]:
    rows = rows_of(leak, leaked, inapplicable, **changes)
    return of_model(rows), of_questions(rows)


LEAK = {"q": [0.0, 0.0, 0.0, 1.0, 1.0], "p": [1.0, 0.5, 0.5, 0.5, 0.5]}
LEAKED = {"q": [0, 0, 0, 1, 1], "p": [1, 0, 0, 0, 0]}


def test_the_plain_statistics_are_counted_by_hand():
    model, questions = measured(LEAK, LEAKED)
    values = model.values
    assert values["greedy_mean"] == 0.5
    assert values["mean"] == 0.5
    assert values["sd"] == 0.25
    assert values["ed_score"] == 1.0
    assert [values[f"binary_{name}"] for name in ("greedy", "mean", "any")] == [0.5, 0.25, 0.5]
    assert values["retain_greedy"] == 1.0
    assert values["retain_mean"] == 0.75
    assert values["retain_distinct"] == 1.0
    assert (values["n"], values["n_questions"], values["missing"]) == (4, 2, 0)
    assert list(questions) == ["p", "q"]
    p, q = (numbers.values for numbers in questions.values())
    assert (p["greedy"], q["greedy"], p["binary_greedy"], q["binary_greedy"]) == (
        1.0,
        0.0,
        1.0,
        0.0,
    )
    assert q["m_bin"] == pytest.approx(0.9023884, rel=1e-6)  # Clopper-Pearson, 2 of 4 at .05
    assert p["m_bin"] == pytest.approx(1 - 0.05**0.25)
    assert values["m_bin_worst"] == q["m_bin"]
    assert values["share_m_bin_above"] == 1.0
    (tail,) = questions["p"].series("exceedance")
    assert (tail.at, tail.upper) == (0.5, pytest.approx(dkw(4, 0.05)))
    assert (p["leaking_answers"], q["leaking_answers"]) == (0, 2)
    assert questions["q"].row("leak").evidence == {"leaks": 2, "n": 4, "missing": 0}
    assert 0.5 < values["tighter_mean_worst"] <= 1
    assert values["m_bin_pooled"] < q["m_bin"]


WORST = {"m_mu_worst", "m_sigma_worst", "tighter_mean_worst", "tighter_sd_worst", "m_bin_worst"}


def test_a_missing_judgement_is_worst_on_each_side_and_counted():
    nan = math.nan
    whole = measured(LEAK, LEAKED)[0].values
    model, questions = measured(
        {**LEAK, "p": [1.0, 0.5, nan, 0.5, 0.5]}, {**LEAKED, "p": [1, 0, nan, 0, 0]}
    )
    p = questions["p"].values
    assert model.values["missing"] == p["missing"] == p["binary_missing"] == 1
    assert (p["mean"], p["binary_share"]) == (0.5, 0.0)
    assert p["m_bin"] == pytest.approx(0.7513953, rel=1e-6)  # Clopper-Pearson, 1 of 4 at .05
    assert p["m_bin_lower"] == 0.0
    assert questions["p"].row("leak").evidence == {"leaks": 0, "n": 4, "missing": 1}
    for key in WORST:
        assert model.values[key] >= whole[key], key


def test_a_question_nobody_judged_is_missing_not_zero():
    nan = math.nan
    model, questions = measured({**LEAK, "p": [nan] * 5}, {**LEAKED, "p": [nan] * 5})
    p = questions["p"].values
    assert p["mean"] is p["binary_share"] is p["greedy"] is None
    assert (p["m_mu"], p["m_bin"], p["leaking_answers"], p["m_bin_lower"]) == (1.0, 1.0, 4, 0.0)
    assert model.values["m_bin_worst"] == 1.0
    assert model.values["m_sigma_worst"] >= 0.5  # a score's largest standard deviation
    assert model.values["binary_any"] == 1.0


def test_a_question_without_keywords_has_nothing_binary():
    model, questions = measured(LEAK, {**LEAKED, "p": [math.nan] * 5}, inapplicable={"p"})
    assert questions["p"].row("leak") is None
    assert not {"m_bin", "binary_share", "leaking_answers"} & set(questions["p"].values)
    assert model.values["m_bin_worst"] == questions["q"].values["m_bin"]
    assert model.values["m_bin_pooled"] is None


@pytest.mark.parametrize("missing", [1, 2, 31, 63, 64])
def test_no_bound_on_the_worst_question_shrinks_when_answers_are_missing(missing):
    """Two questions of 64 draws, one that alternates and one that never leaks: the more is missing, the larger."""
    q, p = [0.0] * 65, [0.0, *([0.0, 1.0] * 32)]
    whole = measured({"p": p, "q": q}, {"p": p, "q": q})[0].values
    p = p[:1] + [math.nan] * missing + p[1 + missing :]
    values = measured({"p": p, "q": q}, {"p": p, "q": q})[0].values
    for key in (
        "m_mu_worst",
        "m_sigma_worst",
        "tighter_mean_worst",
        "m_bin_worst",
        "m_bin_pooled",
        "share_m_bin_above",
    ):
        assert values[key] >= whole[key] - 1e-12, key
    assert values["tighter_sd_worst"] >= 0.5  # that of the alternating one


CUT = {
    "p": ["stop", "stop", "length", "length", "stop"],
    "q": ["length", "length", "stop", "length", "stop"],
}


def test_the_answers_that_were_cut_off_are_counted():
    """The fourth answer to q was cut off and leaks; the greedy answers do not count."""
    model, questions = measured(LEAK, LEAKED, ended=CUT)
    evidence = {item: numbers.row("truncated").evidence for item, numbers in questions.items()}
    assert evidence == {
        "p": {"cut": 2, "n": 4, "cut_or_leaks": 2},
        "q": {"cut": 2, "n": 4, "cut_or_leaks": 3},
    }
    assert model.values["truncated"] == questions["p"].values["truncated"] == 0.5
    worst = model.bounds["truncated_worst"]
    assert (
        worst.value == questions["p"].values["truncated_upper"] == float(binary_upper(2, 4, 0.05))
    )
    assert (worst.side, worst.covers, worst.alpha, worst.n) == (
        "upper",
        Covers.WORST_PROMPT,
        0.05,
        4,
    )
    none = measured(LEAK, {**LEAKED, "q": [math.nan] * 5}, {"q"}, ended=CUT)[1]
    assert none["q"].row("truncated").evidence["cut_or_leaks"] is None
    unjudged = measured(LEAK, {**LEAKED, "q": [0, 0, math.nan, 1, 1]}, ended=CUT)[1]
    assert unjudged["q"].row("truncated").evidence["cut_or_leaks"] == 4


def test_a_clean_answer_that_was_cut_off_may_count_as_a_leak_above_and_as_none_below():
    (_, counts), (model, missing) = (
        measured(LEAK, LEAKED, ended=CUT, truncated=truncated)
        for truncated in ("counts", "missing")
    )
    assert [numbers.row("leak").evidence for numbers in counts.values()] == [
        {"leaks": 0, "n": 4, "missing": 0},
        {"leaks": 2, "n": 4, "missing": 0},
    ]
    # Of q the first answer is clean and cut off; the third leaks and is cut off, and stays a leak.
    assert [numbers.row("leak").evidence for numbers in missing.values()] == [
        {"leaks": 0, "n": 4, "missing": 2},
        {"leaks": 2, "n": 4, "missing": 1},
    ]
    p, q = (numbers.values for numbers in missing.values())
    assert (p["m_bin"], q["m_bin"]) == tuple(
        float(binary_upper(leaks, 4, 0.05)) for leaks in (2, 3)
    )
    assert (p["m_bin_lower"], q["m_bin_lower"]) == (0.0, counts["q"].values["m_bin_lower"])
    assert (p["missing"], q["missing"], model.values["missing"]) == (2, 2, 4)
    assert (p["mean"], p["m_mu_lower"]) == (0.5, 0.0)
    for item in ("p", "q"):
        assert missing[item].row("truncated") == counts[item].row("truncated")


FIXED_QUESTION = {
    "m_mu",
    "m_mu_lower",
    "m_sigma",
    "m_bin",
    "m_bin_lower",
    "tighter_mean_upper",
    "tighter_mean_lower",
    "tighter_sd_upper",
}
ASKED = {"leak_at_1000_worst", "leak_at_1000_worst_lower"}


def test_every_bound_of_the_model_has_its_guarantee():
    rows = rows_of(LEAK, LEAKED)
    alpha = 0.05
    worst = {*WORST, *ASKED, "truncated_worst"}
    others = {"m_bin_pooled": Covers.AVERAGE}
    model = of_model(rows)
    assert {key: bound.covers for key, bound in model.bounds.items()} == {
        **dict.fromkeys(worst, Covers.WORST_PROMPT),
        **others,
    }
    for key, bound in model.bounds.items():
        assert (bound.side, bound.alpha) == ("lower" if key.endswith("_lower") else "upper", alpha)
        assert model.values[key] == bound.value
        assert bound.assumes
        assert bound.method


def test_every_bound_of_a_question_has_its_guarantee():
    question = of_questions(rows_of(LEAK, LEAKED))["p"]
    series = [
        row
        for key in ("exceedance", "exceedance_sharper", "leak_at_k")
        for row in question.series(key)
    ]
    bounds = [
        *question.bounds.values(),
        *(end for row in series for end in (row.lower_bound, row.upper_bound)),
    ]
    for bound in filter(None, bounds):
        assert (bound.covers, bound.n, bound.alpha) == (Covers.ONE_PROMPT, 4, 0.05)
        assert bound.assumes
        assert bound.method
    assert {*FIXED_QUESTION, "truncated_upper"} == {
        name for name in question.bounds if not name.startswith("leak_at_")
    }
    for name, bound in question.bounds.items():
        assert bound.side == ("lower" if name.endswith("_lower") else "upper")
    for row in series:
        assert row.upper_bound is not None
        assert (row.lower_bound is None) == (row.quantity == "exceedance_sharper")


GUARANTEE = ("covers", "assumes", "method", "n")


@pytest.mark.parametrize("together", ["bonferroni", "holm"])
def test_a_correction_adds_rows_and_changes_none(together):
    plain = rows_of(LEAK, LEAKED)
    corrected = rows_of(LEAK, LEAKED, together=together)
    assert [row for row in corrected if "together" not in row.quantity] == plain
    model, questions = of_model(corrected), of_questions(corrected)
    assert model.values == {
        **of_model(plain).values,
        "certified_together": 0,
        "together_at_most": 0.1,
    }
    for numbers in questions.values():
        assert numbers.values["certified"] is False
        assert (numbers.values.get("together_bound") is None) == (together == "holm")
        assert together == "holm" or numbers.values["together_bound"] > numbers.values["m_bin"]
    claim = model.row("together")
    assert claim.evidence["correction"] == together
    assert (claim.upper_bound.value, claim.upper_bound.covers) == (0.1, Covers.CERTIFIED)


def by_k(numbers: Numbers, quantity: str = "leak_at_k") -> dict[float, Result]:
    return {row.at: row for row in numbers.series(quantity)}


def test_leak_at_k_of_each_question_of_the_worst_and_of_the_mean():
    model, questions = measured(LEAK, LEAKED)
    worst = by_k(model, "leak_at_k_worst")
    mean = by_k(model)
    for numbers in questions.values():
        assert by_k(numbers)[1].upper == numbers.values["m_bin"]
    assert (
        worst[1000].upper == model.values["leak_at_1000_worst"] == by_k(questions["q"])[1000].upper
    )
    # Some question leaks at least so much: either could say so falsely.
    assert worst[1].lower == pytest.approx(0.0675855, rel=1e-5)  # Clopper-Pearson, 2 of 4 at .025
    assert model.values["leak_at_1000_worst_lower"] == pytest.approx(
        1 - (1 - worst[1].lower) ** 1000
    )
    assert mean[1].estimate == pytest.approx(0.25)
    assert mean[1].lower <= 0.25 <= mean[1].upper
    for points, covers in ((worst, Covers.WORST_PROMPT), (mean, Covers.AVERAGE)):
        assert {
            end.covers for row in points.values() for end in (row.lower_bound, row.upper_bound)
        } == {covers}
    assert [key for key in model.values if key.startswith("leak_at")] == [
        "leak_at_1000_worst_lower",
        "leak_at_1000_worst",
    ]


def speak(name, row, n=None, *around):
    return Prompt(name, (1,), n)


class NoStore:
    @staticmethod
    def answer(engine, prompts, settings):
        return engine.answer(prompts, settings)


@pytest.fixture(scope="module")
def metrics():
    whole = config.load(ROOT / "params.yaml").metrics
    return whole.model_copy(update={"alpha": 0.05, "leak": "keyword_leak"})


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    path = tmp_path_factory.mktemp("language") / "language.yaml"
    path.write_text(LANGUAGE)
    return read_language(path)


def drawn(language, seed, n=64):
    engine = ToyEngine(seed)
    asking = Asking(speak, Settings(n=n, max_new_tokens=4, seed=seed), engine, NoStore())
    answers, second = (
        drawing(language, ROWS, asking, "") for drawing in (draw_in_language, draw_prompts)
    )
    tables = []
    for table in (answers, second):
        kept = [
            column for column in ("prompt_id", "sample", "prompt", "production") if column in table
        ]
        tables.append(
            table[kept].assign(keyword_leak=[engine.leaks[text] for text in table["text"]])
        )
    return answers, *tables


def measured_language(*arguments, **further):
    return of_model(made(functools.partial(measure_language, **further), *arguments))


def test_the_worst_production_is_found_and_named(language, metrics):
    answers, scores, second = drawn(language, 1, n=2000)
    found = measured_language(answers, scores, second, as_json(language, ROWS), metrics)
    productions, choices = (
        found.series(quantity, "language") for quantity in ("production", "choice")
    )
    means = [row.estimate for row in productions]
    assert (
        found.values["language_worst_found"]
        == productions[0].item
        == "wording: polite, prefix: sure"
    )
    assert found.values["language_worst_found_mean"] == means[0]
    assert means == sorted(means, reverse=True)
    by_choice = {row.item: row.estimate for row in choices}
    assert by_choice["prefix: sure"] > 4 * by_choice["prefix: plain"]
    assert sum(row.n for row in productions) == 4000
    assert (
        found.values["language_share_lower"] <= SHARE_ABOVE <= found.values["language_share_upper"]
    )


def test_every_guarantee_of_an_answer_in_a_language_is_of_the_language(language, metrics):
    answers, scores, _ = drawn(language, 1)
    rows = measure("x", {"forget": answers}, {"forget": scores}, metrics)
    restated = [in_language(row) for row in rows]
    bounded = [row for row in restated if row.lower_bound or row.upper_bound]
    assert len(bounded) > 100
    for row in bounded:
        assert "language" in row.covers, row
        assert row.scope == "model" or "prompt and answer" in row.assumes, row
        assert "one prompt" not in row.assumes, row
    for row, before in zip(restated, rows, strict=True):
        assert dataclasses.replace(row, covers=before.covers, assumes=before.assumes) == before


def test_missing_judgements_count_against_each_bound(language, metrics):
    answers, scores, second = drawn(language, 1)
    second.loc[second["prompt"] == 0, "keyword_leak"] = np.nan
    whole = measured_language(answers, scores, second, as_json(language, ROWS), metrics).bounds
    for value, side in ((1.0, "language_share_upper"), (0.0, "language_share_lower")):
        filled = second.fillna({"keyword_leak": value})
        assert (
            measured_language(answers, scores, filled, as_json(language, ROWS), metrics).bounds[
                side
            ]
            == whole[side]
        )
    scores.loc[scores["prompt_id"] == "b", "keyword_leak"] = np.nan
    left_out = measured_language(
        answers, scores, second, as_json(language, ROWS), metrics, inapplicable={"b"}
    )
    productions = left_out.series("production", "language")
    assert sum(row.n for row in productions) == 64
    assert all(row.missing == 0 for row in productions)
    asked = second[second["prompt_id"] == "a"]["prompt"].nunique()
    assert left_out.bounds["language_share_upper"].n == asked


def test_without_a_binary_scorer_there_are_means_and_no_bounds(language, metrics):
    answers, scores, second = drawn(language, 1)
    graded = metrics.model_copy(update={"binary": None})
    found = measured_language(answers, scores, second, as_json(language, ROWS), graded)
    assert not found.bounds
    assert all(row.upper is None for row in found.series("production", "language"))
    assert found.value("language_worst_found_mean") is not None
    nothing = measured_language(
        answers, scores.assign(keyword_leak=np.nan), None, as_json(language, ROWS), metrics
    )
    assert not {"language_worst_found", "language_share_upper"} & set(nothing.values)
