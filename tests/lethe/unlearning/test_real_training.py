"""What real models need from the loop: parts of a step, memory, precision, resumed runs, adapters, records."""

import copy
import os
import signal

import numpy as np
import pytest
import torch

from lethe import config
from lethe.config.schema import Compute
from lethe.models import checkpoints, training
from lethe.models.encoding import Encoder
from lethe.registry import METHODS
from lethe.unlearning import loop
from lethe.unlearning.loop import Watch
from lethe.unlearning.protocol import Before
from lethe.unlearning.second_answers import second_answers
from tests.lethe.unlearning.test_unlearn import OWN
from tests.small import ROOT

ROWS = [
    {"question": "Who is Ada?", "answer": "a painter of the sea and of ships"},
    {"question": "Who is Cy?", "answer": "a poet"},
    {"question": "Where is Bo?", "answer": "at sea with Ada"},
    {"question": "Who is Di, then?", "answer": "nobody"},
    {"question": "Who?", "answer": "Ed"},
]
RECIPE = config.load(ROOT / "params.yaml").unlearn.recipe.model_copy(update={"forget_batch": 3, "retain_batch": 3})


def unlearned(tiny, prompt, loss="npo", recipe=RECIPE, compute=None, watch=None, model=None, **own):
    """(model, history) of a few steps; ``compute`` are settings other than the default."""
    encoder = Encoder(tiny[1], prompt)
    examples = [encoder.example(row) for row in ROWS]
    model = copy.deepcopy(tiny[0]) if model is None else model
    recipe = recipe.model_copy(update={"compute": Compute.model_validate(compute or {})})
    entry = {"loss": loss, "lr": 5e-3, "epochs": 3, "retain_weight": 1.0, **OWN[loss], **own}
    params = METHODS[loss].Params.model_validate(entry)
    second = second_answers(params, ROWS[:4], Before(model, encoder, 0))
    history = loop.unlearn(model, examples[:4], examples[4:] * 2, recipe, params, 0, "t", second, watch)
    return model, history


def far(one, two):
    return max(
        float((a - b).abs().max().detach()) for a, b in zip(one.parameters(), two.parameters(), strict=True)
    )


@pytest.mark.parametrize("loss", METHODS)
def test_a_step_in_parts_is_the_step_at_once(tiny, prompt, loss):
    """Answers differ in length, so a mean of the parts' means would differ."""
    entropy = {"forget": 0.5, "retain": -0.2}
    whole, once = unlearned(tiny, prompt, loss, entropy=entropy)
    parts, again = unlearned(tiny, prompt, loss, entropy=entropy, compute={"accumulate": 3})
    for one, two in zip(once, again, strict=True):
        assert two == pytest.approx(one, rel=2e-4, abs=2e-4)
    assert far(whole, tiny[0]) > 1e-3
    assert far(whole, parts) < 5e-3  # AdamW's first steps have the size of the rate, whatever the gradient's
    assert once[0] == pytest.approx(again[0], rel=2e-5, abs=2e-5)


@pytest.mark.parametrize(("loss", "own"), [("kl", {}), ("undial", {"retain_weight": 0.0}), ("rmu", {})])
def test_kept_values_stand_in_for_the_frozen_model(tiny, prompt, loss, own):
    recipe = RECIPE.model_copy(update={"reference": "cached"})
    frozen, cached = (unlearned(tiny, prompt, loss, which, **own)[0] for which in (RECIPE, recipe))
    assert far(frozen, cached) < 1e-4


def test_gradient_checkpointing_changes_memory_and_not_the_result(tiny, prompt):
    for loss in ("npo", "rmu"):
        plain, _ = unlearned(tiny, prompt, loss)
        saving, _ = unlearned(tiny, prompt, loss, compute={"gradient_checkpointing": True})
        assert far(plain, saving) < 1e-5
        assert not saving.is_gradient_checkpointing


def test_bfloat16_passes_train_float32_weights(tiny, prompt):
    plain, history = unlearned(tiny, prompt)
    half, other = unlearned(tiny, prompt, compute={"precision": "bfloat16"})
    assert {one.dtype for one in half.parameters()} == {torch.float32}
    assert 0 < far(plain, half) < 0.05
    assert other[0]["loss"] == pytest.approx(history[0]["loss"], rel=0.02)


