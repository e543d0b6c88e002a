"""A finding is a row and comes back from it; whoever reads findings decides nothing anew."""

import pytest

from lethe.identity import Sources
from lethe.results import table
from lethe.results.table import Numbers
from lethe.statistics.bound import Interval
from lethe.verdict.claim import Claim, Claims, ModelOutcome
from lethe.verdict.finding import FORGETTING, UTILITY, Finding, Findings
from lethe.verdict.standing import Aspect, Standing
from tests.lethe.verdict.deciding import decided, drawn, model
from tests.small import ROOT

DECIDING = ("rules", "compared", "claims", "deciding", "found", "beyond")
OWN = Interval(0.5, 0.4, 0.6, 128, 0.01, "a method", "an assumption")
BASE = Interval(0.75, 0.7, 0.8, 64, 0.01, "a method", "an assumption")


def through_a_file(findings, tmp_path) -> Findings:
    path = table.place(tmp_path, "compare", "models")
    table.write(path, [finding.row() for finding in findings])
    return Findings.of(table.read_rows(path))


@pytest.mark.parametrize("interval", [None, OWN])
def test_a_finding_comes_back_from_its_row(tmp_path, interval):
    finding = Finding("npo", "asked", "leaks", "It <leaks>.", 0.01, interval, BASE, {"more": [1]})

    (read,) = through_a_file([finding], tmp_path)

    assert read == finding


def test_the_ends_of_a_row_are_those_of_the_interval():
    row = Finding("npo", UTILITY, "intact", interval=OWN).row()

    assert (row.estimate, row.ends) == (OWN.value, [*OWN.bounds()])


def test_a_finding_is_no_number_of_a_model():
    numbers = Numbers([Finding("npo", UTILITY, "intact", interval=OWN).row()])

    assert not {name for name in (*numbers.values, *numbers.bounds, *numbers.points) if name}


@pytest.mark.parametrize("role", ["subject", "retrain"])
def test_both_words_come_back_with_everything_behind_them(tmp_path, role):
    (standing,) = decided(model("mine", drawn("a", 0), drawn("b", 60), role=role)).values()

    read = through_a_file(standing.findings(), tmp_path)

    assert Standing.of(read, "mine") == standing


def test_a_model_without_findings_has_no_word():
    standing = Standing.of(Findings(), "mine")

    assert (standing.word, standing.verdict, standing.utility) == ("none", None, Aspect("open"))
    assert "missing" in standing.sentence


def test_claims_come_back_in_their_order(tmp_path):
    first = Claim(
        "one", "It leaks", "a share", [ModelOutcome("npo", "holds", "npo 1%.", OWN, BASE)]
    )
    second = Claim(
        "two", "It costs", "a score", [ModelOutcome("npo", "did not show", "npo: unknown.")]
    )
    claims = Claims([first, second], alpha=0.05, comparisons=2, level=0.0125)

    read = through_a_file(claims.findings(), tmp_path)

    assert Claims.of(read, 0.05) == claims


def test_the_level_of_a_word_is_the_alpha_of_its_finding():
    (standing,) = decided(model("mine", drawn("a", 0))).values()

    forgetting = Findings(tuple(standing.findings())).about("mine", FORGETTING)

    assert forgetting.alpha == standing.verdict.level


@pytest.mark.parametrize("reader", ["lethe.report.page", "stages.report"])
def test_whoever_reads_words_cannot_decide_them(reader):
    closure = Sources(ROOT).closure(reader)

    assert not {f"lethe.verdict.{name}" for name in DECIDING} & set(closure)
