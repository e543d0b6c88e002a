"""Every method through the loop: its published cases, parts of a step, memory, precision, resumed runs, adapters, records."""

import copy
import itertools
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
PARAMS_OF_METHOD = read_cases(__file__)["PARAMS_OF_METHOD"]
ROWS = read_cases(__file__)["ROWS"]
RECIPE = config.load(ROOT / "params.yaml").unlearn.recipe.model_copy(
    update={"forget_batch": 3, "retain_batch": 3}
)


def rows_of(tokenizer, rows=ROWS):
    encoder = Encoder(tokenizer, QA_PROMPT)
    return [encoder.example(row) for row in rows]


def unlearned(tiny, loss="npo", recipe=RECIPE, compute=None, watch=None, model=None, **params):
    """(model, history) of a few steps; ``compute`` are settings other than the default."""
    start, tokenizer = tiny
    if model is None:
        model = copy.deepcopy(start)
    examples = rows_of(tokenizer)
    recipe = recipe.model_copy(update={"compute": Compute.model_validate(compute or {})})
    entry = {"loss": loss, "lr": 5e-3, "epochs": 3, "retain_weight": 1.0}
    entry |= PARAMS_OF_METHOD.get(loss, {})
    entry |= params
    validated = METHODS[loss].Params.model_validate(entry)
    second = second_answers(validated, ROWS[:4], Before(model, Encoder(tokenizer, QA_PROMPT), 0))
    watches = [] if watch is None else [watch]
    history = loop.unlearn(
        model, examples[:4], examples[4:] * 2, recipe, validated, 0, "t", second, watches
    )
    return model, history


def far(model, other):
    """The largest difference of a weight."""
    gaps = []
    for weights, others in zip(model.parameters(), other.parameters(), strict=True):
        gaps.append(float((weights - others).abs().max().detach()))
    return max(gaps)


def equal_weights(model, other):
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return all(torch.equal(weights, others) for weights, others in pairs)


@pytest.mark.parametrize("name", [*oracles.NAMES, "EntropyOptimisation"])
def test_the_published_cases_of_every_method(shared, name):
    """The entropy terms stand on any method."""
    cases = json.loads((shared / "oracles/unlearning-losses.json").read_text())
    of_method = [case for case in cases if case["method"] == name]
    assert len(of_method) >= 5

    for case in of_method:
        assert list(oracles.faults(case)) == []


