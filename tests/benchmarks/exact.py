"""Exact bounds beside sampling: ``exact``, ``exact-acceptance`` and ``exact-real`` of the benchmarks.

``widths``: the width of the interval of P(leak) by rows, against plain sampling and enumeration alone. ``acceptance``: what
exact bounds must show on the demonstration's models; exit status 1 if a claim does not hold. Both read what `make run` made.
``real``: certain lower bounds of SmolLM2-135M-Instruct (`real-model` of the benchmarks) beside samples, and what both cost.

A row is one token put through the model after a cached prefix; samples that agree so far share a row.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lethe import config
from lethe.data.rows import read_rows
from lethe.io.artifacts import GREEDY
from lethe.io.tables import read_table
from lethe.models.checkpoints import prepare_torch
from lethe.results import table
from lethe.results.exact_bounds import certificates_of
from lethe.sampling.answer_tree import (
    PLAIN,
    Effort,
    Law,
    TreeQuestion,
    enumerate_answers,
    first_look,
)
from lethe.sampling.answer_tree.asking import Asker
from lethe.sampling.answer_tree.automaton import KeywordAutomaton
from lethe.sampling.answer_tree.enumeration import Growth, grow
from lethe.sampling.engine import Options, Prompt, Settings
from lethe.sampling.predictor import ModelPredictor, measured_allowance
from lethe.sampling.prefix_engine import PrefixEngine
from lethe.scoring.scorer import scorer
from lethe.statistics.answer_tree import Remainder, Rounding, leak_interval
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.steps.exact import ExactSettings
from tests.lethe.sampling.answer_tree.toy_models import read

ALPHA = 0.01
STRINGS = 80_000
QUESTIONS = Path(__file__).parent / "exact_questions/harry_potter.jsonl"
# Of npo at 15,000 rows: the least certain end of all questions, and how many of those that samples call clean exceed 1e-5.
LEAST_OF_NPO = 2.3e-7
CLEAN_ABOVE = 10


def asked_of(data: Path, name: str, every: int) -> tuple[ModelPredictor, Law, list[TreeQuestion]]:
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
    return (
        predictor,
        law,
        [asker.ask(row) for row in read_rows(data / "dataset/forget.jsonl")[::every]],
    )


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    return work(), time.process_time() - began


def sampled_ends(leaks: int, n: int) -> tuple[float, float]:
    return float(binary_lower(leaks, n, ALPHA)), float(binary_upper(leaks, n, ALPHA))


def plain_width(question: TreeQuestion, law: Law, predictor: ModelPredictor, rows: int) -> float:
    """The width of Clopper-Pearson's interval from about as many samples as ``rows`` allow."""
    n = 64
    grown = None
    while grown is None or (grown.rows < 0.8 * rows and n < 1_000_000):
        n = n if grown is None else max(n + 1, int(n * min(8.0, (rows / grown.rows) ** 1.2)))
        grown = grow(question, law, predictor, Growth(PLAIN, rho=float(n)), n)
    low, high = sampled_ends(grown.remainder.leaks, grown.remainder.sampled)
    return high - low


def widths(asked: argparse.Namespace) -> int:
    print(
        f"{'model':12}{'rows asked':>11}{'rows':>8}{'seconds':>9}{'exact':>10}{'enumerated':>12}{'sampled':>10}"
    )
    for name in asked.models:
        predictor, law, questions = asked_of(asked.data, name, asked.every)
        for rows in asked.rows or [500, 1500, 5000, 15_000]:
            began = time.process_time()
            trees = list(
                enumerate_answers(questions, law, predictor, Effort(rows=rows, alpha=ALPHA))
            )
            seconds = time.process_time() - began
            alone = list(
                enumerate_answers(questions, law, predictor, Effort(rows=rows, exact_only=True))
            )
            used = int(np.mean([tree.rows for tree in trees]))
            medians = [
                np.median([tree.upper - tree.lower for tree in trees]),
                np.median([tree.upper_certain - tree.lower for tree in alone]),
                np.median([plain_width(question, law, predictor, used) for question in questions]),
            ]
            shown = "".join(
                f"{value:{width}.2e}" for value, width in zip(medians, (10, 12, 10), strict=True)
            )
            print(f"{name:12}{rows:11,}{used:8,}{seconds / len(questions):9.2f}{shown}", flush=True)
    print(
        "Median widths: exact mass and a Poisson sample of the rest; enumeration alone; plain sampling with"
    )
    print(
        f"Clopper-Pearson. Upper ends at alpha {ALPHA:g}; the lower ends of the first two are certain."
    )
    return 0


def acceptance(asked: argparse.Namespace) -> int:
    claims = [
        automaton(asked.data),
        *certain_leaks(asked.data, (asked.rows or [ExactSettings().rows])[0]),
    ]
    claims.append(beside_samples(asked.data))
    for holds, text in claims:
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {text}", flush=True)
    return int(not all(holds for holds, _ in claims))


def hits_of(data: Path, name: str) -> dict[str, tuple[int, int]]:
    """(leaks, answers) per question among the demonstration's own samples."""
    scores = read_table(data / f"scores/{name}/forget.parquet")
    drawn = (
        scores[scores["sample"] != GREEDY]
        .groupby("prompt_id")["keyword_leak"]
        .agg(["sum", "count"])
    )
    return {str(key): (int(row["sum"]), int(row["count"])) for key, row in drawn.iterrows()}


