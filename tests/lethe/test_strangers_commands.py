"""A sample of `make fuzz` of whole commands: each ends in a result or in a sentence, within its time and memory."""

import os
import subprocess
import sys

import pytest

from tests.fuzz.commands import KINDS
from tests.small import ROOT


@pytest.mark.slow
@pytest.mark.timeout(1800)  # minutes on two free cores; a case has a limit of its own
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_broken_inputs_end_in_a_result_or_a_sentence(kind):
    command = [sys.executable, "-m", "tests.fuzz", "--kind", kind, "--cases", "200", "--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(command, capture_output=True, text=True, env=environment)

    assert done.returncode == 0, done.stderr[-5000:] + done.stdout[-5000:]
    assert "200 cases" in done.stdout
    assert ", 0 failed" in done.stdout


@pytest.mark.parametrize(
    ("status", "errors", "wrong"),
    [
        (0, "", None),
        (2, "lethe: a.csv: no such file. Check the path.", None),
        (1, "lethe: the run failed.", None),
        (2, "", "0 sentences"),
        (2, "Usage: lethe\n", "0 sentences"),
        (0, "lethe: a sentence beside a result", "exit status 0"),
        (1, 'Traceback (most recent call last):\n  File "x"\nKeyError: 1', "a traceback"),
        (-9, "", "exit status -9"),
        (1, "lethe: Out of memory: no incomplete file was kept.", "Out of memory"),
        (2, "lethe: a\x1b[31mb", "control character"),
    ],
)
def test_the_fuzz_tells_a_sentence_from_a_crash(status, errors, wrong):
    from tests.fuzz.commands import problem

    found = problem(status, errors)

    assert found is None if wrong is None else wrong in found
