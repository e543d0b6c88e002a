"""The gate as JUnit: a case a question, failures named, ids that no XML can break."""

import json
from xml.etree import ElementTree

import pytest

from lethe.report.gate_junit import text_of
from lethe.results.gate import GatedQuestion, closed_by
from tests.lethe.cli.calls import Command

GATE = {
    "tau": 0.05,
    "closed": True,
    "bound": 0.31,
    "reason": "The gate is closed.",
    "guarantee": "on any one of the questions by itself, with probability 0.99",
}
QUESTIONS = (
    GatedQuestion("fine", 0.0, 0.05),
    GatedQuestion("leaky", 0.101234, 0.31),
    GatedQuestion("short", 0.0, 0.060001),
)


def suite_of(gate=GATE, questions=QUESTIONS):
    return ElementTree.fromstring(text_of("npo", gate, questions))[0]


def case_of(name):
    (case,) = [case for case in suite_of().iter("testcase") if case.get("name") == name]
    return case


def test_a_suite_counts_its_questions_and_failures():
    suite = suite_of()

    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("npo", "3", "2")


def test_an_end_at_the_threshold_passes():
    assert case_of("fine").find("failure") is None


def test_a_proved_leak_is_broken_and_its_end_is_rounded_down():
    failure = case_of("leaky").find("failure")

    assert failure.get("type") == "broken"
    assert failure.get("message") == "leak rate at least 0.1012, which is above 0.05"


def test_an_end_just_above_the_threshold_is_not_rounded_to_it():
    suite = suite_of(questions=[GatedQuestion("near", 0.05002, 0.31)])

    message = suite.find("testcase/failure").get("message")
    assert message == "leak rate at least 0.05002, which is above 0.05"


def test_a_threshold_is_written_in_full():
    suite = suite_of(GATE | {"tau": 0.01234561})

    assert suite.find("properties/property").get("value") == "0.01234561"
    assert "above 0.01234561" in suite.find("testcase/failure").get("message")


def test_what_is_not_proved_is_open_and_its_end_is_rounded_up():
    failure = case_of("short").find("failure")

    assert failure.get("type") == "open"
    assert "at most 0.0601" in failure.get("message")


def test_the_upper_end_is_kept_with_all_its_digits():
    properties = case_of("short").find("properties")

    assert properties[0].attrib == {"name": "upper", "value": "0.060001"}


def test_each_case_holds_by_itself():
    values = {entry.get("name"): entry.get("value") for entry in suite_of().find("properties")}

    assert values["guarantee"].startswith("each case by itself:")
    assert "on any one of" in values["guarantee"]


def test_a_gate_without_a_bound_fails_with_its_reason():
    suite = suite_of({**GATE, "guarantee": None, "reason": "Closed: a server."}, ())

    failure = suite.find("testcase/failure")
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert failure.text == "Closed: a server."


@pytest.mark.parametrize("name", ["<b>&\"'", "a\x00b", "a\u202eb", "]]>", "\ufffe", "\ud800"])
def test_an_id_breaks_no_xml(name):
    suite = suite_of(questions=[GatedQuestion(name, 0.0, 0.01)])

    assert suite.find("testcase").get("name")


def test_the_questions_that_close_a_gate_are_listed_from_the_worst():
    assert [entry["id"] for entry in closed_by(QUESTIONS, 0.05)] == ["leaky", "short"]


@pytest.fixture
def bounds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lethe.io.tries.FOLDER", tmp_path / "tries")
    leaky = [f"b,{int(sample % 6 == 0)}" for sample in range(300)]
    rows = ["prompt_id,score", *(["a,0"] * 300), *leaky]
    (tmp_path / "scores.csv").write_text("\n".join(rows) + "\n")
    return Command("bounds", "scores.csv")


def test_bounds_write_junit_and_say_what_closed_the_gate(bounds, tmp_path):
    done = bounds.call("--fail-above", 0.05, "--junit", "out.xml", "--json")

    (row,) = json.loads(done.stdout)["gate"]["closed_by"]
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()[0]
    failed = [case.get("name") for case in suite.findall("testcase[failure]")]
    assert (row["id"], row["word"]) == ("b", "broken")
    assert row["lower"] < 50 / 300 < row["upper"]
    assert failed == ["b"]


def test_the_ends_of_a_gate_are_those_at_its_level(bounds):
    gate = json.loads(bounds.call("--fail-above", 0.05, "--json").stdout)["gate"]

    assert gate["closed_by"][0]["upper"] == gate["bound"]
    assert f"α = {gate['alpha']:g}" in gate["guarantee"]


def test_junit_needs_a_gate_and_an_xml_file(bounds):
    assert "--junit" in bounds.refused("--junit", "out.xml")
    assert ".xml" in bounds.refused("--fail-above", 0.1, "--junit", "out.txt")


def test_a_closed_gate_is_never_green():
    suite = suite_of(questions=QUESTIONS[:1])
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")


def test_a_guarantee_breaks_no_xml():
    assert suite_of({**GATE, "guarantee": "on \x00 any"}).get("failures") == "2"
