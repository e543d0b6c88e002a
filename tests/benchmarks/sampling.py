"""Tokens per second of the sampling engines, and whether the engines agree: `python -m tests.benchmarks sampling`.

Each engine samples each model in a separate process, so that start-up and peak memory are measured separately. Tokens
are those of the answers, up to and including the end token; padding after a finished answer does not count. On a machine
that others use too, tokens per processor second compare engines better than tokens per second.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from lethe.config.measuring import MEMORY, SAMPLE
from tests.small import ROOT

PROMPT = ROOT / "lethe/models/prompts/qa.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models", nargs="+", default=["base", "npo", "npo_entropy"], help="names or folders"
    )
    parser.add_argument("--engines", nargs="+", default=["transformers", "vllm", "prefix"])
    parser.add_argument("--data", type=Path, default=Path("data/dataset/forget.jsonl"))
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--n", type=int, default=1024)
    parser.add_argument("--max-new-tokens", type=int, default=40)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--memory", type=int, default=MEMORY, help="MiB for the rows in flight, as of lethe eval"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked, asked.one, asked.models[0])))
        return
    print(
        f"{'model':14}{'engine':14}{'start s':>8}{'sampling s':>11}{'its cpu s':>10}{'tokens/s':>10}{'a cpu s':>9}"
        f"{'ratio':>7}{'peak MB':>9}{'same greedy':>13}{'mean leak':>11}{'its bound':>11}{'largest z':>11}"
    )
    for model in asked.models:
        reference = None
        for engine in asked.engines:
            result = in_a_process(engine, model)
            reference = reference or result
            print(row(result, reference, model), flush=True)


def in_a_process(engine: str, model: str) -> dict:
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.sampling",
        *sys.argv[1:],
        "--one",
        engine,
        "--models",
        model,
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    if done.returncode:
        sys.exit(f"{engine} on {model} failed with exit status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(asked: argparse.Namespace, kind: str, model: str) -> dict:
    """Start, sample, score: everything that the table shows about one engine and model."""
    from transformers import AutoTokenizer

    from lethe.models.encoding import Encoder
    from lethe.sampling.engine import Options, Prompt, Settings, open_engine
    from lethe.sampling.forecast import rows_within
    from lethe.scoring.scorer import scorer

    folder = Path(model) if Path(model).is_dir() else Path("data/models") / model
    rows = [json.loads(line) for line in asked.data.read_text().splitlines()][: asked.questions]
    encoder = Encoder(AutoTokenizer.from_pretrained(folder), PROMPT)
    prompts = [Prompt(item["id"], encoder.prompt(item)) for item in rows]
    begun = time.perf_counter()
    longest = max(len(prompt.token_ids) for prompt in prompts) + asked.max_new_tokens
    most = min(SAMPLE.max_rows, rows_within(asked.memory, folder, longest, SAMPLE.dtype))
    engine = open_engine(kind, folder, Options(device=asked.device, max_rows=most))
    started, used = time.perf_counter(), time.process_time()
    settings = Settings(n=asked.n, max_new_tokens=asked.max_new_tokens, seed=3)
    answers = {drawn.prompt_id: drawn for drawn in engine.answer(prompts, settings)}
    ended = time.perf_counter()
    memory = peak_memory()
    return {
        "engine": kind,
        "start": started - begun,
        "sampling": ended - started,
        "processor": time.process_time() - used,
        "tokens": sum(sum(drawn.tokens) for drawn in answers.values()),
        "memory": memory,
        "greedy": [answers[item["id"]].texts[0] for item in rows],
        "scores": [
            np.nan_to_num(scorer("rouge_l")(answers[item["id"]].texts[1:], item)).tolist()
            for item in rows
        ],
    }


def peak_memory() -> float:
    total = 0
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        total += int(status["VmHWM"].split()[0])
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += map(int, children.read_text().split())
    return total / 1024


def row(result: dict, reference: dict, model: str) -> str:
    """A line of the table; ratio, greedy answers and z are against the first engine.

    Leak is ROUGE-L recall, its bound is M_mu at alpha = .01, both averaged over the questions; z is the largest
    difference of a question's mean between the two engines, in standard errors.
    """
    from lethe.statistics.bounds import paper_bounds

    speed = result["tokens"] / result["sampling"]
    ratio = speed / (reference["tokens"] / reference["sampling"])
    each_processor_second = result["tokens"] / result["processor"]
    same = sum(
        text == other for text, other in zip(result["greedy"], reference["greedy"], strict=True)
    )
    bounds, other = (
        paper_bounds(np.array(engine["scores"]), 0.01, np.zeros(1))
        for engine in (result, reference)
    )
    error = np.sqrt((bounds.sd**2 + other.sd**2) / bounds.n)
    z = np.max(np.abs(bounds.mean - other.mean) / np.maximum(error, 1e-12))
    return (
        f"{Path(model).name:14}{result['engine']:14}{result['start']:8.1f}{result['sampling']:11.1f}"
        f"{result['processor']:10.1f}{speed:10,.0f}{each_processor_second:9,.0f}{ratio:7.1f}{result['memory']:9,.0f}{f'{same}/{len(bounds.mean)}':>13}"
        f"{bounds.mean.mean():11.4f}{bounds.m_mu.mean():11.4f}{z:11.2f}"
    )


if __name__ == "__main__":
    main()
