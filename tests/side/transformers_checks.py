"""`python -m tests.benchmarks transformers`: the commands on the newest transformers within the range, which may warn of
nothing that it will remove.

The environment has that release beside this project's packages. Each command runs as a process of its own on a model of a
few thousand random weights. A `FutureWarning` or `DeprecationWarning` raised for code of Lethe is an error, and no line of
the output may speak of something deprecated.
"""

import json
import re
import subprocess
import sys

import pytest
import transformers

from lethe.io.files import write_jsonl
from tests.lethe.small_checkpoint import ROWS, save_small_checkpoint
from tests.small import environment

DRAWN = ("--data", "rows.jsonl", "--max-new-tokens", "4")
OF_MODEL = ("--model", "mine")
COMMANDS = {
    "eval": ("eval", *OF_MODEL, *DRAWN, "--n", "32"),
    "eval by generate": ("eval", *OF_MODEL, *DRAWN, "--n", "32", "--engine", "transformers"),
    "exact": ("exact", *OF_MODEL, *DRAWN, "--rows", "200"),
    "extract": ("extract", *OF_MODEL, "--text", "book.txt"),
    "certify": ("certify", *OF_MODEL, *DRAWN, "--tau", "0.9", "--out", "c.json"),
}
# A warning for the line of Lethe that asks for what will go; the option -W names one module, and no package.
RUN = """
import sys, warnings
for kind in (FutureWarning, DeprecationWarning):
    warnings.filterwarnings("error", category=kind, module=r"lethe(\\.|$)")
sys.argv[0] = "lethe"
from lethe.cli.app import main
main()
"""
DEPRECATED = re.compile(r"deprecat|will be removed in|FutureWarning", re.IGNORECASE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transformers")
    save_small_checkpoint(folder / "mine")
    write_jsonl(folder / "rows.jsonl", ROWS)
    (folder / "book.txt").write_text(" ".join(row["answer"] for row in ROWS) * 20)
    return folder


def test_the_release_is_the_newest_that_the_index_has():
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-"]
    command = [*pip, "--upgrade", "--no-deps", "transformers>=5.17,<6"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)

    print(f"transformers {transformers.__version__}")
    assert json.loads(found.stdout)["install"] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_warns_of_nothing_that_will_go(folder, name):
    command = [sys.executable, "-c", RUN, *COMMANDS[name]]

    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)

    output = done.stdout + done.stderr
    said = [line for line in output.splitlines() if DEPRECATED.search(line)]
    assert done.returncode in (0, 1), output  # 1: a gate is closed
    assert "Traceback" not in output
    assert said == []
