"""The simulations of docs/validation.md run, each by its name, and the page has them all."""

from pathlib import Path

from tests.benchmarks import worst_cases
from tests.benchmarks.simulations import SIMULATIONS, main

PAGE = (Path(__file__).parents[1] / "docs/validation.md").read_text(encoding="utf-8")


def test_named_simulations_print_their_rows(capsys):
    assert main(["--only", "near", "s01", "s06b", "s20"]) == 0
    rows = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines()[2:])
    assert list(rows) == ["near_verbatim", "s01", "s01b", "s06b", "s20"]
    assert rows["s20"].endswith("826, 207 | 459, 90")
    assert "auditors differ" in rows["s06b"]


def test_the_page_has_every_simulation():
    assert all(
        f"\n{name}: {statement} | {before} | " in PAGE for name, (statement, before, _) in SIMULATIONS.items()
    )


def test_worst_cases_keep_their_level_and_stand_on_the_page():
    assert worst_cases.main(["--runs", "800"]) == 0
    assert all(f"\n{name}|" in PAGE for name in worst_cases.BOUNDS)
