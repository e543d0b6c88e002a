"""Each method's forget loss against a twin in plain loops: its value, its gradient, its mask; its own continuations."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lethe import config
from lethe.config.schema import Entropy
from lethe.errors import BadInput, BadValue
from lethe.models.encoding import IGNORED, Encoder, Example, collate
from lethe.models.likelihood import block_output, forward, number_of_blocks
from lethe.registry import METHODS
from lethe.unlearning import protocol
from lethe.unlearning.loop import continued, with_entropy
from lethe.unlearning.methods.preferred_answers import alternatives
from lethe.unlearning.protocol import Before, Step, UnlearningRun
from tests.lethe.unlearning import oracles
from tests.lethe.unlearning.test_loop import far, rows_of, unlearned
from tests.small import ROOT

PROMPTS, ANSWERS, VOCABULARY, WIDTH = (
    (2, 1, 3),
    (4, 1, 3),
    9,
    7,
)  # ragged: prompts, answers and padding differ


def batch(seed: int, *kinds: str) -> dict:
    """Random rows; ``kinds`` are the arrays: logits, reference_logits, hidden, reference_hidden."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((3, WIDTH), dtype=int)
    mask, labels = np.zeros_like(ids), np.full_like(ids, IGNORED)
    for row, (start, length) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        ids[row, : start + length] = rng.integers(1, VOCABULARY, start + length)
        mask[row, : start + length] = 1
        labels[row, start : start + length] = ids[row, start : start + length]
    arrays = {
        kind: rng.normal(0, 2, (3, WIDTH, 5 if "hidden" in kind else VOCABULARY)) for kind in kinds
    }
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, **arrays}


def log_softmax(z):
    top = max(z)
    total = math.log(sum(math.exp(value - top) for value in z)) + top
    return [value - total for value in z]


def answers(given: dict, key: str = "logits"):
    """[[(logits, token), ...] for each row]: the positions that predict answer tokens."""
    labels, z = given["labels"], given[key]
    return [
        [
            (list(z[row, t - 1]), labels[row, t])
            for t in range(1, WIDTH)
            if labels[row, t] != IGNORED
        ]
        for row in range(3)
    ]


def flat(rows):
    return [one for row in rows for one in row]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def summed(rows):
    return [sum(log_softmax(z)[y] for z, y in row) for row in rows]


def log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


def crossed(q, z):
    return -sum(a * b for a, b in zip(q, log_softmax(z), strict=True) if a > 0)


# The twins: (forget rows, those rows before the change of a difference, second answers) to F. What carries no gradient is
# taken from the second argument.
def simnpo(now, held, second):
    return -(2 / 4.5) * mean(
        log_sigmoid(4.5 * (-s / len(r) - 0.3))
        for s, r in zip(summed(answers(now)), answers(now), strict=True)
    )


def margins(now, second):
    gain = [
        [
            a - b
            for a, b in zip(
                summed(answers(one)), summed(answers(one, "reference_logits")), strict=True
            )
        ]
        for one in (second, now)
    ]
    return [a - b for a, b in zip(*gain, strict=True)]


def preference(now, held, second):
    return -(2 / 0.1) * mean(log_sigmoid(0.1 * margin) for margin in margins(now, second))


def undial(now, held, second):
    losses = []
    for (z, y), (before, _) in zip(
        flat(answers(now)), flat(answers(held, "reference_logits")), strict=True
    ):
        lowered = [value - 3.0 * (v == y) for v, value in enumerate(before)]
        losses.append(crossed([math.exp(one) for one in log_softmax(lowered)], z))
    return mean(losses)


def ceu(now, held, second):
    losses = []
    for row, old in zip(answers(now), answers(held), strict=True):
        for (z, y), (own, _) in list(zip(row, old, strict=True))[1:]:
            p = [math.exp(one) if v != y else 0.0 for v, one in enumerate(log_softmax(own))]
            losses.append(crossed([one / sum(p) for one in p], z))
    return mean(losses)


def weighted(weight):
    def loss(now, held, second):
        pairs = zip(flat(answers(now)), flat(answers(held)), strict=True)
        return mean(
            weight(math.exp(log_softmax(own)[y])) * log_softmax(z)[y] for (z, y), (own, _) in pairs
        )

    return loss


def pdu(now, held, second):
    return mean((max(z) - mean(z)) ** 2 for z, _ in flat(answers(now)))


TWINS = {
    "simnpo": (simnpo, {"delta": 0.3}, ()),
    "idk_dpo": (preference, {}, ("reference_logits",)),
    "altpo": (preference, {}, ("reference_logits",)),
    "undial": (undial, {"beta": 3.0}, ("reference_logits",)),
    "ceu": (ceu, {}, ()),
    "wga": (weighted(lambda p: p**0.7), {"beta": 0.7}, ()),
    "satimp": (weighted(lambda p: p**0.5 * (1 - p) ** 0.2), {"beta1": 0.5, "beta2": 0.2}, ()),
    "pdu": (pdu, {"retain_loss_eps": 0.1}, ()),
}


