"""The user's key: a file, or an address of securesystemslib (a device, a key service), and what it signs."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.certificates import envelope as envelopes
from lethe.certificates.envelope import PAYLOAD_TYPE, Envelope
from lethe.errors import BadArguments, BadFile, BadInput, BadValue, shortened
from lethe.io.files import without_doubles

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import Key

ADDRESS = re.compile(r"[a-z][a-z0-9]+:")  # two letters at least: C: is a drive
# The extra of securesystemslib that a scheme needs; the schemes of files need its extra crypto alone.
EXTRA_OF_SCHEME = {
    "awskms": "awskms",
    "azurekms": "azurekms",
    "gcpkms": "gcpkms",
    "hsm": "hsm",
    "hv": "vault",
    "tkey": "tkey",
}


@dataclass(frozen=True)
class SigningKey:
    """``place`` is a file, or an address whose public half is the file ``public``; ``password_env`` names a variable."""

    place: str
    public: Path | None = None
    password_env: str | None = None

    def __post_init__(self) -> None:
        if self.is_at_address != (self.public is not None):
            problem = "a key at an address needs its public half, and a file holds both halves"
            raise BadArguments(("key", "public_key"), problem)

    @property
    def is_at_address(self) -> bool:
        """Whether securesystemslib holds the key (``awskms:...``); a file may have a colon in its name.

        >>> SigningKey("hsm:2", Path("public.pem")).is_at_address, SigningKey("keys/id").is_at_address
        (True, False)
        """
        return bool(ADDRESS.match(self.place)) and not Path(self.place).exists()

    @property
    def id(self) -> str:
        """The name of the key, which its signature bears. Raises as `sign`."""
        if self.public is not None:
            return str(read_key(self.public).keyid)
        return envelopes.key_id(self._private().public_key())

    def sign(self, payload: bytes) -> Envelope:
        """The payload in an envelope that the key signs.

        Raises `BadFile` for a file that is no key, and `BadInput` where a package is missing, the scheme is unknown, or
        whoever holds the key refuses.
        """
        if self.public is not None:
            return self._sign_at_address(payload, read_key(self.public))
        return envelopes.sign(payload, self._private())

    def _private(self) -> Ed25519PrivateKey:
        password = self._password()
        return envelopes.read_private_key(
            Path(self.place), None if password is None else password.encode()
        )

    def _sign_at_address(self, payload: bytes, key: Key) -> Envelope:
        from securesystemslib.dsse import Envelope as OfLibrary
        from securesystemslib.exceptions import UnsupportedLibraryError
        from securesystemslib.signer import SIGNER_FOR_URI_SCHEME, Signer

        scheme = self.place.partition(":")[0]
        if scheme not in SIGNER_FOR_URI_SCHEME:
            schemes = ", ".join(f"{name}:" for name in SIGNER_FOR_URI_SCHEME)
            raise BadValue("key", self.place, f"a file, or an address that begins with {schemes}")
        unsigned = OfLibrary(payload, PAYLOAD_TYPE, {})
        try:
            unsigned.sign(Signer.from_priv_key_uri(self.place, key, self._secret))
        except BadInput:
            raise
        except UnsupportedLibraryError as error:
            extra = EXTRA_OF_SCHEME.get(scheme, "crypto")
            remedy = f"`pip install 'securesystemslib[crypto,{extra}]'`"
            raise BadInput(
                f"--key: {scheme}: lacks a package ({error}). Install it: {remedy}."
            ) from None
        except Exception as error:  # whatever a device or a service raises
            said = shortened(f"{type(error).__name__}: {error}")
            raise BadInput(f"--key: {shortened(self.place)} did not sign: {said}.") from None
        return envelopes.envelope_of(unsigned.to_dict())

    def _secret(self, _name: str) -> str:
        password = self._password()
        if password is None:
            raise BadInput(f"--key: {shortened(self.place)} needs a password. See --password-env.")
        return password

    def _password(self) -> str | None:
        if self.password_env is None:
            return None
        value = os.environ.get(self.password_env)
        if value is None:
            legal = "the name of an environment variable that is set"
            raise BadValue("password_env", self.password_env, legal)
        return value


def is_signed_by(envelope: Envelope, public: Path) -> bool:
    """Whether the key in a file signed the envelope: an Ed25519 key under any name, another kind under its own."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not _is_json(public):
        key = envelopes.load_public_key(public)
        if isinstance(key, Ed25519PublicKey):
            return envelope.is_signed_by(key)
    from securesystemslib.dsse import Envelope as OfLibrary
    from securesystemslib.exceptions import VerificationError

    try:
        OfLibrary.from_dict(envelope.as_json()).verify([read_key(public)], 1)
    except (VerificationError, KeyError, ValueError):
        return False
    return True


def read_key(path: Path) -> Key:
    """Read a public key of any kind: OpenSSH, PEM, or securesystemslib's JSON, which names the key's scheme.

    Raises `BadFile` for another file.
    """
    from securesystemslib.signer import Key, SSlibKey

    remedy = "Name a public key as PEM, or as the JSON of securesystemslib."
    try:
        if not _is_json(path):
            return SSlibKey.from_crypto(envelopes.load_public_key(path))
        fields = json.loads(path.read_bytes(), object_pairs_hook=without_doubles)
        key_id = fields.pop("keyid", None)
        if key_id is None:
            named = {name: fields[name] for name in ("keytype", "scheme", "keyval")}
            # As in securesystemslib, whose canonical JSON does not escape the ends of lines.
            content = envelopes.canonical(named).replace(rb"\n", b"\n")
            key_id = hashlib.sha256(content).hexdigest()
        return Key.from_dict(key_id, fields)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadFile(path, f"is no public key ({shortened(error)})", remedy) from None


def _is_json(path: Path) -> bool:
    return envelopes.read_bytes(path).lstrip().startswith(b"{")
