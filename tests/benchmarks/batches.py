"""What `sample.batch` costs: answers until the word, and the rows and seconds of an engine for 1,024 answers in batches.

A smaller batch ends sooner after the word is certain, and shares fewer prefixes. Answers are the mean of 100 simulated runs
of the policy from 256 and from 1,024 first answers to each of 30 questions, of model and Retrain. The engine draws to the
first questions of a dataset; a row is a token put through the model. Needs: a model's folder.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lethe.data.rows import read_rows
from lethe.statistics.policy import Policy
from lethe.statistics.policy_costs import typical_cases, word_costs
from tests.benchmarks import marks
from tests.benchmarks.sampling import PROMPT

BATCHES = (64, 128, 256)
FIRSTS = (256, 1024)
DRAWN = 1024
CASES = ("a copy of Retrain", "one guessed at .009", "three leak at .02", "one leaks at .05")
HEAD = (
    "batch",
    *(f"{case}, from {first:,}" for first in FIRSTS for case in CASES),
    *("engine", "rows for an answer", "milliseconds of a processor for an answer"),
)


def answers(batch: int, runs: int) -> list[str]:
    """The mean answers to a question until the word, of each typical case."""
    cells = []
    for first in FIRSTS:
        policy = Policy(
            first=first, batch=batch, cap=32_768, tolerance=0.01, goal=math.log(800), retrains=1
        )
        for case in typical_cases(30, 0.01):
            costs = word_costs(policy, case, runs=runs, seed=7)
            cells.append(f"{costs.answers:,.0f}")
    return cells


def drawn(chosen: argparse.Namespace, engine: str, batch: int) -> list[str]:
    """The rows and the milliseconds for an answer, of 1,024 answers that follow the first ones."""
    from transformers import AutoTokenizer

    from lethe.models.encoding import Encoder
    from lethe.sampling.engine import Prompt, Settings, open_engine

    encoder = Encoder(AutoTokenizer.from_pretrained(chosen.model), PROMPT)
    items = read_rows(chosen.data)[: chosen.questions]
    prompts = [Prompt(item["id"], encoder.prompt(item)) for item in items]
    opened = open_engine(engine, chosen.model)
    counted = getattr(opened, "forward", None)  # of the engine prefix
    before = counted.rows if counted else 0
    began = time.process_time()
    for first in range(FIRSTS[-1], FIRSTS[-1] + DRAWN, batch):
        settings = Settings(
            n=batch, first_sample=first, batch=batch, greedy=False, max_new_tokens=chosen.tokens
        )
        for _ in opened.answer(prompts, settings):
            pass
    n = DRAWN * len(prompts)
    took = 1000 * (time.process_time() - began) / n
    rows = f"{(counted.rows - before) / n:.2f}" if counted else "-"
    return [rows, f"{took:.2f}"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument("--model", type=Path, default=Path("data/models/npo"))
    parser.add_argument("--data", type=Path, default=Path("data/dataset/forget.jsonl"))
    parser.add_argument("--engines", nargs="+", default=["prefix"], help="prefix, vllm")
    parser.add_argument("--questions", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=100)
    chosen = parser.parse_args(arguments)
    rows = []
    for batch in BATCHES:
        costs = answers(batch, chosen.runs)
        for engine in chosen.engines:
            rows.append([str(batch), *costs, engine, *drawn(chosen, engine, batch)])
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    marks.put(chosen.write, "batches", marks.markdown(HEAD, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
