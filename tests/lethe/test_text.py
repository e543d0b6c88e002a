"""Numbers keep their side; untrusted text is shown and never obeyed."""

import html
import re
import unicodedata
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.report.templates import visible
from lethe.text import INVISIBLE, number, share

unit = st.floats(0, 1)


@given(unit)
def test_a_printed_upper_bound_is_no_smaller_and_a_lower_one_no_larger(value):
    assert Decimal(number(value, 3, "up")) >= Decimal(repr(value)) >= Decimal(number(value, 3, "down"))
    shares = [Decimal(share(value, side)[:-1]) for side in ("lower", "upper")]
    assert shares[0] <= Decimal(repr(value)) * 100 <= shares[1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0%"),
        (1.0, "100%"),
        (0.0312, "3.1%"),
        (0.9377, "93.8%"),
        (0.99999, "99.999%"),
        (1e-4, "0.01%"),
        (None, "–"),
    ],
)
def test_share(value, shown):
    assert share(value) == shown


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=80))
def test_any_text_becomes_harmless_and_visible(text):
    shown = str(visible(text))
    markup = re.sub(r'<span class="control" title="U\+[0-9A-F]+">[^<]*</span>', "", shown)
    assert "<" not in markup
    assert ">" not in markup
    assert not any(unicodedata.category(character) in INVISIBLE for character in shown)
    shown.encode("utf-8")


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=80))
def test_a_text_without_invisible_characters_is_unchanged_for_the_reader(text):
    assert html.unescape(str(visible(text))) == text


NAMES = {"\n": "↵", "\t": "⇥", "\x00": "␀", "\x1b": "␛", "\u202e": "U+202E", "\ud800": "U+D800"}


@pytest.mark.parametrize(("text", "shown"), NAMES.items())
def test_invisible_characters_are_named(text, shown):
    assert f">{shown}</span>" in visible(text)


def test_a_long_text_is_cut_and_its_length_told():
    shown = visible("tall " * 20_000)
    assert "100,000 characters in all" in shown
    assert len(shown) < 1000
    assert "characters in all" not in visible("x" * 600)
