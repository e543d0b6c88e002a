"""`lethe certify` and `lethe verify`: evidence that adds up, what is refused by name, and broken files."""

import contextlib
import json
import math
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import lethe
from lethe.certificates import check as checker
from lethe.certificates.audits import audited
from lethe.certificates.certificate import (
    FACTS,
    SCHEMA,
    Audit,
    Certificate,
    Check,
    read_certificate,
)
from lethe.certificates.drawing import SeededDraws
from lethe.certificates.hashes import CertificateSettings, facts
from lethe.certificates.merkle import root
from lethe.errors import BadInput
from lethe.io.files import write_jsonl
from lethe.sampling import forecast
from lethe.sampling.predictor import RowModel
from lethe.statistics.anytime import Counts, log_below, log_e_forgot
from lethe.statistics.spot_check import exact_upper
from tests.lethe.cli.calls import Command
from tests.lethe.sampling.fault_server import FaultServer
from tests.lethe.small_checkpoint import ROWS
from tests.small import ROOT


@pytest.fixture
def place(tmp_path, monkeypatch, checkpoint):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(checkpoint, "model")
    write_jsonl("rows.jsonl", ROWS)
    return tmp_path


command = Command()
call, refused = command.call, command.refused


def certify(*more):
    done = call(
        *"certify --model model --data rows.jsonl --max-new-tokens 3 --tau 0.2 --json".split(),
        *more,
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def verify(*more):
    done = call("verify", "certificate.json", "--json", *more)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_evidence_of_auditors_multiplies_up_to_a_certificate(place, monkeypatch):
    first = certify("--draws", 20)
    assert first["schema"] == "lethe-certificate/3"
    assert set(first["hashes"]) == set(FACTS)
    assert first["verdict"] == "not certified yet"
    (question, _) = first["e_process"]["per_question"]
    assert question["log_e_value"] == pytest.approx(float(log_below(question["leaks"], 20, 0.2)))
    # An auditor's seed is fresh. Draws go on in batches until they are enough, so this fails in one run of 50,000.
    for auditor in ("one", "two"):
        last = verify("--draws", 150, "--auditor", auditor)
    assert [audit["auditor"] for audit in last["auditors"]] == ["author", "one", "two"]
    assert len({audit["seed"] for audit in last["auditors"]}) == 3
    drawn = zip(*(audit["draws"] for audit in last["auditors"]), strict=True)
    assert [row["n"] for row in last["e_process"]["per_question"]] == [sum(ns) for ns in drawn]
    assert last["e_process"]["log_e_value"] == min(
        row["log_e_value"] for row in last["e_process"]["per_question"]
    )
    assert last["verdict"] == "certified"
    assert last["e_process"]["log_goal"] == pytest.approx(math.log(100))
    assert json.loads((place / "certificate.json").read_text())["auditors"] == last["auditors"]
    assert "probability 0.99" in call("verify", "certificate.json", "--draws", 0).stdout
    monkeypatch.setattr(forecast, "WORTH", 1)
    assert "50 answers to draw take" in call("verify", "certificate.json", "--draws", 25).stderr


def test_copies_that_two_auditors_continued_are_joined_and_nothing_counts_twice(place):
    certify("--draws", 10)
    shutil.copy("certificate.json", "other.json")
    verify("--draws", 10, "--auditor", "one")
    assert call("verify", "other.json", "--draws", 10, "--auditor", "two").exit_code == 0
    joined = verify("--draws", 0, "--add", "other.json")
    assert [audit["auditor"] for audit in joined["auditors"]] == ["author", "one", "two"]
    assert joined["e_process"]["per_question"][0]["n"] == 30
    assert verify("--draws", 0, "--add", "other.json")["auditors"] == joined["auditors"]


def test_what_changed_is_refused_by_name(place):
    certify("--draws", 5)
    weights = place / "model/model.safetensors"
    original = weights.read_bytes()
    weights.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    assert "hash of weights" in refused("verify", "certificate.json")
    weights.write_bytes(original)
    (place / "model/tokenizer_config.json").write_text("{}")
    assert "hash of tokenizer" in refused("verify", "certificate.json")


def test_an_adapter_is_certified_with_the_model_below_it(tmp_path):
    how = CertificateSettings(prompt="qa")
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for folder, name in ((base, "config.json"), (adapter, "adapter_config.json")):
        folder.mkdir()
        (folder / name).write_text(json.dumps({"r": 2, "base_model_name_or_path": str(base)}))
    for file in (
        base / "model.safetensors",
        adapter / "adapter_model.safetensors",
        base / "tokenizer.json",
    ):
        file.write_bytes(b"one")
    before = facts(adapter, ROWS, how)
    moved = tmp_path / "moved"
    base.rename(moved)
    configuration = json.dumps({"r": 2, "base_model_name_or_path": str(moved)})
    (adapter / "adapter_config.json").write_text(configuration)
    assert facts(adapter, ROWS, how) == before
    for file, old, new, name in (
        (moved / "model.safetensors", "one", "two", "weights"),
        (moved / "tokenizer.json", "one", "two", "tokenizer"),
        (
            adapter / "adapter_config.json",
            configuration,
            configuration.replace("2", "3", 1),
            "weights",
        ),
    ):
        file.write_text(new)
        assert {
            key for key, value in facts(adapter, ROWS, how).items() if value != before[key]
        } == {name}
        file.write_text(old)


def test_a_certificate_of_rounded_weights_names_their_format_and_is_verified_in_it(place):
    settings = certify("--draws", 5, "--out", "first.json")["settings"]["engine"]
    value = certify("--draws", 5, "--dtype", "bfloat16")
    assert value["settings"]["engine"] == settings | {"dtype": "bfloat16"}
    assert "in bfloat16" in value["claim"]["statement"]
    assert verify("--draws", 0, "--redraw", 1)["repeated"] == {"author": True}
    for engine, said in (
        (settings, "hash of engine"),
        (settings | {"dtype": "auto"}, "dtype: got 'auto'"),
    ):
        found = read_certificate(place / "certificate.json")
        replace(found, settings=value["settings"] | {"engine": engine}).write(
            place / "changed.json"
        )
        assert said in refused("verify", "changed.json")


def test_a_changed_scorer_engine_or_template_is_refused_by_name(place):
    certify("--draws", 5)
    value = json.loads((place / "certificate.json").read_text())
    for settings_of, name in (
        ({"scorer": "exact_match"}, "scorer"),
        ({"engine": value["settings"]["engine"] | {"temperature": 0.5}}, "engine"),
        ({"prompt": "template.txt"}, "prompts"),
    ):
        (place / "template.txt").write_text("Say: {question}")
        found = read_certificate(place / "certificate.json")
        replace(found, settings=value["settings"] | settings_of).write(place / "changed.json")
        assert f"the hash of {name} differs" in refused("verify", "changed.json")


def test_a_verifier_with_model_data_and_files_alone_checks_single_draws(
    place, tmp_path_factory, monkeypatch
):
    certify("--draws", 150)
    other = tmp_path_factory.mktemp("elsewhere")
    names = ("certificate.json", "certificate.draws.json", "certificate.leaves.bin", "rows.jsonl")
    for name in names:
        shutil.copy(name, other)
    shutil.copytree("model", other / "model")
    monkeypatch.chdir(other)

    check = command.result("verify", "certificate.json", "--draws", 0, "--check", 64)["check"]

    assert check["verdict"] == "as stated"
    assert check["mismatches"] == [0, 0]
    assert check["s"] == [64, 64]


def test_no_single_draw_is_checked_where_the_rows_of_a_batch_change_each_other(place, monkeypatch):
    monkeypatch.setattr(RowModel, "rows_are_independent", lambda forward: False)
    certify("--draws", 3)

    assert not Path("certificate.draws.json").exists()
    said = refused(
        *"certify --model model --data rows.jsonl --draws 3 --check 2 --max-new-tokens 3".split(),
        *("--out", "other.json"),
    )
    assert "no single answer" in said


def test_the_access_to_the_model_is_stated(place):
    assert certify("--draws", 2)["access"] == "weights"
    assert verify("--draws", 2)["access"] == "weights"


@pytest.mark.parametrize(("fixed", "size"), [(["--check", 12], 12), ([], 40)])
def test_a_check_without_a_number_has_the_size_of_the_claim_or_all_draws(place, fixed, size):
    certify("--draws", 40, *fixed)

    check = verify("--check", "--draws", 0)["check"]

    assert check["s"] == [size, size]


@pytest.mark.parametrize("check", [["--check"], ["--check", -1], ["--check=-1"]], ids=str)
def test_a_check_without_a_number_may_stand_last(place, check):
    certify("--draws", 40)

    assert verify("--draws", 0, *check)["check"]["s"] == [40, 40]


def test_the_checker_alone_verifies_each_question_of_a_certificate(place, tmp_path_factory):
    certify("--draws", 150)
    other = tmp_path_factory.mktemp("alone")
    for file in (checker.__file__, "certificate.json"):
        shutil.copy(file, other)

    command_line = [sys.executable, "-I", "-S", "check.py", "certificate.json"]
    done = subprocess.run(command_line, cwd=other, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout
    assert done.stdout.count(": verified") == len(ROWS)


def test_a_check_of_all_draws_leaves_no_draw_that_may_be_forged(place):
    certify("--draws", 60, "--tau", 0.5)

    check = verify("--draws", 0, "--check", 60)["check"]

    assert check["forged_at_most"] == [0, 0]
    assert check["certified"] is True


def forged(place):
    """A certificate whose author committed to another first answer than the model's."""
    certify("--draws", 40)
    leaves = bytearray((place / "certificate.leaves.bin").read_bytes())
    leaves[0] ^= 1
    (place / "certificate.leaves.bin").write_bytes(leaves)
    hashes = [bytes(leaves[at : at + 32]) for at in range(0, len(leaves), 32)]
    found = read_certificate(place / "certificate.json")
    audit = replace(found.audits[0], root=root(hashes).hex())
    replace(found, audits=(audit,)).write(place / "certificate.json")
    draws = json.loads((place / "certificate.draws.json").read_text())
    draws |= {"root": audit.root, "audit": audit.key}
    (place / "certificate.draws.json").write_text(json.dumps(draws))


def test_a_forged_answer_is_found(place):
    forged(place)

    done = call("verify", "certificate.json", "--draws", 0, "--check", 40)

    assert done.exit_code == 1
    assert "1 are not as stated" in " ".join(done.output.split())


def test_draws_that_a_check_refutes_are_no_evidence(place):
    forged(place)

    found = lethe.verify("certificate.json", 0, check=40)

    assert found.verdict == "auditors differ"
    assert "Not joined" in " ".join(found.sentences())
    with pytest.raises(BadInput, match="not as stated"):
        found.write(place / "grown.json")


def test_files_of_draws_that_do_not_belong_together_are_refused(place):
    certify("--draws", 10)
    check = ("verify", "certificate.json", "--draws", 0, "--check", 5)
    (place / "certificate.leaves.bin").write_bytes(bytes(32 * 20))
    assert "root" in refused(*check)
    draws = json.loads((place / "certificate.draws.json").read_text())
    for change, said in (({"audit": "x"}, "an audit"), ({"size": 3}, "number of draws")):
        value = draws | change | {"root": root([bytes(32)] * 20).hex()}
        (place / "certificate.draws.json").write_text(json.dumps(value))
        assert said in refused(*check)
    (place / "certificate.draws.json").unlink()
    assert "certificate.draws.json" in refused(*check)


def test_on_other_kernels_a_difference_counts_as_forged_and_refutes_nothing(place, monkeypatch):
    forged(place)
    monkeypatch.setattr("lethe.certificates.drawing.kernels_in_use", lambda: "another processor")

    found = lethe.verify("certificate.json", 0, check=40)

    assert found.checked.verdict == "as stated"
    assert found.checked.as_json()["mismatches"] == [1, 0]
    assert found.checked.as_json()["forged_at_most"] == [1, 0]
    assert "on other kernels" in " ".join(found.sentences())


COIN = "c0" * 32


def test_a_claim_that_fixes_draws_and_check_gets_the_exact_end(place):
    made = certify("--draws", 80, "--check", 40, "--coin", COIN)
    wrong = refused("verify", "certificate.json", "--draws", 0, "--check", 30)

    found = verify("--draws", 0, "--check", 40)

    leaks = made["auditors"][0]["leaks"]
    assert made["auditors"][0]["draws"] == [80, 80]
    assert "40, which the claim fixes" in wrong
    assert found["check"]["exact"] is True
    assert found["check"]["upper"] == pytest.approx(exact_upper(80, max(leaks), 40, 0.01))
    assert found["checks"] == json.loads((place / "certificate.json").read_text())["checks"]
    said = " ".join(call("verify", "certificate.json", "--draws", 0).stdout.split())
    assert "are as stated" in said
    assert "fixed before this coin" in said


def test_the_coin_of_the_claim_chooses_the_seed(place):
    first = certify("--draws", 5, "--out", "first.json")
    second = certify("--draws", 5, "--coin", COIN, "--out", "second.json")
    value = json.loads((place / "second.json").read_text())
    value["claim"]["coin"] = "ab" * 32
    (place / "second.json").write_text(json.dumps(value))

    assert first["auditors"][0]["seed"] != second["auditors"][0]["seed"]
    assert "was chosen" in refused("verify", "second.json")
    assert "hexadecimal" in refused(*START, "--out", "third.json", "--coin", "C0")


START = "certify --model model --data rows.jsonl".split()


def test_beside_retrain_a_certificate_says_at_most_tau_more_often(place):
    shutil.copytree("model", "retrain")
    made = certify("--draws", 150, "--retrain", "retrain")
    alone = certify("--draws", 150, "--out", "alone.json")

    grown = verify("--draws", 100)

    (author, verifier) = grown["auditors"]
    assert made["claim"]["retrain"] is not None
    assert "more than Retrain's" in made["claim"]["statement"]
    assert alone["auditors"][0]["retrain_draws"] == []
    leaks = zip(author["leaks"], verifier["leaks"], strict=True)
    for place_of, more in enumerate(leaks):
        row = grown["e_process"]["per_question"][place_of]
        counts = []
        for kind in ("retrain_leaks", "retrain_draws"):
            counts.append(author[kind][place_of] + verifier[kind][place_of])
        expected = log_e_forgot(Counts(sum(more), row["n"]), [Counts(*counts)], 0.2)
        assert row["log_e_value"] == pytest.approx(expected)
    redraw = refused("verify", "certificate.json", "--redraw", 1)
    assert "draws are not repeated" in redraw
    assert "Retrain" in refused("verify", "certificate.json", "--check", 1)
    assert "no draws of Retrain" in refused(
        *START, "--retrain", "retrain", "--check", 1, "--out", "new.json"
    )
    assert "names no Retrain" in refused("verify", "alone.json", "--retrain", "retrain")
    weights = place / "retrain/model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "certificate's Retrain" in refused("verify", "certificate.json")


def test_retrain_is_asked_only_where_the_model_alone_does_not_certify():
    claim = replace(claim_of(2), retrain="r")
    counts = {"model": ((600, 600), (0, 60)), "retrain": ((0, 600), (0, 60))}
    asked = []

    class Drawn:
        rows = ("a", "b")
        keep = False
        engine = SimpleNamespace(name="prefix")

        def __init__(self, name):
            self.name = name

        def leaks(self, seed, draws, done):
            asked.append((self.name, tuple(draws)))
            return counts[self.name]

        def check_drawn(self):
            pass

    grown = audited(claim, Drawn("model"), 600, "me", Drawn("retrain"))

    assert asked == [("model", (600, 600)), ("retrain", (0, 600))]
    assert grown.audits[0].retrain_draws == (0, 600)
    assert grown.log_e_values()[0] > math.log(100)


def test_an_engine_that_draws_no_single_answer_commits_to_none(place):
    certify("--draws", 5, "--engine", "transformers")

    assert not (place / "certificate.draws.json").exists()


def test_an_edited_certificate_is_refused(place):
    certify("--draws", 5)
    value = json.loads((place / "certificate.json").read_text())
    (author,) = value["auditors"]
    for change, said in (
        (
            {"auditors": [author | {"leaks": [0, 0], "draws": [5000, 5000]}]},
            "e_process.per_question.1",
        ),
        ({"auditors": [author] * 2}, "one seed"),
        ({"homogeneity": "holds"}, "homogeneity does not follow"),
        ({"homogeneity": None}, "homogeneity does not follow"),
        ({"claim": value["claim"] | {"confidence": "0.9999"}}, "claim.confidence"),
        ({"schema": "lethe-certificate/2"}, "certify again"),
        ({"schema": "lethe-certificate/9"}, "lethe-certificate/9"),
        ({"schema": "lethe-certificate/9"}, "release that wrote"),
    ):
        (place / "edited.json").write_text(json.dumps(value | change))
        assert said in refused("verify", "edited.json")


def test_wrong_use_is_a_sentence(place):
    certify("--draws", 5)
    start = "certify --model model --data rows.jsonl --out new.json".split()
    assert "new file" in refused(*start[:-1], "certificate.json")
    assert "--scorer: got 'rouge_l'" in refused(*start, "--scorer", "rouge_l")
    assert "--tau: got 0" in refused(*start, "--tau", 0)
    assert "--alpha: got 2" in refused(*start, "--alpha", 2)
    assert "--draws: got 0" in refused(*start, "--draws", 0)
    bare = [{key: value for key, value in row.items() if key != "keywords"} for row in ROWS]
    write_jsonl(place / "bare.jsonl", bare)
    assert "keywords" in refused(*start[:4], "bare.jsonl", *start[5:])
    assert not (place / "new.json").exists()
    assert "--model" in refused("verify", "certificate.json", "--model", "nowhere")
    (place / "x.json").write_text('{"a": 1}')
    assert "not a certificate" in refused("verify", "x.json")
    for name in (
        "model",
        "new.txt",
        "x.json",
    ):  # before anything is drawn; another file is never written over
        assert "--out" in refused("verify", "certificate.json", "--out", name)
    assert (place / "x.json").read_text() == '{"a": 1}'
    assert "at least 0" in refused("verify", "certificate.json", "--draws", -1)
    assert "--auditor: got ''" in refused("verify", "certificate.json", "--auditor", "")


def whole():
    hashes = dict.fromkeys(FACTS, "0" * 32)
    how = {"prompt": "qa", "scorer": "keyword_leak", "engine": {"max_new_tokens": 3}}
    claim = Certificate(("a", "b"), 0.1, 0.05, hashes, how, {"model": "m", "data": "d"})
    grown = with_audit(claim, "author", (10, 10), (0, 1))
    check = Check("me", grown.audits[0].key, "0" * 64, (3, 3), (0, 0), "now")
    return replace(grown, checks=(check,)).as_dict()


def with_audit(claim, auditor, draws, leaks):
    """The certificate with one more audit, whose seed follows from it."""
    seed, after = claim.next_seed(auditor)
    return claim.with_audits(
        [Audit(auditor, draws, seed, "prefix", "2026-01-01T00:00:00Z", leaks, after)]
    )


def nodes(value):
    if isinstance(value, (dict, list)):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from nodes(inner)


anything = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.just([])
    | st.just({})
)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), value=anything, cut=st.floats(0, 1))
def test_a_broken_certificate_is_refused_in_a_sentence(tmp_path, seed, value, cut):
    path = tmp_path / "c.json"
    chance = random.Random(seed)
    found = whole()
    node = chance.choice([node for node in nodes(found) if node])
    key = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
    node[key] = value
    text = json.dumps(found)
    path.write_text(text if cut > 0.3 else text[: int(cut * len(text))])
    with contextlib.suppress(BadInput):  # anything else fails the test
        assert math.isfinite(read_certificate(path).log_e())
        schema().validate(found)  # what the reader takes, the schema in docs/ takes


