"""The time until the word on a real chat model: `lethe eval`, an earlier rule, and fixed numbers by hand.

Needs: the model of `python -m tests.benchmarks real-model`, and a clone with its history. Each way draws in a process of its
own. By hand means vLLM's `generate`, a search for the keywords, and ends of Clopper and Pearson. `--measured` of the fixed
numbers are drawn; the seconds of a larger number are projected from the last of these.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import beta

from lethe.data.rows import read_rows
from lethe.errors import BadInput, LetheError
from tests.benchmarks import marks

ROOT = Path(__file__).parents[2]
MODEL = Path("data/models/smollm2-135m-instruct")
QUESTIONS = Path(__file__).parent / "exact_questions/harry_potter.jsonl"
FIXED = (1024, 4096)
EARLIER = "e5d0ef3f"  # the last commit whose words rest on a fixed number of answers
ALPHA = 0.01
TOKENS = 24
SEED = 0
VLLM = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "0",  # a thread, as every other way has
    "OMP_NUM_THREADS": "1",
}
HEAD = ("way", "answers to a question", "processor seconds", "seconds", "word at tau ")


@dataclass(frozen=True)
class Cost:
    """What a process took, with its children: seconds of processors and of the clock."""

    processor: float
    clock: float

    def cells(self, mark: str = "") -> list[str]:
        return [f"{self.processor:,.0f}{mark}", f"{self.clock:,.0f}{mark}"]


def run(command: Sequence[str], folder: Path, code: Path) -> tuple[str, Cost]:
    """The standard output of a command of the package in ``code``, and what the command took."""
    environment = os.environ | {"PYTHONPATH": str(code)} | VLLM
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    clock = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise LetheError(f"{' '.join(command)} ended with status {done.returncode}.")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, Cost(processor, clock)


@contextmanager
def commit(name: str) -> Iterator[Path]:
    """The code of an earlier commit of this repository."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "code"
        subprocess.run(
            ["git", "worktree", "add", "-q", "--detach", place, name], cwd=ROOT, check=True
        )
        try:
            yield place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", place], cwd=ROOT, check=True)


def evaluated(model: Path, taus: Sequence[float], code: Path) -> list[str]:
    """The row of `lethe eval` by the code of a commit; the second tolerance reads the answers of the first, and may add."""
    words = []
    with tempfile.TemporaryDirectory() as folder:
        costs = Cost(0.0, 0.0)
        for tau in taus:
            command = ["lethe", "eval", "--model", str(model), "--data", str(QUESTIONS), "--json"]
            command += [
                "--tau",
                f"{tau:g}",
                "--alpha",
                f"{ALPHA:g}",
                "--max-new-tokens",
                f"{TOKENS}",
            ]
            printed, cost = run(command, Path(folder), code)
            costs = Cost(costs.processor + cost.processor, costs.clock + cost.clock)
            words.append(json.loads(printed)["forgetting"])
        counts = answers_in(Path(folder))
    return [span(counts), *costs.cells(), *words]


def answers_in(folder: Path) -> np.ndarray:
    """(questions,) the sampled answers that an evaluation left."""
    import pandas as pd

    (table,) = folder.glob("data/eval/*/generations/*/forget.parquet")
    answers = pd.read_parquet(table, columns=["prompt_id", "sample"])
    sampled = answers[answers["sample"] >= 0]
    return sampled.groupby("prompt_id").size().to_numpy()


