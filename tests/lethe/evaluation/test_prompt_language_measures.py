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
from tests.lethe.evaluation.deciding import made, of_model
from tests.lethe.evaluation.toy_language import LANGUAGE, ROWS, SHARE_ABOVE, ToyEngine
from tests.small import ROOT


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
    answers, second = (drawing(language, ROWS, asking, "") for drawing in (draw_in_language, draw_prompts))
    tables = []
    for table in (answers, second):
        kept = [column for column in ("prompt_id", "sample", "prompt", "production") if column in table]
        tables.append(table[kept].assign(keyword_leak=[engine.leaks[text] for text in table["text"]]))
    return answers, *tables


def measured(*given, **further):
    return of_model(made(functools.partial(measure_language, **further), *given))


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
