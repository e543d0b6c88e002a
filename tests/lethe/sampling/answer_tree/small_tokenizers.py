"""Tokenizers of every kind that is spelled, small enough that random tokens often make up a keyword."""

from collections.abc import Iterable
from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END = "<eos>"
TEXT = "The café of René Engraver in Straße 37 stands beside Ron's naïve Renée; iron, ron. 東京 हिन्दी e\u0301 ﬁn Engravers"
MARKS = [
    *"\u0301\u0327\u0331ﬁß\u212aẖ\u2126が\u3099…\u00a0İ\x1cǰ\u2019\u2011\u200b\u00ad\u0640*_`'53"
]
PIECES = [
    "▁",
    "▁Ron",
    "Ron",
    "r",
    "on",
    "a",
    "▁caf",
    "é",
    "e",
    "▁Engrav",
    "er",
    "ers",
    "!",
    "s",
    *MARKS,
]


def fast(model: models.Model, decoder: decoders.Decoder) -> PreTrainedTokenizerFast:
    raw = Tokenizer(model)
    raw.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END)


def numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys([END, *names]))}


@cache
def byte_level() -> PreTrainedTokenizerFast:
    """As in GPT-2 and Llama 3: every token is bytes."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator([TEXT, *[f"a{mark}n" for mark in MARKS]], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END)
    tokenizer.add_tokens(["añade", " Ron"])  # not special: they stand in the text as they are
    return tokenizer


@cache
def byte_fallback() -> PreTrainedTokenizerFast:
    """As in Llama 2 and Gemma: texts, and a byte each for what has no token."""
    names = numbered([*(f"<0x{byte:02X}>" for byte in range(256)), "f", "c", *PIECES])
    parts = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    return fast(models.BPE(names, [], byte_fallback=True, unk_token=END), decoders.Sequence(parts))


@cache
def metaspace() -> PreTrainedTokenizerFast:
    """As in SentencePiece models without bytes."""
    return fast(models.BPE(numbered(PIECES), [], unk_token=END), decoders.Metaspace())


@cache
def word_piece() -> PreTrainedTokenizerFast:
    """As in BERT: blanks come and go between its tokens, which nothing here spells."""
    return fast(models.WordLevel(numbered(["Ron", "##s"]), unk_token=END), decoders.WordPiece())


SPELLED = {"byte level": byte_level, "byte fallback": byte_fallback, "metaspace": metaspace}
