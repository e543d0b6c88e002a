"""What every engine must do: draw from the exact distribution, give each prompt its own stream, and fit a budget."""

from __future__ import annotations

import importlib.machinery
import math
import os
import sys
import types
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.config.evaluating import MOST_DRAWN
from lethe.errors import BadFile, BadInput, LetheError
from lethe.sampling.draws import BITS, draw, random_table, weigh
from lethe.sampling.engine import Options, Prompt, Settings, open_engine
from lethe.sampling.forecast import LEAST, MOST, PILOTS, affordable, fitting
from lethe.sampling.prefix_engine import PrefixEngine
from tests.lethe.sampling.sampling_models import (
    as_text,
    chi_square_p_value,
    exact_probabilities,
    step_probabilities,
)

LETTERS = "abcde"
PROMPT = (0, 3, 1)
WAYS = {
    "plain": {},
    "cold": {"temperature": 0.5},
    "hot": {"temperature": 1.7},
    "top_p": {"top_p": 0.7},
    "top_k": {"top_k": 3},
    "all cuts": {"temperature": 0.8, "top_k": 4, "top_p": 0.8},
    "adaptive": {"adaptive_threshold": 0.55},
    "adaptive, hot, cut": {"adaptive_threshold": 0.55, "temperature": 1.4, "top_p": 0.9},
}


@pytest.mark.parametrize("way", WAYS)
def test_whole_answers_have_their_exact_probabilities(tiny_engine, way, tiny_model):
    settings = Settings(n=4000, max_new_tokens=4, seed=5, greedy=False, **WAYS[way])
    (answers,) = tiny_engine.answer([Prompt("p", PROMPT)], settings)
    cuts = {name: value for name, value in WAYS[way].items() if name != "adaptive_threshold"}
    exact = exact_probabilities(tiny_model, PROMPT, 4, threshold=settings.adaptive_threshold, **cuts)
    assert sum(exact.values()) == pytest.approx(1)
    # "a" then the end and "a" at the length limit are different answers with equal texts
    named = {(as_text(answer, LETTERS), "stop" if answer[-1] == 5 else "length"): p for answer, p in exact.items()}
    assert chi_square_p_value(Counter(zip(answers.texts, answers.finish_reasons, strict=True)), named) > 1e-3


def test_an_adaptive_temperature_that_is_off_or_late_is_noticed(tiny_engine, tiny_model):
    """The chi-square test above has power: the neighbouring definitions fail it."""
    settings = Settings(n=4000, max_new_tokens=4, seed=5, greedy=False, adaptive_threshold=0.55)
    (answers,) = tiny_engine.answer([Prompt("p", PROMPT)], settings)
    drawn = Counter(zip(answers.texts, answers.finish_reasons, strict=True))
    for threshold in (None, 0.5, 0.6):
        exact = exact_probabilities(tiny_model, PROMPT, 4, threshold=threshold)
        named = {(as_text(a, LETTERS), "stop" if a[-1] == 5 else "length"): p for a, p in exact.items()}
        assert chi_square_p_value(drawn, named) < 1e-6


def test_the_greedy_answer_comes_first_and_is_the_most_likely_path(tiny_engine, tiny_model):
    settings = Settings(n=3, max_new_tokens=6, temperature=1.5)
    (answers,) = tiny_engine.answer([Prompt("p", PROMPT)], settings)
    assert answers.samples == [-1, 0, 1, 2]
    (path,) = exact_probabilities(tiny_model, PROMPT, 6, top_k=1)
    assert answers.texts[0] == as_text(path, LETTERS)
    assert answers.tokens[0] == len(path)


def test_mean_confidence_is_the_mean_top_probability_at_temperature_one(tiny_engine, tiny_model):
    import torch
    from transformers import AutoModelForCausalLM

    settings = Settings(n=20, max_new_tokens=6, temperature=1.5, top_p=0.9)
    (answers,) = tiny_engine.answer([Prompt("p", PROMPT)], settings)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    for text, count, reason, mean in zip(
        answers.texts, answers.tokens, answers.finish_reasons, answers.mean_confidences, strict=True
    ):
        answer = tuple(LETTERS.index(letter) for letter in text) + (5,) * (reason == "stop")
        assert len(answer) == count
        with torch.inference_mode():
            logits = model(torch.tensor([PROMPT + answer])).logits[0, len(PROMPT) - 1 : -1]
        assert mean == pytest.approx(logits.softmax(-1).amax(-1).mean().item(), abs=1e-5)