@pytest.mark.parametrize("n", [10**12, 6 * 10**18])
def test_a_forged_number_of_answers_is_refused_before_it_takes_the_memory(tmp_path, n):
    found = with_audit(claim_of(), "author", (10,), (0,))
    check = Check("me", found.audits[0].key, "0" * 64, (3,), (0,), "now")
    value = replace(found, n=10, check=3, checks=(check,)).as_dict()
    value["auditors"][0]["draws"] = [n]
    value["claim"]["n"] = n
    (tmp_path / "c.json").write_text(json.dumps(value))

    with pytest.raises(BadInput, match=r"draws\.0: got .* equal to 1000000"):
        read_certificate(tmp_path / "c.json")


def test_an_answer_that_cannot_be_judged_counts_against_the_claim_on_both_sides(place):
    """A leak of Retrain helps a claim beside it, so a missing judgement must be none there."""
    how = CertificateSettings(prompt="qa", max_new_tokens=3)
    for role, expected in (("", {1}), ("retrain", {0})):
        drawing = SeededDraws(place / "model", ROWS, how, role)
        drawing.scorer = SimpleNamespace(
            score=lambda asked: [np.full(len(row.answers), np.nan) for row in asked]
        )

        leaves_of = drawing.again(1, {row["id"]: (0, 1) for row in ROWS})

        scores = {leaf.score for leaves in leaves_of.values() for leaf in leaves}
        assert scores == expected


