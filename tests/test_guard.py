"""No test touches a run in the checkout."""

import os
import sqlite3
import subprocess
import sys

import pytest

from tests.guard import ROOT


@pytest.mark.parametrize(
    "touch",
    [
        lambda: (ROOT / "data/report/index.html").read_text(),
        lambda: (ROOT / "new").write_text(""),
        lambda: (ROOT / "docs/new").mkdir(),
        lambda: sqlite3.connect(ROOT / "mlflow.db"),
        lambda: os.chdir(ROOT),
        lambda: subprocess.run([sys.executable, "-c", ""], cwd=ROOT),
        lambda: list((ROOT / "data").iterdir()),
    ],
)
def test_a_test_that_touches_the_checkout_fails(touch):
    with pytest.raises(pytest.fail.Exception):
        touch()


def test_sources_are_read_and_other_folders_are_free(tmp_path):
    assert (ROOT / "data/source/README.md").read_text()
    assert (ROOT / "params.yaml").read_text()
    (tmp_path / "data").mkdir()
    subprocess.run([sys.executable, "-c", ""], cwd=tmp_path, check=True)
