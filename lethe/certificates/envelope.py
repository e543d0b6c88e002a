"""A signed statement: the DSSE envelope (version 1.0), an Ed25519 key of the user, and the check of a signature.

Lethe makes and stores no key. The name of a key is that of securesystemslib, whose verifier finds a signature by it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import BadFile, shortened
from lethe.io.files import Json, read_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
    from cryptography.hazmat.primitives.serialization import SSHPublicKeyTypes

PAYLOAD_TYPE = "application/vnd.in-toto+json"
LEGAL = "an Ed25519 key in the OpenSSH or PEM form (`ssh-keygen -t ed25519`)"


def canonical(value: object) -> bytes:
    """UTF-8 JSON with sorted keys and without spaces."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode()


def signed_bytes(payload: bytes) -> bytes:
    """The bytes that are signed: DSSE's pre-authentication encoding of the payload and its type.

    >>> signed_bytes(b"{}")
    b'DSSEv1 28 application/vnd.in-toto+json 2 {}'
    """
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Signature:
    """``others`` are the fields that securesystemslib adds for a key of GnuPG; a verifier of DSSE passes them over."""

    key_id: str
    value: bytes
    others: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Envelope:
    """The bytes of a statement with signatures of them."""

    payload: bytes
    signatures: tuple[Signature, ...]

    def as_json(self) -> dict[str, Json]:
        signatures = []
        for signature in self.signatures:
            value = base64.b64encode(signature.value).decode()
            signatures.append({**signature.others, "keyid": signature.key_id, "sig": value})
        return {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": signatures,
        }

    def is_signed_by(self, key: Ed25519PublicKey) -> bool:
        """Whether some signature is one of ``key`` on the payload."""
        from cryptography.exceptions import InvalidSignature

        for signature in self.signatures:
            try:
                key.verify(signature.value, signed_bytes(self.payload))
            except InvalidSignature:
                continue
            return True
        return False


def is_envelope(value: Json) -> bool:
    """Whether a JSON value is a signed envelope (DSSE)."""
    return isinstance(value, dict) and "payload" in value and "payloadType" in value


def read_envelope(path: Path) -> Envelope:
    """Read a DSSE envelope of an in-toto statement. Raises `BadFile` for another file."""
    value = read_json(path)
    if not is_envelope(value):
        raise BadFile(path, "is no DSSE envelope")
    if value["payloadType"] != PAYLOAD_TYPE:
        got = shortened(value["payloadType"])
        raise BadFile(path, f"has the payload type {got}, expected {PAYLOAD_TYPE!r}")
    try:
        return envelope_of(value)
    except (AttributeError, KeyError, TypeError, ValueError, binascii.Error):
        remedy = "Ask its author for the file as it was written."
        raise BadFile(path, "is a broken DSSE envelope", remedy) from None


def envelope_of(value: Mapping[str, Json]) -> Envelope:
    """The envelope of a JSON object; another object raises what its reading raises."""
    signatures = []
    for entry in value["signatures"]:
        others = dict(entry)
        signature = base64.b64decode(others.pop("sig"), validate=True)
        signatures.append(Signature(str(others.pop("keyid", "")), signature, others))
    return Envelope(base64.b64decode(value["payload"], validate=True), tuple(signatures))


def sign(payload: bytes, key: Ed25519PrivateKey) -> Envelope:
    """Return the payload in an envelope that ``key`` signs."""
    signature = Signature(key_id(key.public_key()), key.sign(signed_bytes(payload)))
    return Envelope(payload, (signature,))


def key_id(key: Ed25519PublicKey) -> str:
    """The name of a public key: the SHA-256 of its canonical JSON, as securesystemslib names it."""
    public = {"public": key.public_bytes_raw().hex()}
    value = {"keytype": "ed25519", "scheme": "ed25519", "keyval": public}
    return hashlib.sha256(canonical(value)).hexdigest()


def read_private_key(path: Path, password: bytes | None = None) -> Ed25519PrivateKey:
    """Read a private key in the OpenSSH or PEM form.

    Raises `BadFile` for another file, another kind of key and a wrong password. No message quotes the file.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    content = read_bytes(path)
    load: Callable[..., object] = serialization.load_pem_private_key
    if b"OPENSSH PRIVATE KEY" in content:
        load = serialization.load_ssh_private_key
    try:
        key = load(content, password)
    except UnsupportedAlgorithm:
        remedy = "Install lethe[sign], or sign the statement with `ssh-keygen -Y sign`."
        raise BadFile(path, "has a form that needs the package bcrypt", remedy) from None
    except TypeError:
        problem = "needs a password" if password is None else "has no password"
        raise BadFile(path, problem, "See --password-env.") from None
    except ValueError:
        problem = "is no private key that the password opens" if password else "is no private key"
        raise BadFile(path, problem, f"Name {LEGAL}.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadFile(path, f"holds a {type(key).__name__}", f"Name {LEGAL}.")
    return key


def load_public_key(path: Path) -> PublicKeyTypes | SSHPublicKeyTypes:
    """Read a public key of any kind in the OpenSSH or PEM form. Raises `BadFile` for another file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    content = read_bytes(path)
    load: Callable[[bytes], PublicKeyTypes | SSHPublicKeyTypes] = serialization.load_ssh_public_key
    if content.lstrip().startswith(b"-----BEGIN"):
        load = serialization.load_pem_public_key
    try:
        return load(content)
    except (ValueError, UnsupportedAlgorithm):
        remedy = "Name the public half of the key that signed."
        raise BadFile(path, "is no readable public key", remedy) from None


def read_bytes(path: Path) -> bytes:
    """The content of a key's file. Raises `BadFile` where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadFile(path, f"cannot be read ({error.strerror})") from None
