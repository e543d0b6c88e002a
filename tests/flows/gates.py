"""A gate of `lethe run`, asked with the news of a run that was not made."""

from pathlib import Path

import pytest
import typer

from flows import cli, record


def asked(
    gate: str,
    root: Path,
    news: record.RunRecord,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> tuple[int, str]:
    """The exit status of ``lethe run --fail-on GATE`` in ``root`` with these news, and what it says, in one line."""
    monkeypatch.chdir(root)
    monkeypatch.setattr("flows.workspace.prepare", lambda root: None)
    monkeypatch.setattr(cli, "_run_changed", lambda *arguments: (news, {}, None))
    status = 0
    try:
        cli.run(fail_on=gate)
    except typer.Exit as ended:
        status = ended.exit_code
    shown = capsys.readouterr()
    return status, " ".join((shown.out + shown.err).split())
