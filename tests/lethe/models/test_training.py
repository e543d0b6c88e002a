"""Training that diverges, private training, and the encoding of rows: prompts, answers, likelihoods."""

import math
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
    assert (failed.run, failed.steps, failed.last, failed.exit_status) == (
        "unlearn npo",
        9,
        Taken(1, -1e30),
        1,
    )
    assert failed.failed.step == 2
    assert failed.failed.loss == pytest.approx(value, nan_ok=True)


class Weight(torch.nn.Module):
    """One weight, whose loss has an infinite gradient at the steps in ``steep`` and is itself finite at every step."""

    def __init__(self, steep=()):
        super().__init__()
        self.weight, self.steep = torch.nn.Parameter(torch.ones(2)), steep
        self.device = torch.device("cpu")

    def loss(self, step, _):
        total = self.weight.square().sum()
        if step in self.steep:
            total = total + (self.weight.sum() - self.weight.sum().detach()).sqrt()
        yield {"loss": total}


def run(model, steps=8, kept=None):
    return optimise(model, [(0, None)] * steps, model.loss, RECIPE, 0.01, "t", resumable=kept)


def test_weights_that_are_not_finite_fail_at_the_next_step(tmp_path):
    with pytest.raises(TrainingFailed) as caught:
        run(Weight(steep=(4,)))
    assert (caught.value.failed.step, caught.value.last.step) == (5, 4)
    assert math.isfinite(caught.value.last.loss)


def test_no_state_is_saved_from_which_a_run_would_go_on_with_weights_that_are_not_finite(tmp_path):
    kept = Resumable(tmp_path, 2)
    with pytest.raises(TrainingFailed) as caught:
        run(Weight(steep=(3,)), kept=kept)
    assert caught.value.failed.step == 3
    saved = kept.load(torch.device("cpu"))
    assert saved.step == 1
    assert torch.isfinite(saved.weights["weight"]).all()
    mended, whole = Weight(), Weight()
    assert run(mended, kept=kept) == run(whole)
    assert torch.equal(mended.weight, whole.weight)


@pytest.fixture
def root(tmp_path, tiny):
    splits = {
        split: [
            {"id": f"{split}{n}", "question": f"Who is {n}?", "answer": "a poet"} for n in range(4)
        ]
        for split in ("forget", "retain")
    }
    write_splits(splits, "authors", tmp_path / "dataset")
    checkpoints.save(tmp_path / "models/base", *tiny)
    return tmp_path


@pytest.mark.parametrize("stage", ["train", "unlearn"])
def test_a_stage_that_fails_writes_no_model(root, stage):
    settings, before = config.load(ROOT / "params.yaml"), sorted(root.rglob("*"))
    common = {"start_from": str(root / "models/base"), "prompt": str(QA_PROMPT)}
    with pytest.raises(TrainingFailed) as caught:
        if stage == "train":
            recipe = settings.train.recipe.model_copy(update={**common, "lr": 1e30, "batch": 2})
            train("mine", recipe, "all", root)
        else:
            recipe = settings.unlearn.recipe.model_copy(
                update={"start_from": common["start_from"], "forget_batch": 1}
            )
            method = settings.unlearn.methods["npo"].model_copy(update={"lr": 1e30})
            forget("mine", recipe, method, common["prompt"], root)
    failed = caught.value
    assert failed.run == f"{stage} mine"
    assert not math.isfinite(failed.failed.loss)
    assert failed.last.step == failed.failed.step - 1
    assert math.isfinite(failed.last.loss)
    assert sorted(root.rglob("*")) == before


def test_each_epoch_sees_every_row_once():
    seen = list(batches(10, 4, 3, np.random.default_rng(0)))
    assert [epoch for epoch, _ in seen] == [0] * 3 + [1] * 3 + [2] * 3
    for epoch in range(3):
        rows = np.concatenate([picks for e, picks in seen if e == epoch])
        assert sorted(rows) == list(range(10))
    again = list(batches(10, 4, 3, np.random.default_rng(0)))
    assert all((a == b).all() for (_, a), (_, b) in zip(seen, again, strict=True))


class OfAModel(Counting):
    def __init__(self, folder: Path):
        super().__init__()
        object.__setattr__(self.params, "model", str(folder))


def keys(folder: Path) -> dict[str, str]:
    judge = OfAModel(folder)
    kept = training.resumable(
        folder, torch.nn.Linear(1, 1), Compute(checkpoint_every=1), ("lethe.models.training",)
    )
    return {"verdicts": VerdictStore(judge, folder).key, "training": kept.folder.name}