def schema():
    """The schema of this version in docs/."""
    name = SCHEMA.replace("/", "-")
    schema = json.loads((ROOT / f"docs/{name}.schema.json").read_text(encoding="utf-8"))
    assert schema["$id"] == schema["properties"]["schema"]["const"] == SCHEMA
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("e_process", {"log_goal": 0.1}),
        ("e_process", {"combined": "the largest"}),
        ("homogeneity", {"p_value": 0.5}),
        ("homogeneity", {"level": 0.5}),
        ("auditors", {"log_e_value": 99.0}),
        ("auditors", {"key": "0" * 32}),
    ],
)
def test_what_stands_for_readers_alone_may_be_absent_and_never_false(place, part, changes):
    certify("--draws", 5)
    value = json.loads((place / "certificate.json").read_text())
    fields = value[part][0] if part == "auditors" else value[part]
    (key,) = changes
    true = fields.pop(key)
    (place / "edited.json").write_text(json.dumps(value))
    call("verify", "edited.json", "--draws", 0)

    fields |= changes

    (place / "edited.json").write_text(json.dumps(value))
    assert true != changes[key]
    assert f"{key} does not" in refused("verify", "edited.json", "--draws", 0)


def test_the_schema_in_the_docs_is_that_of_the_file(place):
    """A file of `lethe certify` and `lethe verify` holds no key that the schema lacks; broken files are told."""
    certify("--draws", 5)
    value = verify("--draws", 5)
    written = json.loads((place / "certificate.json").read_text())
    assert value["own"]["auditor"] == "verifier"
    rules = schema()
    rules.validate(written)
    properties = rules.schema["properties"]
    assert set(written) == set(properties)
    for key in ("claim", "hashes", "e_process"):
        assert set(written[key]) == set(properties[key]["properties"]), key
    assert set(written["auditors"][0]) == set(properties["auditors"]["items"]["properties"])
    checked = Check("v", "a", "0" * 64, (1,), (0,), "t", None).as_dict()
    assert set(checked) == set(properties["checks"]["items"]["properties"])
    row = properties["e_process"]["properties"]["per_question"]["items"]
    assert set(written["e_process"]["per_question"][0]) == set(row["properties"])
    assert value["verdict"] in properties["verdict"]["enum"]
    for key in written:
        assert not rules.is_valid({name: value for name, value in written.items() if name != key})
    assert not rules.is_valid(written | {"schema": "lethe-certificate/2"})
    assert not rules.is_valid(written | {"claim": written["claim"] | {"tau": "0.1"}})
    page = (ROOT / "docs/certificates.md").read_text(encoding="utf-8")
    assert all(f"\n`{key}` |" in page for key in written)


