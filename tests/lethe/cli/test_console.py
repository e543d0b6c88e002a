"""The commands as a person and a pipe see them; `lethe sample`."""

import errno
import inspect
import json
import os
import shlex
import sqlite3
import subprocess
import sys
import unicodedata
from collections.abc import Iterator

import pandas as pd
import pytest
from typer.testing import CliRunner

import lethe
from lethe.api.parameters import InPython, texts_of
from lethe.cli.app import COMMANDS, GROUPS, app
from lethe.cli.generate import Command, built, print_table
from lethe.errors import of_the_machine
from tests.lethe.cli.calls import Command as Call
from tests.lethe.small_checkpoint import ROWS
from tests.small import ROOT, run

sample = Call("sample", "--n", 8, "--max-new-tokens", 4, "--model")


def test_questions_and_files_give_the_answers_of_the_function(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    drawn = lethe.sample(
        checkpoint, prompts={row["id"]: row["question"] for row in ROWS}, n=8, max_new_tokens=4
    )
    found = sample.result(checkpoint, "--data", "forget.jsonl", "--out", "answers.parquet")
    assert found["answers"] == drawn.to_frame().to_dict("records")
    assert pd.read_parquet("answers.parquet").equals(drawn.to_frame())
    shown = sample.call(checkpoint, "Who is Ada?", "Where is Bo?")
    assert "8 independent answers" in " ".join(shown.stdout.split())


def test_wrong_use_is_a_sentence(checkpoint, tmp_path):
    for more in ("", "Who? --data x.jsonl", "Who? --out x.txt", "Who? --memory 0", "Who? --n 0"):
        sample.refused(checkpoint, *more.split())


def commands() -> Iterator[tuple[str, Command]]:
    for rows in COMMANDS.values():
        yield from rows.items()
    for name, (_, rows) in GROUPS.items():
        yield from ((f"{name} {subcommand}", command) for subcommand, command in rows.items())


ALL = dict(commands())


@pytest.mark.parametrize("name", ALL)
def test_every_parameter_of_the_function_is_an_option_or_of_python_alone(name):
    function, _ = ALL[name].load()
    options = {option.name: option.help or "" for option in built(name, ALL[name]).params}

    left_out = texts_of(function).keys() - options.keys()

    annotations = inspect.get_annotations(function, eval_str=True)
    for parameter in left_out:
        assert InPython() in annotations[parameter].__metadata__
    assert "Python" not in "".join(options.values())


@pytest.mark.parametrize("name", ALL)
def test_every_example_is_legal(name):
    assert ALL[name].examples
    for example in ALL[name].examples:
        arguments = shlex.split(example)[len(name.split()) :]
        built(name, ALL[name]).make_context(name, arguments)


def test_the_help_has_four_groups_in_the_order_of_a_users_needs():
    shown = CliRunner().invoke(app, ["--help"]).output
    places = [
        shown.index(group) for group in ("Your model", "Your numbers", "The pipeline", "Studies")
    ]
    assert places == sorted(places)
    assert shown.index("│ bounds") > places[1]


def test_in_a_pipe_no_cell_is_broken_in_two(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    columns = [f"m_bin_worst_{number}" for number in range(12)]
    print_table(
        "t",
        ["model", *columns],
        [["[red]npo_entropy_at", *(0.25 + number / 1e4 for number in range(12))]],
    )
    told = capsys.readouterr().out
    for cell in (
        "[red]npo_entropy_at",
        *columns,
        *(f"{0.25 + number / 1e4:.4g}" for number in range(12)),
    ):
        assert cell in told


EVIL = "\x1b]0;OWNED\x1b\\\x9b2K\u202eabc\u2066\r\x07\u2028"


@pytest.mark.parametrize("place", ["title", "column", "cell", "note"])
def test_no_text_of_a_file_moves_colours_or_reorders_a_terminal(capsys, place):
    title = "t"
    columns = ["a"]
    rows = [["b"]]
    notes = ["n"]
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


@pytest.mark.slow
def test_a_full_disk_is_a_sentence(tmp_path):
    (tmp_path / "scores.csv").write_text("score\n0.5\n")
    for more in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "lethe", "bounds", "scores.csv", *more],
                cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith("lethe: The disk")
        assert "Traceback" not in done.stderr


def test_a_full_disk_is_seen_behind_the_errors_of_libraries():
    error = RuntimeError("a library's own")
    error.__cause__ = sqlite3.OperationalError("disk I/O error")
    assert of_the_machine(error) is not None
    assert of_the_machine(OSError(errno.EFBIG, "File too large", "x.db")) is not None
    assert of_the_machine(OSError(errno.EACCES, "Permission denied")) is None


def test_a_link_that_leads_to_itself_is_a_sentence(tmp_path):
    link = tmp_path / "loop"
    link.symlink_to(link)

    for look in (link.resolve, link.open):
        with pytest.raises((RuntimeError, OSError)) as raised:
            look()

        assert "leads to itself" in str(of_the_machine(raised.value))
        assert str(link) in str(of_the_machine(raised.value))


@pytest.mark.parametrize(
    "command", ["bounds NAME", "log NAME", "verify NAME", "compare NAME NAME", "label NAME"]
)
def test_a_files_text_in_place_of_its_name_is_a_sentence(tmp_path, monkeypatch, command):
    """As of `lethe verify "$(cat certificate.json)"`."""
    monkeypatch.chdir(tmp_path)
    words = command.replace("NAME", json.dumps({"schema": "x" * 300}).replace(" ", "")).split()

    assert "not what it holds" in Call().refused(*words)


@pytest.mark.slow
def test_an_encoding_that_lacks_a_character_is_no_crash(tmp_path):
    (tmp_path / "scores.csv").write_text("prompt_id,score\n\u0647,0.5\n", encoding="utf-8")
    narrow = {"PYTHONPATH": str(ROOT), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run(tmp_path, "lethe", "bounds", "scores.csv", **narrow)
    assert r"\u0647" in done.stdout