def made(name: str, **own):
    method = METHODS[name]
    return method(method.Params.model_validate({"loss": name, "lr": 1e-3, "epochs": 1, **own}))


def forget_loss(name, own, given, second):
    rows = oracles.rows_of(given, oracles.rows_of(second))
    loss = made(name, **own).forget_loss(rows)
    loss.backward()
    return float(loss.detach()), rows.model.leaves["logits"].grad.numpy()


@pytest.mark.parametrize("name", TWINS)
def test_a_forget_loss_and_its_gradient_are_those_of_the_twin(name):
    twin, own, kinds = TWINS[name]
    given, second = batch(1, "logits", *kinds), batch(2, "logits", *kinds)
    value, gradient = forget_loss(name, own, given, second)
    assert value == pytest.approx(twin(given, given, second), rel=1e-5)
    rng, step = np.random.default_rng(3), 1e-4
    for place in zip(*(rng.integers(size, size=40) for size in given["logits"].shape), strict=True):
        ends = []
        for sign in (1, -1):
            moved = {**given, "logits": given["logits"].copy()}
            moved["logits"][place] += sign * step
            ends.append(twin(moved, given, second))
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=2e-5)


@pytest.mark.parametrize("name", TWINS)
def test_prompt_padding_and_the_last_position_do_not_count(name):
    _, own, kinds = TWINS[name]
    given, second = batch(1, "logits", *kinds), batch(2, "logits", *kinds)
    value, gradient = forget_loss(name, own, given, second)
    predicts = np.roll(given["labels"] != IGNORED, -1, axis=1)
    assert not gradient[~predicts].any()
    assert (gradient[predicts] != 0).any()
    noisy = {
        kind: np.where(
            predicts[..., None],
            given[kind],
            50 * np.random.default_rng(4).normal(size=given[kind].shape),
        )
        for kind in ("logits", *kinds)
    }
    assert forget_loss(name, own, {**given, **noisy}, second)[0] == pytest.approx(value, rel=1e-6)


def test_rmu_is_its_formula_on_answer_tokens():
    given, kept = batch(1, "hidden"), batch(2, "hidden", "reference_hidden")
    method = made("rmu", steering_coeff=3.0, retain_weight=2.0)
    method.direction = torch.from_numpy(np.random.default_rng(5).random(5)).float()
    step = Step(0, 1, 0, oracles.rows_of(given), oracles.rows_of(kept))
    values = method.loss(step)
    values["loss"].backward()
    aim = 3.0 * method.direction.double().numpy()

    def distance(rows, states, target):
        labels = rows["labels"]
        return mean(
            mean(
                mean((states[r, t] - target[r, t]) ** 2)
                for t in range(WIDTH)
                if labels[r, t] != IGNORED
            )
            for r in range(3)
        )

    forget = distance(given, given["hidden"], np.broadcast_to(aim, given["hidden"].shape))
    retain = distance(kept, kept["hidden"], kept["reference_hidden"])
    assert float(values["loss"].detach()) == pytest.approx(forget + 2 * retain, rel=1e-5)
    off = given["labels"] == IGNORED
    assert not step.forget.model.leaves["hidden"].grad.numpy()[off].any()


def test_idk_nll_is_one_mean_over_all_tokens():
    refusals, kept = batch(1, "logits"), batch(2, "logits")
    step = Step(
        0, 1, 0, oracles.rows_of(refusals, oracles.rows_of(refusals)), oracles.rows_of(kept)
    )
    tokens = flat(answers(refusals)) + flat(answers(kept))
    expected = mean(-log_softmax(z)[y] for z, y in tokens)
    assert float(made("idk_nll").loss(step)["loss"].detach()) == pytest.approx(expected, rel=1e-6)


def test_ce_u_without_a_token_left_is_zero_with_a_gradient_of_zero():
    given = batch(1, "logits")
    rows = oracles.rows_of(given)
    loss = made("ceu", ignore_first_n_answer_tokens=4).forget_loss(rows)
    loss.backward()
    assert float(loss.detach()) == 0
    assert not rows.model.leaves["logits"].grad.any()


def test_the_dual_variable_waits_for_its_warm_up_and_steps_at_the_end_of_an_epoch():
    step = Step(0, 1, 1, oracles.rows_of(batch(1, "logits")), oracles.rows_of(batch(2, "logits")))
    waiting = made("pdu", retain_loss_eps=0.5, dual_warmup_epochs=2)
    waiting.after_step(step, {"retain_loss": 1.0})
    assert waiting.dual == 1.0
    waiting.after_step(Step(0, 1, 2, step.forget, step.retain), {"retain_loss": 1.0})
    assert waiting.dual == 1.5
    by_epoch = made("pdu", retain_loss_eps=0.5, dual_update="epoch")
    by_epoch.after_step(step, {"retain_loss": 1.0})
    assert by_epoch.dual == 1.0
    losses = [float(rows.forward.nll.detach()) for rows in (step.forget, step.retain)]
    by_epoch.after_epoch(0, [step.forget, step.retain])
    assert by_epoch.dual == pytest.approx(max(0.0, 1.0 + sum(losses) / 2 - 0.5))


