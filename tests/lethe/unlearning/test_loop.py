"""Every method through the loop: its published cases, parts of a step, memory, precision, resumed runs, adapters, records."""

import copy
import json
import math
import os
import signal

import numpy as np
import pytest
import torch

from lethe import config
from lethe.config.schema import Compute
from lethe.models import checkpoints, training
from lethe.models.checkpoints import QA_PROMPT
from lethe.models.encoding import IGNORED, Encoder, collate
from lethe.models.likelihood import forward
from lethe.registry import METHODS
from lethe.unlearning import loop
from lethe.unlearning.loop import Watch, reference_log_probs, second_answers
from lethe.unlearning.protocol import Before
from tests.cases import read_cases
from tests.lethe.unlearning import oracles
from tests.small import ROOT

# The parameters with which each method of the registry is tested, beyond those of every method.
OWN = read_cases(__file__)["OWN"]
ROWS = read_cases(__file__)["ROWS"]
RECIPE = config.load(ROOT / "params.yaml").unlearn.recipe.model_copy(
    update={"forget_batch": 3, "retain_batch": 3}
)


def rows_of(tokenizer, rows=ROWS):
    encoder = Encoder(tokenizer, QA_PROMPT)
    return [encoder.example(row) for row in rows]


def unlearned(tiny, loss="npo", recipe=RECIPE, compute=None, watch=None, model=None, **own):
    """(model, history) of a few steps; ``compute`` are settings other than the default."""
    examples = rows_of(tiny[1])
    model = copy.deepcopy(tiny[0]) if model is None else model
    recipe = recipe.model_copy(update={"compute": Compute.model_validate(compute or {})})
    entry = {
        "loss": loss,
        "lr": 5e-3,
        "epochs": 3,
        "retain_weight": 1.0,
        **OWN.get(loss, {}),
        **own,
    }
    params = METHODS[loss].Params.model_validate(entry)
    second = second_answers(params, ROWS[:4], Before(model, Encoder(tiny[1], QA_PROMPT), 0))
    history = loop.unlearn(
        model,
        examples[:4],
        examples[4:] * 2,
        recipe,
        params,
        0,
        "t",
        second,
        [watch] if watch else [],
    )
    return model, history


def far(one, two):
    return max(
        float((a - b).abs().max().detach())
        for a, b in zip(one.parameters(), two.parameters(), strict=True)
    )


@pytest.mark.parametrize("name", [*oracles.NAMES, "EntropyOptimisation"])
def test_the_published_cases_of_every_method(shared, name):
    """The entropy terms stand on any method."""
    cases = json.loads((shared / "oracles/unlearning-losses.json").read_text())
    mine = [case for case in cases if case["method"] == name]
    assert len(mine) >= 5
    assert [fault for case in mine for fault in oracles.faults(case)] == []


