"""Every word that the commands print stands in terminal.txt; `python -m tests.contract.terminal --write` replaces it."""

from tests.contract.terminal import GOLDEN, printed


def test_the_commands_print_the_golden_words(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LETHE_CACHE", str(tmp_path / "cache"))
    now, golden = printed(tmp_path).splitlines(), GOLDEN.read_text(encoding="utf-8").splitlines()
    differing = [pair for pair in zip(golden, now, strict=False) if pair[0] != pair[1]]
    assert differing == []
    assert len(now) == len(golden)