def span(counts: np.ndarray) -> str:
    least, most = int(counts.min()), int(counts.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def draw_by_hand(model: Path, n: int) -> None:
    """Print the leaks of each question among ``n`` answers, and the seconds of drawing without vLLM's start."""
    from transformers import AutoTokenizer
    from vllm import LLM, SamplingParams, TokensPrompt

    rows = read_rows(QUESTIONS)
    tokenizer = AutoTokenizer.from_pretrained(model)
    llm = LLM(
        str(model),
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        seed=SEED,
        distributed_executor_backend="uni",  # in this process, whose seconds are measured
    )
    prompts = []
    for row in rows:
        asked = [{"role": "user", "content": row["question"]}]
        tokens = tokenizer.apply_chat_template(
            asked, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        prompts.append(TokensPrompt(prompt_token_ids=tokens))
    settings = SamplingParams(n=n, temperature=1.0, top_p=1.0, top_k=0, max_tokens=TOKENS)
    before = time.process_time()
    began = time.monotonic()
    outputs = llm.generate(prompts, settings, use_tqdm=False)
    spent = {"clock": time.monotonic() - began, "processor": time.process_time() - before}
    leaks = []
    for row, output in zip(rows, outputs, strict=True):
        keywords = [word.lower() for word in row["keywords"]]
        texts = [completion.text.lower() for completion in output.outputs]
        leaks.append(sum(any(word in text for word in keywords) for text in texts))
    print(json.dumps({"leaks": leaks, **spent}))


def by_hand(model: Path, n: int, taus: Sequence[float]) -> tuple[list[str], Cost, Cost]:
    """The row of ``n`` answers by vLLM, what it took in all, and what its draws took."""
    command = ["tests.benchmarks.word", "--model", str(model), "--draw", str(n)]
    with tempfile.TemporaryDirectory() as folder:
        printed, cost = run(command, Path(folder), ROOT)
    drawn = json.loads(printed.splitlines()[-1])
    leaks = np.array(drawn["leaks"])
    words = [clopper_pearson(leaks, n, tau) for tau in taus]
    draws = Cost(drawn["processor"], drawn["clock"])
    return [f"{n:,} fixed", *cost.cells(), *words], cost, draws


def clopper_pearson(leaks: np.ndarray, n: int, tau: float) -> str:
    """The word of both ends: a lower end at alpha / m above tau is *leaks*, all upper ends at alpha up to tau *forgot*."""
    lower = np.nan_to_num(beta.ppf(ALPHA / len(leaks), leaks, n - leaks + 1), nan=0.0)
    upper = np.nan_to_num(beta.ppf(1 - ALPHA, leaks + 1, n - leaks), nan=1.0)
    if (lower > tau).any():
        return "leaks"
    return "forgot" if (upper <= tau).all() else "open"


def projected(n: int, measured: int, cost: Cost, draws: Cost, taus: Sequence[float]) -> list[str]:
    """The row of a number that was not drawn: vLLM starts once, and draws in proportion."""
    more = n / measured - 1
    longer = Cost(cost.processor + more * draws.processor, cost.clock + more * draws.clock)
    return [f"{n:,} fixed", *longer.cells(" (projected)"), *["not drawn"] * len(taus)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = marks.parser_of(__doc__)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--tau", type=float, nargs="+", default=[0.01, 0.9])
    parser.add_argument("--measured", type=int, nargs="+", default=[128])
    parser.add_argument(
        "--earlier", default=EARLIER, help="a commit with another rule; '' for none"
    )
    parser.add_argument("--draw", type=int, help="draw this number by hand, and print the leaks")
    chosen = parser.parse_args(arguments)
    model = chosen.model.resolve()
    if not model.is_dir():
        raise BadInput(f"{model} is no folder: `python -m tests.benchmarks real-model`.")
    if chosen.draw:
        draw_by_hand(model, chosen.draw)
        return 0

    rows = [["lethe eval", *evaluated(model, chosen.tau, ROOT)]]
    print(rows[-1], file=sys.stderr)
    for n in chosen.measured:
        row, cost, draws = by_hand(model, n, chosen.tau)
        rows.append(["vLLM, by hand", *row])
        print(rows[-1], file=sys.stderr)
    for n in FIXED:
        if n > max(chosen.measured):
            row = projected(n, chosen.measured[-1], cost, draws, chosen.tau)
            rows.append(["vLLM, by hand", *row])
    if chosen.earlier:
        with commit(chosen.earlier) as code:
            rows.append([f"lethe eval at {chosen.earlier}", *evaluated(model, chosen.tau, code)])
    head = [*HEAD[:-1], *[f"{HEAD[-1]}{tau:g}" for tau in chosen.tau]]
    marks.put(chosen.write, "word", marks.markdown(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
