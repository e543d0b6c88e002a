"""Forget entropy on the model's own continuations: against plain loops, numeric gradients, and the true prefix."""

import copy

import numpy as np
import pytest
import torch

from lethe import config
from lethe.config.schema import Entropy
from lethe.errors import BadInput
from lethe.models.encoding import Example, collate
from lethe.models.likelihood import forward
from lethe.unlearning.loop import continued
from tests.lethe.unlearning.test_loop import far, rows_of, unlearned
from tests.small import ROOT

ROWS = [
    {"question": "Who is Ada, the painter of ships?", "answer": "a painter of the sea"},
    {"question": "Who?", "answer": "Ed"},
]
TERMS = {"forget": 2.0, "retain": -0.1, "ramp": 0.0}


@pytest.fixture(scope="module")
def tiny(tiny):
    """The tiny model with larger weights: its next-token probabilities differ, as those of a trained model do."""
    model = copy.deepcopy(tiny[0])
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(30.0)
    return model, tiny[1]


def plain_continuation(model, example, longest, end, uniforms):
    """One row, one token at a time, no cache, no padding."""
    tokens = list(example.prompt)
    written: list[int] = []
    while len(written) < longest and written[-1:] != [end]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokens + written])).logits[0, -1].double()
        if uniforms is None:
            written.append(int(logits.argmax()))
            continue
        total, place = 0.0, 0
        for token, share in enumerate(logits.softmax(-1).tolist()):
            total, place = total + share, token
            if total > uniforms[len(written)]:
                break
        written.append(place)
    return Example(example.prompt, tuple(written))


def plain_entropy(model, examples):
    """The mean over rows of the mean over tokens of -sum p ln p, one pass per token."""
    means = []
    for example in examples:
        found = []
        for number in range(len(example.answer)):
            ids = torch.tensor([example.prompt + example.answer[:number]])
            p = model(input_ids=ids).logits[0, -1].softmax(-1)
            found.append(-(p * p.log()).sum())
        means.append(torch.stack(found).mean())
    return torch.stack(means).mean()


@pytest.mark.parametrize("sampled", [False, True])
def test_a_batch_continues_as_each_row_alone(tiny, sampled):
    examples = rows_of(tiny[1], ROWS)
    longest, end = 7, examples[0].answer[-1]
    for seed in range(4):
        uniforms = np.random.default_rng(seed).random((2, longest)) if sampled else None
        found = continued(tiny[0], examples, longest, end, uniforms)
        alone = [
            plain_continuation(tiny[0], one, longest, end, None if uniforms is None else uniforms[row])
            for row, one in enumerate(examples)
        ]
        assert found == alone
        assert float(forward(tiny[0], collate(found, 0)).entropy.detach()) == pytest.approx(
            float(plain_entropy(tiny[0], found).detach()), rel=1e-5
        )


def test_the_word_true_is_the_default():
    assert Entropy.model_validate({**TERMS, "prefix": True}) == Entropy.model_validate(TERMS)
    assert Entropy.model_validate(TERMS).prefix == "true"
    value = config.read_yaml(ROOT / "params.yaml")
    value["unlearn"]["methods"]["npo_entropy"]["entropy"]["prefix"] = "nearest"
    with pytest.raises(BadInput, match=r"entropy\.prefix"):
        config.validate(value)


@pytest.mark.parametrize("prefix", ["greedy", "sampled"])
def test_the_variant_differs_and_its_parts_add_up(tiny, prefix):
    entropy = {**TERMS, "prefix": prefix}
    _, history = unlearned(tiny, entropy=TERMS)
    whole, once = unlearned(tiny, entropy=entropy)
    parts, again = unlearned(tiny, entropy=entropy, compute={"accumulate": 3})
    assert once[0]["entropy_forget"] != pytest.approx(history[0]["entropy_forget"], rel=1e-4)
    assert once[-1]["entropy_forget"] < once[0]["entropy_forget"]
    assert once[0] == pytest.approx(again[0], rel=2e-5, abs=2e-5)
    assert far(whole, parts) < 5e-3
    same, _ = unlearned(tiny, entropy=entropy)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), same.parameters(), strict=True))


def test_a_first_step_is_the_sum_of_its_plain_parts(tiny):
    """The naive twin of the whole loss: F, R, and both entropies by plain loops."""
    _, history = unlearned(tiny, entropy={**TERMS, "prefix": "greedy"})
    first = history[0]
    examples = rows_of(tiny[1])[:4]
    longest, end = max(len(one.answer) for one in examples), examples[0].answer[-1]
    model = tiny[0].eval()
    each = [
        float(plain_entropy(model, [plain_continuation(model, one, longest, end, None)]).detach())
        for one in examples
    ]
    triples = [np.mean([each[i] for i in picked]) for picked in ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))]
    assert min(abs(first["entropy_forget"] - value) for value in triples) < 1e-4
    total = (
        first["forget_loss"] + first["retain_loss"] + 2.0 * first["entropy_forget"] - 0.1 * first["entropy_retain"]
    )
    assert first["loss"] == pytest.approx(total, rel=1e-5)
