"""Answers per question until the word, for three numbers of first answers.

Eight models, alpha .01, tolerance .01, beside a Retrain and without; chance of 30% at tolerance
.05.
"""

import math
import sys
from collections.abc import Sequence

from lethe.statistics.policy import Policy
from lethe.statistics.policy_costs import RUNS, Case, told_case, typical_cases, word_costs
from tests.benchmarks import marks

MODELS = 8
ALPHA = 0.01
FIRSTS = (128, 256, 1024)
BATCH = 128
CAP = 32_768
CAP_ALONE = 4096  # without Retrain a guess near the tolerance stays open at any cap
HEAD = ("case", "Retrain", *[f"first {first:,}" for first in FIRSTS], "word")


def row(case: Case, name: str, tolerance: float, retrains: int, runs: int) -> list[str]:
    """The mean answers of model and Retrain with 90% of runs and Retrain's part, for each first number."""
    cells = []
    shares = []
    for first in FIRSTS:
        policy = Policy(
            first=first,
            batch=BATCH,
            cap=CAP if retrains else CAP_ALONE,
            tolerance=tolerance,
            goal=math.log(MODELS / ALPHA),
            retrains=retrains,
        )
        costs = word_costs(policy, case, runs=runs, seed=7)
        spread = f"90%: {costs.answers_90:,.0f}, Retrain {costs.retrain_answers:,.0f}"
        cells.append(f"{costs.answers:,.0f} ({spread})")
        shares.append(costs.words[case.wanted])
    word = f"{case.wanted} in {min(shares):.0%}"
    return [name, "yes" if retrains else "no", *cells, word]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="simulated runs per cell")
    parser.add_argument("--questions", type=int, nargs="+", default=[30, 400])
    chosen = parser.parse_args(arguments)

    rows = []
    for questions in chosen.questions:
        for case in typical_cases(questions, 0.01):
            name = f"{questions} questions: {case.name}"
            rows.append(row(case, name, 0.01, 1, chosen.runs))
            if questions == min(chosen.questions):
                rows.append(row(case, name, 0.01, 0, chosen.runs))
    for leak in (0.3, 0.45):
        case = told_case(30, 0.05, leak, chance=0.3, beside_retrain=True)
        rows.append(row(case, f"30 questions: {case.name}, tolerance 0.05", 0.05, 1, chosen.runs))
    marks.put(chosen.write, "word-costs", marks.markdown(HEAD, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
