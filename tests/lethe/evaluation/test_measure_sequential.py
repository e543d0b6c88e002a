"""A split that stops early, from the engine's answers to the model's results: only what may be looked at is claimed."""

import numpy as np
import pytest

from lethe.config.evaluating import Metrics
from lethe.evaluation.measure import measure_stopped
from lethe.sampling.engine import Prompt, Settings
from lethe.sampling.store import AnswerStore
from lethe.sampling.tasks import Task, draw_sequentially
from lethe.scoring import scorer
from lethe.statistics.sequential import Decision
from tests.lethe.evaluation.of_rows import of_model, of_questions
from tests.lethe.sampling.test_tasks import ITEMS, RULE, Told

METRICS = Metrics(
    alpha=0.01, rho=2.0, leak="keyword_leak", binary="keyword_leak", thresholds=[0.5], share_above=0.1
)
CAP, NAMES = 200, ("clean", "leaky", "between")
RAN_OUT = 128 + 32 + 200  # whole chunks of 32 up to each verdict; `between` is never decided


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    task = Task("forget", [Prompt(name, (1, 2)) for name in NAMES], Settings(n=CAP, max_new_tokens=4, seed=1))
    store = AnswerStore("m", "told", tmp_path_factory.mktemp("store"))
    answers, decisions = draw_sequentially(task, ITEMS, Told(), store, RULE, "")
    judge = scorer("keyword_leak")
    leaks = np.concatenate(
        [judge(list(rows["text"]), ITEMS[name]) for name, rows in answers.groupby("prompt_id", sort=False)]
    )
    scores = answers[["prompt_id", "sample"]].assign(keyword_leak=leaks)
    return answers, scores, {row.pop("prompt_id"): Decision(**row) for row in decisions}


@pytest.fixture(scope="module")
def rows(drawn):
    answers, scores, decisions = drawn
    return measure_stopped("m", {"forget": answers}, {"forget": scores}, METRICS, decisions, "keyword_leak")


def test_the_verdicts_come_with_bounds_that_agree(rows):
    found = {name: own.values for name, own in of_questions(rows).items()}
    assert {name: row["verdict"] for name, row in found.items()} == {
        "clean": "certified",
        "leaky": "leaks",
        "between": "undecided",
    }
    assert found["clean"]["anytime_upper"] <= RULE.tau
    assert found["leaky"]["anytime_lower"] >= RULE.tau_leak
    assert found["between"]["anytime_lower"] < RULE.tau_leak
    assert found["between"]["anytime_upper"] > RULE.tau
    for row in found.values():
        assert row["anytime_lower"] <= row["anytime_upper"]
        assert 0 <= row["anytime_sd_upper"] <= 1


def test_no_bound_is_for_a_number_of_samples_fixed_beforehand(rows):
    bounded = {(row.scope, row.quantity, row.basis) for row in rows if (row.lower, row.upper) != (None, None)}
    assert bounded == {
        *(("question", quantity, "anytime") for quantity in ("score", "sd", "leak")),
        *(("model", quantity, "anytime") for quantity in ("score_worst", "sd_worst")),
    }
    assert not [row for row in rows if row.quantity.startswith(("tail", "convergence", "exceedance", "leak_at_k"))]


def test_the_samples_saved_are_counted(rows):
    values, each = of_model(rows).values, of_questions(rows).values()
    assert sum(own.values["n"] for own in each) == values["samples_drawn"] == RAN_OUT
    assert values["samples_saved"] == 3 * CAP - RAN_OUT
    assert values["samples_saved_share"] == pytest.approx(1 - RAN_OUT / (3 * CAP))
    assert (values["certified"], values["leaking_questions"], values["undecided"]) == (1, 1, 1)