@pytest.fixture(scope="module")
def learned(tiny):
    """The tiny model after it has memorised the rows to be forgotten."""
    model = copy.deepcopy(tiny[0])
    tokenizer = tiny[1]
    batch = collate(rows_of(tokenizer, ROWS[:4]), 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        forward(model, batch).nll.backward()
        optimizer.step()
    assert float(forward(model, batch).log_probs.detach().exp().min()) > 0.5
    return model, tokenizer


@pytest.mark.slow
@pytest.mark.parametrize("loss", METHODS)
def test_every_method_makes_the_forget_answers_less_likely(learned, loss):
    before, tokenizer = learned
    examples = rows_of(tokenizer, ROWS[:4])

    after, history = unlearned(learned, loss, epochs=8)

    assert len(history) == 16
    assert all(math.isfinite(row["loss"]) for row in history)
    log_prob_before = float(reference_log_probs(before, examples, 2, 0).sum())
    log_prob_after = float(reference_log_probs(after, examples, 2, 0).sum())
    assert log_prob_after - log_prob_before < -0.5


def test_without_entropy_terms_no_entropy_is_recorded(tiny):
    _, history = unlearned(tiny)

    assert "entropy_forget" not in history[-1]


def test_the_entropy_terms_have_their_signs_and_their_ramp(tiny):
    _, history = unlearned(tiny, epochs=8, entropy={"forget": 5.0, "retain": -0.5, "ramp": 0.5})

    first = history[0]
    retain = first["retain_loss"] - 0.5 * first["entropy_retain"]
    # The entropy of the forget rows has not begun.
    assert first["loss"] == pytest.approx(first["forget_loss"] + retain, rel=1e-5)
    assert history[-1]["entropy_forget"] < first["entropy_forget"]


def test_the_frozen_model_is_the_one_before_the_first_step(tiny):
    """At the first step KL is 0 and then no longer, so that the reference does not move with the model."""
    _, history = unlearned(tiny, "kl")

    assert abs(history[0]["retain_loss"]) < 1e-6
    assert history[-1]["retain_loss"] > 1e-4


def test_each_pair_of_question_and_second_answer_has_its_own_likelihood(tiny, monkeypatch):
    """S_ref is cached once for every pair: at the first step model and reference agree on each."""
    gaps = []

    class Watching(METHODS["idk_dpo"]):
        def forget_loss(self, rows):
            gap = rows.second.forward.log_probs - rows.second.reference_log_probs
            gaps.append(float(gap.abs().max().detach()))
            return super().forget_loss(rows)

    monkeypatch.setitem(METHODS.registered, "watching", Watching)

    unlearned(tiny, "watching", lr=1e-9, beta=0.1)

    assert len(gaps) == 6
    assert max(gaps) < 1e-3


@pytest.mark.parametrize(
    ("name", "part"), [("reference_log_probs", "reference"), ("second", "second")]
)
def test_what_a_method_did_not_ask_for_is_not_there(name, part):
    batch = {
        "input_ids": [[1, 2]],
        "attention_mask": [[1, 1]],
        "labels": [[IGNORED, 2]],
        "logits": [[[0.0, 1.0]] * 2],
    }

    with pytest.raises(LookupError, match=part):
        getattr(oracles.rows_of(batch), name)


@pytest.mark.slow
@pytest.mark.parametrize("loss", METHODS)
def test_a_step_in_parts_is_the_step_at_once(tiny, loss):
    """Answers differ in length, so a mean of the parts' means would differ."""
    entropy = {"forget": 0.5, "retain": -0.2}

    whole, history = unlearned(tiny, loss, entropy=entropy)
    in_parts, history_of_parts = unlearned(tiny, loss, entropy=entropy, compute={"accumulate": 3})

    for row, row_of_parts in zip(history, history_of_parts, strict=True):
        assert row_of_parts == pytest.approx(row, rel=2e-4, abs=2e-4)
    assert history[0] == pytest.approx(history_of_parts[0], rel=2e-5, abs=2e-5)
    assert far(whole, tiny[0]) > 1e-3
    # AdamW's first steps have the size of the rate, whatever the gradient's.
    assert far(whole, in_parts) < 5e-3


@pytest.mark.parametrize(
    ("loss", "params"), [("kl", {}), ("undial", {"retain_weight": 0.0}), ("rmu", {})]
)
def test_kept_values_stand_in_for_the_frozen_model(tiny, loss, params):
    keeping = RECIPE.model_copy(update={"reference": "cached"})

    frozen, _ = unlearned(tiny, loss, RECIPE, **params)
    cached, _ = unlearned(tiny, loss, keeping, **params)

    assert far(frozen, cached) < 1e-4


@pytest.mark.parametrize("loss", ["npo", "rmu"])
def test_gradient_checkpointing_changes_memory_and_not_the_result(tiny, loss):
    plain, _ = unlearned(tiny, loss)
    saving, _ = unlearned(tiny, loss, compute={"gradient_checkpointing": True})

    assert far(plain, saving) < 1e-5
    assert not saving.is_gradient_checkpointing


def test_bfloat16_passes_train_float32_weights(tiny):
    plain, history = unlearned(tiny)
    half, history_of_half = unlearned(tiny, compute={"precision": "bfloat16"})

    assert {weights.dtype for weights in half.parameters()} == {torch.float32}
    assert 0 < far(plain, half) < 0.05
    assert history_of_half[0]["loss"] == pytest.approx(history[0]["loss"], rel=0.02)


RESUMABLE = {
    "compute": {"checkpoint_every": 2},
    "entropy": {"forget": 0.5, "retain": -0.2, "ramp": 0.5},
}


def kill_at_step_5(monkeypatch, tiny, loss, watch):
    """Unlearn in a child process, which SIGKILL ends between two saved states."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WTERMSIG(status)

    of_step = loop._Loop.loss

    def killing(self, number, picked):
        if number == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return of_step(self, number, picked)

    monkeypatch.setattr(loop._Loop, "loss", killing)
    unlearned(tiny, loss, watch=watch, **RESUMABLE)
    os._exit(1)


def count_backward_passes(monkeypatch):
    """A list that grows by an entry with each backward pass."""
    passes = []
    backward = training._backward

    def counting(*arguments):
        passes.append(1)
        return backward(*arguments)

    monkeypatch.setattr(training, "_backward", counting)
    return passes


@pytest.mark.parametrize("loss", ["npo", "rmu", "pdu", "idk_dpo"])
def test_a_killed_run_resumes_to_the_bytes_of_one_that_was_not_killed(
    tiny, tmp_path, monkeypatch, loss
):
    """Generators, optimiser, dual variable and observations go on."""
    scratch = tmp_path / "scratch"
    monkeypatch.setattr(loop, "SCRATCH", scratch)
    forget = rows_of(tiny[1], ROWS[:2])
    of_whole = Watch({"forget": forget}, 0)
    of_resumed = Watch({"forget": forget}, 0)
    whole, history = unlearned(tiny, loss, watch=of_whole, **RESUMABLE)
    assert not list(scratch.iterdir())

    ended_by = kill_at_step_5(monkeypatch, tiny, loss, Watch({"forget": forget}, 0))
    assert ended_by == signal.SIGKILL
    assert len(list(scratch.iterdir())) == 1
    passes = count_backward_passes(monkeypatch)
    resumed, history_of_resumed = unlearned(tiny, loss, watch=of_resumed, **RESUMABLE)

    assert len(passes) == len(history) - 4
    assert history_of_resumed == history
    assert of_resumed.records == of_whole.records
    assert equal_weights(whole, resumed)
    assert not list(scratch.iterdir())


def test_another_setting_does_not_resume(tiny, tmp_path):
    compute = Compute(checkpoint_every=2)
    models = (tiny[0], perturbed(tiny[0]))
    settings_of_runs = ({"lr": 1}, {"lr": 2})

    folders = set()
    for model, settings, rows in itertools.product(models, settings_of_runs, ("a", "b")):
        modules = ("lethe.unlearning.loop",)
        kept = training.resumable(tmp_path, model, compute, modules, settings, rows=rows)
        folders.add(kept.folder)

    assert len(folders) == 8


def perturbed(model):
    model = copy.deepcopy(model)
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1e-3
    return model


LORA = Compute.model_validate({"lora": {"rank": 2}}).lora
TOKENS = torch.tensor([[5, 6, 7, 8]])


@pytest.fixture
def base(tiny, tmp_path):
    checkpoints.save(tmp_path / "base", *tiny)
    return tmp_path / "base"


@pytest.fixture
def adapted(tiny, base):
    """The model of ``base`` with an adapter that unlearning has trained."""
    model = checkpoints.adapted(checkpoints.load(base)[0], LORA, 0)
    unlearned(tiny, model=model)
    return model


@pytest.fixture
def adapter(tiny, adapted, tmp_path, monkeypatch):
    """The folder of the trained adapter."""
    monkeypatch.setattr(checkpoints, "MERGED", tmp_path / "merged")
    checkpoints.save(tmp_path / "adapter", adapted, tiny[1])
    return tmp_path / "adapter"


def test_training_an_adapter_leaves_the_weights_of_its_model(tiny, base):
    model, _ = checkpoints.load(base)
    before = {name: weights.clone() for name, weights in model.named_parameters()}
    adapted = checkpoints.adapted(model, LORA, 0)

    unlearned(tiny, model=adapted)

    after = {}
    for name, weights in adapted.named_parameters():
        after[name.replace("base_model.model.", "").replace(".base_layer", "")] = weights
    for name, weights in before.items():
        assert torch.equal(after[name], weights)


def test_an_adapter_is_a_checkpoint_without_the_weights_of_its_model(adapter):
    assert not (adapter / "model.safetensors").exists()
    assert checkpoints.check(adapter) == adapter


def test_an_adapter_is_loaded_as_the_merged_model(tiny, adapted, adapter):
    merged, _ = checkpoints.load(adapter)

    with torch.no_grad():
        logits = merged(TOKENS).logits
        assert torch.allclose(logits, adapted.eval()(TOKENS).logits, atol=1e-5)
        assert not torch.allclose(logits, tiny[0](TOKENS).logits, atol=1e-3)


def test_an_adapter_is_merged_once(adapter):
    whole = checkpoints.whole(adapter)
    written_at = (whole / "model.safetensors").stat().st_mtime_ns

    again = checkpoints.whole(adapter)

    assert again == whole
    assert (again / "model.safetensors").stat().st_mtime_ns == written_at


def test_an_adapter_of_other_weights_is_refused(tiny, base, adapter):
    checkpoints.save(base, perturbed(tiny[0]), tiny[1])

    with pytest.raises(checkpoints.BadFile, match="other weights"):
        checkpoints.load(adapter)


def test_an_adapter_without_provenance_is_merged_with_the_weights_that_are_here(
    tiny, base, adapter
):
    whole = checkpoints.whole(adapter)
    checkpoints.save(base, perturbed(tiny[0]), tiny[1])
    (adapter / checkpoints.PROVENANCE).unlink()  # as of an adapter from elsewhere

    assert checkpoints.whole(adapter) != whole


@pytest.fixture
def adapter_alone(tiny, base, tmp_path, monkeypatch):
    """An adapter whose model is not here any more."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lora = Compute.model_validate({"lora": {}}).lora
    model = checkpoints.adapted(checkpoints.load(base)[0], lora, 0)
    checkpoints.save(tmp_path / "adapter", model, tiny[1])
    base.rename(tmp_path / "elsewhere")
    return tmp_path / "adapter"


def test_an_adapter_whose_model_is_not_here_is_told(adapter_alone):
    with pytest.raises(checkpoints.BadFile, match="neither a folder here"):
        checkpoints.check(adapter_alone)


def test_an_adapter_without_weights_is_told(adapter_alone):
    (adapter_alone / checkpoints.WEIGHTS).unlink()

    with pytest.raises(checkpoints.BadFile, match="safetensors"):
        checkpoints.check(adapter_alone)


@pytest.fixture(scope="module")
def watch(tiny):
    return Watch({"forget": rows_of(tiny[1], ROWS[:2])}, 0)


@pytest.fixture(scope="module")
def watched(tiny, watch):
    """The model after a run that was observed."""
    return unlearned(tiny, "grad_ascent", watch=watch)[0]


def test_observing_a_run_does_not_change_it(tiny, watched):
    assert far(watched, unlearned(tiny, "grad_ascent")[0]) == 0


def test_each_epoch_is_observed(watch, watched):
    assert [record["epoch"] for record in watch.records] == [-1, 0, 1, 2]
    assert watch.records[0]["forget_probability"] > watch.records[-1]["forget_probability"]


def test_confidence_and_entropy_are_means_over_the_tokens_of_the_answers(watch, watched):
    confidences = []
    entropies = []
    for example in watch.splits["forget"]:
        with torch.no_grad():
            logits = watched(torch.tensor([[*example.prompt, *example.answer]])).logits
        p = logits[0, len(example.prompt) - 1 : -1].double().softmax(-1)
        confidences.append(float(p.amax(-1).mean()))
        entropies.append(float(-(p * p.log()).sum(-1).mean()))

    last = watch.records[-1]

    assert last["forget_confidence"] == pytest.approx(np.mean(confidences), rel=1e-4)
    assert last["forget_entropy"] == pytest.approx(np.mean(entropies), rel=1e-4)