def in_order(answers):
    return sorted(answers, key=lambda one: one.prompt_id)


def test_answers_do_not_depend_on_the_other_prompts(tiny_engine):
    prompts = [Prompt(f"q{number}", (number, *range(2 + number % 3))) for number in range(5)]
    settings = Settings(n=40, max_new_tokens=12, seed=1)
    together = in_order(tiny_engine.answer(prompts, settings))
    alone = [next(iter(tiny_engine.answer([prompt], settings))) for prompt in reversed(prompts)]
    assert together == alone[::-1]
    assert together == in_order(tiny_engine.answer(prompts[::2] + prompts[1::2], settings))


def test_seeds_prompts_and_batches_have_streams_of_their_own(tiny_engine):

    def texts(prompt_id="q", **changes):
        settings = Settings(**{"n": 30, "max_new_tokens": 8, "seed": 1, "greedy": False, **changes})
        (answers,) = tiny_engine.answer([Prompt(prompt_id, (4, 1))], settings)
        return answers.texts

    assert texts() == texts()
    assert texts() != texts(seed=2)
    assert texts() != texts(prompt_id="r")
    assert texts() != texts(first_sample=30)
    (later,) = tiny_engine.answer([Prompt("q", (4, 1))], Settings(n=2, max_new_tokens=2, first_sample=128))
    assert later.samples == [-1, 128, 129]


def test_a_prompt_may_have_a_number_of_answers_of_its_own(tiny_engine):
    prompts = [Prompt("a", PROMPT, 5), Prompt("b", PROMPT), Prompt("c", (1, 2), 1)]
    settings = Settings(n=2, max_new_tokens=3)
    found = {answers.prompt_id: answers for answers in tiny_engine.answer(prompts, settings)}
    assert {name: answers.samples for name, answers in found.items()} == {
        "a": [-1, 0, 1, 2, 3, 4],
        "b": [-1, 0, 1],
        "c": [-1, 0],
    }
    (alone,) = tiny_engine.answer([Prompt("a", PROMPT)], Settings(n=5, max_new_tokens=3))
    assert found["a"] == alone
    (greedy,) = tiny_engine.answer([Prompt("a", PROMPT)], Settings(n=0, max_new_tokens=3))
    assert greedy.texts == alone.texts[:1]


def test_the_global_generator_of_torch_is_left_alone(tiny_engine):
    import torch

    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    list(tiny_engine.answer([Prompt("q", (4, 1))], Settings(n=5, max_new_tokens=4)))
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("prompt", "changes", "said"),
    [
        ((), {}, "at least one token"),
        ((99,), {}, "0 to 5"),
        ((1,) * 100, {"max_new_tokens": 100}, "context is 128"),
        ((1,) * 128, {"max_new_tokens": 1}, "got 128 tokens, .* leaves no room"),
    ],
)
def test_prompts_the_model_cannot_take_are_refused(tiny_engine, prompt, changes, said):
    settings = Settings(**{"n": 1, "max_new_tokens": 2, **changes})
    with pytest.raises(BadInput, match=said):
        list(tiny_engine.answer([Prompt("p", prompt)], settings))


@pytest.mark.parametrize(
    "changes",
    [
        {"n": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"adaptive_threshold": 1.5},
        {"seed": -1},
    ],
)
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(BadInput, match=next(iter(changes))):
        Settings(**{"n": 1, "max_new_tokens": 1, **changes})


def test_unknown_engines_options_and_folders_are_refused(tmp_path):
    with pytest.raises(BadInput, match="transformers"):
        open_engine("magic", tmp_path)
    with pytest.raises(BadInput, match="max_rows"):
        open_engine("transformers", tmp_path, {"rows": 3})
    with pytest.raises(BadInput, match="at least 1"):
        Options(max_rows=0)
    with pytest.raises(BadFile, match=r"config\.json"):
        open_engine("transformers", tmp_path)


