"""The record of a draw: what is published before training, and the sealed key that is opened at audit time."""

from __future__ import annotations

import hashlib
import re
import secrets as random_bytes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from lethe.config.fields import Section
from lethe.config.twins import Twins
from lethe.data.secrets import PUBLIC, Secret
from lethe.errors import BadFile
from lethe.io.files import Json, atomic_file, read_json, read_text, write_json
from lethe.statistics.twins import candidates_digest, commitment, drawn_place

RECORD = "twins.json"
KEY = "twins.key"
FORM = 1  # of the record
KEY_BYTES = 32
HEXADECIMAL = re.compile(r"[0-9a-f]{64}")
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
AGAIN = "Keep the file as lethe twins wrote it."


class PublicRecord(Section):
    """The public ``twins.json``: it fixes the candidates and the key, and tells neither which candidate is true."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    design: Literal["drawn", "assumed"]
    kind: str
    k: Annotated[int, Field(ge=2)]
    secrets: Annotated[int, Field(ge=1)]
    assumes: str
    candidates_sha256: Digest
    commitment: Digest


def sorted_candidates(secrets: Sequence[Secret]) -> list[tuple[str, list[str]]]:
    """Return each secret with the texts of its candidates in an order that does not tell the true one."""
    return [(secret.name, sorted(secret.candidates)) for secret in secrets]


def fresh_key(nonce: str | None = None) -> bytes:
    """Return 32 random bytes; with the bytes of a second party, the SHA-256 of both, joined."""
    key = random_bytes.token_bytes(KEY_BYTES)
    if nonce is None:
        return key
    return hashlib.sha256(key + nonce.encode()).digest()


def write_sealed(folder: Path, record: Mapping[str, Json], key: bytes) -> tuple[Path, Path]:
    """Write the public record and the sealed key beside each other; return both files."""
    write_json(folder / RECORD, record)
    with atomic_file(folder / KEY) as temporary:
        Path(temporary).write_text(f"{key.hex()}\n", encoding="ascii")
    return folder / RECORD, folder / KEY


def record_of(
    secrets: Sequence[Secret],
    design: Literal["drawn", "assumed"],
    kind: str,
    assumes: str,
    key: bytes,
) -> dict[str, Json]:
    """Return the public record of the secrets, whose numbers of candidates are all the same."""
    rows = sorted_candidates(secrets)
    return {
        "schema": FORM,
        "design": design,
        "kind": kind,
        "k": len(rows[0][1]),
        "secrets": len(rows),
        "assumes": assumes,
        "candidates_sha256": candidates_digest(rows),
        "commitment": commitment(key, rows),
    }


def read_record(path: Path) -> PublicRecord:
    """Read a public record; raises `BadFile` where it is none."""
    try:
        return PublicRecord.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "record"
        raise BadFile(path, f"is no record of twins: {key}: {first['msg']}", AGAIN) from None


def read_key(path: Path) -> bytes:
    """Read a sealed key, 64 hexadecimal digits."""
    text = read_text(path).strip()
    if not HEXADECIMAL.fullmatch(text):
        raise BadFile(path, "is no sealed key, which has 64 hexadecimal digits", AGAIN)
    return bytes.fromhex(text)


def order_key(twins: Twins | None) -> bytes:
    """Return the key of the order that decides between equal scores: the opened key, else none."""
    if twins is None or twins.key is None:
        return PUBLIC
    return read_key(Path(twins.key))


@dataclass(frozen=True)
class Opened:
    """Whether the rows, the record and the key belong together; ``problems`` are empty where they do."""

    secrets: int
    k: int
    design: str
    problems: tuple[str, ...]


def open_seal(record: PublicRecord, secrets: Sequence[Secret], key: bytes) -> Opened:
    """Recompute all that the record fixed, and where the design is *drawn* which candidate is the true one."""
    rows = sorted_candidates(secrets)
    problems = []
    if record.secrets != len(rows):
        problems.append(f"the record has {record.secrets} secrets, the rows {len(rows)}")
    if any(len(candidates) != record.k for _, candidates in rows):
        problems.append(f"a secret has another number of candidates than {record.k}")
    if candidates_digest(rows) != record.candidates_sha256:
        problems.append("the candidates are not those of the record")
    if commitment(key, rows) != record.commitment:
        problems.append("the commitment is not that of this key and these candidates")
    if record.design == "drawn" and not problems:
        for secret in secrets:
            candidates = sorted(secret.candidates)
            drawn = candidates[drawn_place(key, secret.name, len(candidates))]
            if drawn != secret.candidates[0]:
                problems.append(f"secret {secret.name}: the answer is not the drawn candidate")
    return Opened(len(rows), record.k, record.design, tuple(problems))