def claim_of(questions=1, tau=0.05, alpha=0.01):
    how = {"prompt": "qa", "scorer": "keyword_leak", "engine": {}}
    names = tuple(f"q{place}" for place in range(questions))
    return Certificate(names, tau, alpha, dict.fromkeys(FACTS, "x"), how, {})


def test_a_forged_file_is_not_joined_with_draws_that_refute_it(tmp_path):
    """An honest verifier sees 20% leaks where the claim is 5%: the joined value is not shown, the own draws decide."""
    forged = with_audit(claim_of(), "author", (3000,), (0,))
    assert forged.verdict == "certified"
    both = with_audit(forged, "me", (200,), (40,))
    assert both.verdict == "auditors differ"
    assert both.homogeneity() < 1e-40
    assert both.as_dict()["e_process"]["log_e_value"] is None
    assert "e-value" not in both.sentence()
    alone = both.alone(both.audits[-1])
    assert alone.log_e() < 0
    assert alone.verdict == "not certified yet"
    both.write(tmp_path / "c.json")
    assert read_certificate(tmp_path / "c.json") == both


def test_a_chosen_seed_is_refused_and_stored_draws_can_be_repeated(place):
    first = certify("--draws", 70)
    again = verify("--draws", 70, "--auditor", "me", "--redraw", 1)
    assert again["repeated"] == {"author": True}
    assert again["own"]["auditor"] == "me"
    value = json.loads((place / "certificate.json").read_text())
    value["auditors"][1]["seed"] += 1
    (place / "chosen.json").write_text(json.dumps(value))
    assert "seed" in refused("verify", "chosen.json")
    found = read_certificate(place / "certificate.json")
    audit = found.audits[0]
    leaks = tuple(0 if leak else 1 for leak in audit.leaks)
    with_audit(replace(found, audits=()), "author", audit.draws, leaks).write(
        place / "changed.json"
    )
    done = call(
        "verify", "changed.json", "--draws", 0, "--redraw", 1, "--json", "--out", "grown.json"
    )
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert (shown["verdict"], shown["file"], shown["e_process"]["log_e_value"]) == (
        "auditors differ",
        None,
        None,
    )
    assert not (place / "grown.json").exists()
    said = call("verify", "changed.json", "--draws", 2, "--redraw", 1).output
    assert "Your own draws alone" in said
    assert "Certified" not in said.replace("Not certified", "")
    assert first["verdict"] in ("certified", "not certified yet")