@pytest.mark.parametrize("loss", ["npo", "rmu", "pdu", "idk_dpo"])
def test_a_killed_run_resumes_to_the_bytes_of_one_that_was_not_killed(tiny, prompt, tmp_path, monkeypatch, loss):
    """SIGKILL between two saved states; generators, optimiser, dual variable and observations go on."""
    scratch = tmp_path / "scratch"
    monkeypatch.setattr(loop, "SCRATCH", scratch)
    entry = {"compute": {"checkpoint_every": 2}, "entropy": {"forget": 0.5, "retain": -0.2, "ramp": 0.5}}
    encoder = Encoder(tiny[1], prompt)
    splits = {"forget": [encoder.example(row) for row in ROWS[:2]]}
    watches = [Watch(splits, 0) for _ in range(3)]
    whole, history = unlearned(tiny, prompt, loss, watch=watches[0], **entry)
    assert not list(scratch.iterdir())
    child = os.fork()
    if not child:
        taken = loop._Loop.loss

        def killing(self, number, picked):
            if number == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return taken(self, number, picked)

        monkeypatch.setattr(loop._Loop, "loss", killing)
        unlearned(tiny, prompt, loss, watch=watches[1], **entry)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(list(scratch.iterdir())) == 1
    seen = []
    original = training._backward
    monkeypatch.setattr(training, "_backward", lambda *given: seen.append(1) or original(*given))
    resumed, again = unlearned(tiny, prompt, loss, watch=watches[2], **entry)
    assert len(seen) == len(history) - 4
    assert again == history
    assert watches[2].records == watches[0].records
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    assert not list(scratch.iterdir())


def test_another_setting_does_not_resume(tiny, prompt, tmp_path):
    compute = Compute(checkpoint_every=2)
    places = {
        training.resumable(tmp_path, model, compute, ("lethe.unlearning.loop",), settings, rows=rows).folder
        for model in (tiny[0], perturbed(tiny[0]))
        for settings in ({"lr": 1}, {"lr": 2})
        for rows in ("a", "b")
    }
    assert len(places) == 8


def perturbed(model):
    model = copy.deepcopy(model)
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1e-3
    return model


@pytest.fixture
def base(tiny, tmp_path):
    checkpoints.save(tmp_path / "base", *tiny)
    return tmp_path / "base"


def test_an_adapter_is_trained_kept_and_merged(tiny, prompt, base, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MERGED", tmp_path / "merged")
    lora = Compute.model_validate({"lora": {"rank": 2}}).lora
    model, tokenizer = checkpoints.load(base)
    before = {name: one.clone() for name, one in model.named_parameters()}
    adapted = checkpoints.adapted(model, lora, 0)
    unlearned(tiny, prompt, model=adapted)
    kept = {
        name.replace("base_model.model.", "").replace(".base_layer", ""): one
        for name, one in adapted.named_parameters()
    }
    assert all(torch.equal(kept[name], one) for name, one in before.items())
    folder = tmp_path / "adapter"
    checkpoints.save(folder, adapted, tokenizer)
    assert not (folder / "model.safetensors").exists()
    assert checkpoints.check(folder) == folder
    merged, _ = checkpoints.load(folder)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.allclose(merged(ids).logits, adapted.eval()(ids).logits, atol=1e-5)
    assert not torch.allclose(merged(ids).logits, tiny[0](ids).logits, atol=1e-3)
    whole = checkpoints.whole(folder)
    stamp = (whole / "model.safetensors").stat().st_mtime_ns
    assert checkpoints.whole(folder) == whole
    assert (whole / "model.safetensors").stat().st_mtime_ns == stamp
    checkpoints.save(base, perturbed(tiny[0]), tiny[1])
    with pytest.raises(checkpoints.BadFile, match="other weights"):
        checkpoints.load(folder)
    (folder / checkpoints.PROVENANCE).unlink()  # as of an adapter from elsewhere
    assert checkpoints.whole(folder) != whole


def test_an_adapter_whose_model_is_not_here_is_told(tiny, base, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = checkpoints.adapted(checkpoints.load(base)[0], Compute.model_validate({"lora": {}}).lora, 0)
    checkpoints.save(tmp_path / "adapter", model, tiny[1])
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(checkpoints.BadFile, match="neither a folder here"):
        checkpoints.check(tmp_path / "adapter")
    (tmp_path / "adapter" / checkpoints.WEIGHTS).unlink()
    with pytest.raises(checkpoints.BadFile, match="safetensors"):
        checkpoints.check(tmp_path / "adapter")


def test_each_epoch_is_observed(tiny, prompt):
    encoder = Encoder(tiny[1], prompt)
    watch = Watch({"forget": [encoder.example(row) for row in ROWS[:2]]}, 0)
    watched, _ = unlearned(tiny, prompt, "grad_ascent", watch=watch)
    plain, _ = unlearned(tiny, prompt, "grad_ascent")
    assert far(watched, plain) == 0
    assert [record["epoch"] for record in watch.records] == [-1, 0, 1, 2]
    for row, record in zip([watch.records[-1]], watch.records[-1:], strict=True):
        confidences, entropies = [], []
        for example in watch.splits["forget"]:
            ids = torch.tensor([[*example.prompt, *example.answer]])
            with torch.no_grad():
                p = watched(ids).logits[0, len(example.prompt) - 1 : -1].double().softmax(-1)
            confidences.append(float(p.amax(-1).mean()))
            entropies.append(float(-(p * p.log()).sum(-1).mean()))
        assert row["forget_confidence"] == pytest.approx(np.mean(confidences), rel=1e-4)
        assert record["forget_entropy"] == pytest.approx(np.mean(entropies), rel=1e-4)
    assert watch.records[0]["forget_probability"] > watch.records[-1]["forget_probability"]
