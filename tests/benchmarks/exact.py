"""Width of the interval of P(leak) by rows, against plain sampling and enumeration alone: `python -m tests.benchmarks exact`.

A row is one token put through the model after a cached prefix. Plain sampling shares prefixes, as the prefix engine does,
and gets as many samples as its rows allow. The models and questions are those of the demonstration, which `make run` makes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from lethe import config
from lethe.data.rows import read_rows
from lethe.models.checkpoints import prepare_torch
from lethe.sampling.answer_tree import PLAIN, Effort, Law, Question, enumerate_answers
from lethe.sampling.answer_tree.asking import Asker
from lethe.sampling.answer_tree.enumeration import grow
from lethe.sampling.answer_tree.growth import Growth
from lethe.sampling.predictor import ModelPredictor
from lethe.statistics.bounds import binary_lower, binary_upper

ALPHA = 0.01


def asked_of(data: Path, name: str, every: int, first: int = 0) -> tuple[ModelPredictor, Law, list[Question]]:
    """A model of the demonstration with its questions, as the stage `exact` asks them."""
    settings = config.load()
    prepare_torch()
    predictor = ModelPredictor(data / "models" / Path(settings.models[name].path).name)
    law = Law(
        predictor.checkpoint.end_ids,
        settings.sample.max_new_tokens,
        adaptive_threshold=settings.models[name].adaptive_threshold,
    )
    asker = Asker(predictor.checkpoint, settings.sample.prompt, settings.score.keyword_match)
    rows = read_rows(data / "dataset/forget.jsonl")[first::every]
    return predictor, law, [asker.about_keywords(row) for row in rows]


def plain_width(question: Question, law: Law, predictor: ModelPredictor, rows: int) -> float:
    """The width of Clopper-Pearson's interval from about as many samples as ``rows`` allow."""
    n, grown = 64, None
    while grown is None or (grown.rows < 0.8 * rows and n < 1_000_000):
        n = n if grown is None else max(n + 1, int(n * min(8.0, (rows / grown.rows) ** 1.2)))
        grown = grow(question, law, predictor, Growth(PLAIN, rho=float(n)), n)
    drawn, leaks = grown.remainder.sampled, grown.remainder.leaks
    return float(binary_upper(leaks, drawn, ALPHA) - binary_lower(leaks, drawn, ALPHA))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--models", nargs="+", default=["base", "npo", "retrain"])
    parser.add_argument("--rows", nargs="+", type=int, default=[500, 1500, 5000, 15_000])
    parser.add_argument("--every", type=int, default=6, help="every so many questions are asked")
    asked = parser.parse_args()
    print(f"{'model':12}{'rows asked':>11}{'rows':>8}{'seconds':>9}{'exact':>10}{'enumerated':>12}{'sampled':>10}")
    for name in asked.models:
        predictor, law, questions = asked_of(asked.data, name, asked.every)
        for rows in asked.rows:
            began = time.process_time()
            trees = list(enumerate_answers(questions, law, predictor, Effort(rows=rows, alpha=ALPHA)))
            seconds = time.process_time() - began
            alone = list(enumerate_answers(questions, law, predictor, Effort(rows=rows, exact_only=True)))
            used = int(np.mean([tree.rows for tree in trees]))
            widths = [
                np.median([tree.upper - tree.lower for tree in trees]),
                np.median([tree.upper_certain - tree.lower for tree in alone]),
                np.median([plain_width(question, law, predictor, used) for question in questions]),
            ]
            print(
                f"{name:12}{rows:11,}{used:8,}{seconds / len(questions):9.2f}"
                f"{widths[0]:10.2e}{widths[1]:12.2e}{widths[2]:10.2e}",
                flush=True,
            )
    print(
        "Median widths over the questions: exact mass and a Poisson sample of the rest; enumeration alone; plain sampling"
    )
    print(f"with Clopper-Pearson. Upper ends at alpha {ALPHA:g}; the lower ends of the first two are certain.")


if __name__ == "__main__":
    main()
