"""`lethe attest` and `lethe verify` of a statement: what other tools accept, and what is refused by name."""

import base64
import hashlib
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lethe.certificates import check, merkle
from lethe.certificates import envelope as envelopes
from lethe.certificates.envelope import canonical, load_public_key, read_envelope, signed_bytes
from lethe.errors import of_the_machine
from lethe.io.files import write_jsonl
from lethe.models import listing
from lethe.results.licence import Source, licensed
from lethe.results.table import as_served, in_language, read_rows, write
from lethe.statistics.answer_tree import Masses, Remainder
from lethe.statistics.bounds import binary_upper
from lethe.statistics.leak_trees import Version
from tests.lethe.certificates.small_run import add_counts_at_any_time, add_trees, write_run
from tests.lethe.cli.calls import Command
from tests.lethe.small_checkpoint import ROWS

command = Command()
SCORES = {"a": [1.0, 0.0, math.nan] + [0.0] * 197, "b": [0.0] * 200}
PUBLIC = "MCowBQYDK2VwAyEAOQX6TgpQvPxoNCk+bMwgzMq+ztrAmt4oIVq7reB0rjI="
NAMED = "4bd2af82c454e4cc9377b230a3b0744b1db1649eecf3ecb0fc34cd542a22d823"
RUN = ("attest", "run", "--model", "mine")


@pytest.fixture
def place(tmp_path, monkeypatch, checkpoint):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(checkpoint, "mine")
    write_run(Path("run"), Path("mine"), SCORES, ROWS)
    write_jsonl("rows.jsonl", ROWS)
    return tmp_path


@pytest.fixture
def key(place):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "id"], check=True)
    return "id"


def shell(text):
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


def attested(*more, status=0):
    done = command.call(*RUN, "--fail-above", 0.1, *more, "--json")
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def test_a_missing_answer_counts_as_a_leak_and_the_bound_is_rounded_up(place):
    (claim,) = attested()["statement"]["predicate"]["claims"]

    assert claim["lethe"]["witness"] == {"count": 2, "n": 200}
    assert claim["lethe"]["bound"] == "0.041363"
    assert claim["lethe"]["estimate"] == "0.005000"
    assert claim["metric"] == "leak_rate_worst_question_upper_0.99"
    assert claim["lethe"]["word"] == "bounded"


def test_a_bound_above_the_threshold_does_not_pass(place):
    done = command.call(*RUN, "--fail-above", 0.01, "--json")

    (claim,) = json.loads(done.stdout)["statement"]["predicate"]["claims"]
    assert done.exit_code == 1
    assert claim["passed"] is False
    assert claim["lethe"]["word"] == "open"


def test_other_draws_are_another_try_and_need_a_smaller_alpha(place):
    first = attested()["tries"]
    assert attested()["tries"] == first

    fresh = SCORES | {"a": [0.0] * 200}
    shutil.rmtree("run")
    write_run(Path("run"), Path("mine"), fresh, ROWS)
    second = attested(status=1)

    assert (first["count"], second["tries"]["count"]) == (1, 2)
    assert second["tries"]["alpha"] == pytest.approx(0.01 / 3)
    assert second["statement"]["predicate"]["claims"][0]["passed"] is True


def test_a_proved_leak_is_a_claim_of_its_own_with_a_corrected_level(place):
    write_run(Path("run"), Path("mine"), {"a": [1.0] * 40 + [0.0] * 40, "b": [0.0] * 80}, ROWS)

    upper, lower = attested(status=1)["statement"]["predicate"]["claims"]

    assert upper["passed"] is False
    assert lower["passed"] is True
    assert lower["lethe"]["witness"] == {"count": 40, "n": 80, "questions": 2}
    assert lower["lethe"]["word"] == "leaks"
    command.result("verify", "statement.json")


MASSES = Masses((0.001,), (0.95,))
TREES = {"a": (MASSES, Remainder(2000.0, 90, 3)), "b": (MASSES, Remainder(2000.0, 80, 0))}


