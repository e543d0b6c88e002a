"""`python -m tests.benchmarks in-toto`: in-toto's library and securesystemslib read what `lethe attest` writes."""

import base64
import json
import subprocess
from pathlib import Path

import pytest
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

import lethe
from lethe.certificates.envelope import read_public_key
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
    public = SSlibKey.from_crypto(read_public_key(Path(f"{key}.pub")))
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