def choice(monkeypatch, tiny_model, gpu: bool, installed: bool, **options):
    """What "auto" becomes on a machine with or without a GPU and vLLM."""
    import torch

    from lethe.sampling import engine

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: object() if installed else None)
    return engine.choose(tiny_model, Options(**options))


def test_auto_takes_vllm_for_a_large_model_on_a_gpu_and_says_why(monkeypatch, tiny_model, caplog):
    assert choice(monkeypatch, tiny_model, gpu=False, installed=True)[0] == "prefix"
    kind, reason = choice(monkeypatch, tiny_model, gpu=True, installed=False)
    assert (kind, reason) == ("prefix", "vLLM is not installed")
    kind, reason = choice(monkeypatch, tiny_model, gpu=True, installed=True)
    assert kind == "prefix"
    assert "fewer than the 100,000,000" in reason
    kind, reason = choice(monkeypatch, tiny_model, gpu=True, installed=True, vllm_from=1000)
    assert kind == "vllm"
    assert "parameters, at least 1,000" in reason


@pytest.mark.parametrize(("wanted", "alone"), [(1, True), (2, False)])
def test_vllm_divides_one_model_as_the_params_say(monkeypatch, tiny_model, wanted, alone):
    from lethe.sampling import vllm_engine

    made = {}

    class LLM:
        def __init__(self, **given):
            made.update(given)
            self.llm_engine = types.SimpleNamespace(engine_core=types.SimpleNamespace(shutdown=lambda: None))

    stand_in = types.ModuleType("vllm")
    stand_in.__spec__, stand_in.LLM = importlib.machinery.ModuleSpec("vllm", None), LLM
    adaptive = types.SimpleNamespace(AdaptiveTemperature=object)
    monkeypatch.setitem(sys.modules, "vllm", stand_in)
    monkeypatch.setitem(sys.modules, "lethe.sampling.vllm_adaptive", adaptive)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    vllm_engine.VllmEngine(tiny_model, Options(device="cpu", tensor_parallel=wanted))
    assert made["tensor_parallel_size"] == wanted
    # One process holds the whole model; the parts of a divided one are processes.
    assert (made.get("distributed_executor_backend") == "uni") == alone
    assert (os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0") == alone


def test_replicas_share_the_gpus_out(monkeypatch):
    import torch

    from lethe.sampling.vllm_engine import device_shares

    options = Options(device="cuda", tensor_parallel=2, data_parallel=2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert device_shares(options) == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,3,1")
    assert device_shares(options) == ["7,5", "3,1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,3")
    with pytest.raises(BadInput, match="at most 3"):
        device_shares(options)
    assert device_shares(Options(device="cpu", data_parallel=3)) == [None] * 3


@pytest.mark.parametrize("kind", ["prefix", "transformers", "vllm"])
def test_weights_come_as_safetensors_and_no_code_with_them(tiny_model, tmp_path, kind):
    import json
    import shutil

    import torch
    from transformers import AutoModelForCausalLM

    pickled = tmp_path / "pickled"
    shutil.copytree(tiny_model, pickled, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(AutoModelForCausalLM.from_pretrained(tiny_model).state_dict(), pickled / "pytorch_model.bin")
    with pytest.raises(BadFile, match=r"no \.safetensors file"):
        open_engine(kind, pickled)

    foreign = tmp_path / "foreign"
    shutil.copytree(tiny_model, foreign)
    config = json.loads((foreign / "config.json").read_text()) | {
        "model_type": "of_its_own",
        "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"},
    }
    (foreign / "config.json").write_text(json.dumps(config))
    (foreign / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(BadFile, match="Lethe never runs"):
        open_engine(kind, foreign)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["prefix", "transformers"])
def test_a_model_that_has_diverged_is_told(kind, tiny_model, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    broken = shutil.copytree(tiny_model, tmp_path / "broken")
    weights = {name: values * float("nan") for name, values in load_file(broken / "model.safetensors").items()}
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LetheError, match="diverged"):
        list(open_engine(kind, broken).answer([Prompt("p", PROMPT)], Settings(n=2, max_new_tokens=2)))


torch = pytest.importorskip("torch")


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    vocabulary=st.integers(1, 200),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, 1000]),
    top_p=st.sampled_from([1.0, 0.9, 0.3, 1e-6]),
)
def test_cuts_are_as_defined(seed, vocabulary, temperature, top_k, top_p):
    logits = 3 * np.random.default_rng(seed).standard_normal((4, vocabulary))
    top, weights = weigh(torch.from_numpy(logits).float(), temperature, top_k, top_p)
    shares = weights.double().numpy()[:, :vocabulary]
    assert weights[:, vocabulary:].eq(0).all()
    for row in range(4):
        expected = step_probabilities(logits[row], temperature, top_p, top_k)
        assert shares[row] / shares[row].sum() == pytest.approx(expected, abs=1e-5)
        assert top[row].item() == pytest.approx(step_probabilities(logits[row], 1, 1, 0).max(), rel=1e-5)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), vocabulary=st.integers(1, 300), rows=st.integers(1, 6))
