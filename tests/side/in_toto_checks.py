"""`python -m tests.benchmarks in-toto`: in-toto's library and securesystemslib read what `lethe attest` writes."""

import base64
import json
import re
import subprocess
from pathlib import Path

import pytest
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, GPGSigner, SSlibKey

import lethe
from lethe.certificates.envelope import load_public_key
from lethe.errors import BadFile, BadInput
from lethe.io.files import write_jsonl
from tests.lethe.certificates.small_run import write_run
from tests.lethe.small_checkpoint import ROWS, save_small_checkpoint

SCORES = {"a": [0.0] * 200, "b": [1.0] + [0.0] * 199}


@pytest.fixture(scope="module")
def envelope(tmp_path_factory):
    """(path, public key) of an envelope that a key of ssh-keygen signed."""
    folder = tmp_path_factory.mktemp("attested")
    save_small_checkpoint(folder / "mine")
    write_run(folder / "run", folder / "mine", SCORES, ROWS)
    write_jsonl(folder / "rows.jsonl", ROWS)
    key = folder / "id"
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(made, check=True)
    stated = lethe.attest(
        folder / "run", model="mine", fail_above=0.1, key=key, folder=folder / "mine"
    )
    stated.write(folder / "envelope.json")
    public = SSlibKey.from_crypto(load_public_key(Path(f"{key}.pub")))
    return folder / "envelope.json", public


def test_in_toto_accepts_the_statement(envelope):
    payload = json.loads(base64.b64decode(json.loads(envelope[0].read_text())["payload"]))
    message = json_format.ParseDict(payload, statement_pb2.Statement())

    Statement.copy_from_pb(message).validate()

    assert message.subject[0].digest["sha256"]
    assert dict(message.predicate)["assuranceLevel"] == "self_attested"


def test_securesystemslib_verifies_the_envelope_by_its_key_id(envelope):
    path, public = envelope
    read = Envelope.from_dict(json.loads(path.read_text()))

    assert list(read.verify([public], 1)) == [public.keyid]


def test_securesystemslib_refuses_one_changed_byte(envelope):
    path, public = envelope
    value = json.loads(path.read_text())
    payload = base64.b64decode(value["payload"]).replace(b'"passed":true', b'"passed":tru3')
    value["payload"] = base64.b64encode(payload).decode()

    with pytest.raises(VerificationError):
        Envelope.from_dict(value).verify([public], 1)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_key_at_an_address_signs_and_lethe_verifies(envelope, kind, monkeypatch):
    folder = envelope[0].parent
    monkeypatch.chdir(folder)
    signer = getattr(CryptoSigner, f"generate_{kind}")()
    Path("private.pem").write_bytes(signer.private_bytes)
    Path("public.json").write_text(json.dumps(signer.public_key.to_dict()))
    key = {"key": "file2:private.pem", "public_key": "public.json"}

    stated = lethe.attest("run", model="mine", fail_above=0.1, folder="mine", **key)
    stated.write(Path(f"{kind}.json"))

    assert stated.statement()["predicate"]["evaluator"]["id"].endswith(signer.public_key.keyid)
    found = lethe.verify(f"{kind}.json", key="public.json")
    assert "signature" in found.checked[0]
    changed = json.loads(Path("public.json").read_text())
    other = getattr(CryptoSigner, f"generate_{kind}")().public_key.to_dict()
    Path("other.json").write_text(json.dumps(changed | other))
    with pytest.raises(BadFile, match="signature"):
        lethe.verify(f"{kind}.json", key="other.json")


ADDRESSES = ["hsm:2", "awskms:alias/mine", "gcpkms:mine", "azurekms:mine", "hv:mine/1"]


@pytest.mark.parametrize("address", [*ADDRESSES, "tkey:?digest=ab"])
def test_a_scheme_whose_package_is_missing_names_what_to_install(envelope, address, monkeypatch):
    monkeypatch.chdir(envelope[0].parent)
    key = {"key": address, "public_key": "id.pub"}
    stated = lethe.attest("run", model="mine", fail_above=0.1, folder="mine", **key)

    with pytest.raises(BadInput, match="pip install 'securesystemslib"):
        stated.write(Path("signed.json"))


def test_an_unknown_scheme_is_refused_with_those_that_exist(envelope, monkeypatch):
    monkeypatch.chdir(envelope[0].parent)
    key = {"key": "paper:mine", "public_key": "id.pub"}
    stated = lethe.attest("run", model="mine", fail_above=0.1, folder="mine", **key)

    with pytest.raises(BadInput, match="awskms:"):
        stated.write(Path("signed.json"))


def test_a_key_of_gnupg_signs_and_lethe_verifies(envelope, monkeypatch):
    folder = envelope[0].parent
    monkeypatch.chdir(folder)
    home = folder / "gpg"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    make = ["gpg", "--batch", "--passphrase", "", "--quick-gen-key", "me@example.org", "rsa2048"]
    subprocess.run(make, check=True, capture_output=True)
    listed = subprocess.run(
        ["gpg", "--list-keys", "--with-colons"], check=True, capture_output=True, text=True
    )
    (fingerprint,) = re.findall("^fpr:.*:(.+):$", listed.stdout, re.MULTILINE)[:1]
    uri, public = GPGSigner.import_(fingerprint.lower())
    Path("gpg.json").write_text(json.dumps(public.to_dict() | {"keyid": public.keyid}))

    stated = lethe.attest(
        "run", model="mine", fail_above=0.1, folder="mine", key=uri, public_key="gpg.json"
    )
    stated.write(Path("gnupg.json"))

    assert "signature" in lethe.verify("gnupg.json", key="gpg.json").checked[0]
