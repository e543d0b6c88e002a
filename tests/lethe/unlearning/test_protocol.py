"""The protocol is wide enough: a toy method for each input that a method may use, checked by the published cases."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from lethe import config
from lethe.models.encoding import IGNORED, Encoder
from lethe.registry import METHODS, register
from lethe.unlearning import protocol
from lethe.unlearning.loop import unlearn
from lethe.unlearning.protocol import Before, MethodParams, Needs, Positive
from lethe.unlearning.second_answers import second_answers
from tests.lethe.unlearning import oracles
from tests.small import ROOT

RECIPE = config.load(ROOT / "params.yaml").unlearn.recipe.model_copy(update={"forget_batch": 2, "retain_batch": 2})


class FromLogits(protocol.Method):
    """Reference logits: the target is the reference's distribution with the answer's own token weakened (UNDIAL)."""

    class Params(MethodParams):
        beta: Positive

    needs = Needs(reference_model=True)

    def forget_loss(self, rows):
        forward, answered = rows.forward, rows.forward.labels != IGNORED
        target = rows.reference.logits.float().clone()
        places = forward.labels.clamp_min(0)[..., None]
        target.scatter_add_(-1, places, torch.full_like(places, -1, dtype=target.dtype) * self.params.beta)
        losses = -(target.softmax(-1) * forward.logits.float().log_softmax(-1)).sum(-1)
        return losses[answered].mean()


class FromStates(protocol.Method):
    """Hidden states of both models, and a direction drawn before the first step (RMU)."""

    class Params(MethodParams):
        steering_coeff: Positive
        block: int = 0

    needs = Needs(reference_model=True)
    direction: torch.Tensor

    def prepare(self, run):
        drawn = torch.from_numpy(run.generator.random(run.model.config.hidden_size))
        self.direction = drawn / drawn.norm()

    def forget_loss(self, rows):
        states = rows.hidden(self.params.block)
        return self._distance(states - self.params.steering_coeff * self.direction.to(states.dtype), rows)

    def retain_loss(self, rows):
        return self._distance(rows.hidden(self.params.block) - rows.reference_hidden(self.params.block), rows)

    def _distance(self, difference, rows):
        squares = difference.square().mean(-1) * rows.on_answer
        return (squares.sum(-1) / rows.on_answer.sum(-1)).mean()


class FromSecondAnswers(protocol.Method):
    """Second answers with their likelihood before unlearning: the refusal is to be preferred (IdkDPO)."""

    class Params(MethodParams):
        beta: Positive

    needs = Needs(reference_log_probs=True, second_answers=True)

    def second_answers(self, row):
        return ["no idea", f"who knows {row['question'][-4:]}"]

    def forget_loss(self, rows):
        gains = [one.forward.log_probs - one.reference_log_probs for one in (rows.second, rows)]
        return -(2 / self.params.beta) * logsigmoid(self.params.beta * (gains[0] - gains[1])).mean()


class FromAllAnswers(protocol.Method):
    """A loss that is no sum of two terms: one token mean over refusals and retain rows together (IdkNLL)."""

    needs = Needs(second_answers=True)
    uses_retain = True

    def second_answers(self, row):
        return ["no idea"]

    def loss(self, step):
        both = (step.forget.second.forward, step.retain.forward)
        return {"loss": -sum(one.log_probs.sum() for one in both) / sum(one.tokens.sum() for one in both)}


class WithState(protocol.Method):
    """State between steps: the retain term's weight rises while the term is above its bound (PDU)."""

    class Params(MethodParams):
        retain_loss_eps: float
        dual_step_size: Positive

    def __init__(self, params):
        super().__init__(params)
        self.dual = params.retain_weight

    @property
    def retain_weight(self):
        return self.dual

    def forget_loss(self, rows):
        logits, answered = rows.forward.logits.float(), rows.forward.labels != IGNORED
        return (logits.max(-1).values - logits.mean(-1)).square()[answered].mean()

    def loss(self, step):
        values = super().loss(step)
        return {**values, "loss": values["loss"] - self.dual * self.params.retain_loss_eps}

    def after_step(self, step, values):
        excess = values["retain_loss"] - self.params.retain_loss_eps
        self.dual = max(0.0, self.dual + self.params.dual_step_size * excess)


TOYS = {
    "from_logits": (FromLogits, {"beta": 10.0}),
    "from_states": (FromStates, {"steering_coeff": 2.0}),
    "from_second_answers": (FromSecondAnswers, {"beta": 0.1}),
    "from_all_answers": (FromAllAnswers, {}),
    "with_state": (WithState, {"retain_loss_eps": 0.1, "dual_step_size": 1.0}),
}


@pytest.fixture(autouse=True)
def toys():
    new = [name for name in TOYS if name not in METHODS]
    for name in new:
        register("methods", name, TOYS[name][0])
    yield
    for name in new:
        del METHODS.registered[name]


@pytest.mark.parametrize("name", [*oracles.NAMES, "EntropyOptimisation"])
def test_the_published_cases_of_every_method(shared, name):
    """The entropy terms stand on any method."""
    cases = json.loads((shared / "oracles/unlearning-losses.json").read_text())
    mine = [case for case in cases if case["method"] == name]
    assert len(mine) >= 5
    assert [fault for case in mine for fault in oracles.faults(case)] == []


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_unlearns_with_the_loop(tiny, prompt, name):
    """The loop makes what each asks for: the frozen model, second answers, their likelihoods, a stream of its own."""
    encoder = Encoder(tiny[1], prompt)
    rows = [{"question": "Who is Ada?", "answer": "a painter"}, {"question": "Who is Cy?", "answer": "a poet"}]
    forget = [encoder.example(row) for row in rows]
    retain = [encoder.example({"question": "Where is Bo?", "answer": "at sea"})]
    params = METHODS[name].Params.model_validate(
        {"loss": name, "lr": 5e-3, "epochs": 6, "retain_weight": 1.0, **TOYS[name][1]}
    )
    second = second_answers(params, rows, Before(tiny[0], encoder, 0))
    assert (second is None) == (not METHODS[name].needs.second_answers)
    runs = []
    for _ in range(2):
        model = copy.deepcopy(tiny[0])
        runs.append(unlearn(model, forget, retain, RECIPE, params, 0, "test", second))
    assert runs[0] == runs[1]
    losses = [step["loss"] for step in runs[0]]
    assert len(losses) == 6
    assert np.isfinite(losses).all()
    if name != "with_state":  # whose weight rises on purpose
        assert losses[-1] < losses[0]


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

    class Watching(FromSecondAnswers):
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
