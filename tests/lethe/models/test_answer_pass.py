"""The pass at the answers alone beside its naive twin, the whole pass."""

import copy
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lethe.instruction_set import VARIABLES
from lethe.models.answer_pass import ROWS_OF_A_KERNEL, AnswerForward, Rows, answer_forward
from lethe.models.encoding import Example, collate
from lethe.models.likelihood import forward
from tests.lethe.small_checkpoint import small_model
from tests.small import ROOT

SIZES = (1, 2, 3, 6, 12, 16, 24)


@pytest.fixture(scope="module")
def model():
    return known_model()


def known_model(**changes):
    """A model of two blocks, whose sizes are multiples of four."""
    shape = {"vocabulary": 268, "layers": 2, "heads": 4, "kv_heads": 2}
    return small_model(["Ada is a painter."], **(shape | changes))[0]


def examples_of(rows, seed):
    """Rows of random tokens, of which about a third are of the answer."""
    random = np.random.default_rng(seed)
    examples = []
    for _ in range(rows):
        prompt = random.integers(2, 250, size=random.integers(5, 30))
        answer = random.integers(2, 250, size=random.integers(1, 15))
        examples.append(Example(tuple(prompt.tolist()), tuple(answer.tolist())))
    return examples


def gradients(model, out):
    """The gradients of a loss that reads likelihood and entropy, by the name of the weight."""
    model.zero_grad()
    (out.nll - 0.3 * out.entropy - out.log_probs.square().mean()).backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("rows", SIZES)
def test_likelihoods_and_entropy_are_those_of_the_whole_pass(model, rows):
    batch = collate(examples_of(rows, rows), 0)

    whole = forward(model, batch)
    found = answer_forward(model, batch)

    assert isinstance(found, AnswerForward)
    torch.testing.assert_close(found.token_log_probs, whole.token_log_probs)
    torch.testing.assert_close(found.entropy, whole.entropy)
    assert found.tokens.equal(whole.tokens)


@pytest.mark.parametrize("rows", SIZES)
def test_every_weight_has_the_gradient_of_the_whole_pass(model, rows):
    batch = collate(examples_of(rows, rows), 0)

    whole = gradients(model, forward(model, batch))
    found = gradients(model, answer_forward(model, batch))

    for name, gradient in whole.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5)


BITS = """
from lethe.models import checkpoints
from lethe.models.answer_pass import answer_forward
from lethe.models.encoding import collate
from lethe.models.likelihood import forward
from tests.lethe.models.test_answer_pass import SIZES, examples_of, gradients, known_model

model = known_model(hidden=128, feed_forward=384)
model.train()
for rows in SIZES:
    for seed in range(12):
        batch = collate(examples_of(rows, seed), 0)
        whole = gradients(model, forward(model, batch))
        found = gradients(model, answer_forward(model, batch))
        for name, gradient in whole.items():
            if not found[name].equal(gradient):
                print(rows, seed, name)
"""


@pytest.mark.slow
def test_under_the_kernels_of_all_machines_every_bit_is_that_of_the_whole_pass():
    environment = os.environ | VARIABLES | {"PYTHONPATH": str(ROOT)}

    ended = subprocess.run(
        [sys.executable, "-c", BITS], env=environment, capture_output=True, text=True, check=True
    )

    assert ended.stdout == ""


@given(seed=st.integers(0, 10**6), width=st.integers(1, 40), share=st.floats(0, 1))
def test_the_rows_hold_every_answer_and_the_odd_positions_at_the_end(seed, width, share):
    random = np.random.default_rng(seed)
    on_answer = torch.from_numpy(random.random((int(random.integers(1, 30)), width)) < share)
    positions = on_answer.shape[0] * (width + 1)
    odd = positions % ROWS_OF_A_KERNEL

    rows = Rows.of(on_answer)

    whole = torch.nn.functional.pad(on_answer, (0, 1)).flatten()
    assert rows.places[rows.answers].equal(whole.nonzero()[:, 0])
    assert len(rows.places) % ROWS_OF_A_KERNEL == odd
    assert rows.places[len(rows.places) - odd :].equal(torch.arange(positions - odd, positions))
    read = [place for chain in rows.chains for place in range(chain.start, chain.stop)]
    assert sorted(read) == list(range(len(rows.places)))


def changed(model, change):
    """A copy of the model that the pass at the answers alone does not know."""
    model = copy.deepcopy(model)
    if change == "odd size":
        return known_model(vocabulary=267)
    if change == "checkpointing":
        model.gradient_checkpointing_enable()
    elif change == "hook":
        model.lm_head.register_forward_hook(lambda module, inputs, output: output * 2)
    elif change == "class":
        model.__class__ = type("Other", (type(model),), {})
    else:
        model.double()
    return model


@pytest.mark.parametrize("change", ["odd size", "checkpointing", "hook", "class", "float64"])
def test_a_model_that_is_not_known_is_read_as_a_whole(model, change):
    model = changed(model, change)
    batch = collate(examples_of(3, 0), 0)

    found = answer_forward(model, batch)

    assert not isinstance(found, AnswerForward)
    assert found.token_log_probs.equal(forward(model, batch).token_log_probs)


def test_a_batch_in_bfloat16_is_read_as_a_whole(model):
    with torch.autocast("cpu", torch.bfloat16):
        found = answer_forward(model, collate(examples_of(3, 0), 0))

    assert not isinstance(found, AnswerForward)


def test_a_pass_leaves_the_model_as_it_was(model):
    batch = collate(examples_of(3, 0), 0)
    before = model(input_ids=batch.ids).logits

    answer_forward(model, batch)

    assert model(input_ids=batch.ids).logits.equal(before)


def test_entropies_elsewhere_are_refused(model):
    batch = collate(examples_of(3, 0), 0)

    with pytest.raises(LookupError):
        answer_forward(model, batch).entropy_at(batch.mask[:, 1:])
