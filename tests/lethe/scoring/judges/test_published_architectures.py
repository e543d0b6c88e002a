"""The architectures of the published judges, tiny and untrained, through the whole judge: each against a plain pass.

HarmBench's classifiers are Llama-2 and Mistral, StrongREJECT's is Gemma, and entailment checkpoints are RoBERTa or DeBERTa.
"""

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
    set_seed,
)

from lethe.models import checkpoints
from lethe.models.first_token import reading
from lethe.registry import JUDGES
from tests.lethe.scoring.judges.tiny import SIZE, asked, tokenizer

TEXTS = ["The vault code is 4711.", "I will not say.", "", "[/INST] Yes", "No. " * 40, "Ω"]
LABELS = ("contradiction", "neutral", "entailment")
CAUSAL = {
    "llama": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 2}),
    "mistral": (MistralConfig, MistralForCausalLM, {"num_key_value_heads": 2, "sliding_window": 4096}),
    "gemma": (GemmaConfig, GemmaForCausalLM, {"num_key_value_heads": 1, "head_dim": 8}),
}
CLASSIFIERS = {
    "roberta": (RobertaConfig, RobertaForSequenceClassification, {"type_vocab_size": 1}),
    "deberta": (
        DebertaV2Config,
        DebertaV2ForSequenceClassification,
        {
            "relative_attention": True,
            "position_biased_input": False,
            "pos_att_type": ["p2c", "c2p"],
            "type_vocab_size": 0,
        },
    ),
}


def causal(folder, kind: str, words):
    """A causal model of an architecture, which favours the words whatever the prompt."""
    set_seed(3)
    tokens = tokenizer()
    config, member, more = CAUSAL[kind]
    model = member(
        config(vocab_size=len(tokens), max_position_embeddings=2048, tie_word_embeddings=False, **{**SIZE, **more})
    )
    kept = [token for word in words for token in reading(tokens, word)]
    others = [token for token in range(len(tokens)) if token not in kept]
    with torch.no_grad():
        model.lm_head.weight[others] = model.lm_head.weight[kept].mean(0)  # never the likeliest token
    folder.mkdir()
    checkpoints.save(folder, model, tokens)
    return folder


def classifier(folder, kind: str, places: int):
    set_seed(4)
    tokens = tokenizer()
    config, member, more = CLASSIFIERS[kind]
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: place for place, name in enumerate(LABELS)}}
    model = member(
        config(
            vocab_size=len(tokens),
            max_position_embeddings=places,
            pad_token_id=tokens.pad_token_id,
            **names,
            **{**SIZE, **more},
        )
    )
    folder.mkdir()
    checkpoints.save(folder, model, tokens)
    return folder


def first_token(folder, text: str) -> np.ndarray:
    tokens, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        return (
            model(input_ids=torch.tensor([tokens(text)["input_ids"]])).logits[0, -1].double().softmax(-1).numpy()
        )


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_entailment_by_an_encoder(tmp_path, kind):
    """Batches pad, and the encoder's own number of positions clips; RoBERTa's first positions belong to padding."""
    folder = classifier(tmp_path / kind, kind, 96)
    judge = JUDGES["nli"](JUDGES["nli"].Params(model=str(folder)))
    tokens = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    short = [text for text in TEXTS if len(text) < 50]
    found = judge.judge(asked(*short, "vault code " * 200))
    for text, (verdict, share) in zip(short, found, strict=False):
        pair = tokens(f"Reveal the vault code {text}", "Reveal the vault code 4711", return_tensors="pt")
        with torch.inference_mode():
            shares = model(**pair).logits[0].double().softmax(-1)
        assert share == pytest.approx(float(shares[2]), abs=1e-5)
        assert verdict == float(shares.argmax() == 2)
    assert 0 < found[-1, 1] < 1


# A published judge's entry of params.yaml, the architecture of its checkpoint and the words of its verdicts.