def test_a_question_ends_where_its_own_draws_certify_it(place):
    first = certify("--draws", 400, "--alpha", 0.1)
    for row, log in zip(
        first["auditors"][0]["draws"], first["e_process"]["per_question"], strict=True
    ):
        assert row == 400 or log["log_e_value"] >= math.log(10)
    assert min(first["auditors"][0]["draws"]) < 400


def test_a_served_model_is_certified_as_its_server_and_name(place):
    with FaultServer() as server:
        arguments = [
            "certify",
            "--model",
            "org/m",
            "--endpoint",
            server.url,
            "--data",
            "rows.jsonl",
            "--tau",
            "0.2",
        ]
        done = call(*arguments, "--max-new-tokens", "3", "--draws", "40", "--json")
        assert done.exit_code == 0, done.output
        grown = verify("--draws", "20")
        assert len(grown["auditors"]) == 2
        assert server.url in grown["claim"]["statement"]
        assert len(server.bodies) > 40  # one question at least is asked again
        assert "redraw" in refused("verify", "certificate.json", "--redraw", "1")
        text = (place / "certificate.json").read_text()
        (place / "certificate.json").write_text(text.replace('"org/m"', '"org/other"'))
        assert "certificate.json" in refused("verify", "certificate.json", "--draws", "0")
    stored = {}
    with FaultServer(
        fault=lambda number, asked, answer: stored.setdefault(json.dumps(asked), answer)
    ) as server:
        arguments[4] = server.url
        done = call(*arguments, "--out", "cached.json")
    assert done.exit_code == 2
    assert "the probe draws" in done.output


def test_the_claim_of_a_certificate_states_its_tau_in_full():
    assert "at most 0.01234561," in claim_of(tau=0.01234561).statement()