def drawn_version():
    about = json.loads(Path("run/generations/mine/about.json").read_text())
    return Version(about["model"], about["questions"])


def at_any_time(more=0):
    """The run's fixed bounds count its first 100 answers, those at any time all 200."""
    table = Path("run/results/metrics/mine.parquet")
    rows = read_rows(table)
    for place, row in enumerate(rows):
        if (row.quantity, row.basis) == ("leak", "sampled"):
            facts = row.facts | {"n": 100}
            upper = float(binary_upper(facts["leaks"] + facts["missing"], 100, 0.01))
            rows[place] = replace(row, evidence=facts, n=100, upper=upper)
    write(table, rows)
    add_counts_at_any_time(Path("run"), "mine", {"a": (2 + more, 200), "b": (0, 200)}, first=100)


def claims_by_basis(*more, status=0):
    claims = attested(*more, status=status)["statement"]["predicate"]["claims"]
    return {(claim["lethe"]["basis"], claim["lethe"]["side"]): claim for claim in claims}


def test_an_end_at_any_time_has_a_metric_and_all_answers_as_its_witness(place):
    write_run(Path("run"), Path("mine"), {"a": [1.0, 1.0] + [0.0] * 198, "b": [0.0] * 200}, ROWS)
    at_any_time()

    claims = claims_by_basis()

    claim = claims["anytime", "upper"]
    assert claim["metric"] == "leak_rate_worst_question_anytime_upper_0.99"
    assert claim["lethe"]["witness"] == {"count": 2, "n": 200}
    assert claims["sampled", "upper"]["lethe"]["witness"] == {"count": 2, "n": 100}
    draws = json.loads(Path("statement.draws.json").read_text())
    assert [(entry["n"], entry["first"]) for entry in draws["questions"]] == [(200, 100)] * 2
    checked = command.result("verify", "statement.json", "--model", "mine", "--data", "rows.jsonl")
    assert len(checked["checked"]) == 4


def test_counts_at_any_time_that_the_scores_contradict_are_refused(place):
    write_run(Path("run"), Path("mine"), {"a": [1.0, 1.0] + [0.0] * 198, "b": [0.0] * 200}, ROWS)
    at_any_time(more=1)

    assert "other leaks" in command.refused(*RUN, "--fail-above", 0.1)


def test_an_end_at_any_time_that_another_question_exceeds_is_refused(place):
    write_run(Path("run"), Path("mine"), {"a": [1.0, 1.0] + [0.0] * 198, "b": [0.0] * 200}, ROWS)
    at_any_time()
    value = attested()["statement"]
    added = value["predicate"]["claims"][1]["lethe"]
    added["witness"] = {"count": 0, "n": 200}
    added["bound"] = "0.04"
    Path("statement.json").write_bytes(canonical(value))

    assert "exceeds" in command.refused("verify", "statement.json")


def test_both_ends_of_the_trees_are_claims_that_the_checker_verifies(place):
    masses = Masses((0.02,), (0.9,))
    trees = TREES | {"b": (masses, Remainder(2000.0, 90, 9))}
    add_trees(Path("run"), "mine", trees, drawn_version())

    claims = claims_by_basis("--fail-above", 0.01, status=1)

    upper, lower = claims["tree", "upper"], claims["tree", "lower"]
    assert upper["metric"] == "leak_rate_worst_question_tree_upper_0.99"
    assert lower["lethe"]["witness"]["count"] == 9
    assert lower["lethe"]["witness"]["questions"] == 2
    assert 0.02 < float(lower["lethe"]["bound"]) < float(upper["lethe"]["bound"]) < 0.04
    assert check.main(["statement.json"]) == 0
    assert command.result("verify", "statement.json")["checked"]


