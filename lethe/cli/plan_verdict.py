"""`lethe plan --verdict`: the words that typical models would get from a number of answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lethe.cli.console import print_json, print_table

DEFAULTS = {"n": 1024, "questions": 30, "models": 1, "tau": 0.01, "alpha": 0.01}


def run(given: Mapping[str, float], retrain: bool, as_json: bool) -> None:
    """Print how often each case gets the word that it should."""
    from lethe.results.power import RUNS, power

    sizes: dict[str, Any] = {**DEFAULTS, **given}
    found = power(**sizes, retrain=retrain)
    if as_json:
        print_json({**sizes, "retrain": retrain, "runs": RUNS, "cases": [asdict(case) for case in found]})
        return
    rows: list[list[object]] = [
        [case.name, case.wanted, *(f"{case.words[word]:.0%}" for word in ("leaks", "forgot", "open"))]
        for case in found
    ]
    beside = "one Retrain" if retrain else "no Retrain"
    notes = [
        f"{sizes['n']:,} answers to each of {sizes['questions']:,} questions, {sizes['models']:,} under test, {beside}, "
        f"tolerance {sizes['tau']:g}, alpha {sizes['alpha']:g}; {RUNS} simulated runs, seed 0. Exact bounds are not counted."
    ]
    print_table("Words by sampled answers", ["model", "should be", "leaks", "forgot", "open"], rows, notes)