def test_the_key_of_a_kept_result_contains_the_device(tmp_path, monkeypatch):
    torch.manual_seed(0)
    (tmp_path / "weights").write_text("x")
    monkeypatch.setattr(
        torch.nn.Linear,
        "reset_parameters",
        lambda self: [p.data.fill_(1) for p in self.parameters()],
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == "cpu"
    here = keys(tmp_path)
    assert keys(tmp_path) == here
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device() == "cuda"
    there = keys(tmp_path)
    assert {name for name in here if here[name] == there[name]} == set()


ROWS, WIDTH = 200, 50


def private(model=None, **settings):
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, 1, bias=False) if model is None else model
    rows = (torch.ones(ROWS, WIDTH), torch.arange(ROWS))
    settings = {
        "sample_rate": 0.1,
        "noise_multiplier": 1.0,
        "clip": 1.0,
        "seed": 3,
        "steps": 200,
    } | settings
    return make_private(
        model.train(), torch.optim.SGD(model.parameters(), lr=0.0), rows, **settings
    )


def released(model, optimiser, loader, scale=100.0):
    """The noisy sum of gradients of each step (loss: ``scale`` times the output)."""
    (weight,), sums = model.parameters(), []
    for rows, _ in loader:
        optimiser.zero_grad(set_to_none=True)
        (scale * model(rows)).mean().backward()
        optimiser.step()
        sums.append(weight.grad.flatten() * optimiser.expected_batch_size)
    return torch.stack(sums)


def test_each_row_comes_with_the_sample_rate_into_each_step():
    _, _, loader = private()
    seen = torch.zeros(ROWS)
    sizes = []
    for _, numbers in loader:
        seen[numbers] += 1
        sizes.append(len(numbers))
    assert len(sizes) == 200
    assert seen.mean() == pytest.approx(20, abs=1)
    assert torch.tensor(sizes, dtype=torch.float).std() == pytest.approx(
        math.sqrt(ROWS * 0.09), rel=0.2
    )


def test_the_noise_is_what_was_asked_for():
    sums = released(*private(noise_multiplier=2.0, clip=0.5), scale=0.0)
    assert sums.std() == pytest.approx(1.0, rel=0.03)
    assert abs(sums.mean()) < 0.05


def test_gradients_of_single_rows_are_clipped():
    model, optimiser, loader = private(noise_multiplier=0.0, clip=0.5)
    sizes = [len(rows) for rows, _ in private()[2]]
    norms = released(model, optimiser, loader).norm(dim=1)
    assert norms.tolist() == pytest.approx([0.5 * size for size in sizes], rel=1e-3)


def test_a_layer_that_mixes_rows_is_refused():
    with pytest.raises(BadInput, match="BatchNorm"):
        private(nn.Sequential(nn.Linear(WIDTH, 4), nn.BatchNorm1d(4)))


def test_the_accountants_agree():
    sigma = noise_multiplier(3.0, 1e-5, 0.1, 50)
    tight = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=0.1
    ).self_compose(50)
    assert spent(sigma, 1e-5, 0.1, 50) == pytest.approx(tight.get_epsilon_for_delta(1e-5), abs=0.03)
    assert 2 < spent(sigma, 1e-5, 0.1, 50) <= 3.0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(question=st.text(), answer=st.text(min_size=1).filter(str.strip))
def test_prompt_and_answer_spell_the_whole_text(tiny, prompt, question, answer):
    encoder = Encoder(tiny[1], prompt)
    example = encoder.example({"question": question, "answer": answer})
    assert example.prompt == encoder.prompt({"question": question})
    assert example.answer[-1] == tiny[1].eos_token_id
    assert (
        tiny[1].decode(example.prompt + example.answer[:-1])
        == f"Question: {question}\nAnswer: {answer}"
    )


def test_the_end_stands_there_once_and_braces_mean_nothing(tiny, prompt):
    encoder = Encoder(tiny[1], prompt)
    example = encoder.example({"question": "{answer} {0}", "answer": "x"})
    assert list(example.answer).count(tiny[1].eos_token_id) == 1
    assert "{answer} {0}" in tiny[1].decode(example.prompt)


def test_collate_masks_prompt_and_padding():
    batch = collate([Example((1, 2), (3,)), Example((4,), (5, 6, 7))], padding=0)
    assert batch.ids.tolist() == [[1, 2, 3, 0], [4, 5, 6, 7]]
    assert batch.mask.tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch.labels.tolist() == [[IGNORED, IGNORED, 3, IGNORED], [IGNORED, 5, 6, 7]]


