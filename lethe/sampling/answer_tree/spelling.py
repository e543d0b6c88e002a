"""Conversion of tokens to text, one token at a time.

This module covers the decoders that concatenate pieces: ByteLevel (GPT-2, Llama 3), in which
every token is bytes of UTF-8 and broken bytes become U+FFFD; ByteFallback (Llama 2, Gemma), in which a run of byte
tokens is either valid UTF-8 as a whole or one U+FFFD per byte; Metaspace and plain concatenation. Any other decoder
raises `CannotSpell` with the reason, and so does a tokenizer whose own texts differ from the spelled ones.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from lethe.errors import LetheError
from lethe.scoring.typography import normalise

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BROKEN = "\ufffd"
BROKEN_RUN = re.compile(f"{BROKEN}+")
# A run of bytes that no further byte makes valid: its length no longer matters, because every byte becomes U+FFFD.
HOPELESS = b"\xff"
TRIALS, TRIAL_LENGTH = 64, 12  # random token sequences on which tokenizer and spelling must agree


class CannotSpell(LetheError):
    """The tokenizer joins its tokens in an unknown way, so keywords can be found only in whole texts."""


@dataclass(frozen=True)
class Spelling:
    """``pieces`` (V,) hold a text, bytes, or None for a token that the text skips. ``kind`` is the rule for broken
    bytes: "bytes" (each maximal part is one U+FFFD) or "runs" (a run of byte tokens is valid as a whole, or each byte
    is one)."""

    pieces: tuple[str | bytes | None, ...]
    kind: Literal["bytes", "runs"]

    def advance(self, remainder: bytes, token: int) -> tuple[str, bytes]:
        """The characters that a token settles after the open bytes ``remainder``, and the bytes that remain open."""
        piece = self.pieces[token]
        if piece is None:
            return "", remainder
        if isinstance(piece, str):
            return self.flush(remainder) + piece, b""
        if self.kind == "bytes":
            return split_bytes(remainder + piece)
        return "", run_of(remainder + piece)

    def flush(self, remainder: bytes) -> str:
        """The characters of open bytes if no byte follows."""
        if self.kind == "bytes":
            return remainder.decode("utf-8", errors="replace")
        try:
            return remainder.decode("utf-8")
        except UnicodeDecodeError:
            return BROKEN * len(remainder)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of an answer, broken runs of bytes shortened."""
        settled = []
        remainder = b""
        for token in tokens:
            characters, remainder = self.advance(remainder, int(token))
            settled.append(characters)
        return "".join([*settled, self.flush(remainder)])

    @cached_property
    def continuing(self) -> np.ndarray:
        """The tokens that may continue open bytes; before any other token the text is the same as after `flush`."""
        continuing = []
        for token, piece in enumerate(self.pieces):
            if not isinstance(piece, bytes):
                continue
            if self.kind == "runs" or 0x80 <= int.from_bytes(piece[:1]) < 0xC0:
                continuing.append(token)
        return np.array(continuing, np.int64)

    @cached_property
    def in_bytes(self) -> list[bytes]:
        """(V,) the UTF-8 of each token; empty for a token that the text skips."""
        encoded = []
        for piece in self.pieces:
            if isinstance(piece, str):
                encoded.append(piece.encode())
            else:
                encoded.append(piece or b"")
        return encoded

    @cached_property
    def skipped(self) -> np.ndarray:
        """The tokens that add nothing to the text."""
        return np.flatnonzero([piece is None for piece in self.pieces])


