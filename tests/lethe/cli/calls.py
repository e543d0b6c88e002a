"""The `lethe` command as the tests call it: in this process, without a shell."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
from click.testing import Result
from typer.testing import CliRunner

from lethe.cli.app import app


class Command:
    """A command with the arguments that every call of it has."""

    def __init__(self, *start: object):
        self.start = start

    def call(self, *arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in (*self.start, *arguments)])

    def result(self, *arguments: object) -> dict[str, Any]:
        done = self.call(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def refused(self, *arguments: object) -> str:
        """What a call says that is refused, on one line: a sentence and exit status 2."""
        done = self.call(*arguments)
        assert done.exit_code == 2, done.output
        assert re.search("^lethe: ", done.output, re.M)
        assert "Traceback" not in done.output
        return " ".join(done.output.split())


def written(path: Path, rows: pd.DataFrame) -> Path:
    """The file of a table, a CSV or Parquet by its ending."""
    if path.suffix == ".csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_parquet(path)
    return path
