"""What of a model a number needs: every quantity has a level, and JSON says the highest."""

import pytest

from lethe.results import quantities
from lethe.results.quantities import ACCESS, QUANTITIES, SAID, access_of, of
from tests.lethe.cli.calls import Command


def test_every_quantity_says_what_it_needs():
    assert {kind.access for kind in QUANTITIES} == set(SAID)
    assert {kind.basis for kind in QUANTITIES} <= set(ACCESS)


@pytest.mark.parametrize(
    ("scope", "key", "basis", "access"),
    [
        ("question", "leak", "sampled", "answers"),
        ("question", "leak", "labelled", "answers"),
        ("question", "leak", "tree", "log-probabilities"),
        ("model", "membership", "given answers", "log-probabilities"),
        ("model", "rouge", "given answers", "answers"),
        ("audit", "attacked", "run", "weights"),
    ],
)
def test_the_level_is_that_of_what_the_number_is_made_from(scope, key, basis, access):
    assert of(scope, key, basis).access == access


def test_the_most_that_some_number_needs_counts():
    kinds = [of("question", "leak", "sampled"), of("audit", "attacked", "run")]

    assert access_of(kinds) == "weights"
    assert access_of([]) is None


def test_json_of_a_command_says_the_access(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("score\n0\n1\n0\n")

    assert Command("bounds", path).result()["access"] == "answers"


def test_the_levels_are_in_order():
    assert list(SAID) == list(quantities.get_args(quantities.Access))
