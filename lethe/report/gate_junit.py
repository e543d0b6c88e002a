"""A gate as JUnit XML, which every CI shows: a suite a model, a case a question, a failure for each that is not proved."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from lethe.errors import visible
from lethe.io.files import Json, write_text
from lethe.results.gate import GatedQuestion, GateReason
from lethe.statistics.bound import in_full, rounded_beside

DIGITS = 4
# Characters that no XML 1.0 document may hold, not even escaped.
NO_XML = re.compile("[^\\t\\n\\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text_of(
    about: str,
    gate: Mapping[str, Json] | None,
    questions: Sequence[GatedQuestion] = (),
    decisions: Sequence[GateReason] = (),
) -> str:
    """The XML of a gate on ``questions``, if there is one, and a case of each of the other ``decisions``; no answer stands in
    it.

    A gate without a bound has one case, which fails for the reason of the gate.
    """
    suites = ElementTree.Element("testsuites", name="lethe")
    suite = ElementTree.SubElement(suites, "testsuite", name=plain(about))
    failures = 0
    if gate is not None:
        failures += _add_cases(suite, about, gate, questions)
    for decision in decisions:
        named = {"classname": f"lethe.{plain(about)}", "name": plain(decision.asked)}
        case = ElementTree.SubElement(suite, "testcase", named)
        if decision.closed:
            _fail(case, "open", "the gate is closed", decision.reason)
            failures += 1
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(failures))
    suite.set("errors", "0")
    suite.set("skipped", "0")
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_cases(
    suite: ElementTree.Element,
    about: str,
    gate: Mapping[str, Json],
    questions: Sequence[GatedQuestion],
) -> int:
    """Add properties and cases of a gate on questions; return the number of cases that fail."""
    _add_properties(suite, gate)
    failures = 0
    if gate["guarantee"] is None:
        _add_gate(suite, "no bound exists", gate["reason"])
        failures = 1
    else:
        for question in questions:
            failures += _add(suite, about, gate, question)
    if gate["closed"] and not failures:  # a suite without a failure is green in every CI
        _add_gate(suite, "the gate is closed", gate["reason"])
        failures = 1
    return failures


def _add_properties(suite: ElementTree.Element, gate: Mapping[str, Json]) -> None:
    """Add what holds for all cases: the threshold, the outcome with its reason, and the guarantee, if there is one."""
    properties = ElementTree.SubElement(suite, "properties")
    state = "passed"
    if gate["closed"]:
        state = "closed"
    _property(properties, "threshold", in_full(gate["tau"]))
    _property(properties, "gate", state)
    _property(properties, "reason", plain(gate["reason"]))
    if gate["guarantee"] is not None:
        _property(properties, "guarantee", plain(f"each case by itself: {gate['guarantee']}"))


def _add_gate(suite: ElementTree.Element, message: str, reason: str) -> None:
    """Add a case of the gate itself, which fails."""
    case = ElementTree.SubElement(suite, "testcase", classname="lethe", name="gate")
    _fail(case, "open", message, reason)


def _add(
    suite: ElementTree.Element, about: str, gate: Mapping[str, Json], question: GatedQuestion
) -> bool:
    """Add the case of a question; return whether it fails."""
    named = {"classname": f"lethe.{plain(about)}", "name": plain(question.id)}
    case = ElementTree.SubElement(suite, "testcase", named)
    properties = ElementTree.SubElement(case, "properties")
    _property(properties, "upper", repr(question.upper))
    _property(properties, "lower", repr(question.lower))
    tau = gate["tau"]
    word = question.word(tau)
    if word == "proved":
        return False
    at_most = f"{rounded_beside(question.upper, tau, DIGITS, 'upper'):f}"
    at_least = f"{rounded_beside(question.lower, tau, DIGITS, 'lower'):f}"
    shown = f"leak rate at most {at_most}, which is above {in_full(tau)}"
    if word == "broken":
        shown = f"leak rate at least {at_least}, which is above {in_full(tau)}"
    _fail(case, word, shown, f"{shown}, {gate['guarantee']}")
    return True


def plain(text: str) -> str:
    """A text in which each character that XML cannot hold is written out."""
    return NO_XML.sub(_written_out, visible(text))


def _written_out(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _property(parent: ElementTree.Element, name: str, value: str) -> None:
    ElementTree.SubElement(parent, "property", name=name, value=value)


def _fail(case: ElementTree.Element, kind: str, message: str, text: str) -> None:
    failure = ElementTree.SubElement(case, "failure", type=kind, message=plain(message))
    failure.text = plain(text)


def write(
    path: Path,
    about: str,
    gate: Mapping[str, Json] | None,
    questions: Sequence[GatedQuestion] = (),
    decisions: Sequence[GateReason] = (),
) -> None:
    """Write the XML of a gate to a file, which is replaced as a whole."""
    write_text(path, text_of(about, gate, questions, decisions))