def automaton(data: Path) -> tuple[bool, str]:
    """On random token strings around the keywords the automaton says what the scorer says."""
    random = np.random.default_rng(0)
    wrong = 0
    leaking = 0
    questions = asked_of(data, "npo", 1)[2]
    n_strings = STRINGS // len(questions)
    for question in questions:
        reader = question.automaton
        assert isinstance(reader, KeywordAutomaton)
        seeds = [list(seed) for seed in question.seeds]
        vocabulary = len(reader.row(reader.start))
        answers = []
        for _ in range(n_strings):
            tokens = list(seeds[random.integers(len(seeds))]) if random.random() < 0.7 else []
            for _ in range(int(random.integers(0, 4))):
                tokens.insert(
                    int(random.integers(len(tokens) + 1)), int(random.integers(vocabulary))
                )
            answers.append(tuple(tokens))
        scored = question.scores(question.decode(answers))
        states = [read(reader, answer) for answer in answers]
        ends = reader.ends(np.array(states))
        called = (ends == 1) | np.array(
            [bool(reader.leaks(np.array([state]))[0]) for state in states]
        )
        wrong += int((called != scored)[ends != 2].sum())
        leaking += int(scored.sum())
    return (
        wrong == 0,
        f"{wrong} of {n_strings * len(questions):,} strings read wrongly, {leaking:,} leak",
    )


def certain_leaks(data: Path, rows: int) -> list[tuple[bool, str]]:
    """npo is proved to leak where 1,024 samples see nothing; the question that leaks most has a narrow interval."""
    predictor, law, questions = asked_of(data, "npo", 1)
    trees, seconds = timed(
        lambda: list(enumerate_answers(questions, law, predictor, Effort(rows=rows)))
    )
    drawn = hits_of(data, "npo")
    clean = [tree for tree in trees if drawn[tree.id][0] == 0]
    least = min(tree.lower for tree in trees)
    counts = ", ".join(
        f"{sum(tree.lower > tau for tree in trees)} of {len(trees)} above {tau:g} (of the {len(clean)} that samples call "
        f"clean {sum(tree.lower > tau for tree in clean)})"
        for tau in (1e-7, 1e-6, 1e-5, 1e-4)
    )
    proved = least >= LEAST_OF_NPO and sum(tree.lower > 1e-5 for tree in clean) >= CLEAN_ABOVE
    most = max(trees, key=lambda tree: tree.lower)
    low, high = sampled_ends(*drawn[most.id])
    return [
        (proved, f"npo, {rows:,} rows: {counts}; the least {least:.2e}; {seconds:.0f} s"),
        (
            most.upper - most.lower <= 0.25 * (high - low),
            f"{most.id} leaks most, {most.lower:.4f} to {most.upper:.4f}; samples: {low:.4f} to {high:.4f}",
        ),
    ]


def beside_samples(data: Path) -> tuple[bool, str]:
    """The intervals that `make run` left meet those of its samples."""
    met = 0
    asked = 0
    results = table.read(data)
    for name in config.load().models:
        drawn, certificates = hits_of(data, name), certificates_of(results, name)
        for tree in certificates.trees if certificates else ():
            low, high = sampled_ends(*drawn[tree.id])
            met += bool(tree.lower <= high and tree.upper >= low)
            asked += 1
    return met >= 0.98 * asked, f"{met} of {asked} intervals meet Clopper-Pearson's of the samples"


def real(asked: argparse.Namespace) -> int:
    prepare_torch()
    options = Options(max_rows=256)
    predictor = ModelPredictor(asked.model, options)
    asker = Asker(predictor.checkpoint, "chat")
    law = Law(predictor.checkpoint.end_ids, asked.max_new_tokens)
    effort = Effort(rows=(asked.rows or [4500])[0], exact_only=True, pilot=16)
    rows = read_rows(QUESTIONS)
    prompts = [np.array(asker.ask(row).prompt) for row in rows]
    allowance = measured_allowance(predictor, prompts, asked.max_new_tokens)
    rounding = Rounding(allowance, asked.max_new_tokens)
    print(
        f"{predictor.dtype}, vocabulary {predictor.vocabulary:,}, logit error {allowance:.1g} (measured)"
    )
    engine = PrefixEngine(asked.model, options)
    leak = scorer("keyword_leak")
    for row in rows:
        question = asker.ask(row)
        look, seconds = timed(
            lambda question=question: first_look(question, law, predictor, effort)
        )
        lower = leak_interval(look.masses, Remainder(), ALPHA, rounding).lower
        print(
            f"{row['id']:11} P(leak) >= {lower:.2e}, certain; {look.rows:,} rows, {seconds:.0f} s; "
            f"entropy about {look.entropy:.0f} nats; likeliest {look.heaviest[0].text if look.heaviest else None!r}",
            flush=True,
        )
        prompt = Prompt(row["id"], question.prompt)
        how = Settings(n=asked.n, max_new_tokens=asked.max_new_tokens, greedy=False)
        (answers,), seconds = timed(
            lambda prompt=prompt, how=how: list(engine.answer([prompt], how))
        )
        hits = int(leak(answers.texts, row).sum())
        low, high = sampled_ends(hits, asked.n)
        ends = f"{low:.2e} and {high:.2e}, each at alpha {ALPHA:g}"
        print(f"{'':11} {hits} of {asked.n:,} samples leak, {seconds:.0f} s: {ends}", flush=True)
    return 0


PARTS = {"widths": widths, "acceptance": acceptance, "real": real}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--models", nargs="+", default=["base", "npo", "retrain"])
    parser.add_argument("--rows", nargs="+", type=int, help="rows per question")
    parser.add_argument(
        "--every", type=int, default=6, help="widths: every so many questions are asked"
    )
    parser.add_argument(
        "--model", type=Path, default=Path("data/models/smollm2-135m-instruct"), help="real"
    )
    parser.add_argument("--n", type=int, default=1024, help="real: samples per question")
    parser.add_argument("--max-new-tokens", type=int, default=24, help="real")
    asked = parser.parse_args()
    return PARTS[asked.part](asked)


if __name__ == "__main__":
    sys.exit(main())
