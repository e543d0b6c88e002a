"""Tokenizers of every kind that is spelled, small enough that random tokens often make up a keyword."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

END = "<eos>"
TEXT = "The café of René Engraver in Straße 37 stands beside Ron's naïve Renée; iron, ron. 東京 हिन्दी e\u0301 ﬁn Engravers"
MARKS = [*"\u0301\u0327\u0331ﬁß\u212aẖ\u2126が\u3099…\u00a0İ\x1cǰ"]
PIECES = ["▁", "▁Ron", "Ron", "r", "on", "a", "▁caf", "é", "e", "▁Engrav", "er", "ers", "!", "s", *MARKS]


@cache
def byte_level() -> PreTrainedTokenizerBase:
    """As in GPT-2 and Llama 3: every token is bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

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
def byte_fallback() -> PreTrainedTokenizerBase:
    """As in Llama 2 and Gemma: texts, and a byte each for what has no token."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    names = [END, *[f"<0x{byte:02X}>" for byte in range(256)], *dict.fromkeys(["f", "c", *PIECES])]
    raw = Tokenizer(
        models.BPE({name: number for number, name in enumerate(names)}, [], byte_fallback=True, unk_token=END)
    )
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END)


@cache
def metaspace() -> PreTrainedTokenizerBase:
    """As in SentencePiece models without bytes."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    names = [END, *dict.fromkeys(PIECES)]
    raw = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, [], unk_token=END))
    raw.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END)


@cache
def word_piece() -> PreTrainedTokenizerBase:
    """As in BERT: blanks come and go between its tokens, which nothing here spells."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({END: 0, "Ron": 1, "##s": 2}, unk_token=END))
    raw.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END)


SPELLED = {"byte level": byte_level, "byte fallback": byte_fallback, "metaspace": metaspace}
