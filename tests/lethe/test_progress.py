"""Progress: a bar on a terminal, lines elsewhere, notes for the flow that shows several stages together."""

import json
import time

from lethe.progress import progress


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
        "sample mine: 2 of 20 questions, 0.2/s, 90 s left",
        "sample mine: 6 of 20 questions, 0.2/s, 70 s left",
        "sample mine: 14 of 20 questions, 0.2/s, 30 s left",
    ]