def split_bytes(data: bytes) -> tuple[str, bytes]:
    """The text, with U+FFFD for broken bytes, and the unfinished character at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    characters = decoder.decode(data)
    return characters, decoder.getstate()[0]


def run_of(data: bytes) -> bytes:
    """A run of byte tokens, or `HOPELESS` if the run cannot become valid."""
    try:
        decoder = codecs.getincrementaldecoder("utf-8")()
        decoder.decode(data)
    except UnicodeDecodeError:
        return HOPELESS
    return data


def spelling_of(tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> Spelling:
    """The spelling of the tokens below ``vocabulary``, tested against the tokenizer's own texts.

    Raises
    ------
    CannotSpell
        If the decoder is of another kind, or its texts differ from the spelled ones.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise CannotSpell("The tokenizer does not describe how it joins tokens.")
    if tokenizer.clean_up_tokenization_spaces:
        raise CannotSpell(
            "The tokenizer removes blanks before punctuation (clean_up_tokenization_spaces)."
        )
    steps = _steps(json.loads(backend.to_str())["decoder"])
    pieces: list[str | bytes | None] = []
    for token in range(vocabulary):
        added = tokenizer.added_tokens_decoder.get(token)
        name = backend.id_to_token(token)
        if name is None or (added is not None and added.special):
            pieces.append(None)
        else:
            pieces.append(_piece(name, steps))

    in_bytes = "ByteLevel" in [step["type"] for step in steps]
    spelling = Spelling(tuple(pieces), "bytes" if in_bytes else "runs")
    _try(spelling, tokenizer)
    return spelling


def _steps(decoder: dict | None) -> list[dict]:
    """The steps of a decoder, each of a supported kind; raises `CannotSpell`."""
    if decoder is None:
        raise CannotSpell("The tokenizer has no decoder, so it puts blanks between tokens.")
    steps = [decoder]
    if decoder["type"] == "Sequence":
        steps = decoder["decoders"]
    for step in steps:
        plain = step["type"] in ("ByteLevel", "ByteFallback", "Fuse", "Metaspace")
        replaces = step["type"] == "Replace" and "String" in step["pattern"]
        # The scorers also drop blanks at the start of a text, but nothing else that a decoder strips.
        strips = step["type"] == "Strip" and step["content"] == " " and not step["stop"]
        if not (plain or replaces or strips):
            raise CannotSpell(
                f"The tokenizer's decoder has a step {step['type']}, which is not supported."
            )
    return steps


def _piece(name: str, steps: list[dict]) -> str | bytes:
    """The characters or bytes that a token of this name adds to a text."""
    for step in steps:
        match step["type"]:
            case "ByteLevel":
                try:
                    return bytes([byte_of()[character] for character in name])
                except KeyError:  # a token outside the byte alphabet was added literally
                    return name.encode()
            case "ByteFallback":
                if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
                    return bytes([int(name[3:5], 16)])
            case "Replace":
                name = name.replace(step["pattern"]["String"], step["content"])
            case "Metaspace":
                name = name.replace(step["replacement"], " ")
    return name


@cache
def byte_of() -> dict[str, int]:
    """The byte alphabet of ByteLevel tokenizers: printable Latin-1 represents itself, other bytes start at U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet = {}
    unprintable = 0
    for byte in range(256):
        if byte in printable:
            alphabet[chr(byte)] = byte
        else:
            alphabet[chr(0x100 + unprintable)] = byte
            unprintable += 1
    return alphabet


def _try(spelling: Spelling, tokenizer: PreTrainedTokenizerBase) -> None:
    """Test that random sequences and sequences of bytes are spelled as by the tokenizer."""
    random = np.random.default_rng(0)
    for pool in (np.arange(len(spelling.pieces)), spelling.continuing):
        if not len(pool):
            continue
        trials = random.choice(pool, size=(TRIALS, TRIAL_LENGTH)).tolist()
        theirs = tokenizer.batch_decode(trials, skip_special_tokens=True)
        for tokens, text in zip(trials, theirs, strict=True):
            spelled = spelling.text(tokens)
            if comparable(spelled) != comparable(text):
                raise CannotSpell(
                    f"The tokenizer writes {text!r} for tokens that Lethe spells {spelled!r}."
                )


def comparable(text: str) -> str:
    """A normalised text in which every run of broken bytes is one character, whatever the run's length."""
    return normalise(BROKEN_RUN.sub(BROKEN, text))
