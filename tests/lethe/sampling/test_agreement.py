"""An engine is believed only after it agreed with whole passes: architectures whose caches or batches are of another kind."""

import copy
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

import lethe
from lethe.errors import BadFile
from lethe.models.agreement import LIMIT, agreement, prompts_within
from lethe.models.checkpoints import InMemory
from lethe.models.encoding import Example
from lethe.models.first_token import FirstToken, start_vllm
from lethe.models.likelihood import answer_tokens
from lethe.registry import ENGINES
from lethe.sampling.engine import (
    CannotOpen,
    NoEngine,
    NoKeys,
    Options,
    Prompt,
    Settings,
    open_engine,
)
from lethe.sampling.predictor import ModelPredictor, RowLayer, RowModel, measured_allowance
from lethe.sampling.prefix_engine import PrefixEngine
from lethe.sampling.transformers_engine import TransformersEngine
from tests.lethe.sampling.sampling_models import build_llama, build_tokenizer

LETTERS = "abcdefghij"
SHAPE = {
    "vocab_size": len(LETTERS) + 1,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": len(LETTERS),
    "pad_token_id": len(LETTERS),
    "initializer_range": 0.5,
}
HYBRIDS = {
    "Lfm2": {"layer_types": ["conv", "full_attention"], "conv_L_cache": 3},
    "Qwen3Next": {
        "layer_types": ["linear_attention", "full_attention"],
        "head_dim": 8,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
    "Jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "use_mamba_kernels": False,
        "mamba_d_state": 4,
        "mamba_dt_rank": 4,
    },
}
EXPERTS = {
    "Mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "GptOss": {
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "head_dim": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 4,
    },
}
RWKV = {
    "vocab_size": len(LETTERS) + 1,
    "hidden_size": 32,
    "attention_hidden_size": 32,
    "num_hidden_layers": 2,
    "context_length": 64,
    "bos_token_id": None,
    "eos_token_id": len(LETTERS),
}


def build(architecture: str, folder: Path, shape: dict) -> Path:
    """A random model of an architecture of transformers, whose layers differ from those of a model at its start."""
    config = getattr(transformers, f"{architecture}Config")(**shape)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = getattr(transformers, f"{architecture}ForCausalLM")(config)
        for values in model.parameters():
            if values.dim() > 1:
                torch.nn.init.normal_(values, std=0.4)
    model.save_pretrained(folder)
    build_tokenizer(folder, LETTERS)
    return folder


@pytest.fixture(scope="module", params=HYBRIDS)
def hybrid(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / request.param
    return build(request.param, folder, SHAPE | HYBRIDS[request.param])


@pytest.fixture(scope="module")
def rwkv(tmp_path_factory) -> Path:
    return build("Rwkv", tmp_path_factory.mktemp("models") / "rwkv", RWKV)


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return build_llama(tmp_path_factory.mktemp("models") / "llama", LETTERS, scale=2.0)


def test_a_hybrid_cache_is_drawn_by_the_transformers_engine_which_says_so(hybrid, capfd):
    engine = open_engine("auto", hybrid)

    assert engine.name == "transformers"
    assert engine.belief.agreement.difference < LIMIT
    assert [refused.engine for refused in engine.belief.refused] == ["prefix"]
    assert "the engine transformers draws" in capfd.readouterr().err


def test_a_hybrid_cache_has_no_exact_probabilities(hybrid):
    with pytest.raises(NoKeys, match=r"key-value cache\. Sample from"):
        ModelPredictor(hybrid)


def test_a_model_that_reads_no_text_as_a_whole_has_no_exact_probabilities(tmp_path):
    config = SHAPE | {"layer_types": ["sliding_attention"] * 2}
    folder = build("Llama", tmp_path / "m", SHAPE)
    settings = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(settings))
    predictor = ModelPredictor(folder)

    with pytest.raises(BadFile, match="sliding_window"):
        measured_allowance(predictor, [np.array([1, 2, 3])], 3)


@pytest.mark.parametrize("architecture", EXPERTS)
def test_experts_without_a_float64_kernel_have_exact_probabilities(architecture, tmp_path):
    folder = build(architecture, tmp_path / "m", SHAPE | EXPERTS[architecture])
    predictor = ModelPredictor(folder)

    allowance = measured_allowance(predictor, [np.array([1, 2, 3])], 3)

    assert 0 < allowance < LIMIT
    assert open_engine("auto", folder).name == "prefix"


