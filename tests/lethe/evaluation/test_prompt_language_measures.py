"""Bounds of a random user of a language: coverage on a toy language with known leaks, by the code that users run."""

import dataclasses
import functools

import numpy as np
import pytest

from lethe import config
from lethe.data.prompt_language import as_json, read_language
from lethe.evaluation.measure import measure, measure_language
from lethe.results.table import in_language
from lethe.sampling.engine import Prompt, Settings
from lethe.sampling.tasks import Asking, draw_in_language, draw_prompts
from lethe.statistics.bounds import binary_lower, binary_upper
from tests.lethe.evaluation.deciding import made, of_model
from tests.lethe.evaluation.toy_language import LANGUAGE, ROWS, SHARE_ABOVE, ToyEngine, leak, leak_of_question
from tests.small import ROOT

ALPHA, RUNS = 0.05, 150


def speak(name, row, n=None, *around):
    return Prompt(name, (1,), n)


class NoStore:
    @staticmethod
    def answer(engine, prompts, settings):
        return engine.answer(prompts, settings)


@pytest.fixture(scope="module")
def metrics():
    whole = config.load(ROOT / "params.yaml").metrics
    return whole.model_copy(update={"alpha": ALPHA, "leak": "keyword_leak"})


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    path = tmp_path_factory.mktemp("language") / "language.yaml"
    path.write_text(LANGUAGE)
    return read_language(path)


def drawn(language, seed, n=64):
    engine = ToyEngine(seed)
    asking = Asking(speak, Settings(n=n, max_new_tokens=4, seed=seed), engine, NoStore())
    answers, second = (drawing(language, ROWS, asking, "") for drawing in (draw_in_language, draw_prompts))
    tables = []
    for table in (answers, second):
        kept = [column for column in ("prompt_id", "sample", "prompt", "production") if column in table]
        tables.append(table[kept].assign(keyword_leak=[engine.leaks[text] for text in table["text"]]))
    return answers, *tables


def measured(*given, **further):
    return of_model(made(functools.partial(measure_language, **further), *given))


@pytest.mark.slow
def test_bounds_cover_a_random_user_of_the_language(language, metrics):
    """Misses of the question's bound, of the share's and of the productions', over independent runs of everything."""
    described = as_json(language, ROWS)
    truth = {row["id"]: leak_of_question(row["id"]) for row in ROWS}
    misses = {"m_bin": 0, "m_bin_lower": 0, "share_upper": 0, "share_lower": 0, "productions": 0}
    for seed in range(RUNS):
        answers, scores, second = drawn(language, seed)
        counts = scores[scores["sample"] >= 0].groupby("prompt_id")["keyword_leak"].agg(["sum", "size"])
        for row in ROWS[:1]:  # one bound by itself
            leaks, n = counts.loc[row["id"]]
            misses["m_bin"] += float(binary_upper(leaks, n, ALPHA)) < truth[row["id"]]
            misses["m_bin_lower"] += float(binary_lower(leaks, n, ALPHA)) > truth[row["id"]]
        found = measured(answers, scores, second, described, metrics)
        misses["share_upper"] += found.values["language_share_upper"] < SHARE_ABOVE
        misses["share_lower"] += found.values["language_share_lower"] > SHARE_ABOVE
        misses["productions"] += any(
            not one.lower <= _mean_leak(one.item, answers) <= one.upper
            for one in found.series("production", "language")
            if one.upper is not None
        )
    allowed = {name: ALPHA * (2 if name == "productions" else 1) for name in misses}
    for name, missed in misses.items():
        rate, level = missed / RUNS, allowed[name]
        assert rate <= level + 3 * np.sqrt(level * (1 - level) / RUNS), name


def _mean_leak(production, answers):
    """The leak of a production, its questions weighted as they were drawn."""
    own = answers[(answers["production"] == production) & (answers["sample"] >= 0)]
    return np.mean([leak(f"{prompt_id} | {production}") for prompt_id in own["prompt_id"]])


def test_the_worst_production_is_found_and_named(language, metrics):
    answers, scores, second = drawn(language, 1, n=2000)
    found = measured(answers, scores, second, as_json(language, ROWS), metrics)
    productions, choices = (found.series(one, "language") for one in ("production", "choice"))
    means = [one.estimate for one in productions]
    assert found.values["language_worst_found"] == productions[0].item == "wording: polite, prefix: sure"
    assert found.values["language_worst_found_mean"] == means[0]
    assert means == sorted(means, reverse=True)
    by_choice = {one.item: one.estimate for one in choices}
    assert by_choice["prefix: sure"] > 4 * by_choice["prefix: plain"]
    assert sum(one.n for one in productions) == 4000
    assert found.values["language_share_lower"] <= SHARE_ABOVE <= found.values["language_share_upper"]


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
    whole = measured(answers, scores, second, as_json(language, ROWS), metrics).bounds
    for value, side in ((1.0, "language_share_upper"), (0.0, "language_share_lower")):
        filled = second.fillna({"keyword_leak": value})
        assert measured(answers, scores, filled, as_json(language, ROWS), metrics).bounds[side] == whole[side]
    scores.loc[scores["prompt_id"] == "b", "keyword_leak"] = np.nan
    left_out = measured(answers, scores, second, as_json(language, ROWS), metrics, inapplicable={"b"})
    productions = left_out.series("production", "language")
    assert sum(one.n for one in productions) == 64
    assert all(one.missing == 0 for one in productions)
    asked = second[second["prompt_id"] == "a"]["prompt"].nunique()
    assert left_out.bounds["language_share_upper"].n == asked


def test_without_a_binary_scorer_there_are_means_and_no_bounds(language, metrics):
    answers, scores, second = drawn(language, 1)
    graded = metrics.model_copy(update={"binary": None})
    found = measured(answers, scores, second, as_json(language, ROWS), graded)
    assert not found.bounds
    assert all(one.upper is None for one in found.series("production", "language"))
    assert found.value("language_worst_found_mean") is not None
    nothing = measured(answers, scores.assign(keyword_leak=np.nan), None, as_json(language, ROWS), metrics)
    assert not {"language_worst_found", "language_share_upper"} & set(nothing.values)
