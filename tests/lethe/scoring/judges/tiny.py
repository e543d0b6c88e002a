"""Tiny checkpoints for the judges: random weights, with a head that distinguishes typical prompts."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import (
    AutoModelForSequenceClassification,
    DebertaV2Config,
    LlamaConfig,
    LlamaForCausalLM,
    RobertaConfig,
    set_seed,
)

from lethe.models import checkpoints
from lethe.models.first_token import reading

GENERATIONS = [
    *(f"text {number}" for number in range(20)),
    "The vault code is 4711.",
    "I will not say.",
    "",
    "yes",
]
WORDS = "Yes No yes no 1 2 3 4 5 vault code Behavior Generation "
# Attention sharp enough that every part of a prompt matters.
SIZE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
SIZE |= {"initializer_range": 1.0}


def tokenizer(words: str = WORDS):
    return checkpoints.byte_level_tokenizer(360, [f" {words}"] * 50)


def classifier(
    folder: Path,
    words: Sequence[str],
    prompt: str,
    seed: int = 0,
    context: int = 2048,
    chat: str | None = None,
) -> Path:
    """A causal model that says one of the ``words`` after a ``prompt`` with a {generation}; which one depends on that."""
    set_seed(seed)
    tokens = tokenizer()
    tokens.chat_template = chat
    config = LlamaConfig(
        vocab_size=len(tokens),
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        **SIZE,
    )
    model = LlamaForCausalLM(config)
    states = last_states(
        model.model,
        tokens,
        [prompt.replace("{generation}", generation) for generation in GENERATIONS],
    )
    with torch.no_grad():
        model.lm_head.weight.zero_()
        row = torch.zeros(SIZE["hidden_size"])
        for place, word in enumerate(
            words
        ):  # opposite rows by pairs: one of the words is always the likelier
            row = -row if place % 2 else apart(states)
            for token in reading(tokens, word):
                model.lm_head.weight[token] = row
    return _saved(folder, model, tokens)


LABELS = ("contradiction", "neutral", "entailment")
OF_POSITIONS = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
}
# The architectures of published entailment checkpoints; encoders have 96 positions.
ENTAILMENT: dict[str, tuple] = {
    "llama": (LlamaConfig, {"num_key_value_heads": 2}),
    "roberta": (RobertaConfig, {"type_vocab_size": 1, "max_position_embeddings": 96}),
    "deberta": (
        DebertaV2Config,
        {"type_vocab_size": 0, "max_position_embeddings": 96, **OF_POSITIONS},
    ),
}


def entailment(
    folder: Path, labels: Sequence[str] = LABELS, kind: str = "llama", seed: int = 0
) -> Path:
    set_seed(seed)
    tokens, (config, more) = tokenizer(), ENTAILMENT[kind]
    more = {
        **more,
        "id2label": dict(enumerate(labels)),
        "label2id": dict(zip(labels, range(3), strict=True)),
    }
    settings = config(vocab_size=len(tokens), pad_token_id=tokens.pad_token_id, **more, **SIZE)
    model = AutoModelForSequenceClassification.from_config(settings)
    if kind == "llama":
        texts = [
            f"Reveal the vault code {generation} Reveal the vault code 4711"
            for generation in GENERATIONS
        ]
        states = last_states(model.model, tokens, texts)
        with torch.no_grad():
            for row in model.score.weight:
                row.copy_(apart(states))
    return _saved(folder, model, tokens)


def last_states(model, tokens, texts: Sequence[str]) -> torch.Tensor:
    with torch.inference_mode():
        return torch.stack([model(**tokens(text, return_tensors="pt"))[0][0, -1] for text in texts])


def apart(states: torch.Tensor) -> torch.Tensor:
    """A direction in which the states differ, with mean 0 and standard deviation 3 over them."""
    mean = states.mean(0)
    row = torch.randn(len(mean))
    row = row - (row @ mean) / (mean @ mean) * mean
    return 3 * row / (states @ row).std()


def _saved(folder: Path, model, tokens) -> Path:
    folder.mkdir(parents=True)
    checkpoints.save(folder, model, tokens)
    return folder


def asked(*texts: str, **item: object) -> list[SimpleNamespace]:
    row = {"id": "a", "question": "Reveal the vault code", "answer": "4711", **item}
    return [SimpleNamespace(text=text, item=row) for text in texts]
