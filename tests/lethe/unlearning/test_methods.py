"""Each method's forget loss against a twin in plain loops: its value, its gradient, its mask; its own continuations."""

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
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
from tests.lethe.unlearning.test_loop import equal_weights, far, rows_of, unlearned
from tests.small import ROOT

# Ragged: prompts, answers and padding differ in length.
PROMPT_LENGTHS = (2, 1, 3)
ANSWER_LENGTHS = (4, 1, 3)
ROWS_OF_BATCH = 3
WIDTH = 7
VOCABULARY = 9


def batch(seed: int, *kinds: str) -> dict:
    """Random rows; ``kinds`` are the arrays: logits, reference_logits, hidden, reference_hidden."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((ROWS_OF_BATCH, WIDTH), dtype=int)
    mask = np.zeros_like(ids)
    labels = np.full_like(ids, IGNORED)
    for row, (start, length) in enumerate(zip(PROMPT_LENGTHS, ANSWER_LENGTHS, strict=True)):
        end = start + length
        ids[row, :end] = rng.integers(1, VOCABULARY, end)
        mask[row, :end] = 1
        labels[row, start:end] = ids[row, start:end]

    values = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    for kind in kinds:
        size = 5 if "hidden" in kind else VOCABULARY
        values[kind] = rng.normal(0, 2, (ROWS_OF_BATCH, WIDTH, size))
    return values


def log_softmax(logits):
    largest = max(logits)
    total = math.log(sum(math.exp(value - largest) for value in logits)) + largest
    return [value - total for value in logits]


def softmax(logits):
    return [math.exp(value) for value in log_softmax(logits)]


@dataclass(frozen=True)
class Position:
    """The logits that predict a token of an answer, and the token."""

    logits: list[float]
    token: int

    @property
    def log_prob(self) -> float:
        return log_softmax(self.logits)[self.token]

    @property
    def prob(self) -> float:
        return math.exp(self.log_prob)

    def cross_entropy(self, target: list[float]) -> float:
        """-sum q ln p of a ``target`` q over the vocabulary."""
        total = 0.0
        for share, log_prob in zip(target, log_softmax(self.logits), strict=True):
            if share > 0:
                total -= share * log_prob
        return total


def answers(rows: dict, key: str = "logits") -> list[list[Position]]:
    """The positions of each row that predict answer tokens."""
    found = []
    for row in range(ROWS_OF_BATCH):
        positions = []
        for place in range(1, WIDTH):
            token = rows["labels"][row, place]
            if token != IGNORED:
                positions.append(Position(list(rows[key][row, place - 1]), token))
        found.append(positions)
    return found


def flat(rows):
    return [position for row in rows for position in row]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def log_prob_of_row(positions):
    return sum(position.log_prob for position in positions)


def log_sigmoid(x):
    if x > 0:
        return -math.log1p(math.exp(-x))
    return x - math.log1p(math.exp(x))


# The twins: (forget rows, those rows before the change of a difference, second answers) to F. What
# carries no gradient is taken from the second argument.
def simnpo(now, held, second):
    losses = []
    for positions in answers(now):
        nll_of_token = -log_prob_of_row(positions) / len(positions)
        losses.append(log_sigmoid(4.5 * (nll_of_token - 0.3)))
    return -(2 / 4.5) * mean(losses)


def gains(rows):
    """How much more likely the model finds each answer than the reference does, in nats."""
    values = []
    for model, reference in zip(answers(rows), answers(rows, "reference_logits"), strict=True):
        values.append(log_prob_of_row(model) - log_prob_of_row(reference))
    return values


def preference(now, held, second):
    margins = np.subtract(gains(second), gains(now))
    return -(2 / 0.1) * mean(log_sigmoid(0.1 * margin) for margin in margins)


def undial(now, held, second):
    references = flat(answers(held, "reference_logits"))
    losses = []
    for position, reference in zip(flat(answers(now)), references, strict=True):
        lowered = list(reference.logits)
        lowered[position.token] -= 3.0
        losses.append(position.cross_entropy(softmax(lowered)))
    return mean(losses)


def ceu(now, held, second):
    losses = []
    for positions, before in zip(answers(now), answers(held), strict=True):
        for position, old in zip(positions[1:], before[1:], strict=True):
            others = softmax(old.logits)
            others[position.token] = 0.0
            losses.append(position.cross_entropy([share / sum(others) for share in others]))
    return mean(losses)


def weighted(weight):
    def loss(now, held, second):
        losses = []
        for position, old in zip(flat(answers(now)), flat(answers(held)), strict=True):
            losses.append(weight(old.prob) * position.log_prob)
        return mean(losses)

    return loss


def pdu(now, held, second):
    spreads = []
    for position in flat(answers(now)):
        spreads.append((max(position.logits) - mean(position.logits)) ** 2)
    return mean(spreads)


@dataclass(frozen=True)
class Twin:
    """A forget loss in plain loops, with the method's parameters and the further arrays that it reads."""

    loss: Callable
    params: dict
    kinds: tuple[str, ...] = ()

    def batches(self) -> tuple[dict, dict]:
        """The rows to forget, and second answers."""
        return batch(1, "logits", *self.kinds), batch(2, "logits", *self.kinds)


