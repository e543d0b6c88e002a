"""A training run ends at the first loss or weight that is not finite: nothing is written, no state resumes from it."""

from __future__ import annotations

import math

import pytest
import torch

from lethe import config
from lethe.io.artifacts import write_splits
from lethe.models import checkpoints
from lethe.models.in_memory import QA_PROMPT
from lethe.models.training import Losses, Resumable, Taken, TrainingFailed, optimise
from lethe.steps import train as train_step
from lethe.steps import unlearn as unlearn_step
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


def test_without_a_step_before_there_is_no_last_loss():
    with pytest.raises(TrainingFailed) as caught:
        Losses("t", 9, 0.1).add(0, math.nan)
    assert (caught.value.failed.step, caught.value.last) == (0, None)


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


def test_after_the_last_step_the_weights_must_be_finite():
    with pytest.raises(TrainingFailed) as caught:
        run(Weight(steep=(7,)))
    assert caught.value.failed == caught.value.last
    assert caught.value.failed.step == 7


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


def test_a_resumed_run_knows_the_last_loss_of_the_run_before(tmp_path):
    kept = Resumable(tmp_path, 2)
    history = run(Weight(), steps=2, kept=kept)
    model = Weight()
    model.loss = lambda step, _: iter([{"loss": model.weight.sum() * math.nan}])
    with pytest.raises(TrainingFailed) as caught:
        run(model, kept=kept)
    assert (caught.value.failed.step, caught.value.last) == (2, Taken(1, history[1]["loss"]))


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
        "train": lambda: train_step.run(
            "mine",
            settings.train.recipe.model_copy(
                update={"start_from": start, "lr": 1e30, "batch": 2, "prompt": prompt}
            ),
            "all",
            root,
        ),
        "unlearn": lambda: unlearn_step.run(
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
