"""Bounds of a random user of a language: coverage on a toy language with known leaks, by the code that users run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from lethe import config
from lethe.data.prompt_language import as_json, read_language
from lethe.evaluation.measure import measure
from lethe.evaluation.prompt_language import measure_language
from lethe.results.table import in_language
from lethe.sampling.engine import Settings
from lethe.sampling.in_language import draw_in_language, draw_prompts
from lethe.statistics.bounds import binary_lower, binary_upper
from tests.lethe.evaluation.of_rows import made, of_model
from tests.lethe.evaluation.toy_language import LANGUAGE, ROWS, SHARE_ABOVE, ToyEngine, leak, leak_of_question
from tests.small import ROOT

ALPHA, RUNS = 0.05, 150


class NoEncoder:
    def conversation(self, row, system="", shots=(), start=""):
        return (1,)


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
    """The generations and the scores of both samples."""
    engine = ToyEngine(seed)
    asking = (language, ROWS, NoEncoder(), Settings(n=n, max_new_tokens=4, seed=seed), engine, NoStore(), "")
    answers, second = draw_in_language(*asking), draw_prompts(*asking)
    tables = []
    for table in (answers, second):
        kept = [column for column in ("prompt_id", "sample", "prompt", "production") if column in table]
        tables.append(table[kept].assign(keyword_leak=[engine.leaks[text] for text in table["text"]]))
    return answers, *tables


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
        found = measure_language(answers, scores, second, described, metrics)
        misses["share_upper"] += found.share_upper.value < SHARE_ABOVE
        misses["share_lower"] += found.share_lower.value > SHARE_ABOVE
        misses["productions"] += any(
            not one.lower.value <= _mean_leak(one.name, answers) <= one.upper.value
            for one in found.productions
            if one.upper
        )
    allowed = {name: ALPHA * (2 if name == "productions" else 1) for name in misses}
    for name, missed in misses.items():
        rate, level = missed / RUNS, allowed[name]
        assert rate <= level + 3 * np.sqrt(level * (1 - level) / RUNS), name


def _mean_leak(production, answers):
    """The leak of a production, its questions weighted as they were drawn."""
    own = answers[(answers["production"] == production) & (answers["sample"] >= 0)]
    return np.mean([leak(f"{prompt_id} | {production}") for prompt_id in own["prompt_id"]])


def test_one_prompt_bounds_would_miss_the_language(language):
    """A bound from the plain prompt alone says nothing of the language: the toy has power."""
    assert leak_of_question("a") > 5 * leak("a | wording: plain, prefix: plain")


def test_the_worst_production_is_found_and_named(language, metrics):
    answers, scores, second = drawn(language, 1, n=2000)
    found = measure_language(answers, scores, second, as_json(language, ROWS), metrics)
    assert found.worst.name == "wording: polite, prefix: sure"
    assert [one.mean for one in found.productions] == sorted((one.mean for one in found.productions), reverse=True)
    by_choice = {(one.part, one.choice): one.mean for one in found.choices}
    assert by_choice["prefix", "sure"] > 4 * by_choice["prefix", "plain"]
    assert sum(one.draws for one in found.productions) == 4000
    numbers = of_model(made(found.to_rows))
    assert numbers.values["language_worst_found"] == found.worst.name
    assert numbers.values["language_worst_found_mean"] == found.worst.mean
    assert numbers.values["language_share_lower"] <= SHARE_ABOVE <= numbers.values["language_share_upper"]
    assert numbers.bounds["language_share_upper"] == found.share_upper
    assert [row.item for row in numbers.series("production", "language")] == [
        one.name for one in found.productions
    ]


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
    whole = measure_language(answers, scores, second, as_json(language, ROWS), metrics)
    for value, side in ((1.0, "share_upper"), (0.0, "share_lower")):
        filled = second.fillna({"keyword_leak": value})
        assert getattr(
            measure_language(answers, scores, filled, as_json(language, ROWS), metrics), side
        ) == getattr(whole, side)
    scores.loc[scores["prompt_id"] == "b", "keyword_leak"] = np.nan
    left_out = measure_language(answers, scores, second, as_json(language, ROWS), metrics, inapplicable={"b"})
    assert sum(one.draws for one in left_out.productions) == 64
    assert all(one.missing == 0 for one in left_out.productions)
    assert left_out.share_upper.n == second[second["prompt_id"] == "a"]["prompt"].nunique()


def test_without_a_binary_scorer_there_are_means_and_no_bounds(language, metrics):
    answers, scores, second = drawn(language, 1)
    graded = measure_language(
        answers, scores, second, as_json(language, ROWS), metrics.model_copy(update={"binary": None})
    )
    assert graded.share_upper is None
    assert all(one.upper is None for one in graded.productions)
    assert not np.isnan(graded.worst.mean)
    nothing = measure_language(answers, scores.assign(keyword_leak=np.nan), None, as_json(language, ROWS), metrics)
    assert nothing.worst is None
    assert dataclasses.asdict(nothing)["share_upper"] is None
    assert isinstance(second, pd.DataFrame)