@pytest.mark.parametrize(
    ("scores", "masses"),
    [
        ({"a": [1.0] * 150 + [0.0] * 50, "b": [0.0] * 200}, Masses((0.001,), (0.95,))),
        ({"a": [0.0] * 200, "b": [0.0] * 200}, Masses((0.2,), (0.7,))),
    ],
    ids=["upper", "lower"],
)
def test_ends_of_trees_that_the_draws_contradict_are_refused(place, scores, masses):
    write_run(Path("run"), Path("mine"), scores, ROWS)
    add_trees(
        Path("run"),
        "mine",
        dict.fromkeys("ab", (masses, Remainder(2000.0, 80, 0))),
        drawn_version(),
    )
    command.call(*RUN, "--fail-above", 0.1)

    assert "contradict" in command.refused("verify", "statement.json")


CHANGES = {
    "root": lambda predicate, _: predicate["evidence"][0]["annotations"].update(root="00"),
    "digest": lambda _, subject: subject["digest"].update(sha512="0" * 128),
    "commitments": lambda predicate, _: predicate.update(
        commitments={"dataset": {"alg": "sha256", "value": "0" * 64}}
    ),
    "version": lambda predicate, _: predicate["suite"].update(version="0" * 12),
    "seed": lambda predicate, _: predicate["lethe"]["engine"].update(seed=7),
    "access": lambda predicate, _: predicate["lethe"].update(access="answers"),
    "estimate": lambda predicate, _: predicate["claims"][0]["lethe"].update(estimate="0.5"),
    "no decimal": lambda predicate, _: predicate["claims"][0]["lethe"].update(estimate="1e-9"),
    "files": lambda predicate, _: predicate["model"]["annotations"]["files"].pop(),
    "base": lambda predicate, _: predicate["lethe"].update(base={"dirHash": "0" * 64}),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_what_another_tool_could_match_is_checked_or_refused(place, changed):
    value = attested()["statement"]
    CHANGES[changed](value["predicate"], value["subject"][0])
    Path("statement.json").write_bytes(canonical(value))

    assert changed in command.refused("verify", "statement.json", "--model", "mine")


@pytest.mark.parametrize("changed", [{"model": "other"}, {"questions": "other"}], ids=str)
def test_trees_of_other_weights_or_questions_are_left_out(place, changed):
    add_trees(Path("run"), "mine", TREES, replace(drawn_version(), **changed))

    assert set(claims_by_basis()) == {("sampled", "upper")}


def test_trees_that_leave_a_question_out_claim_nothing_of_the_worst(place):
    add_trees(Path("run"), "mine", {"a": TREES["a"]}, drawn_version())

    assert set(claims_by_basis()) == {("sampled", "upper")}


def test_the_subject_is_what_sha256sum_prints(place):
    subject, weights = attested()["statement"]["subject"]

    files = (
        "config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json"
    )
    listed = shell(f"cd mine && LC_ALL=C sha256sum {files} | sha256sum")[1].split()[0]
    assert subject["digest"] == {"sha256": listed}
    alone = shell("sha256sum mine/model.safetensors")[1].split()[0]
    assert weights["digest"] == {"sha256": alone}


def test_the_draws_beside_it_have_the_counts_and_the_root(place):
    evidence = attested()["statement"]["predicate"]["evidence"][0]

    draws = json.loads(Path("statement.draws.json").read_text())
    leaves = Path("statement.leaves.bin").read_bytes()
    hashes = [leaves[at : at + merkle.SIZE] for at in range(0, len(leaves), merkle.SIZE)]
    assert draws["questions"] == [
        {"id": "a", "n": 200, "leaks_at": [0, 2]},
        {"id": "b", "n": 200, "leaks_at": []},
    ]
    assert merkle.root(hashes).hex() == draws["root"] == evidence["annotations"]["root"]
    assert "answer 5 to a" not in Path("statement.draws.json").read_text()


def test_openssl_alone_verifies_the_envelope_and_refuses_one_changed_byte(place, key):
    attested("--key", key, "--out", "e.json")
    envelope = read_envelope(Path("e.json"))
    Path("payload").write_bytes(envelope.payload)
    Path("sig").write_bytes(envelope.signatures[0].value)
    public = load_public_key(Path(f"{key}.pub"))
    Path("public.pem").write_bytes(
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    encoding = (
        """printf 'DSSEv1 28 application/vnd.in-toto+json %d ' $(wc -c < payload); cat payload"""
    )
    verify = f"({encoding}) > pae; openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in pae -sigfile sig"

    good, _ = shell(verify)
    Path("payload").write_bytes(envelope.payload.replace(b"true", b"tru3", 1))
    bad, _ = shell(verify)

    assert good == 0
    assert bad != 0


def test_ssh_keygen_signs_the_unsigned_statement(place, key):
    attested()

    sign = f"ssh-keygen -q -Y sign -f {key} -n lethe statement.json"
    allowed = f'echo "me@example.org $(cat {key}.pub)" > allowed'
    verify = "ssh-keygen -Y verify -f allowed -I me@example.org -n lethe -s statement.json.sig < statement.json"
    assert shell(f"{sign} && {allowed} && {verify}")[0] == 0


def test_a_verifier_with_key_model_and_questions_checks_everything(place, key):
    attested("--key", key, "--out", "e.json")

    found = command.result(
        *("verify", "e.json", "--key", "id.pub", "--model", "mine", "--data", "rows.jsonl")
    )

    assert len(found["checked"]) == 5
    assert found["unchecked"] == []


def test_what_a_verifier_does_not_name_stays_unchecked(place, key):
    attested("--key", key, "--out", "alone/e.json")
    shutil.copy("alone/e.json", "copy.json")

    found = command.result("verify", "copy.json")

    assert len(found["checked"]) == 1
    assert len(found["unchecked"]) == 4


def test_one_changed_byte_is_refused(place, key):
    attested("--key", key, "--out", "e.json")
    value = json.loads(Path("e.json").read_text())
    payload = base64.b64decode(value["payload"]).replace(b'"count":2', b'"count":1')
    Path("e.json").write_text(json.dumps(value | {"payload": base64.b64encode(payload).decode()}))

    assert "no signature of id.pub" in command.refused("verify", "e.json", "--key", "id.pub")


def test_a_payload_with_a_key_twice_is_refused(place, key):
    attested("--key", key, "--out", "e.json")
    payload = read_envelope(Path("e.json")).payload
    twice = payload.replace(b'"passed":true', b'"passed":false,"passed":true')
    signed = envelopes.sign(twice, envelopes.read_private_key(Path(key)))
    Path("e.json").write_bytes(canonical(signed.as_json()))

    assert "duplicate key" in command.refused("verify", "e.json", "--key", "id.pub")


def test_another_key_model_or_set_of_questions_is_refused(place, key):
    attested("--key", key, "--out", "e.json")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "other"], check=True)
    shutil.copytree("mine", "changed")
    weights = Path("changed/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    write_jsonl("fewer.jsonl", ROWS[:1])

    assert "no signature" in command.refused("verify", "e.json", "--key", "other.pub")
    assert "another model" in command.refused("verify", "e.json", "--model", "changed")
    assert "other questions" in command.refused("verify", "e.json", "--data", "fewer.jsonl")


def test_a_bound_that_its_witness_does_not_allow_is_refused(place):
    value = attested()["statement"]
    value["predicate"]["claims"][0]["lethe"]["bound"] = "0.02"
    Path("statement.json").write_bytes(canonical(value))

    assert "claim 1" in command.refused("verify", "statement.json")


def test_draws_with_other_counts_than_the_claim_are_refused(place):
    value = attested()["statement"]
    value["predicate"]["claims"][0]["lethe"] |= {
        "bound": "0.023",
        "witness": {"count": 0, "n": 200},
    }
    Path("statement.json").write_bytes(canonical(value))

    assert "exceeds" in command.refused("verify", "statement.json")


def test_a_lower_end_with_the_whole_level_for_the_worst_of_two_questions_is_refused(place):
    write_run(Path("run"), Path("mine"), {"a": [1.0] * 40 + [0.0] * 40, "b": [0.0] * 80}, ROWS)
    value = attested(status=1)["statement"]
    added = value["predicate"]["claims"][1]["lethe"]
    added["witness"].pop("questions")
    added["method"] = "Clopper-Pearson"
    Path("statement.json").write_bytes(canonical(value))

    assert "too few questions" in command.refused("verify", "statement.json")


def test_weights_that_changed_since_the_answers_were_drawn_are_refused(place):
    weights = Path("mine/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")

    assert "is not the model" in command.refused(*RUN, "--fail-above", 0.1)


def test_a_run_that_names_no_weights_is_refused(place):
    about = Path("run/generations/mine/about.json")
    record = json.loads(about.read_text())
    del record["model"]
    about.write_text(json.dumps(record))

    assert "does not record" in command.refused(*RUN, "--fail-above", 0.1)


@pytest.mark.parametrize(
    "command_line", [("verify", "statement.json", "--model", "mine"), (*RUN, "--fail-above", 0.1)]
)
def test_a_folder_that_is_edited_while_it_is_read_is_no_subject(place, monkeypatch, command_line):
    attested("--out", "statement.json")
    hashed = hashlib.file_digest

    def edited_once_hashed(content, algorithm):
        with Path("mine/generation_config.json").open("a") as settings:
            settings.write(" ")
        return hashed(content, algorithm)

    monkeypatch.setattr(listing.hashlib, "file_digest", edited_once_hashed)

    assert "changed while it" in command.refused(*command_line)


def test_a_question_without_counts_is_refused_by_its_name(place):
    table = Path("run/results/metrics/mine.parquet")
    write(table, [row for row in read_rows(table) if row.item != "b"])

    assert "question 'b'" in command.refused(*RUN, "--fail-above", 0.1)


def test_a_run_whose_prompts_are_drawn_too_is_refused(place):
    table = Path("run/results/metrics/mine.parquet")
    rows = [in_language(row) if row.quantity == "leak" else row for row in read_rows(table)]
    write(table, rows)

    assert "fixed prompts" in command.refused(*RUN, "--fail-above", 0.1)


def test_scores_with_other_leaks_than_the_bound_are_refused(place):
    table = Path("run/scores/mine/forget.parquet")
    scores = pd.read_parquet(table)
    scores["keyword_leak"] = 0.0
    scores.to_parquet(table)

    assert "other leaks" in command.refused(*RUN, "--fail-above", 0.1)


def test_draws_that_leave_a_question_out_are_refused(place):
    value = attested()["statement"]
    draws = json.loads(Path("statement.draws.json").read_text())
    draws |= {"questions": draws["questions"][:1], "size": 200}
    content = canonical(draws)
    Path("statement.draws.json").write_bytes(content)
    value["predicate"]["sampleSize"] = 200
    evidence = value["predicate"]["evidence"][0]
    evidence["digest"]["sha256"] = sha256(content).hexdigest()
    evidence["annotations"]["size"] = 200
    Path("statement.json").write_bytes(canonical(value))

    assert "leaves question 'b'" in command.refused(
        "verify", "statement.json", "--data", "rows.jsonl"
    )


@pytest.mark.parametrize("option", ["--check", "--redraw"])
def test_an_option_of_certificates_is_refused_beside_a_statement(place, option):
    attested()

    assert option in command.refused("verify", "statement.json", option, 5)


def test_a_subject_that_is_another_file_is_refused(place):
    value = attested()["statement"]
    value["subject"].append({"name": "popular", "digest": {"sha256": "ab" * 32}})
    Path("statement.json").write_bytes(canonical(value))

    assert "subject" in command.refused("verify", "statement.json", "--model", "mine")


def test_a_changed_file_of_draws_is_refused(place):
    attested()
    draws = Path("statement.draws.json")
    draws.write_text(draws.read_text().replace("[0,2]", "[0]"))

    assert "SHA-256" in command.refused("verify", "statement.json")


def test_a_key_with_a_password_is_opened_by_the_variable_that_holds_it(place, monkeypatch):
    shell("openssl genpkey -algorithm ed25519 -aes256 -pass pass:secret -out id")
    shell("openssl pkey -in id -passin pass:secret -pubout -out id.pub")
    monkeypatch.setenv("PASS", "secret")
    signed = (*RUN, "--fail-above", 0.1, "--key", "id", "--out", "e.json")

    assert "needs a password" in command.refused(*signed)
    assert "--password-env: got 'NONE'" in command.refused(*signed, "--password-env", "NONE")
    command.result(*signed, "--password-env", "PASS")
    assert command.result("verify", "e.json", "--key", "id.pub")["checked"]


def test_a_wrong_password_is_refused(place, monkeypatch):
    shell("openssl genpkey -algorithm ed25519 -aes256 -pass pass:secret -out id")
    monkeypatch.setenv("PASS", "guess")
    signed = (*RUN, "--fail-above", 0.1, "--key", "id", "--password-env", "PASS")

    assert "no private key" in command.refused(*signed)


@pytest.mark.parametrize(("kind", "said"), [("rsa", "RSAPrivateKey"), ("ecdsa", "ECPrivateKey")])
def test_another_kind_of_key_is_refused_by_its_name(place, kind, said):
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", "id"], check=True)

    assert said in command.refused(*RUN, "--fail-above", 0.1, "--key", "id")


def test_a_key_at_an_address_needs_its_public_half(place):
    refused = command.refused(*RUN, "--fail-above", 0.1, "--key", "awskms:alias/mine")

    assert "--public-key" in refused


def test_a_file_of_a_key_takes_no_public_half(place, key):
    assert "--public-key" in command.refused(
        *RUN, "--fail-above", 0.1, "--key", key, "--public-key", "id.pub"
    )


def test_a_key_at_an_address_needs_a_package_that_is_named(place, key, monkeypatch):
    monkeypatch.setitem(sys.modules, "securesystemslib", None)
    address = ("--key", "awskms:alias/mine", "--public-key", "id.pub")

    done = command.call(*RUN, "--fail-above", 0.1, *address)

    assert done.exit_code != 0
    assert "lethe[sign]" in "".join(done.output.split())


def test_the_name_of_a_key_is_that_of_securesystemslib(place):
    # The public key of the example of the specification, and the name that securesystemslib 1.6.0 gives it.
    pem = "-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n"
    Path("public.pem").write_text(pem % PUBLIC)

    assert envelopes.key_id(load_public_key(Path("public.pem"))) == NAMED


def test_an_unmeasured_model_is_named_with_the_stage_that_is_missing(place):
    shutil.rmtree("run/results")

    done = command.call(*RUN, "--fail-above", 0.1)
    assert done.exit_code == 1
    assert "stage metrics" in done.output


RUNS = {
    "another model": (("run", "--model", "other"), "run: mine"),
    "no folder": (("runs", "--model", "mine"), "no such folder"),
}


@pytest.mark.parametrize(("named", "said"), RUNS.values(), ids=RUNS)
def test_a_run_or_a_model_that_is_not_there_is_wrong_use(place, named, said):
    assert said in command.refused("attest", *named, "--fail-above", 0.1)

    assert said in command.refused("dossier", *named, "--record", "a", "--request", "1")


def test_a_run_without_counts_of_leaks_is_refused(place):
    table = Path("run/results/metrics/mine.parquet")
    write(table, [row for row in read_rows(table) if row.quantity != "leak"])

    assert "scorer of 0 and 1" in command.refused(*RUN, "--fail-above", 0.1)


def test_a_run_that_carries_no_claim_is_refused_with_the_reason(place):
    table = Path("run/results/metrics/mine.parquet")
    rows = licensed("mine", read_rows(table), Source(failed_probes=("draws",)))
    write(table, rows)

    assert "the probe draws" in command.refused(*RUN, "--fail-above", 0.1)


def test_a_certificate_takes_no_public_key(place):
    Path("c.json").write_text("{}")

    assert "--key" in command.refused("verify", "c.json", "--key", "id.pub")


def test_the_signed_bytes_name_type_and_length():
    assert signed_bytes(b"ab").endswith(b" 2 ab")


@pytest.mark.parametrize(
    "stated_key",
    ["evaluatedAt", "evaluator.id", "lethe.access", "lethe", "harness", "assuranceLevel"],
)
def test_a_field_that_a_statement_lacks_is_named(stated_key, key):
    attested()
    statement = json.loads(Path("statement.json").read_text())
    *above, last = stated_key.split(".")
    within = statement["predicate"]
    for name in above:
        within = within[name]
    del within[last]
    Path("statement.json").write_text(json.dumps(statement))

    said = command.result("verify", "statement.json")["unchecked"]

    (absent,) = [sentence for sentence in said if sentence.startswith("Not stated: ")]
    assert stated_key in absent


@pytest.mark.parametrize(
    "commitment",
    [{"value": "none"}, {"alg": "sha256", "value": ["a"]}, {"alg": "md5", "value": "0" * 64}],
)
def test_what_is_no_digest_commits_to_no_model(key, commitment):
    attested()
    statement = json.loads(Path("statement.json").read_text())
    del statement["predicate"]["model"]
    statement["predicate"]["commitments"] = {"model": commitment}
    Path("statement.json").write_text(json.dumps(statement))

    said = command.result("verify", "statement.json")["unchecked"]

    assert any("model.name" in sentence for sentence in said)


def test_a_predicate_that_is_no_object_is_refused_as_such(key):
    attested()
    statement = json.loads(Path("statement.json").read_text()) | {"predicate": []}
    Path("statement.json").write_text(json.dumps(statement))

    assert "no JSON object" in command.refused("verify", "statement.json")


def test_the_extra_of_keys_is_named_where_an_installation_does_not_list_it():
    missing = ModuleNotFoundError("No module", name="securesystemslib.dsse")

    assert "lethe[sign]" in str(of_the_machine(missing))


def test_a_whole_statement_states_everything(key):
    attested()

    said = command.result("verify", "statement.json")["unchecked"]

    assert not any(sentence.startswith("Not stated") for sentence in said)


SERVED = {
    "endpoint": "http://127.0.0.1:8000/v1",
    "model": "mine",
    "first": "2026-11-28T15:00:00Z",
    "last": "2026-11-28T15:10:00Z",
    "seeded": False,
    "probes": [],
}


@pytest.fixture
def served(place):
    """The run as `lethe eval --endpoint` leaves it: no weights, and the record of the server."""
    about = Path("run/generations/mine/about.json")
    record = json.loads(about.read_text()) | {"engine": "endpoint", "served": SERVED}
    del record["model"]
    about.write_text(json.dumps(record))
    table = Path("run/results/metrics/mine.parquet")
    write(table, as_served(read_rows(table), SERVED))
    shutil.rmtree("mine")


def test_a_served_model_is_named_by_the_hash_of_its_record(served):
    done = attested()

    statement = done["statement"]
    digest = shell("sha256sum statement.served.json")[1].split()[0]
    assert [subject["digest"]["sha256"] for subject in statement["subject"]] == [digest]
    assert statement["predicate"]["commitments"]["model"]["value"] == digest
    assert statement["predicate"]["subjectProfile"] == "receipt"
    assert statement["predicate"]["lethe"]["access"] == "answers"
    assert "model" not in statement["predicate"]
    assert SERVED["endpoint"] not in Path("statement.json").read_text()
    assert json.loads(Path("statement.served.json").read_text())["served"] == SERVED
    assert check.main(["statement.json"]) == 0


def test_two_statements_of_a_server_have_other_hashes(served):
    first = attested()["statement"]["subject"]
    assert attested("--out", "again.json")["statement"]["subject"] != first


def test_the_record_of_a_served_model_is_checked_by_its_hash(served, key):
    attested("--key", key, "--out", "e.json")
    verify = ("verify", "e.json", "--key", "id.pub", "--data", "rows.jsonl")

    found = command.result(*verify, "--model", "e.served.json")
    without = command.result(*verify)
    record = Path("e.served.json")
    record.write_text(record.read_text().replace("8000", "8001"))

    assert found["unchecked"] == []
    assert len(without["unchecked"]) == 1
    assert "another model" in command.refused(*verify, "--model", "e.served.json")
    assert "served model" in command.refused(*verify, "--model", "run")
