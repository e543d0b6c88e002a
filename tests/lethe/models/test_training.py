"""The schedule of a training, its end at the first number that is not finite, its state on disk and that state's key."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from lethe import config
from lethe.config.schema import Compute
from lethe.io.artifacts import write_splits
from lethe.models import checkpoints, training
from lethe.models.checkpoints import default_device
from lethe.models.in_memory import QA_PROMPT
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
    """A folder of data with two splits and a model."""
    splits = {
        split: [{"id": f"{split}{n}", "question": f"Who is {n}?", "answer": "a poet"} for n in range(4)]
        for split in ("forget", "retain")
    }
    write_splits(splits, "authors", tmp_path / "dataset")
    checkpoints.save(tmp_path / "models/base", *tiny)
    return tmp_path


def test_a_stage_that_fails_writes_no_model(root):
    settings, prompt = config.load(ROOT / "params.yaml"), str(QA_PROMPT)
    start, before = str(root / "models/base"), sorted(root.rglob("*"))
    steps = {
        "train": lambda: train(
            "mine",
            settings.train.recipe.model_copy(
                update={"start_from": start, "lr": 1e30, "batch": 2, "prompt": prompt}
            ),
            "all",
            root,
        ),
        "unlearn": lambda: forget(
            "mine",
            settings.unlearn.recipe.model_copy(update={"start_from": start, "forget_batch": 1}),
            settings.unlearn.methods["npo"].model_copy(update={"lr": 1e30}),
            prompt,
            root,
        ),
    }
    for stage, step in steps.items():
        with pytest.raises(TrainingFailed) as caught:
            step()
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
    """A judge whose parameters name a model."""

    def __init__(self, folder: Path):
        super().__init__()
        object.__setattr__(self.params, "model", str(folder))


def keys(folder: Path) -> dict[str, str]:
    judge = OfAModel(folder)
    kept = training.resumable(
        folder, torch.nn.Linear(1, 1), Compute(checkpoint_every=1), ("lethe.models.training",)
    )
    return {
        "verdicts": VerdictStore(judge, folder).key,
        "training": kept.folder.name,
    }


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
