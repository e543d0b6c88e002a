"""ROUGE-L against rouge-score and self-BLEU against NLTK, on the demonstration's generations: `tests.benchmarks scoring`.

Both sides score the same texts and must agree, ROUGE-L to the last bit, self-BLEU within 1e-12. Times are this
process's CPU time; Lethe's scorers start with empty caches in every round.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_score.rouge_scorer import RougeScorer

from lethe.io.artifacts import read_split, read_tables
from lethe.registry import DIVERSITY
from lethe.scoring import scorer
from lethe.scoring.diversity import tokenize
from lethe.scoring.text import rouge

ROUNDS = 5  # of ours: the fastest counts; the references run once


def questions(root: Path, models: list[str], each: int) -> Iterator[tuple[str, str, list[str]]]:
    """(model, reference answer, generations) of the first ``each`` forget questions of each model."""
    answers = {row["id"]: row["answer"] for row in read_split("forget", root / "dataset")}
    for model in models:
        drawn = read_tables(root / "generations" / model, f"sample@{model}")["forget"]
        for prompt_id, group in list(drawn.groupby("prompt_id", sort=False))[:each]:
            yield model, answers[prompt_id], list(group["text"])


def seconds(work: Callable) -> tuple[float, object]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def rouge_l(asked: list[tuple[str, str, list[str]]]) -> None:
    reference = RougeScorer(["rougeL"], use_stemmer=True)
    score = scorer("rouge_l")
    score(["warm up"], {"answer": "imports"})

    def ours() -> list[np.ndarray]:
        rouge._STEMS.clear()
        return [score(texts, {"answer": answer}) for _, answer, texts in asked]

    def theirs() -> list[list[float]]:
        return [[reference.score(answer, text)["rougeL"].recall for text in texts] for _, answer, texts in asked]

    taken, expected = seconds(theirs)
    fast, got = min((seconds(ours) for _ in range(ROUNDS)), key=lambda pair: pair[0])
    for values, wanted, (_, _, texts) in zip(got, expected, asked, strict=True):
        present = ~np.isnan(values)  # an empty generation is missing here and 0 there
        assert (values[present] == np.array(wanted)[present]).all()
        assert all(not texts[i].strip() for i in np.flatnonzero(~present))
    count = sum(len(texts) for _, _, texts in asked)
    distinct = sum(len(set(texts)) for _, _, texts in asked)
    print(
        f"ROUGE-L recall, {len(asked)} questions, {count:,} generations ({distinct:,} distinct in their question)"
    )
    show("rouge-score", taken, count, "ours", fast, "generation")


def self_bleu(asked: list[tuple[str, str, list[str]]]) -> None:
    measure, smooth = DIVERSITY["self_bleu"], SmoothingFunction().method1

    def naive(texts: list[str]) -> float:
        tokens = [tokenize(text) for text in texts if text.strip()]
        each = [
            sentence_bleu(tokens[:i] + tokens[i + 1 :], tokens[i], smoothing_function=smooth)
            for i in range(len(tokens))
        ]
        return float(np.mean(each))

    texts = asked[0][2]
    taken, wanted = seconds(lambda: naive(texts))
    fast, got = min(seconds(lambda: measure(texts)) for _ in range(ROUNDS))
    assert abs(got - wanted) <= 1e-12
    print(f"self-BLEU, one question of {len(texts):,} samples")
    show("NLTK", taken, 1, "ours", fast, "question")
    slowest = max(min(seconds(lambda: measure(one))[0] for _ in range(ROUNDS)) for _, _, one in asked)  # noqa: B023
    print(f"  slowest of {len(asked)} questions: {slowest * 1e3:.1f} ms")


def show(slow: str, taken: float, count: int, fast: str, ours: float, unit: str) -> None:
    for name, value in ((slow, taken), (fast, ours)):
        print(f"  {name:<12} {value / count * 1e3:12.4f} ms a {unit}")
    print(f"  ratio        {taken / ours:12.1f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("data"), help="a finished run's data folder")
    parser.add_argument("--questions", type=int, default=10, help="questions of each model")
    options = parser.parse_args()
    models = sorted(path.parent.name for path in (options.root / "generations").glob("*/forget.parquet"))
    if not models:
        parser.error(f"{options.root}/generations is empty: run `make run` first")
    warnings.filterwarnings("ignore", category=UserWarning)  # NLTK warns of every order without a match
    asked = list(questions(options.root, models, options.questions))
    rouge_l(asked)
    self_bleu(asked)


if __name__ == "__main__":
    main()