def test_a_model_whose_batches_are_wrong_is_drawn_a_row_at_a_time(rwkv, capfd):
    engine = open_engine("auto", rwkv)

    assert (engine.name, engine.max_rows, engine.belief.rows) == ("transformers", 1, 1)
    assert engine.belief.agreement.difference < LIMIT
    assert "draws a row at" in capfd.readouterr().err


def test_answers_of_single_rows_have_the_law_of_whole_passes(rwkv):
    """The share of each second token after one first token, beside the probability by a whole pass."""
    engine = open_engine("transformers", rwkv)
    prompt = (1, 2, 3, 4)

    (answers,) = engine.answer(
        [Prompt("p", prompt)], Settings(n=300, max_new_tokens=2, greedy=False)
    )

    texts = [text for text in answers.texts if text]
    first = max(LETTERS, key=lambda letter: sum(text[0] == letter for text in texts))
    followed = [text[1:] for text in texts if text[0] == first]
    ids = torch.tensor([[*prompt, LETTERS.index(first)]])
    with torch.inference_mode():
        chances = engine.model(ids, use_cache=False).logits[0, -1].softmax(-1)
    for token, letter in enumerate(LETTERS):
        share = followed.count(letter) / len(followed)
        assert abs(share - chances[token].item()) < 5 * np.sqrt(0.25 / len(followed))


@pytest.mark.seconds
def test_the_record_beside_the_answers_names_the_engine_its_difference_and_those_refused(
    hybrid, tmp_path
):
    rows = [{"id": "a", "question": "abc", "answer": "b", "keywords": ["b"]}]
    how = {"n": 16, "max_new_tokens": 2, "prompt": "{question}", "folder": tmp_path / "out"}

    lethe.evaluate(hybrid, rows, **how)

    place = tmp_path / f"out/generations/{hybrid.name}/about.json"
    check = json.loads(place.read_text())["engine_check"]
    assert check["largest_difference"] < check["limit"]
    assert [refused["engine"] for refused in check["refused"]] == ["prefix"]
    assert check["unchecked"] is None


class Forgetful(RowLayer):
    """A cache whose first position is lost."""

    def update(self, *states, **more):
        keys, values = super().update(*states, **more)
        keys = keys.clone()
        keys[:, :, 0] = 0
        return keys, values


def test_an_engine_with_a_wrong_cache_is_refused_and_auto_takes_the_other(llama, monkeypatch):
    monkeypatch.setattr("lethe.sampling.predictor.RowLayer", Forgetful)

    with pytest.raises(CannotOpen, match=r"differ by .* whole passes.*--engine transformers"):
        open_engine("prefix", llama)
    with pytest.raises(NoKeys, match="differ by up to"):
        ModelPredictor(llama)
    assert open_engine("auto", llama).name == "transformers"


def test_an_engine_that_ends_with_an_error_of_a_library_is_refused(llama, monkeypatch):
    def step(*_):
        raise IndexError("list index out of range")

    monkeypatch.setattr(RowModel, "step", step)
    monkeypatch.setattr(RowModel, "rows_are_independent", lambda forward: False)

    with pytest.raises(CannotOpen, match="ends with IndexError"):
        open_engine("prefix", llama)


def test_a_model_that_no_engine_gets_right_is_refused_in_a_sentence(llama, monkeypatch):
    plain = TransformersEngine.watched

    def shifted(engine, *arguments):
        for step in plain(engine, *arguments):
            yield type(step)(step.prefix, np.roll(step.probabilities, 1))

    monkeypatch.setattr(TransformersEngine, "watched", shifted)
    monkeypatch.setattr(RowModel, "keeps_keys", lambda forward: False)

    with pytest.raises(NoEngine, match="no engine draws from") as caught:
        open_engine("auto", llama)
    assert isinstance(caught.value, BadFile)


def test_a_model_that_reads_ahead_is_no_causal_model(tmp_path):
    shape = {"vocab_size": 11, "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 32}
    folder = tmp_path / "m"
    build_tokenizer(folder, LETTERS)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**shape))
        for values in model.parameters():
            if values.dim() > 1:
                torch.nn.init.normal_(values, std=0.4)
    model.save_pretrained(folder)

    with pytest.raises(BadFile, match=r"causal language model|no engine draws"):
        open_engine("auto", folder)


def test_an_engine_that_does_not_show_its_steps_is_recorded_as_unchecked(llama, monkeypatch):
    class Plain:
        name = "plain"
        in_memory = True

        def __init__(self, source, options):
            self.engine = TransformersEngine(source, options)

        def answer(self, prompts, settings):
            return self.engine.answer(prompts, settings)

    monkeypatch.setitem(ENGINES.registered, "plain", Plain)

    engine = open_engine("plain", llama)

    assert engine.belief.agreement.difference is None
    assert "plain" in engine.belief.record()["unchecked"]