TWINS = {
    "simnpo": Twin(simnpo, {"delta": 0.3}),
    "idk_dpo": Twin(preference, {}, ("reference_logits",)),
    "altpo": Twin(preference, {}, ("reference_logits",)),
    "undial": Twin(undial, {"beta": 3.0}, ("reference_logits",)),
    "ceu": Twin(ceu, {}),
    "wga": Twin(weighted(lambda p: p**0.7), {"beta": 0.7}),
    "satimp": Twin(weighted(lambda p: p**0.5 * (1 - p) ** 0.2), {"beta1": 0.5, "beta2": 0.2}),
    "pdu": Twin(pdu, {"retain_loss_eps": 0.1}),
}


def method_of(name: str, **params):
    method = METHODS[name]
    entry = {"loss": name, "lr": 1e-3, "epochs": 1, **params}
    return method(method.Params.model_validate(entry))


def forget_loss(name, forget, second):
    """The product's loss, and its gradient by the logits of the rows to forget."""
    rows = oracles.rows_of(forget, oracles.rows_of(second))
    loss = method_of(name, **TWINS[name].params).forget_loss(rows)
    loss.backward()
    return float(loss.detach()), rows.model.leaves["logits"].grad.numpy()


@pytest.mark.parametrize("name", TWINS)
def test_a_forget_loss_is_that_of_the_twin(name):
    forget, second = TWINS[name].batches()

    value, _ = forget_loss(name, forget, second)

    assert value == pytest.approx(TWINS[name].loss(forget, forget, second), rel=1e-5)


@pytest.mark.parametrize("name", TWINS)
def test_the_gradient_of_a_forget_loss_is_that_of_the_twin(name):
    forget, second = TWINS[name].batches()
    rng = np.random.default_rng(3)
    places = zip(*(rng.integers(size, size=40) for size in forget["logits"].shape), strict=True)
    step = 1e-4

    def loss_beside(place, change):
        moved = {**forget, "logits": forget["logits"].copy()}
        moved["logits"][place] += change
        return TWINS[name].loss(moved, forget, second)

    _, gradient = forget_loss(name, forget, second)

    for place in places:
        slope = (loss_beside(place, step) - loss_beside(place, -step)) / (2 * step)
        assert gradient[place] == pytest.approx(slope, abs=2e-5)


def predicts_an_answer(rows):
    """(rows, width): whether a position predicts a token of the answer."""
    return np.roll(rows["labels"] != IGNORED, -1, axis=1)


@pytest.mark.parametrize("name", TWINS)
def test_only_positions_that_predict_an_answer_have_a_gradient(name):
    forget, second = TWINS[name].batches()

    _, gradient = forget_loss(name, forget, second)

    predicts = predicts_an_answer(forget)
    assert not gradient[~predicts].any()
    assert (gradient[predicts] != 0).any()


@pytest.mark.parametrize("name", TWINS)
def test_prompt_padding_and_the_last_position_do_not_count(name):
    forget, second = TWINS[name].batches()
    predicts = predicts_an_answer(forget)[..., None]
    noisy = dict(forget)
    for kind in ("logits", *TWINS[name].kinds):
        noise = 50 * np.random.default_rng(4).normal(size=forget[kind].shape)
        noisy[kind] = np.where(predicts, forget[kind], noise)

    value, _ = forget_loss(name, forget, second)
    value_of_noisy, _ = forget_loss(name, noisy, second)

    assert value_of_noisy == pytest.approx(value, rel=1e-6)


