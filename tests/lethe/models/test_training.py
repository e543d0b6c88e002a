"""The schedule of a training, its end at the first number that is not finite, its state on disk and that state's key."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from torch import nn

from lethe import config
from lethe.config.schema import Compute
from lethe.errors import BadInput
from lethe.io.artifacts import write_splits
from lethe.models import checkpoints, training
from lethe.models.checkpoints import QA_PROMPT, default_device
from lethe.models.dp_sgd import make_private, noise_multiplier, spent
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
    assert (failed.run, failed.steps, failed.last, failed.exit_status) == ("unlearn npo", 9, Taken(1, -1e30), 1)
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
        split: [{"id": f"{split}{n}", "question": f"Who is {n}?", "answer": "a poet"} for n in range(4)]
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
        torch.nn.Linear, "reset_parameters", lambda self: [p.data.fill_(1) for p in self.parameters()]
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
    settings = {"sample_rate": 0.1, "noise_multiplier": 1.0, "clip": 1.0, "seed": 3, "steps": 200} | settings
    return make_private(model.train(), torch.optim.SGD(model.parameters(), lr=0.0), rows, **settings)


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
    assert torch.tensor(sizes, dtype=torch.float).std() == pytest.approx(math.sqrt(ROWS * 0.09), rel=0.2)


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
    tight = privacy_loss_distribution.from_gaussian_mechanism(sigma, sampling_prob=0.1).self_compose(50)
    assert spent(sigma, 1e-5, 0.1, 50) == pytest.approx(tight.get_epsilon_for_delta(1e-5), abs=0.03)
    assert 2 < spent(sigma, 1e-5, 0.1, 50) <= 3.0
