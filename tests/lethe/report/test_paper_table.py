"""Tables for papers: outward rounding, the guarantee as caption, footnotes for what differs, and LaTeX that compiles."""

import csv
import io

import pytest

from lethe.errors import BadValue
from lethe.report.paper_table import PaperTable, latex_text
from lethe.results.table import Numbers, Rows
from lethe.statistics.bound import Assumes, Bound, Covers
from tests.lethe.report.latex import problems


def numbers(upper, alpha=0.01, estimate=0.0125):
    rows = Rows("m")
    covers = (Covers.WORST_PROMPT, Assumes.DRAWS_WITHIN, "Clopper-Pearson", 64)
    worst = Bound(upper, "upper", alpha, *covers)
    rows.add("model", "leak_worst", "sampled", None, None, worst)
    rows.add("model", "score", "sampled", estimate)
    return Numbers(rows.rows)


COLUMNS = ("m_bin_worst", "mean")


def table(**numbers_of_model):
    return PaperTable.of(numbers_of_model, COLUMNS, 3, {})


def test_an_end_is_rounded_outward_and_an_estimate_to_nearest():
    made = table(a=numbers(0.02401, estimate=0.01249))

    assert made.cell("a", "m_bin_worst") == "0.025"
    assert made.cell("a", "mean") == "0.012"


def test_the_caption_holds_the_guarantee_and_names_what_has_none():
    first, second, *_ = table(a=numbers(0.5)).notes()

    assert "with probability 0.99" in first
    assert second.startswith("mean:")


def test_the_caption_says_what_the_numbers_need_of_a_model():
    assert table(a=numbers(0.5)).notes()[-1] == "Access to the models: answers only."


def test_columns_of_unlike_access_are_named():
    rows = Rows("m")
    rows.add("model", "score", "sampled", 0.5)
    rows.add("model", "epsilon_star", "given answers", 1.5)

    made = PaperTable.of({"a": Numbers(rows.rows)}, ("mean", "epsilon_star"), 3, {})

    assert made.access() == "answers only (mean); log-probabilities (epsilon_star)"


def test_an_end_of_another_level_gets_a_footnote():
    made = table(a=numbers(0.5), b=numbers(0.5, alpha=0.05), c=numbers(0.25))

    assert [made.mark(model, "m_bin_worst") for model in "abc"] == ["", "a", ""]
    assert "0.500<sup>a</sup>" in made.markdown()
    assert r"0.500\textsuperscript{a}" in made.latex()


def test_csv_keeps_every_digit_beside_the_guarantee():
    (row,) = csv.DictReader(io.StringIO(table(a=numbers(0.0240123456)).csv()))

    assert row["m_bin_worst"] == "0.0240123456"
    assert "Clopper-Pearson, n = 64" in row["guarantee"]


def test_a_missing_number_is_missing():
    made = table(a=numbers(0.5), b=Numbers(()))

    assert made.cell("b", "m_bin_worst") == "-"


def test_an_unknown_column_is_refused():
    with pytest.raises(BadValue, match="m_bin_worst"):
        PaperTable.of({"a": numbers(0.5)}, ("m_bin_wurst",), 3, {})


def test_why_a_model_has_no_ends_stands_below():
    made = PaperTable.of({"a": numbers(0.5)}, COLUMNS, 3, {"a": ["A probe failed."]})

    assert made.notes()[-1] == "a has no ends: A probe failed."


def test_no_character_of_a_name_is_a_command_of_latex():
    assert latex_text(r"a_b%&#${}~^\α") == (
        r"a\_b\%\&\#\$\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}$\alpha$"
    )


@pytest.mark.parametrize("name", ["a", r"a_b%&#${}~^\\", "x & y \\\\ z"])
def test_latex_has_no_fault_whatever_a_model_is_called(name):
    made = PaperTable.of({name: numbers(0.5), "b": numbers(0.5, alpha=0.05)}, COLUMNS, 3, {})

    assert problems(made.latex()) == []


@pytest.mark.parametrize(
    "broken",
    [("\\bottomrule", "\\bottomrul"), (" & ", " "), ("\\end{table}", ""), ("}", ""), ("\\_", "%")],
)
def test_the_check_of_latex_sees_a_fault(broken):
    assert problems(table(a=numbers(0.5)).latex().replace(*broken, 1)) != []


@pytest.mark.parametrize(("model", "size"), [("a", "normalsize"), ("a" * 55, "footnotesize")])
def test_a_wide_table_is_set_smaller(model, size):
    assert rf"\{size}" in PaperTable.of({model: numbers(0.5)}, COLUMNS, 3, {}).latex()