def mean_square_distance(rows, states, target):
    """The mean over rows of the mean over answer tokens of the mean square of states - target."""
    of_rows = []
    for row in range(ROWS_OF_BATCH):
        of_tokens = []
        for place in range(WIDTH):
            if rows["labels"][row, place] != IGNORED:
                of_tokens.append(mean((states[row, place] - target[row, place]) ** 2))
        of_rows.append(mean(of_tokens))
    return mean(of_rows)


def test_rmu_is_its_formula_on_answer_tokens():
    forget = batch(1, "hidden")
    retain = batch(2, "hidden", "reference_hidden")
    method = method_of("rmu", steering_coeff=3.0, retain_weight=2.0)
    method.direction = torch.from_numpy(np.random.default_rng(5).random(5)).float()
    aim = np.broadcast_to(3.0 * method.direction.double().numpy(), forget["hidden"].shape)
    forget_distance = mean_square_distance(forget, forget["hidden"], aim)
    retain_distance = mean_square_distance(retain, retain["hidden"], retain["reference_hidden"])
    step = Step(0, 1, 0, oracles.rows_of(forget), oracles.rows_of(retain))

    loss = method.loss(step)["loss"]
    loss.backward()

    assert float(loss.detach()) == pytest.approx(forget_distance + 2 * retain_distance, rel=1e-5)
    not_answer = forget["labels"] == IGNORED
    assert not step.forget.model.leaves["hidden"].grad.numpy()[not_answer].any()


def test_idk_nll_is_one_mean_over_all_tokens():
    refusals = batch(1, "logits")
    kept = batch(2, "logits")
    forget = oracles.rows_of(refusals, oracles.rows_of(refusals))
    positions = flat(answers(refusals)) + flat(answers(kept))

    loss = method_of("idk_nll").loss(Step(0, 1, 0, forget, oracles.rows_of(kept)))["loss"]

    nll = -mean(position.log_prob for position in positions)
    assert float(loss.detach()) == pytest.approx(nll, rel=1e-6)


def test_ce_u_without_a_token_left_is_zero_with_a_gradient_of_zero():
    rows = oracles.rows_of(batch(1, "logits"))

    loss = method_of("ceu", ignore_first_n_answer_tokens=4).forget_loss(rows)
    loss.backward()

    assert float(loss.detach()) == 0
    assert not rows.model.leaves["logits"].grad.any()


def step_of_epoch(epoch):
    forget = oracles.rows_of(batch(1, "logits"))
    return Step(0, 1, epoch, forget, oracles.rows_of(batch(2, "logits")))


@pytest.mark.parametrize(("epoch", "dual"), [(1, 1.0), (2, 1.5)])
def test_the_dual_variable_waits_for_its_warm_up(epoch, dual):
    method = method_of("pdu", retain_loss_eps=0.5, dual_warmup_epochs=2)

    method.after_step(step_of_epoch(epoch), {"retain_loss": 1.0})

    assert method.dual == dual


def test_the_dual_variable_of_epochs_does_not_move_at_a_step():
    method = method_of("pdu", retain_loss_eps=0.5, dual_update="epoch")

    method.after_step(step_of_epoch(1), {"retain_loss": 1.0})

    assert method.dual == 1.0


def test_the_dual_variable_of_epochs_steps_by_the_mean_retain_loss():
    method = method_of("pdu", retain_loss_eps=0.5, dual_update="epoch")
    step = step_of_epoch(1)
    losses = [float(rows.forward.nll.detach()) for rows in (step.forget, step.retain)]

    method.after_epoch(0, [step.forget, step.retain])

    assert method.dual == pytest.approx(max(0.0, 1.0 + mean(losses) - 0.5))


def test_the_output_of_a_block_is_taken_before_the_final_norm(tiny):
    """The last of transformers' hidden states has been normalised: its gradient would not reach the block alike."""
    model = tiny[0].eval()
    rows = collate([Example((5, 6), (7, 8)), Example((5,), (9,))], 0)
    with torch.no_grad():
        found = model(input_ids=rows.ids, attention_mask=rows.mask, output_hidden_states=True)
    normed = found.hidden_states[-1]

    states = block_output(model, rows, 0)

    assert number_of_blocks(model, rows) == 1
    assert not torch.allclose(states, normed)
    assert torch.allclose(model.model.norm(states), normed, atol=1e-6)


