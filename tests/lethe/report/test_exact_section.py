"""The section of exact bounds: its ends round outward, and only samples of the same event stand beside them."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.report import certificates

SHARE = st.floats(0, 1)


@given(SHARE, SHARE)
def test_both_ends_round_outward_and_none_promises_certainty(one, other):
    low, high = sorted((one, other))
    lower, upper = map(Fraction, certificates._band(low, high).split(" to "))
    least, most = (Fraction(repr(end)) for end in (low, high))  # as `Bound` reads a float
    assert lower <= least < lower + Fraction(2, 1000)
    assert lower < 1
    assert upper - Fraction(1, 1000) < most <= upper


@pytest.mark.parametrize(
    ("binary", "language", "shown"),
    [("keyword_leak", None, ["a"]), ("harm", None, []), (None, None, []), ("keyword_leak", "l.yaml", [])],
)
def test_only_samples_of_the_same_event_are_drawn(binary, language, shown):
    ends = {"a": {"m_bin": 0.1}, "b": {}}
    questions = [SimpleNamespace(prompt_id=name, value=own.get) for name, own in ends.items()]
    params = SimpleNamespace(metrics=SimpleNamespace(binary=binary), sample=SimpleNamespace(language=language))
    found = SimpleNamespace(how=SimpleNamespace(leak="keyword_leak"))
    told = certificates._sampled(SimpleNamespace(questions=questions), found, SimpleNamespace(params=params))
    assert list(told) == shown