@pytest.fixture(scope="module")
def learned(tiny):
    """The tiny model after it has memorised the rows to be forgotten."""
    model, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    batch = collate(rows_of(tokenizer, ROWS[:4]), 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        forward(model, batch).nll.backward()
        optimizer.step()
    assert float(forward(model, batch).log_probs.detach().exp().min()) > 0.5
    return model, tokenizer


@pytest.mark.parametrize("loss", METHODS)
def test_every_method_makes_the_forget_answers_less_likely(learned, loss):
    after, history = unlearned(learned, loss, epochs=8)
    assert len(history) == 16
    assert all(math.isfinite(row["loss"]) for row in history)
    examples = rows_of(learned[1], ROWS[:4])
    was, now = (
        float(reference_log_probs(model, examples, 2, 0).sum()) for model in (learned[0], after)
    )
    assert now - was < -0.5


def test_the_entropy_terms_have_their_signs_and_their_ramp(tiny):
    assert "entropy_forget" not in unlearned(tiny)[1][-1]
    _, history = unlearned(tiny, epochs=8, entropy={"forget": 5.0, "retain": -0.5, "ramp": 0.5})
    first = history[0]
    assert history[-1]["entropy_forget"] < first["entropy_forget"]
    terms = (
        first["forget_loss"] + first["retain_loss"] - 0.5 * first["entropy_retain"]
    )  # the other has not begun
    assert first["loss"] == pytest.approx(terms, rel=1e-5)


def test_the_frozen_model_is_the_one_before_the_first_step(tiny):
    """At the first step KL is 0 and then no longer, so that the reference does not move with the model."""
    _, history = unlearned(tiny, "kl")
    assert abs(history[0]["retain_loss"]) < 1e-6
    assert history[-1]["retain_loss"] > 1e-4


def test_each_pair_of_question_and_second_answer_has_its_own_likelihood(tiny, monkeypatch):
    """S_ref is cached once for every pair: at the first step model and reference agree on each."""
    seen = []

    class Watching(METHODS["idk_dpo"]):
        def forget_loss(self, rows):
            apart = rows.second.forward.log_probs - rows.second.reference_log_probs
            seen.append(float(apart.abs().max().detach()))
            return super().forget_loss(rows)

    monkeypatch.setitem(METHODS.registered, "watching", Watching)
    unlearned(tiny, "watching", lr=1e-9, beta=0.1)
    assert len(seen) == 6
    assert max(seen) < 1e-3


def test_what_a_method_did_not_ask_for_is_not_there():
    batch = {
        "input_ids": [[1, 2]],
        "attention_mask": [[1, 1]],
        "labels": [[IGNORED, 2]],
        "logits": [[[0.0, 1.0]] * 2],
    }
    rows = oracles.rows_of(batch)
    for name, part in (("reference_log_probs", "reference"), ("second", "second")):
        with pytest.raises(LookupError, match=part):
            getattr(rows, name)


@pytest.mark.parametrize("loss", METHODS)
def test_a_step_in_parts_is_the_step_at_once(tiny, loss):
    """Answers differ in length, so a mean of the parts' means would differ."""
    entropy = {"forget": 0.5, "retain": -0.2}
    whole, once = unlearned(tiny, loss, entropy=entropy)
    parts, again = unlearned(tiny, loss, entropy=entropy, compute={"accumulate": 3})
    for one, two in zip(once, again, strict=True):
        assert two == pytest.approx(one, rel=2e-4, abs=2e-4)
    assert far(whole, tiny[0]) > 1e-3
    assert (
        far(whole, parts) < 5e-3
    )  # AdamW's first steps have the size of the rate, whatever the gradient's
    assert once[0] == pytest.approx(again[0], rel=2e-5, abs=2e-5)


@pytest.mark.parametrize(
    ("loss", "own"), [("kl", {}), ("undial", {"retain_weight": 0.0}), ("rmu", {})]
)
def test_kept_values_stand_in_for_the_frozen_model(tiny, loss, own):
    recipe = RECIPE.model_copy(update={"reference": "cached"})
    frozen, cached = (unlearned(tiny, loss, which, **own)[0] for which in (RECIPE, recipe))
    assert far(frozen, cached) < 1e-4


def test_gradient_checkpointing_changes_memory_and_not_the_result(tiny):
    for loss in ("npo", "rmu"):
        plain, _ = unlearned(tiny, loss)
        saving, _ = unlearned(tiny, loss, compute={"gradient_checkpointing": True})
        assert far(plain, saving) < 1e-5
        assert not saving.is_gradient_checkpointing


def test_bfloat16_passes_train_float32_weights(tiny):
    plain, history = unlearned(tiny)
    half, other = unlearned(tiny, compute={"precision": "bfloat16"})
    assert {one.dtype for one in half.parameters()} == {torch.float32}
    assert 0 < far(plain, half) < 0.05
    assert other[0]["loss"] == pytest.approx(history[0]["loss"], rel=0.02)


@pytest.mark.parametrize("loss", ["npo", "rmu", "pdu", "idk_dpo"])
def test_a_killed_run_resumes_to_the_bytes_of_one_that_was_not_killed(
    tiny, tmp_path, monkeypatch, loss
):
    """SIGKILL between two saved states; generators, optimiser, dual variable and observations go on."""
    scratch = tmp_path / "scratch"
    monkeypatch.setattr(loop, "SCRATCH", scratch)
    entry = {
        "compute": {"checkpoint_every": 2},
        "entropy": {"forget": 0.5, "retain": -0.2, "ramp": 0.5},
    }
    watches = [Watch({"forget": rows_of(tiny[1], ROWS[:2])}, 0) for _ in range(3)]
    whole, history = unlearned(tiny, loss, watch=watches[0], **entry)
    assert not list(scratch.iterdir())
    child = os.fork()
    if not child:
        taken = loop._Loop.loss

        def killing(self, number, picked):
            if number == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            return taken(self, number, picked)

        monkeypatch.setattr(loop._Loop, "loss", killing)
        unlearned(tiny, loss, watch=watches[1], **entry)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(list(scratch.iterdir())) == 1
    seen = []
    original = training._backward
    monkeypatch.setattr(training, "_backward", lambda *given: seen.append(1) or original(*given))
    resumed, again = unlearned(tiny, loss, watch=watches[2], **entry)
    assert len(seen) == len(history) - 4
    assert again == history
    assert watches[2].records == watches[0].records
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True)
    )
    assert not list(scratch.iterdir())


