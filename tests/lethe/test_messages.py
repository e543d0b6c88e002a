"""Numbers keep their side, untrusted text is never obeyed; errors and progress."""

import html
import json
import re
import signal
import time
import unicodedata
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import BadValue, StageFailed
from lethe.progress import progress
from lethe.report.templates import visible
from lethe.sampling.answer_tree.asking import check_scorer
from lethe.text import INVISIBLE, number, share

unit = st.floats(0, 1)


@given(unit)
def test_a_printed_upper_bound_is_no_smaller_and_a_lower_one_no_larger(value):
    assert (
        Decimal(number(value, 3, "upper"))
        >= Decimal(repr(value))
        >= Decimal(number(value, 3, "lower"))
    )
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
        (1 - 1e-14, "> 99.9%"),
        (1e-4, "0.010%"),
        (0.0997, "10%"),
        (1.26e-17, "1.3e-15%"),
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


MEMORY = "was ended by SIGKILL, which the system sends when memory runs out (`lethe run --jobs 1` needs less)."


@pytest.mark.parametrize("status", [-signal.SIGKILL, 128 + signal.SIGKILL])
def test_a_signal_is_named_with_and_without_a_shell_between(status):
    error = StageFailed("sample@npo", status)
    assert str(error) == f"Stage sample@npo {MEMORY}"
    assert error.exit_status == 1


@pytest.mark.parametrize(
    ("status", "end", "told"),
    [
        (1, 1, "failed with exit status 1."),
        (2, 2, "failed with exit status 2."),
        (127, 1, "failed with exit status 127."),
        (128, 1, "failed with exit status 128."),
        (255, 1, "failed with exit status 255."),
        (-signal.SIGTERM, 1, "was ended by SIGTERM."),
        (-999, 1, "was ended by signal 999."),
    ],
)
def test_an_exit_status_is_no_signal(status, end, told):
    error = StageFailed("train@base", status, "the last line")
    assert str(error) == f"Stage train@base {told} Its last output:\nthe last line"
    assert error.exit_status == end


def test_quiet_and_transparent(monkeypatch, capfd):
    monkeypatch.delenv("LETHE_PROGRESS", raising=False)
    assert list(progress(range(3), "train", "steps")) == [0, 1, 2]
    assert capfd.readouterr() == ("", "")


def test_notes_with_rate_and_estimate(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("LETHE_PROGRESS", str(tmp_path))
    monkeypatch.setenv("DVC_STAGE", "train@base")
    clock = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    items = progress([10, 20, 30, 40], "base", "steps")
    assert [next(items), next(items), next(items)] == [10, 20, 30]
    assert json.loads((tmp_path / "train@base.json").read_text()) == {
        "text": "base: 2 of 4 steps, 1.0/s, 2 s left"
    }
    assert list(items) == [40]
    assert capfd.readouterr() == ("", "")


def test_lines_off_a_terminal_at_ever_longer_pauses(monkeypatch, capfd):
    monkeypatch.delenv("LETHE_PROGRESS", raising=False)
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert list(progress(range(20), "sample mine", "questions")) == list(range(20))
    lines = capfd.readouterr().err.splitlines()
    assert lines == [
        "sample mine: 2 of 20 questions, 0.2/s, 1.5 min left",
        "sample mine: 6 of 20 questions, 0.2/s, 70 s left",
        "sample mine: 14 of 20 questions, 0.2/s, 30 s left",
    ]
    assert list(progress(range(4), "learn", "tasks", at_once=3)) == [0, 1, 2, 3]
    assert capfd.readouterr().err == "learn: 3 of 4 tasks, 0.2/s, 5 s left\n"


LEGAL = {
    "an option that is left out": ("npo", "left out: no side is a data folder"),
    "an option beside another": ("fail-abov", "given with --fail-above"),
    "names that are taken": ("npo2", "a name other than npo, grad_diff"),
    "words before the names": ("modell", "a model of this run: npo, grad_diff"),
}


@pytest.mark.parametrize(("got", "legal"), LEGAL.values(), ids=LEGAL)
def test_no_word_is_proposed_that_is_not_legal(got, legal):
    assert "Did you mean" not in str(BadValue("model", got, legal))


def test_a_name_near_to_a_legal_one_is_proposed():
    assert "'grad_diff'?" in str(
        BadValue("model", "grad_dif", "a model of this run: npo, grad_diff")
    )


def test_a_judge_is_refused_in_words_that_hold_where_no_tree_is_walked():
    with pytest.raises(BadValue, match="judge") as refused:
        check_scorer("llm", 0.5)

    assert "tree" not in str(refused.value)
