"""How often bounds by a judge miss what people say: JailbreakBench's 100 answers, three people's majority and six judges.

``python -m tests.benchmarks human-labels FILE`` reads JailbreakBench's ``classifier_comparison.csv``. A run draws answers
from the 100 with replacement, so the truth is the people's share of leaks. Some of the draws are labelled.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.counts import random_labels
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate

TRUTH, JUDGES = "human_majority", ("TDC", "GCG", "BERT", "llama_guard", "gpt_4_turbo", "gpt_4")
RUNS, DRAWS, LABELS, ALPHA = 2000, 1000, 100, 0.05


def ends(verdicts: np.ndarray, labels: np.ndarray) -> dict[str, tuple[float, float] | None]:
    """The interval of the share of leaks by each of three bounds, each end at `ALPHA`."""
    called, known = verdicts.sum(), labels[:LABELS]
    found: dict[str, tuple[float, float] | None] = {
        "trusted": (float(binary_lower(called, DRAWS, ALPHA)), float(binary_upper(called, DRAWS, ALPHA))),
        "labels": random_labels(int(known.sum()), LABELS, ALPHA),
        "calibrated": (0.0, 1.0),
    }
    if 0 < known.sum() < LABELS:
        judge = Calibration.of(known, verdicts[:LABELS], of_this_run=True)
        pair = Rate.of([called], DRAWS, judge=judge).average(ALPHA).bounds()
        found["calibrated"] = pair and (pair[0].value, pair[1].value)
    return found


def main(place: str) -> int:
    table = pd.read_csv(Path(place))
    people = table[TRUTH].to_numpy(dtype=np.float64)
    truth = people.mean()
    print(
        f"{len(table)} answers, {truth:.0%} leaks by the people's majority; {RUNS} runs of {DRAWS} draws, {LABELS} labelled"
    )
    print(
        "| judge | finds | false alarms | trusted: misses, width | calibrated: misses, width | labels: misses, width |"
    )
    print("|---|---|---|---|---|---|")
    for name in JUDGES:
        verdicts, rng = table[name].to_numpy(dtype=np.float64), np.random.default_rng(3)
        rows: dict[str, list[tuple[bool, float]]] = {}
        for _ in range(RUNS):
            drawn = rng.integers(len(table), size=DRAWS)
            for kind, pair in ends(verdicts[drawn], people[drawn]).items():
                if pair:
                    rows.setdefault(kind, []).append((not pair[0] <= truth <= pair[1], pair[1] - pair[0]))
        cells = [f"{np.mean(own, axis=0)[0]:.1%}, {np.mean(own, axis=0)[1]:.3f}" for own in map(rows.get, KINDS)]
        finds, alarms = verdicts[people == 1].mean(), verdicts[people == 0].mean()
        print(f"| {name} | {finds:.0%} | {alarms:.0%} | {' | '.join(cells)} |")
    return 0


KINDS = ("trusted", "calibrated", "labels")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