def test_another_setting_does_not_resume(tiny, tmp_path):
    compute = Compute(checkpoint_every=2)
    places = {
        training.resumable(
            tmp_path, model, compute, ("lethe.unlearning.loop",), settings, rows=rows
        ).folder
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


def test_an_adapter_is_trained_kept_and_merged(tiny, base, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MERGED", tmp_path / "merged")
    lora = Compute.model_validate({"lora": {"rank": 2}}).lora
    model, tokenizer = checkpoints.load(base)
    before = {name: one.clone() for name, one in model.named_parameters()}
    adapted = checkpoints.adapted(model, lora, 0)
    unlearned(tiny, model=adapted)
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
    model = checkpoints.adapted(
        checkpoints.load(base)[0], Compute.model_validate({"lora": {}}).lora, 0
    )
    checkpoints.save(tmp_path / "adapter", model, tiny[1])
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(checkpoints.BadFile, match="neither a folder here"):
        checkpoints.check(tmp_path / "adapter")
    (tmp_path / "adapter" / checkpoints.WEIGHTS).unlink()
    with pytest.raises(checkpoints.BadFile, match="safetensors"):
        checkpoints.check(tmp_path / "adapter")


def test_each_epoch_is_observed(tiny):
    watch = Watch({"forget": rows_of(tiny[1], ROWS[:2])}, 0)
    watched, _ = unlearned(tiny, "grad_ascent", watch=watch)
    assert far(watched, unlearned(tiny, "grad_ascent")[0]) == 0
    assert [record["epoch"] for record in watch.records] == [-1, 0, 1, 2]
    confidences, entropies = [], []
    for example in watch.splits["forget"]:
        with torch.no_grad():
            logits = watched(torch.tensor([[*example.prompt, *example.answer]])).logits
        p = logits[0, len(example.prompt) - 1 : -1].double().softmax(-1)
        confidences.append(float(p.amax(-1).mean()))
        entropies.append(float(-(p * p.log()).sum(-1).mean()))
    assert watch.records[-1]["forget_confidence"] == pytest.approx(np.mean(confidences), rel=1e-4)
    assert watch.records[-1]["forget_entropy"] == pytest.approx(np.mean(entropies), rel=1e-4)
    assert watch.records[0]["forget_probability"] > watch.records[-1]["forget_probability"]
