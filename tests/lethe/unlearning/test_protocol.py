"""The protocol: the published cases of every method, the frozen model, and the likelihoods of second answers."""

import copy
import json

import pytest

from lethe import config
from lethe.models.encoding import IGNORED, Encoder
from lethe.registry import METHODS
from lethe.unlearning.loop import unlearn
from lethe.unlearning.protocol import Before
from lethe.unlearning.second_answers import second_answers
from tests.lethe.unlearning import oracles
from tests.small import ROOT

RECIPE = config.load(ROOT / "params.yaml").unlearn.recipe.model_copy(update={"forget_batch": 2, "retain_batch": 2})


@pytest.mark.parametrize("name", [*oracles.NAMES, "EntropyOptimisation"])
def test_the_published_cases_of_every_method(shared, name):
    """The entropy terms stand on any method."""
    cases = json.loads((shared / "oracles/unlearning-losses.json").read_text())
    mine = [case for case in cases if case["method"] == name]
    assert len(mine) >= 5
    assert [fault for case in mine for fault in oracles.faults(case)] == []


def test_the_frozen_model_is_the_one_before_the_first_step(tiny, prompt):
    """At the first step KL is 0 and then no longer, so that the reference does not move with the model."""
    encoder = Encoder(tiny[1], prompt)
    rows = [encoder.example({"question": "Who is Ada?", "answer": "a painter"})]
    params = METHODS["kl"].Params.model_validate({"loss": "kl", "lr": 5e-3, "epochs": 3, "retain_weight": 1.0})
    history = unlearn(copy.deepcopy(tiny[0]), rows, rows, RECIPE, params, 0, "test")
    assert abs(history[0]["retain_loss"]) < 1e-6
    assert history[-1]["retain_loss"] > 1e-4


def test_each_pair_of_question_and_second_answer_has_its_own_likelihood(tiny, prompt):
    """S_ref is cached once for every pair: at the first step model and reference agree on each."""
    seen = []

    class Watching(METHODS["idk_dpo"]):
        def forget_loss(self, rows):
            seen.append(
                float((rows.second.forward.log_probs - rows.second.reference_log_probs).abs().max().detach())
            )
            return super().forget_loss(rows)

    METHODS.registered["watching"] = Watching
    encoder = Encoder(tiny[1], prompt)
    rows = [{"question": f"Who is {name}?", "answer": "a painter"} for name in ("Ada", "Bo", "Cy", "Di")]
    params = Watching.Params.model_validate({"loss": "watching", "lr": 1e-9, "epochs": 3, "beta": 0.1})
    examples = [encoder.example(row) for row in rows]
    unlearn(
        copy.deepcopy(tiny[0]),
        examples,
        examples,
        RECIPE,
        params,
        0,
        "t",
        second_answers(params, rows, Before(tiny[0], encoder, 0)),
    )
    del METHODS.registered["watching"]
    assert len(seen) == 6
    assert max(seen) < 1e-3


def test_what_a_method_did_not_ask_for_is_not_there():
    batch = {
        "input_ids": [[1, 2]],
        "attention_mask": [[1, 1]],
        "labels": [[IGNORED, 2]],
        "logits": [[[0.0, 1.0]] * 2],
    }
    rows = oracles.rows_of(batch)
    with pytest.raises(LookupError, match="reference"):
        rows.reference_log_probs  # noqa: B018
    with pytest.raises(LookupError, match="second"):
        rows.second  # noqa: B018