@pytest.mark.parametrize(
    ("context", "lengths", "tokens"),
    [(None, [3, 11, 6], 3), (10, [3, 7, 6], 3), (4, [1, 1, 1], 3), (2, [1, 1, 1], 1)],
)
def test_the_prompts_of_the_check_fit_every_context(context, lengths, tokens):
    prompts, drawn = prompts_within(5, context)

    assert ([len(prompt) for prompt in prompts], drawn) == (lengths, tokens)


def test_the_check_leaves_the_answers_of_an_engine_alone(llama):
    engine = PrefixEngine(llama, Options())
    prompts = [Prompt("p", (1, 2)), Prompt("q", (3,))]
    settings = Settings(n=20, max_new_tokens=5)
    before = list(engine.answer(prompts, settings))

    found = agreement(engine, llama, engine.checkpoint.vocabulary, engine.checkpoint.context)

    assert found.difference < LIMIT
    assert list(engine.answer(prompts, settings)) == before


def test_a_model_in_memory_is_checked_too(llama):
    engine = open_engine("transformers", llama)
    model = copy.deepcopy(engine.model)

    in_memory = open_engine("auto", InMemory(model, engine.checkpoint.tokenizer))

    assert in_memory.belief.agreement.difference < LIMIT


def by_whole_pass(model, prompt: tuple[int, ...]) -> np.ndarray:
    with torch.inference_mode():
        logits = model(torch.tensor([prompt]), use_cache=False).logits[0, -1]
    return logits.double().softmax(-1).numpy()


def test_a_judge_whose_padded_batches_are_wrong_reads_one_answer_at_a_time(rwkv, capfd):
    reader = FirstToken(rwkv, ["a", "b"])
    prompts = [(3, 4, 5, 6), (7,)]

    shares, _ = reader.read(prompts)

    assert reader.rows == 1
    assert "one text at a" in capfd.readouterr().err
    for row, prompt in zip(shares, prompts, strict=True):
        np.testing.assert_allclose(row, by_whole_pass(reader.model, prompt)[:2], atol=1e-5)


def test_a_judge_whose_padded_batches_are_right_reads_many_answers_at_once(llama):
    assert FirstToken(llama, ["a", "b"]).rows is None


def test_a_judge_that_no_batch_reads_as_a_whole_pass_is_refused(llama, monkeypatch):
    shares = FirstToken._shares
    monkeypatch.setattr(FirstToken, "_shares", lambda *read: shares(*read).roll(1, dims=-1))

    with pytest.raises(BadFile, match="differ by up to"):
        FirstToken(llama, ["a", "b"])


class PaddedWrongly(torch.nn.Module):
    """A model whose batches of several rows shift every logit to the next token."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.config = model.config
        self.dtype = model.dtype
        self.device = model.device

    def forward(self, input_ids, attention_mask=None):
        found = self.model(input_ids=input_ids, attention_mask=attention_mask)
        if len(input_ids) > 1:
            found.logits = found.logits.roll(1, dims=-1)
        return found


def test_likelihoods_of_a_model_whose_batches_are_wrong_are_read_one_at_a_time(llama):
    model = open_engine("transformers", llama).model
    examples = [Example((1, 2), (3,)), Example((4, 5, 6), (7,))]

    tokens = answer_tokens(PaddedWrongly(model), examples, padding=0)

    for example, found in zip(examples, tokens, strict=True):
        expected = np.log(by_whole_pass(model, example.prompt)[example.answer[0]])
        np.testing.assert_allclose(found.log_probs, [expected], atol=1e-5)


@pytest.mark.parametrize(
    ("asked", "on_cpu", "taken"),
    [
        ("auto", False, "bfloat16"),
        ("auto", True, "float32"),
        ("float16", False, "float16"),
        ("float16", True, "float16"),
    ],
)
def test_vllm_takes_the_number_format_that_the_other_engines_take(
    llama, tmp_path, monkeypatch, asked, on_cpu, taken
):
    """Its own "auto" would halve the numbers of a float32 checkpoint on a GPU."""
    (tmp_path / "config.json").write_text(
        json.dumps(json.loads((llama / "config.json").read_text()) | {"dtype": "bfloat16"})
    )
    made = []
    monkeypatch.setitem(
        sys.modules, "vllm", SimpleNamespace(LLM=lambda **settings: made.append(settings))
    )

    start_vllm(tmp_path, asked, context=64, on_cpu=on_cpu, alone=False)

    assert [settings["dtype"] for settings in made] == [taken]