def test_the_gradient_of_a_block_reaches_its_weights_and_not_the_final_norm(tiny):
    model = tiny[0].eval()
    rows = collate([Example((5, 6), (7, 8)), Example((5,), (9,))], 0)

    block_output(model, rows, 0).sum().backward()

    assert model.model.norm.weight.grad is None
    assert model.model.layers[0].mlp.down_proj.weight.grad is not None
    model.zero_grad()


def prepared(tiny, seed=0, **params):
    """RMU after it has chosen the parameters that it trains, and its model."""
    method = method_of("rmu", **params)
    model = copy.deepcopy(tiny[0])
    method.prepare(UnlearningRun(model, 1, np.random.default_rng(seed)))
    return method, model


def test_rmu_trains_only_the_named_parameters(tiny):
    _, model = prepared(tiny, trained=r"mlp\.down_proj")

    trained = [name for name, weights in model.named_parameters() if weights.requires_grad]

    assert trained == ["model.layers.0.mlp.down_proj.weight"]


@pytest.mark.parametrize("params", [{"trained": "nothing"}, {"trained": "("}, {"block": 1}])
def test_rmu_refuses_what_is_not_in_the_model(tiny, params):
    with pytest.raises(BadValue):
        prepared(tiny, **params)


def test_rmu_draws_the_same_direction_from_the_same_seed(tiny):
    first, _ = prepared(tiny, seed=7)
    second, _ = prepared(tiny, seed=7)

    assert torch.equal(first.direction, second.direction)
    assert float(first.direction.norm()) == pytest.approx(1)
    assert (first.direction >= 0).all()


def test_alternatives_differ_from_the_true_answer_and_from_each_other(tiny, prompt):
    rows = [{"question": "Who is Ada?", "answer": "a painter"}]
    before = Before(tiny[0], Encoder(tiny[1], prompt), 3)
    params = SimpleNamespace(alternatives=3, temperature=1.0, max_new_tokens=6, request=None)

    texts = alternatives(params, rows, before)
    again = alternatives(params, rows, before)

    assert texts == again
    assert len(set(texts[0])) == 3
    assert "a painter" not in texts[0]


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


def drawn_token(logits, uniform):
    """The token at which the cumulated probability first exceeds the uniform number."""
    probabilities = logits.softmax(-1).tolist()
    total = 0.0
    for token, probability in enumerate(probabilities):
        total += probability
        if total > uniform:
            return token
    return len(probabilities) - 1


def plain_continuation(model, example, longest, end, uniforms=None):
    """One row, one token at a time, no cache, no padding; greedy without ``uniforms``."""
    tokens = list(example.prompt)
    written: list[int] = []
    while len(written) < longest and written[-1:] != [end]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokens + written])).logits[0, -1].double()
        if uniforms is None:
            written.append(int(logits.argmax()))
        else:
            written.append(drawn_token(logits, uniforms[len(written)]))
    return Example(example.prompt, tuple(written))


def entropy_of(logits):
    """-sum p ln p along the vocabulary."""
    p = logits.softmax(-1)
    return -(p * p.log()).sum(-1)


def plain_entropy(model, examples):
    """The mean over rows of the mean over tokens of -sum p ln p, one pass per token."""
    means = []
    for example in examples:
        entropies = []
        for number in range(len(example.answer)):
            ids = torch.tensor([example.prompt + example.answer[:number]])
            entropies.append(entropy_of(model(input_ids=ids).logits[0, -1]))
        means.append(torch.stack(entropies).mean())
    return float(torch.stack(means).mean().detach())


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_continues_as_each_row_alone(tiny, sampled, seed):
    model, tokenizer = tiny
    examples = rows_of(tokenizer, ROWS)
    longest = 7
    end = examples[0].answer[-1]
    uniforms = np.random.default_rng(seed).random((2, longest)) if sampled else None

    found = continued(model, examples, longest, end, uniforms)

    for row, example in enumerate(examples):
        of_row = None if uniforms is None else uniforms[row]
        assert found[row] == plain_continuation(model, example, longest, end, of_row)
    entropy = float(forward(model, collate(found, 0)).entropy.detach())
    assert entropy == pytest.approx(plain_entropy(model, found), rel=1e-5)


