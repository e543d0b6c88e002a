"""Questions that stop early: their verdicts come with bounds that agree."""

import numpy as np
import pytest

from lethe.config.measuring import Metrics
from lethe.measure.measure import measure_stopped
from lethe.sampling.engine import AnswerStore, Prompt, Settings
from lethe.sampling.tasks import SplitTask, draw_sequentially
from lethe.scoring.scorer import scorer
from lethe.statistics.sequential import Decision
from tests.lethe.sampling.test_tasks import ITEMS, RULE, Told
from tests.lethe.verdict.deciding import of_questions

METRICS = Metrics(
    alpha=0.01,
    rho=2.0,
    leak="keyword_leak",
    binary="keyword_leak",
    thresholds=[0.5],
    share_above=0.1,
)


CAP, NAMES = 200, ("clean", "leaky", "between")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    task = SplitTask(
        "forget",
        [Prompt(name, (1, 2)) for name in NAMES],
        Settings(n=CAP, max_new_tokens=4, seed=1),
    )
    store = AnswerStore("m", "told", tmp_path_factory.mktemp("store"))
    answers, decisions = draw_sequentially(task, ITEMS, Told(), store, RULE, "")
    judge = scorer("keyword_leak")
    leaks = np.concatenate(
        [
            judge(list(rows["text"]), ITEMS[name])
            for name, rows in answers.groupby("prompt_id", sort=False)
        ]
    )
    scores = answers[["prompt_id", "sample"]].assign(keyword_leak=leaks)
    return answers, scores, {row.pop("prompt_id"): Decision(**row) for row in decisions}


@pytest.fixture(scope="module")
def rows(drawn):
    answers, scores, decisions = drawn
    return measure_stopped(
        "m", {"forget": answers}, {"forget": scores}, METRICS, decisions, "keyword_leak"
    )


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
