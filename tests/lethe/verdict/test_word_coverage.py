"""Words that whoever draws tries to make false: at any look, in any order of draws, with everything that is known besides."""

import pytest
from scipy.stats import binom

from tests.lethe.verdict.word_coverage import word_misses

ALPHA = 0.1
RUNS = 40


@pytest.mark.seconds
def test_no_word_is_ever_false_more_often_than_its_level():
    shares = dict(word_misses(ALPHA, RUNS, seed=2))

    most = binom.isf(1e-4, RUNS, ALPHA) / RUNS
    assert {name: share for name, share in shares.items() if share > most} == {}
    assert len(shares) == 15
