"""Tables for people: whole numbers in a pipe, no markup obeyed."""

import errno
import os
import sqlite3
import subprocess
import sys
import unicodedata

import pytest

from lethe.cli.console import print_table
from lethe.errors import of_the_machine
from tests.small import ROOT


def test_in_a_pipe_no_cell_is_broken_in_two(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    columns = [f"m_bin_worst_{number}" for number in range(12)]
    print_table(
        "t", ["model", *columns], [["[red]npo_entropy_at", *(0.25 + number / 1e4 for number in range(12))]]
    )
    told = capsys.readouterr().out
    for cell in ("[red]npo_entropy_at", *columns, *(f"{0.25 + number / 1e4:.4g}" for number in range(12))):
        assert cell in told


EVIL = "\x1b]0;OWNED\x1b\\\x9b2K\u202eabc\u2066\r\x07\u2028"


@pytest.mark.parametrize("place", ["title", "column", "cell", "note"])
def test_no_text_of_a_file_moves_colours_or_reorders_a_terminal(capsys, place):
    title, columns, rows, notes = "t", ["a"], [["b"]], ["n"]
    if place == "title":
        title = EVIL
    elif place == "column":
        columns = [EVIL]
    elif place == "cell":
        rows = [[EVIL + "\n| spoofed"]]
    else:
        notes = [EVIL]
    print_table(title, columns, rows, notes)
    told = capsys.readouterr().out.replace("\n", "")
    assert not any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in told)
    assert "OWNED" in told


def test_a_full_disk_is_a_sentence(tmp_path):
    (tmp_path / "scores.csv").write_text("score\n0.5\n")
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "lethe", "bounds", "scores.csv", *more],
                cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith("lethe: The disk is full")
        assert "Traceback" not in done.stderr


def test_a_full_disk_is_seen_behind_the_errors_of_libraries():
    error = RuntimeError("a library's own")
    error.__cause__ = sqlite3.OperationalError("disk I/O error")
    assert of_the_machine(error) is not None
    assert of_the_machine(OSError(errno.EFBIG, "File too large", "x.db")) is not None
    assert of_the_machine(OSError(errno.EACCES, "Permission denied")) is None


def test_an_encoding_that_lacks_a_character_is_no_crash(tmp_path):
    (tmp_path / "scores.csv").write_text("prompt_id,score\n\u0647,0.5\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "lethe", "bounds", "scores.csv"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert r"\u0647" in done.stdout
