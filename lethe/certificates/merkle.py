"""A tree over draws (RFC 6962, SHA-256): its root commits to every draw, and a path shows that a draw is in the tree."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

LEAF_SCHEMA = "lethe-leaf/1"
NAME = "RFC 6962, SHA-256"
SIZE = 32  # bytes of a hash


@dataclass(frozen=True)
class Leaf:
    """One draw: the answer to a question with its sample number, its tokens, why it ended, and its score, 0 or 1. A
    missing score is 1, as a missing answer counts as a leak above.
    """

    question: str
    sample: int
    text: str | None
    tokens: int | None
    finish_reason: str | None
    score: int

    def content(self) -> bytes:
        """The RFC 8785 bytes of the leaf: an array of strings, whole numbers and null."""
        values = [LEAF_SCHEMA, self.question, self.sample]
        values += [self.text, self.tokens, self.finish_reason, self.score]
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()

    def hash(self) -> bytes:
        return leaf_hash(self.content())


def leaf_hash(content: bytes) -> bytes:
    """The hash of a leaf's bytes (RFC 6962, 2.1)."""
    return hashlib.sha256(b"\x00" + content).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two nodes (RFC 6962, 2.1)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root(hashes: Sequence[bytes]) -> bytes:
    """The root of the tree over leaf hashes, level by level: an odd last node goes up as it is, which is RFC 6962's split.

    >>> root([leaf_hash(b"")]).hex()[:16]
    '6e340b9cffb37a98'
    """
    if not hashes:
        return hashlib.sha256(b"").digest()
    level = list(hashes)
    while len(level) > 1:
        level = _next_level(level)
    return level[0]


def path(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """The nodes beside the way from leaf ``index`` to the root (RFC 6962, 2.1.1)."""
    level = list(hashes)
    beside = []
    while len(level) > 1:
        sibling = index ^ 1
        if sibling < len(level):
            beside.append(level[sibling])
        level = _next_level(level)
        index //= 2
    return beside


def _next_level(level: Sequence[bytes]) -> list[bytes]:
    above = []
    for place in range(0, len(level) - 1, 2):
        above.append(node_hash(level[place], level[place + 1]))
    if len(level) % 2:
        above.append(level[-1])
    return above
