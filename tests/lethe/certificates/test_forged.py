"""Forged certificates: a check is clean as often as the theory says, and no author passes with a false end."""

import pytest

from tests.lethe.certificates.forged import (
    AUTHORS,
    as_theory_says,
    clean_checks,
    ends_missed,
)
from tests.lethe.statistics.draws import allowed

TRIALS = 40


@pytest.mark.slow
@pytest.mark.parametrize("author", AUTHORS, ids=lambda author: author.name)
def test_a_check_is_clean_as_often_as_the_theory_says(author):
    clean = clean_checks(author, TRIALS, seed=2)

    assert as_theory_says(author, clean, TRIALS)


def test_no_author_passes_a_check_with_a_false_end():
    runs = 20_000
    alpha = 0.05

    for name, share in ends_missed(alpha, runs, seed=3):
        assert share * runs <= allowed(alpha, runs), name
