"""How often bounds by a judge miss what people say, on any table of labelled answers.

``python -m tests.benchmarks human-labels FILE`` prints misses and widths for each judge: a run draws answers from it with
replacement, so the truth is the people's share of leaks, and some of the draws are labelled. The people's column is the
first of `PEOPLE`, or the majority of the columns that begin with ``human``; every other column of 0 and 1 is a judge.
"""

import argparse
import sys

import numpy as np
import pandas as pd

from lethe.errors import BadInput
from lethe.io.tables import read_table
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.counts import random_labels
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate

PEOPLE = ("human_majority", "human", "label", "unsafe")
RUNS = 2000
DRAWS = 1000
LABELS = 100
ALPHA = 0.05
KINDS = ("trusted", "calibrated", "labels")


def columns(table: pd.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The people's labels, and the verdicts of each judge."""
    known = {
        str(name): pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=np.float64)
        for name in table.columns
        if table[name].notna().all()
        and set(table[name].map(str).str.lower()) <= {"0", "1", "0.0", "1.0"}
    }
    people = [name for name in known if name.startswith("human")]
    named = next((name for name in PEOPLE if name in known), None)
    if named is None and not people:
        raise SystemExit(
            f"No column of a person's labels 0 and 1 among {', '.join(map(str, table.columns))}."
        )
    truth = (
        known[named]
        if named
        else (np.mean([known[name] for name in people], axis=0) > 0.5).astype(float)
    )
    return truth, {
        name: verdicts for name, verdicts in known.items() if name not in (*people, named)
    }


def ends(verdicts: np.ndarray | None, labels: np.ndarray) -> dict[str, tuple[float, float] | None]:
    """The interval of the share of leaks by each bound, each end at `ALPHA`; None for verdicts that do not fit."""
    known = labels[:LABELS]
    found: dict[str, tuple[float, float] | None] = {
        "labels": random_labels(int(known.sum()), LABELS, ALPHA)
    }
    if verdicts is not None:
        called = verdicts.sum()
        found["trusted"] = (
            float(binary_lower(called, DRAWS, ALPHA)),
            float(binary_upper(called, DRAWS, ALPHA)),
        )
        found["calibrated"] = (0.0, 1.0)
        if 0 < known.sum() < LABELS:
            judge = Calibration.of(known, verdicts[:LABELS], of_this_run=True)
            pair = Rate.of([called], DRAWS, judge=judge).average(ALPHA).bounds()
            found["calibrated"] = pair and (pair[0].value, pair[1].value)
    return found


def cell(rows: list[tuple[bool, float]]) -> str:
    missed, width = np.mean(rows, axis=0) if rows else (np.nan, np.nan)
    return f"{missed:.1%}, {width:.3f}" if rows else "-"


def main(place: str) -> int:
    people, judges = columns(read_table(place))
    truth = people.mean()
    print(
        f"{len(people)} answers, {truth:.0%} leaks by people; {RUNS} runs of {DRAWS} draws, {LABELS} labelled"
    )
    print(
        "judge | finds | false alarms | trusted | calibrated | labels alone\n---|---|---|---|---|---"
    )
    for name, verdicts in (judges or {"none": None}).items():
        rng = np.random.default_rng(3)
        rows = {kind: [] for kind in KINDS}
        for _ in range(RUNS):
            drawn = rng.integers(len(people), size=DRAWS)
            for kind, pair in ends(
                None if verdicts is None else verdicts[drawn], people[drawn]
            ).items():
                if pair:
                    rows[kind].append((not pair[0] <= truth <= pair[1], pair[1] - pair[0]))
        rates = (
            ["-", "-"]
            if verdicts is None
            else [f"{verdicts[people == label].mean():.0%}" for label in (1, 0)]
        )
        print(" | ".join([name, *rates, *(cell(rows[kind]) for kind in KINDS)]))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks human-labels", description=__doc__
    )
    parser.add_argument("file", help="a table of labels and verdicts")
    try:
        sys.exit(main(parser.parse_args().file))
    except BadInput as error:
        parser.error(str(error))
