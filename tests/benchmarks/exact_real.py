"""Certain lower bounds of a real chat model beside samples, and what both cost: `python -m tests.benchmarks exact-real`.

The model is SmolLM2-135M-Instruct of `real-model` of the benchmarks, the questions are eight about Harry Potter. A
row is one token put
through the model behind a cached prefix; samples that agree so far share a row, as in the prefix engine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lethe.data.rows import read_rows
from lethe.models.checkpoints import prepare_torch
from lethe.sampling.answer_tree import Effort, Law, first_look
from lethe.sampling.answer_tree.asking import Asker
from lethe.sampling.engine import Options, Prompt, Settings
from lethe.sampling.predictor import ModelPredictor, measured_allowance
from lethe.sampling.prefix_engine import PrefixEngine
from lethe.scoring import scorer
from lethe.statistics.answer_tree import Remainder, Rounding, leak_interval
from lethe.statistics.bounds import binary_lower, binary_upper

QUESTIONS = Path(__file__).parent / "exact_questions/harry_potter.jsonl"


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result and the processor seconds that it took."""
    began = time.process_time()
    return work(), time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("data/models/smollm2-135m-instruct"))
    parser.add_argument("--rows", type=int, default=4500, help="rows per question; a third are of the guided tree")
    parser.add_argument("--n", type=int, default=1024, help="samples per question; 0 draws none")
    parser.add_argument("--max-new-tokens", type=int, default=24)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument(
        "--skip", type=int, default=0, help="questions that an earlier, interrupted call has printed"
    )
    asked = parser.parse_args()
    prepare_torch()
    options = Options(max_rows=256)
    predictor = ModelPredictor(asked.model, options)
    asker = Asker(predictor.checkpoint, "chat")
    law = Law(predictor.checkpoint.end_ids, asked.max_new_tokens)
    effort = Effort(rows=asked.rows, exact_only=True, pilot=16)
    rows = read_rows(QUESTIONS)[asked.skip : asked.skip + asked.questions]
    if not rows:
        parser.error(f"--skip {asked.skip} leaves none of the questions")
    allowance = measured_allowance(
        predictor, [np.array(asker.about_keywords(row).prompt) for row in rows], asked.max_new_tokens
    )
    rounding = Rounding(allowance, asked.max_new_tokens)
    print(
        f"{predictor.dtype}, vocabulary {predictor.vocabulary:,}, logit error {allowance:.1g} (measured)",
        flush=True,
    )
    engine = PrefixEngine(asked.model, options) if asked.n else None
    leak = scorer("keyword_leak")
    for row in rows:
        question = asker.about_keywords(row)
        look, seconds = timed(lambda question=question: first_look(question, law, predictor, effort))
        lower = leak_interval(look.masses, Remainder(), 0.01, rounding).lower
        print(
            f"{row['id']:11} P(leak) >= {lower:.2e}, certain; {look.rows:,} rows, {seconds:.0f} s; "
            f"entropy about {look.entropy:.0f} nats; likeliest {look.heaviest[0].text if look.heaviest else None!r}",
            flush=True,
        )
        if engine:
            prompt = Prompt(row["id"], question.prompt)
            how = Settings(n=asked.n, max_new_tokens=asked.max_new_tokens, greedy=False)
            (answers,), seconds = timed(lambda prompt=prompt, how=how: list(engine.answer([prompt], how)))
            hits = int(leak(answers.texts, row).sum())
            low, high = (float(end(hits, asked.n, 0.01)) for end in (binary_lower, binary_upper))
            print(
                f"{'':11} {hits} of {asked.n:,} samples leak, {seconds:.0f} s: {low:.2e} and {high:.2e}, each at alpha .01",
                flush=True,
            )


if __name__ == "__main__":
    main()
