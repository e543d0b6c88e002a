"""Goals of long work: bars on a terminal, a sentence for a flow, nothing elsewhere."""

import io
import json
import sys

import pytest

from lethe import progress
from lethe.progress import Goal, goals

REACHED = [Goal("q1", 0.9, "90% after 640 answers"), Goal("q2", 0.2, "20% after 256 answers")]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def stderr(monkeypatch):
    def replaced(stream):
        progress._console.cache_clear()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    monkeypatch.delenv("LETHE_PROGRESS", raising=False)
    yield replaced
    progress._console.cache_clear()


def test_a_terminal_shows_the_farthest_goal_first(stderr, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    shown = stderr(Terminal())

    with goals("sample npo") as show:
        show(REACHED, "1 of 3 questions has passed")

    text = shown.getvalue()
    assert "sample npo: 1 of 3 questions" in text
    assert text.index("q2") < text.index("q1")
    assert "20% after 256 answers" in text


def test_nothing_is_shown_where_there_is_no_terminal(stderr):
    shown = stderr(io.StringIO())

    with goals("sample npo") as show:
        show(REACHED, "1 of 3 questions has passed")

    assert shown.getvalue() == ""


def test_a_flow_reads_the_sentence(stderr, monkeypatch, tmp_path):
    shown = stderr(io.StringIO())
    monkeypatch.setenv("LETHE_PROGRESS", str(tmp_path))
    monkeypatch.setenv("DVC_STAGE", "sample@npo")

    with goals("sample npo") as show:
        show(REACHED, "1 of 3 questions has passed")

    note = json.loads((tmp_path / "sample@npo.json").read_text())
    assert note == {"text": "sample npo: 1 of 3 questions has passed"}
    assert shown.getvalue() == ""


def test_the_line_of_the_draws_stands_below_the_goals(stderr, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "AT_TERMINAL", 0.0)
    shown = stderr(Terminal())

    with goals("sample npo") as show:
        for _ in progress.progress([1, 2, 3], "draws", "questions"):
            show(REACHED, "1 of 3 questions has passed")

    text = shown.getvalue()
    line = text.index("draws: 2 of 3 questions")
    assert "q1" in text[:line]
    assert "1 of 3 questions has passed" in text[:line]