def test_the_word_true_is_the_default():
    terms = Entropy.model_validate(TERMS)

    assert terms.prefix == "true"
    assert Entropy.model_validate({**TERMS, "prefix": True}) == terms


def test_an_unknown_prefix_is_refused_with_its_place():
    value = config.read_yaml(ROOT / "params.yaml")
    value["unlearn"]["methods"]["npo_entropy"]["entropy"]["prefix"] = "nearest"

    with pytest.raises(BadInput, match=r"entropy\.prefix"):
        config.validate(value)


def plain_entropy_of_rows(model, examples):
    """The mean over rows of the mean entropy before each token of question and answer but the first, a row a pass."""
    means = []
    for example in examples:
        ids = torch.tensor([example.prompt + example.answer])
        means.append(entropy_of(model(input_ids=ids).logits[0, :-1]).mean())
    return float(torch.stack(means).mean().detach())


def test_all_positions_are_those_of_question_and_answer_without_the_padding(tiny):
    model = tiny[0].eval()
    rows = rows_of(tiny[1])[:4]
    assert len({len(row.prompt + row.answer) for row in rows}) > 1
    step = Step(0, 1, 0, protocol.StepRows(model, collate(rows, 0)), None)
    values = {"loss": torch.zeros(())}

    of_all = with_entropy(values, step, Entropy.model_validate({**TERMS, "positions": "all"}))
    published = with_entropy(values, step, Entropy.model_validate(TERMS))

    of_rows = plain_entropy_of_rows(model, rows)
    assert float(of_all["entropy_forget"].detach()) == pytest.approx(of_rows, rel=1e-5)
    assert float(published["entropy_forget"].detach()) != pytest.approx(of_rows, rel=1e-3)


@pytest.mark.parametrize(
    "change", [{"positions": "all"}, {"prefix": "greedy"}, {"prefix": "sampled"}]
)
def test_a_step_with_entropy_taken_in_parts_is_the_step_at_once(tiny, change):
    entropy = {**TERMS, **change}

    whole, history = unlearned(tiny, entropy=entropy)
    in_parts, again = unlearned(tiny, entropy=entropy, compute={"accumulate": 3})

    assert history[0] == pytest.approx(again[0], rel=2e-5, abs=2e-5)
    assert far(whole, in_parts) < 5e-3


@pytest.mark.parametrize("prefix", ["greedy", "sampled"])
def test_entropy_beside_written_answers_differs_from_the_published_and_falls(tiny, prefix):
    _, published = unlearned(tiny, entropy=TERMS)

    _, history = unlearned(tiny, entropy={**TERMS, "prefix": prefix})

    first = history[0]["entropy_forget"]
    assert first != pytest.approx(published[0]["entropy_forget"], rel=1e-4)
    assert history[-1]["entropy_forget"] < first


@pytest.mark.parametrize("prefix", ["greedy", "sampled"])
def test_a_run_with_written_answers_is_repeated_to_the_bit(tiny, prefix):
    entropy = {**TERMS, "prefix": prefix}

    model, _ = unlearned(tiny, entropy=entropy)
    again, _ = unlearned(tiny, entropy=entropy)

    assert equal_weights(model, again)


@pytest.fixture(scope="module")
def first_step(tiny):
    """The record of the first step with both entropies beside greedy answers."""
    _, history = unlearned(tiny, entropy={**TERMS, "prefix": "greedy"})
    return history[0]


def test_the_entropy_of_a_first_step_is_that_of_three_rows_by_plain_loops(tiny, first_step):
    model = tiny[0].eval()
    examples = rows_of(tiny[1])[:4]
    longest = max(len(example.answer) for example in examples)
    end = examples[0].answer[-1]
    entropies = []
    for example in examples:
        written = plain_continuation(model, example, longest, end)
        entropies.append(plain_entropy(model, [written]))

    of_triples = [np.mean(triple) for triple in itertools.combinations(entropies, 3)]

    distances = [abs(first_step["entropy_forget"] - entropy) for entropy in of_triples]
    assert min(distances) < 1e-4


def test_the_loss_of_a_first_step_is_the_sum_of_its_parts(first_step):
    forget = first_step["forget_loss"] + 2.0 * first_step["entropy_forget"]
    retain = first_step["retain_loss"] - 0.1 * first_step["entropy_retain"]

    assert first_step["loss"] == pytest.approx(forget + retain, rel=1e-5)