def test_the_output_of_a_block_is_taken_before_the_final_norm(tiny):
    """The last of transformers' hidden states has been normalised: its gradient would not reach the block alike."""
    model, given = tiny[0].eval(), collate([Example((5, 6), (7, 8)), Example((5,), (9,))], 0)
    assert number_of_blocks(model, given) == 1
    states = block_output(model, given, 0)
    with torch.no_grad():
        normed = model(
            input_ids=given.ids, attention_mask=given.mask, output_hidden_states=True
        ).hidden_states[-1]
    assert not torch.allclose(states, normed)
    assert torch.allclose(model.model.norm(states), normed, atol=1e-6)
    states.sum().backward()
    assert model.model.norm.weight.grad is None
    assert model.model.layers[0].mlp.down_proj.weight.grad is not None
    model.zero_grad()


def test_rmu_trains_only_the_named_parameters(tiny):
    model = copy.deepcopy(tiny[0])
    made("rmu", trained=r"mlp\.down_proj").prepare(
        UnlearningRun(model, 1, np.random.default_rng(0))
    )
    assert [name for name, one in model.named_parameters() if one.requires_grad] == [
        "model.layers.0.mlp.down_proj.weight"
    ]
    for wrong in ({"trained": "nothing"}, {"trained": "("}, {"block": 1}):
        with pytest.raises(BadValue):
            made("rmu", **wrong).prepare(
                UnlearningRun(copy.deepcopy(tiny[0]), 1, np.random.default_rng(0))
            )
    directions = [made("rmu") for _ in range(2)]
    for method in directions:
        method.prepare(UnlearningRun(copy.deepcopy(tiny[0]), 1, np.random.default_rng(7)))
    assert torch.equal(directions[0].direction, directions[1].direction)
    assert float(directions[0].direction.norm()) == pytest.approx(1)
    assert (directions[0].direction >= 0).all()


def test_alternatives_differ_from_the_true_answer_and_from_each_other(tiny, prompt):
    rows = [{"question": "Who is Ada?", "answer": "a painter"}]
    before = Before(tiny[0], Encoder(tiny[1], prompt), 3)
    params = SimpleNamespace(alternatives=3, temperature=1.0, max_new_tokens=6, request=None)
    found = [alternatives(params, rows, before) for _ in range(2)]
    assert found[0] == found[1]
    assert len(set(found[0][0])) == 3
    assert "a painter" not in found[0][0]


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
            plain_continuation(
                tiny[0], one, longest, end, None if uniforms is None else uniforms[row]
            )
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


def plain_entropy_of_rows(model, examples):
    """The mean over rows of the mean entropy before each token of question and answer but the first, a row a pass."""
    means = []
    for example in examples:
        ids = torch.tensor([example.prompt + example.answer])
        p = model(input_ids=ids).logits[0, :-1].softmax(-1)
        means.append(-(p * p.log()).sum(-1).mean())
    return torch.stack(means).mean()


def test_all_positions_are_those_of_question_and_answer_without_the_padding(tiny):
    rows = rows_of(tiny[1])[:4]
    step = Step(0, 1, 0, protocol.StepRows(tiny[0].eval(), collate(rows, 0)), None)
    values = {"loss": torch.zeros(())}
    of_rows = float(plain_entropy_of_rows(tiny[0], rows).detach())

    found = with_entropy(values, step, Entropy.model_validate({**TERMS, "positions": "all"}))
    published = with_entropy(values, step, Entropy.model_validate(TERMS))

    assert len({len(row.prompt + row.answer) for row in rows}) > 1
    assert float(found["entropy_forget"].detach()) == pytest.approx(of_rows, rel=1e-5)
    assert float(published["entropy_forget"].detach()) != pytest.approx(of_rows, rel=1e-3)


def test_all_positions_taken_in_parts_add_up_to_the_step(tiny):
    entropy = {**TERMS, "positions": "all"}

    whole, once = unlearned(tiny, entropy=entropy)
    parts, again = unlearned(tiny, entropy=entropy, compute={"accumulate": 3})

    assert once[0] == pytest.approx(again[0], rel=2e-5, abs=2e-5)
    assert far(whole, parts) < 5e-3


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
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), same.parameters(), strict=True)
    )


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
    triples = [
        np.mean([each[i] for i in picked])
        for picked in ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))
    ]
    assert min(abs(first["entropy_forget"] - value) for value in triples) < 1e-4
    total = (
        first["forget_loss"]
        + first["retain_loss"]
        + 2.0 * first["entropy_forget"]
        - 0.1 * first["entropy_retain"]
    )
    assert first["loss"] == pytest.approx(total, rel=1e-5)