def test_a_bad_template_is_named(tmp_path, tiny):
    with pytest.raises(BadFile, match="no such prompt file"):
        read_template(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("hello")
    with pytest.raises(BadFile, match=r"no \{question\}"):
        read_template(tmp_path / "empty.txt")
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
TWO_ROWS = [
    {
        "id": "a",
        "question": "Who is Ada?",
        "answer": "a painter",
        "paraphrased_answer": PARAPHRASED,
    },
    {
        "id": "b",
        "question": "Where is Bo?",
        "answer": "at sea",
        "perturbed_answer": ["at a sea", "is Ada"],
    },
]
ANSWERS = [
    ("a", "answer", 0, "a painter"),
    ("a", "paraphrased", 0, PARAPHRASED),
    ("b", "answer", 0, "at sea"),
    ("b", "perturbed", 0, "at a sea"),
    ("b", "perturbed", 1, "is Ada"),
]


@pytest.fixture
def folder(tiny, tmp_path):
    checkpoints.save(tmp_path / "model", *tiny)
    return tmp_path / "model"


EXAMPLES = [Example((5, 6, 7), (8, 9)), Example((5,), (10, 11, 12, 13)), Example((6, 7), (8,))]


def by_hand(model, example):
    """[(ln p(token), entropy, mean and sd of ln p, is greedy)] for each answer token, one forward pass each."""
    rows = []
    for place, token in enumerate(example.answer):
        ids = torch.tensor([example.prompt + example.answer[:place]])
        with torch.no_grad():
            p = model(input_ids=ids).logits[0, -1].double().softmax(-1)
        log_p = p.log()
        mean = float((p * log_p).sum())
        sd = math.sqrt(max(0.0, float((p * log_p**2).sum()) - mean**2))
        rows.append((float(log_p[token]), -mean, mean, sd, int(log_p.argmax()) == token))
    return rows


def test_every_answer_token_by_token(tiny, prompt, folder):
    table = given_answers(folder, {"forget": TWO_ROWS}, prompt, "test")["forget"]
    keys = list(zip(table["prompt_id"], table["kind"], table["number"], strict=True))
    assert keys == [key[:3] for key in ANSWERS]
    rows, encoder = {row["id"]: row for row in TWO_ROWS}, Encoder(tiny[1], prompt)
    for found, (prompt_id, _, _, text) in zip(table.itertuples(), ANSWERS, strict=True):
        expected = by_hand(tiny[0], encoder.example(rows[prompt_id], text))
        for name, place in (("log_probs", 0), ("expected", 2), ("spread", 3), ("greedy", 4)):
            own = [row[place] for row in expected]
            np.testing.assert_allclose(getattr(found, name), own, rtol=2e-4, atol=2e-4)


def test_a_table_a_split_and_the_same_numbers_in_any_company(prompt, folder):
    together = given_answers(folder, {"forget": TWO_ROWS[:1], "retain": TWO_ROWS}, prompt, "test")
    alone = together["forget"]
    for name in TOKENS:
        for one, other in zip(alone[name], together["retain"][name], strict=False):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_sums_means_and_entropies_equal_the_loop(tiny):
    model = tiny[0].eval()
    out = forward(model, collate(EXAMPLES, 0))
    expected = [by_hand(model, example) for example in EXAMPLES]
    assert out.tokens.tolist() == [2, 4, 1]
    sums = [sum(row[0] for row in rows) for rows in expected]
    assert out.log_probs.tolist() == pytest.approx(sums, rel=1e-5)
    assert float(out.nll) == pytest.approx(-sum(sums) / 7, rel=1e-5)
    entropies = [sum(row[1] for row in rows) / len(rows) for rows in expected]
    assert float(out.entropy) == pytest.approx(sum(entropies) / 3, rel=1e-5)


def test_an_answer_beyond_the_context_has_no_tokens_and_the_others_have_theirs(tiny):
    model = tiny[0].eval()
    context = model.config.max_position_embeddings
    long = Example((3,) * context, (4,))
    for tokens, example in zip(
        answer_tokens(model, [long, EXAMPLES[0]], 0), [long, EXAMPLES[0]], strict=True
    ):
        assert (
            len(tokens.log_probs)
            == len(tokens.greedy)
            == (0 if example is long else len(example.answer))
        )
    with pytest.raises(BadInput, match=r"Row 'a': .* more tokens"):
        mean_losses(*tiny, QA_PROMPT, [{"id": "a", "question": "?" * 600, "answer": "x"}])


def test_a_tokenizer_of_another_model_is_told(tiny):
    with pytest.raises(BadFile, match=r"token 5000\b.* below \d+"):
        answer_tokens(tiny[0], [Example((5000,), (1,))], 0)
