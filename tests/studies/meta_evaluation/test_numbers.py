"""The registry of numbers: all keys take part, new members by themselves, larger where a model knows more."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lethe.evaluation.likelihood_metrics import likelihood_metrics
from lethe.evaluation.measure import measure
from lethe.registry import LIKELIHOODS, register
from studies.meta_evaluation.numbers import KNOWLEDGE, OTHERS, Number, numbers, of_flat
from studies.meta_evaluation.observing import Seen
from tests.lethe.evaluation.deciding import made, of_model
from tests.studies.small_meta import small_params

PARAMS = small_params(leak_at=[1, 4, 16, 99])
QUESTIONS = 5


def seen(name: str, leak: float, seed: int, likelihood: float) -> Seen:
    """A model that leaks each answer with probability ``leak``, and whose true answers have the given log-likelihood."""
    rng = np.random.default_rng(seed)
    rows = {
        f"q{i}": {"id": f"q{i}", "question": f"Who is {i}?", "answer": f"Ada {i}", "keywords": [f"Ada {i}"]}
        for i in range(QUESTIONS)
    }
    drawn = []
    for key in rows:
        for sample in range(-1, 16):
            keyword = float(rng.random() < leak)
            drawn.append(
                {"prompt_id": key, "sample": sample, "rouge_l": keyword * 0.6 + 0.3, "keyword_leak": keyword}
            )
    tables = {}
    for split, shift, count in (("forget", likelihood, QUESTIONS), ("heldout", -3.0, 12)):
        log = shift + 0.3 * rng.normal(size=count)
        table = {name: np.exp(log) for name in LIKELIHOODS if not name.startswith("mia_")}
        table |= {name: log for name in LIKELIHOODS if name.startswith("mia_")}
        table |= {"prompt_id": [f"{'q' if split == 'forget' else 'h'}{i}" for i in range(count)]}
        table["truth_ratio"] = np.exp(-log - 2)
        tables[split] = pd.DataFrame(table)
    table = pd.DataFrame(drawn)
    return Seen(name, rows, table.assign(text="x", finish_reason="stop"), table, tables)


@pytest.fixture(scope="module")
def base() -> Seen:
    return seen("base", 0.9, 1, -0.2)


@pytest.fixture(scope="module")
def retrain() -> Seen:
    return seen("retrain", 0.05, 2, -3.0)


@pytest.fixture(scope="module")
def found(base, retrain):
    return {"base": numbers(base, retrain, PARAMS), "retrain": numbers(retrain, retrain, PARAMS)}


def test_every_key_of_the_metrics_takes_part(base, found):
    """What `dvc metrics` and the report show of the forget set: a new key appears here by itself."""
    printed = of_model(measure("base", {"forget": base.generations}, {"forget": base.scores}, PARAMS.metrics))
    keys = {key for key, _ in of_flat(printed.values, OTHERS)}
    taking_part = {name.partition("@")[0] for name in found["base"]}
    assert keys <= taking_part
    assert {"mean", "sd", "ed_score", "m_mu_worst", "m_bin_pooled", "binary_any", "leak_at_1000_worst"} <= keys
    given = of_model(made(likelihood_metrics, base.likelihoods, {"forget": base.scores}, 0.05)).values
    forgetting = {
        key
        for key in given
        if key.startswith(("forget_", "mia_")) and not key.endswith(("_missing", "_low", "_high"))
    }
    assert forgetting <= taking_part


def test_numbers_are_larger_where_the_model_knows_more(found):
    known, unknown = found["base"], found["retrain"]
    for name in (
        "greedy_mean",
        "mean@4",
        "mean@16",
        "leak_at_4",
        "forget_probability",
        "forget_quality",
        "privleak",
    ):
        assert known[name].knows > unknown[name].knows, name
    assert known["forget_quality"].value < unknown["forget_quality"].value, "as printed, a p-value"
    assert known["privleak"].value < unknown["privleak"].value
    assert known["game_quality_one_split"].value < unknown["game_quality_one_split"].value
    assert known["forget_truth_ratio"].each["q0"] > unknown["forget_truth_ratio"].each["q0"]


def test_a_new_likelihood_a_new_number_and_a_new_scorer_take_part(base, retrain):
    register("likelihoods", "tokens", lambda item: 1.0)
    KNOWLEDGE.register("mine", SimpleNamespace(values=lambda one, *_: [Number("mine", 1.0, 1.0, ())]))
    try:
        wider = {split: table.assign(tokens=0.5) for split, table in base.likelihoods.items()}
        more = Seen("base", base.rows, base.generations, base.scores.assign(rouge_1=0.25), wider)
        found = numbers(more, retrain, PARAMS)
    finally:
        del LIKELIHOODS.registered["tokens"], KNOWLEDGE.registered["mine"]
    assert found["forget_tokens"].value == 0.5
    assert found["mine"].value == 1.0
    assert found["rouge_1_greedy"].value == found["rouge_1_mean@4"].value == 0.25
