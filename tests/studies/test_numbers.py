"""docs/numbers.md: a row for each number of the vocabulary, and it is what the command writes."""

from lethe.results.quantities import QUANTITIES
from studies import numbers
from tests.small import ROOT


def test_every_named_quantity_has_a_row():
    named = [quantity for quantity in QUANTITIES if any(quantity.names)]
    rows = [row for table in numbers.read() for row in table.rows]

    assert len(rows) == len(named)


def row_of(name):
    (found,) = [row for row in numbers.read()[0].rows if name in row.names]
    return found


def test_forget_quality_is_found_with_its_paper():
    row = row_of("forget_quality")

    assert "TOFU" in row.paper
    assert row.what == "estimate"


def test_a_bound_says_its_direction():
    row = row_of("m_bin_worst")

    assert (row.direction, row.what) == ("lower is better", "upper bound")


def test_an_interval_names_both_ends():
    row = row_of("leak_at_K_worst")

    assert row.names == ("leak_at_K_worst_lower", "leak_at_K_worst")
    assert row.what == "interval"


def test_no_part_of_a_template_is_left():
    assert "{" not in numbers.page(numbers.read())


def test_the_page_is_what_the_command_writes():
    written = (ROOT / "docs/numbers.md").read_text(encoding="utf-8")

    assert written == numbers.page(numbers.read()), "lethe study numbers --write docs/numbers.md"
