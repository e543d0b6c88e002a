"""Training that diverges, private training, and the encoding of rows: prompts, answers, likelihoods."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from lethe import config
from lethe.config.schema import Compute
from lethe.errors import BadFile, BadInput
from lethe.io.artifacts import write_splits
from lethe.models import checkpoints, training
from lethe.models.checkpoints import QA_PROMPT, default_device
from lethe.models.dp_sgd import make_private, noise_multiplier, spent
from lethe.models.encoding import IGNORED, Encoder, Example, collate, read_template
from lethe.models.likelihood import TOKENS, answer_tokens, forward, given_answers, mean_losses
from lethe.models.training import Losses, Resumable, Taken, TrainingFailed, batches, optimise
from lethe.scoring.verdicts import VerdictStore
from stages.train import train
from stages.unlearn import forget
from tests.lethe.scoring.judges.test_verdicts import Counting
from tests.small import ROOT

RECIPE = config.load(ROOT / "params.yaml").unlearn.recipe


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_first_loss_that_is_not_finite_ends_the_run(value):
    losses = Losses("unlearn npo", 9, 0.1)
    losses.add(0, 2.5)
    losses.add(1, -1e30)

    with pytest.raises(TrainingFailed) as caught:
        losses.add(2, value)

    failed = caught.value
    assert (failed.run, failed.steps) == ("unlearn npo", 9)
    assert (failed.last, failed.exit_status) == (Taken(1, -1e30), 1)
    assert failed.failed.step == 2
    assert failed.failed.loss == pytest.approx(value, nan_ok=True)


class Weight(torch.nn.Module):
    """One weight, whose loss has an infinite gradient at the steps in ``steep`` and is itself finite at every step."""

    def __init__(self, steep=()):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.steep = steep
        self.device = torch.device("cpu")

    def loss(self, step, _):
        total = self.weight.square().sum()
        if step in self.steep:
            total = total + (self.weight.sum() - self.weight.sum().detach()).sqrt()
        yield {"loss": total}


def run(model, steps=8, kept=None):
    return optimise(model, [(0, None)] * steps, model.loss, RECIPE, 0.01, "t", resumable=kept)


def test_weights_that_are_not_finite_fail_at_the_next_step():
    with pytest.raises(TrainingFailed) as caught:
        run(Weight(steep=(4,)))

    assert (caught.value.failed.step, caught.value.last.step) == (5, 4)
    assert math.isfinite(caught.value.last.loss)


@pytest.fixture
def kept_before_failure(tmp_path):
    """The saved state of a run whose weights are not finite after step 2."""
    kept = Resumable(tmp_path, 2)
    with pytest.raises(TrainingFailed) as caught:
        run(Weight(steep=(3,)), kept=kept)
    assert caught.value.failed.step == 3
    return kept


def test_no_state_is_saved_with_weights_that_are_not_finite(kept_before_failure):
    saved = kept_before_failure.load(torch.device("cpu"))

    assert saved.step == 1
    assert torch.isfinite(saved.weights["weight"]).all()


def test_a_run_goes_on_from_the_last_state_with_finite_weights(kept_before_failure):
    mended = Weight()
    whole = Weight()

    history = run(mended, kept=kept_before_failure)

    assert history == run(whole)
    assert torch.equal(mended.weight, whole.weight)


@pytest.fixture
def root(tmp_path, tiny):
    splits = {}
    for split in ("forget", "retain"):
        rows = []
        for number in range(4):
            question = f"Who is {number}?"
            rows.append({"id": f"{split}{number}", "question": question, "answer": "a poet"})
        splits[split] = rows
    write_splits(splits, "authors", tmp_path / "dataset")
    checkpoints.save(tmp_path / "models/base", *tiny)
    return tmp_path


def train_too_fast(root):
    start = {"start_from": str(root / "models/base"), "prompt": str(QA_PROMPT)}
    recipe = config.load(ROOT / "params.yaml").train.recipe
    train("mine", recipe.model_copy(update={**start, "lr": 1e30, "batch": 2}), "all", root)


def unlearn_too_fast(root):
    settings = config.load(ROOT / "params.yaml")
    start = {"start_from": str(root / "models/base"), "forget_batch": 1}
    recipe = settings.unlearn.recipe.model_copy(update=start)
    method = settings.unlearn.methods["npo"].model_copy(update={"lr": 1e30})
    forget("mine", recipe, method, str(QA_PROMPT), root)


@pytest.mark.parametrize(
    ("stage", "name"), [(train_too_fast, "train mine"), (unlearn_too_fast, "unlearn mine")]
)
def test_a_stage_that_fails_writes_no_model(root, stage, name):
    before = sorted(root.rglob("*"))

    with pytest.raises(TrainingFailed) as caught:
        stage(root)

    failed = caught.value
    assert failed.run == name
    assert not math.isfinite(failed.failed.loss)
    assert failed.last.step == failed.failed.step - 1
    assert math.isfinite(failed.last.loss)
    assert sorted(root.rglob("*")) == before


def test_each_epoch_sees_every_row_once():
    rows_of_epoch = {0: [], 1: [], 2: []}
    n_batches = 0
    for epoch, rows in batches(10, 4, 3, np.random.default_rng(0)):
        rows_of_epoch[epoch] += rows.tolist()
        n_batches += 1

    assert n_batches == 9
    for rows in rows_of_epoch.values():
        assert sorted(rows) == list(range(10))


def test_batches_come_epoch_by_epoch():
    epochs = [epoch for epoch, _ in batches(10, 4, 3, np.random.default_rng(0))]

    assert epochs == [0] * 3 + [1] * 3 + [2] * 3


def test_the_same_seed_gives_the_same_batches():
    first = batches(10, 4, 3, np.random.default_rng(0))
    again = batches(10, 4, 3, np.random.default_rng(0))

    for (_, rows), (_, rows_again) in zip(first, again, strict=True):
        assert (rows == rows_again).all()


class OfAModel(Counting):
    def __init__(self, folder: Path):
        super().__init__()
        object.__setattr__(self.params, "model", str(folder))


def keys(folder: Path) -> tuple[str, str]:
    """The keys of kept verdicts and of a kept training."""
    model = torch.nn.Linear(1, 1)
    modules = ("lethe.models.training",)
    kept = training.resumable(folder, model, Compute(checkpoint_every=1), modules)
    return VerdictStore(OfAModel(folder), folder).key, kept.folder.name


@pytest.fixture
def equal_weights(monkeypatch):
    """Every new layer begins with ones."""

    def fill(layer):
        for weights in layer.parameters():
            weights.data.fill_(1)

    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", fill)


def test_the_key_of_a_kept_result_is_the_same_on_the_same_device(tmp_path, equal_weights):
    (tmp_path / "weights").write_text("x")

    assert keys(tmp_path) == keys(tmp_path)


def test_the_key_of_a_kept_result_contains_the_device(tmp_path, equal_weights, monkeypatch):
    (tmp_path / "weights").write_text("x")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == "cpu"
    verdicts, trained = keys(tmp_path)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device() == "cuda"
    verdicts_of_cuda, trained_of_cuda = keys(tmp_path)

    assert verdicts_of_cuda != verdicts
    assert trained_of_cuda != trained


ROWS = 200
WIDTH = 50


def private(model=None, **changes):
    """(model, optimiser, loader) of private training whose rows are numbered."""
    torch.manual_seed(0)
    if model is None:
        model = nn.Linear(WIDTH, 1, bias=False)
    rows = (torch.ones(ROWS, WIDTH), torch.arange(ROWS))
    settings = {"sample_rate": 0.1, "noise_multiplier": 1.0, "clip": 1.0, "seed": 3, "steps": 200}
    settings |= changes
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    return make_private(model.train(), optimiser, rows, **settings)


def released(model, optimiser, loader, scale=100.0):
    """The noisy sum of gradients of each step (loss: ``scale`` times the output)."""
    (weight,) = model.parameters()
    sums = []
    for rows, _ in loader:
        optimiser.zero_grad(set_to_none=True)
        (scale * model(rows)).mean().backward()
        optimiser.step()
        sums.append(weight.grad.flatten() * optimiser.expected_batch_size)
    return torch.stack(sums)


def test_each_row_comes_with_the_sample_rate_into_each_step():
    _, _, loader = private()
    times_seen = torch.zeros(ROWS)
    sizes = []
    for _, numbers in loader:
        times_seen[numbers] += 1
        sizes.append(len(numbers))

    assert len(sizes) == 200
    assert times_seen.mean() == pytest.approx(20, abs=1)
    binomial_sd = math.sqrt(ROWS * 0.09)
    assert torch.tensor(sizes, dtype=torch.float).std() == pytest.approx(binomial_sd, rel=0.2)


def test_the_noise_is_what_was_asked_for():
    sums = released(*private(noise_multiplier=2.0, clip=0.5), scale=0.0)

    assert sums.std() == pytest.approx(1.0, rel=0.03)
    assert abs(sums.mean()) < 0.05


def test_gradients_of_single_rows_are_clipped():
    model, optimiser, loader = private(noise_multiplier=0.0, clip=0.5)
    _, _, same_loader = private()
    largest = [0.5 * len(rows) for rows, _ in same_loader]

    norms = released(model, optimiser, loader).norm(dim=1)

    assert norms.tolist() == pytest.approx(largest, rel=1e-3)


def test_a_layer_that_mixes_rows_is_refused():
    with pytest.raises(BadInput, match="BatchNorm"):
        private(nn.Sequential(nn.Linear(WIDTH, 4), nn.BatchNorm1d(4)))


def test_the_accountants_agree():
    sigma = noise_multiplier(3.0, 1e-5, 0.1, 50)
    step = privacy_loss_distribution.from_gaussian_mechanism(sigma, sampling_prob=0.1)
    epsilon = step.self_compose(50).get_epsilon_for_delta(1e-5)

    assert spent(sigma, 1e-5, 0.1, 50) == pytest.approx(epsilon, abs=0.03)


def test_the_noise_spends_nearly_all_of_the_epsilon():
    sigma = noise_multiplier(3.0, 1e-5, 0.1, 50)

    assert 2 < spent(sigma, 1e-5, 0.1, 50) <= 3.0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(question=st.text(), answer=st.text(min_size=1).filter(str.strip))
def test_prompt_and_answer_spell_the_whole_text(tiny, prompt, question, answer):
    tokenizer = tiny[1]
    encoder = Encoder(tokenizer, prompt)

    example = encoder.example({"question": question, "answer": answer})

    assert example.prompt == encoder.prompt({"question": question})
    assert example.answer[-1] == tokenizer.eos_token_id
    text = tokenizer.decode(example.prompt + example.answer[:-1])
    assert text == f"Question: {question}\nAnswer: {answer}"


def test_the_end_stands_there_once_and_braces_mean_nothing(tiny, prompt):
    tokenizer = tiny[1]

    example = Encoder(tokenizer, prompt).example({"question": "{answer} {0}", "answer": "x"})

    assert list(example.answer).count(tokenizer.eos_token_id) == 1
    assert "{answer} {0}" in tokenizer.decode(example.prompt)


def test_collate_masks_prompt_and_padding():
    batch = collate([Example((1, 2), (3,)), Example((4,), (5, 6, 7))], padding=0)

    assert batch.ids.tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]
    assert batch.mask.tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch.labels.tolist() == [[IGNORED, IGNORED, 3, IGNORED], [IGNORED, 5, 6, 7]]


def test_a_template_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadFile, match="no such prompt file"):
        read_template(tmp_path / "none.txt")


def test_a_template_without_a_question_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("hello")

    with pytest.raises(BadFile, match=r"no \{question\}"):
        read_template(tmp_path / "empty.txt")


def test_a_tokenizer_without_a_chat_template_is_told(tiny):
    with pytest.raises(BadFile, match="no chat template"):
        Encoder(tiny[1], "chat")


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no user role') }}", "{% for", "{{ messages + 1 }}"]
)
def test_a_chat_template_that_cannot_be_filled_in_is_told(tiny, monkeypatch, template):
    monkeypatch.setattr(tiny[1], "chat_template", template)
    with pytest.raises(BadFile, match="chat template cannot"):
        Encoder(tiny[1], "chat").prompt({"question": "q"})


def test_a_prompt_file_in_another_encoding_is_told(tmp_path):
    (tmp_path / "latin.txt").write_bytes("Fr\u00e5ga: {question}".encode("latin-1"))
    with pytest.raises(BadInput, match="not valid UTF-8"):
        read_template(tmp_path / "latin.txt")


PARAPHRASED = "She is a painter of the sea"
ADA = {
    "id": "a",
    "question": "Who is Ada?",
    "answer": "a painter",
    "paraphrased_answer": PARAPHRASED,
}
BO = {
    "id": "b",
    "question": "Where is Bo?",
    "answer": "at sea",
    "perturbed_answer": ["at a sea", "is Ada"],
}
# Row, kind and number of each answer, and its text.
ANSWERS = [
    (ADA, "answer", 0, "a painter"),
    (ADA, "paraphrased", 0, PARAPHRASED),
    (BO, "answer", 0, "at sea"),
    (BO, "perturbed", 0, "at a sea"),
    (BO, "perturbed", 1, "is Ada"),
]


@pytest.fixture
def folder(tiny, tmp_path):
    checkpoints.save(tmp_path / "model", *tiny)
    return tmp_path / "model"


EXAMPLES = [Example((5, 6, 7), (8, 9)), Example((5,), (10, 11, 12, 13)), Example((6, 7), (8,))]


@dataclass(frozen=True)
class NaiveToken:
    """A token of an answer: ln p, mean and standard deviation of ln p under the model, whether it is the likeliest."""

    log_prob: float
    expected: float
    spread: float
    greedy: bool


def naive_tokens(model, example):
    """The tokens of an answer, one forward pass each."""
    tokens = []
    for place, token in enumerate(example.answer):
        ids = torch.tensor([example.prompt + example.answer[:place]])
        with torch.no_grad():
            p = model(input_ids=ids).logits[0, -1].double().softmax(-1)
        log_p = p.log()
        mean = float((p * log_p).sum())
        variance = float((p * log_p**2).sum()) - mean**2
        is_likeliest = int(log_p.argmax()) == token
        tokens.append(
            NaiveToken(float(log_p[token]), mean, math.sqrt(max(0.0, variance)), is_likeliest)
        )
    return tokens


def test_the_table_has_every_answer_of_every_row(prompt, folder):
    table = given_answers(folder, {"forget": [ADA, BO]}, prompt, "test")["forget"]

    keys = list(zip(table["prompt_id"], table["kind"], table["number"], strict=True))
    assert keys == [(row["id"], kind, number) for row, kind, number, _ in ANSWERS]


def test_every_answer_token_by_token(tiny, prompt, folder):
    model, tokenizer = tiny
    encoder = Encoder(tokenizer, prompt)

    table = given_answers(folder, {"forget": [ADA, BO]}, prompt, "test")["forget"]

    close = {"rtol": 2e-4, "atol": 2e-4}
    for found, (row, _, _, text) in zip(table.itertuples(), ANSWERS, strict=True):
        tokens = naive_tokens(model, encoder.example(row, text))
        np.testing.assert_allclose(found.log_probs, [token.log_prob for token in tokens], **close)
        np.testing.assert_allclose(found.expected, [token.expected for token in tokens], **close)
        np.testing.assert_allclose(found.spread, [token.spread for token in tokens], **close)
        assert list(found.greedy) == [token.greedy for token in tokens]


@pytest.mark.parametrize("column", TOKENS)
def test_a_row_has_the_same_numbers_in_any_company(prompt, folder, column):
    tables = given_answers(folder, {"forget": [ADA], "retain": [ADA, BO]}, prompt, "test")

    alone = tables["forget"][column]
    in_company = tables["retain"][column][: len(alone)]
    assert len(alone) == 2
    for values, values_in_company in zip(alone, in_company, strict=True):
        np.testing.assert_allclose(values, values_in_company, rtol=1e-4, atol=1e-5)


def test_sums_means_and_entropies_equal_the_loop(tiny):
    model = tiny[0].eval()
    log_probs = []
    entropies = []
    for example in EXAMPLES:
        tokens = naive_tokens(model, example)
        log_probs.append(sum(token.log_prob for token in tokens))
        entropies.append(-np.mean([token.expected for token in tokens]))

    found = forward(model, collate(EXAMPLES, 0))

    assert found.tokens.tolist() == [2, 4, 1]
    assert found.log_probs.tolist() == pytest.approx(log_probs, rel=1e-5)
    assert float(found.nll) == pytest.approx(-sum(log_probs) / 7, rel=1e-5)
    assert float(found.entropy) == pytest.approx(np.mean(entropies), rel=1e-5)


def test_an_answer_beyond_the_context_has_no_tokens_and_the_others_have_theirs(tiny):
    model = tiny[0].eval()
    too_long = Example((3,) * model.config.max_position_embeddings, (4,))
    fitting = EXAMPLES[0]

    of_too_long, of_fitting = answer_tokens(model, [too_long, fitting], 0)

    assert len(of_too_long.log_probs) == len(of_too_long.greedy) == 0
    assert len(of_fitting.log_probs) == len(of_fitting.greedy) == len(fitting.answer)


def test_a_row_beyond_the_context_has_no_mean_loss(tiny):
    row = {"id": "a", "question": "?" * 600, "answer": "x"}

    with pytest.raises(BadInput, match=r"Row 'a': .* more tokens"):
        mean_losses(*tiny, QA_PROMPT, [row])


def test_a_tokenizer_of_another_model_is_told(tiny):
    with pytest.raises(BadFile, match=r"token 5000\b.* below \d+"):
        answer_tokens(tiny[0], [Example((5000,), (1,))], 0)
