import json

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app

SMALL = ("--runs", "2", "--size", "200", "--size", "400", "--components", "2", "--delta", "1e-3")


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *more: CliRunner().invoke(app, ["study", "epsilon-star-simulation", *SMALL, *more])


def test_table_and_pictures_from_one_command(call, tmp_path):
    done = call("--out", "drawn", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [(cell["n"], cell["gap"]) for cell in result["cells"]] == [
        (n, gap) for n in (200, 400) for gap in range(4)
    ]
    assert len(result["goodness_of_fit"]["p_values"]["training losses"]) == 2
    for number in (3, 4, 5, 6):
        assert (tmp_path / f"drawn/figure-{number}.png").read_bytes().startswith(b"\x89PNG")
    before = {path.name: path.read_bytes() for path in (tmp_path / "drawn").iterdir()}
    assert "The pictures: drawn" in call("--out", "drawn").stdout
    assert {path.name: path.read_bytes() for path in (tmp_path / "drawn").iterdir()} == before


def test_a_delta_out_of_range_is_a_sentence(call, tmp_path):
    for delta in ("0", "0.6"):
        done = call("--delta", delta, "--out", "drawn")
        assert done.exit_code == 2
        assert "--delta: got 0" in done.output
        assert "infinite for any gap" in done.output
    assert not (tmp_path / "drawn").exists()


def test_what_stands_at_out_is_never_deleted(call, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.txt").write_text("years of work")
    (tmp_path / "note").write_text("mine")
    assert call("--out", "precious").exit_code == 0
    assert (tmp_path / "precious/thesis.txt").read_text() == "years of work"
    assert (tmp_path / "precious/result.json").is_file()
    done = call("--out", "note")
    assert done.exit_code == 2
    assert "note: is a file" in done.output
    assert (tmp_path / "note").read_text() == "mine"


def test_as_many_components_as_take_minutes(call):
    done = call("--components", "400")
    assert done.exit_code == 2
    assert "equal to 50" in done.output