def test_a_draw_is_the_first_token_whose_cumulated_share_exceeds_it(seed, vocabulary, rows):
    random = np.random.default_rng(seed)
    weights = np.zeros((rows, -(-vocabulary // 64) * 64))
    # Whole numbers, so that every sum is exact; many zeros, so that cut tokens and empty blocks are met.
    weights[:, :vocabulary] = random.integers(0, 4, (rows, vocabulary)) * (random.random((rows, vocabulary)) < 0.2)
    weights[:, random.integers(vocabulary)] += 1
    row = random.integers(rows, size=500)
    values = random_table(np.random.SeedSequence(seed), 500, 1)[:, 0]
    values[:2] = 0, (1 << BITS) - 1
    tokens = draw(torch.from_numpy(weights).float(), torch.from_numpy(row), torch.from_numpy(values)).numpy()
    for sample, token in enumerate(tokens):
        shares = np.cumsum(weights[row[sample]]) / weights[row[sample]].sum()
        # One unit of 2**-BITS of leave at a border: shares are rounded down to it, block by block.
        low, high = (shares[token - 1] if token else 0), shares[token]
        assert low - 2.0 ** (2 - BITS) <= values[sample] / 2**BITS < high + 2.0 ** (2 - BITS)
        assert weights[row[sample], token] > 0


def test_a_draw_does_not_depend_on_the_rows_beside_it():
    random = np.random.default_rng(1)
    weights = torch.from_numpy(random.random((300, 128))).float()
    row, values = (
        torch.from_numpy(random.integers(300, size=4000)),
        torch.from_numpy(random.integers(1 << BITS, size=4000)),
    )
    together = draw(weights, row, values)
    for one in range(0, 300, 37):
        own = row == one
        assert torch.equal(draw(weights[one : one + 1], torch.zeros_like(row[own]), values[own]), together[own])


PROMPTS = [Prompt("one", (0, 1, 2)), Prompt("two", (3,))]
HOW = Settings(n=8, max_new_tokens=4)


@given(st.floats(1, 1e5), st.floats(1, 4), st.integers(1, 10**9))
def test_the_number_is_the_largest_power_of_two_that_the_power_law_affords(few, growth, budget):
    n = fitting(few, few * growth, budget)
    assert LEAST <= n <= MOST == MOST_DRAWN
    assert n & (n - 1) == 0

    if growth > 1.05:
        power = math.log(growth) / math.log(PILOTS[1] / PILOTS[0])
        taken = [few * growth * (m / PILOTS[1]) ** power for m in (n, 2 * n)]
        assert n == LEAST or taken[0] <= budget * (1 + 1e-6)
        assert n == MOST or taken[1] > budget * (1 - 1e-6)


@pytest.fixture(scope="module")
def engine(tiny_model) -> PrefixEngine:
    return PrefixEngine(tiny_model, Options())


def test_a_larger_budget_never_draws_less_and_the_pilot_leaves_the_answers_alone(engine):
    before = list(engine.answer(PROMPTS, HOW))
    found = [affordable(engine, PROMPTS, HOW, budget) for budget in (1, 1000, 10**9)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (LEAST, MOST)
    assert list(engine.answer(PROMPTS, HOW)) == before
