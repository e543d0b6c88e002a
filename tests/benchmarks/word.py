"""The time until the word on a real chat model: `lethe eval`, an earlier rule, and fixed numbers by hand.

Needs: the model of `python -m tests.benchmarks real-model`, and a clone with its history. Each way draws in a process of its
own. By hand means vLLM's `generate`, a search for the keywords, and ends of Clopper and Pearson. `--measured` of the fixed
numbers are drawn; the seconds of a larger number are projected from the last of these.

`--keep FOLDER` keeps each way that has ended, and the finished questions of one that has not, so that a later call goes on.
`--most` ends a way after so many seconds of a processor; its row then says so, and a later call adds its seconds to these.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.stats import beta

from lethe.data.rows import read_rows
from lethe.errors import BadInput, LetheError
from lethe.io.files import SCHEMA_VERSION, read_artifact, write_json
from tests.benchmarks import marks

ROOT = Path(__file__).parents[2]
MODEL = Path("data/models/smollm2-135m-instruct")
QUESTIONS = Path(__file__).parent / "exact_questions/harry_potter.jsonl"
FIXED = (1024, 4096)
EARLIER = "e5d0ef3f"  # the last commit whose words rest on a fixed number of answers
ALPHA = 0.01
TOKENS = 24
SEED = 0
SPENT = "spent.json"  # in the folder of a way
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

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.processor + other.processor, self.clock + other.clock)

    def cells(self, mark: str = "") -> list[str]:
        return [f"{self.processor:,.0f}{mark}", f"{self.clock:,.0f}{mark}"]


class Unfinished(LetheError):
    """A way took all seconds that it may take."""


def run(
    command: Sequence[str], folder: Path, code: Path, most: int | None = None
) -> tuple[str, Cost]:
    """The standard output of a command of the package in ``code``, and what the command took, which is added to a file.

    Raises `Unfinished` after ``most`` seconds of a processor.
    """

    def limited() -> None:
        if most is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))

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
        preexec_fn=limited,
    )
    clock = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cost = Cost(processor, clock) + spent(folder)
    write_json(folder / SPENT, {"schema": SCHEMA_VERSION, **asdict(cost)})
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise Unfinished(f"{' '.join(command)} was ended after {processor:,.0f} seconds.")
    if done.returncode:
        raise LetheError(f"{' '.join(command)} ended with status {done.returncode}.")
    return done.stdout, cost


def spent(folder: Path) -> Cost:
    """What the commands in a folder took so far."""
    if not (folder / SPENT).is_file():
        return Cost(0.0, 0.0)
    facts = read_artifact(folder / SPENT)
    return Cost(facts["processor"], facts["clock"])


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


def evaluated(
    model: Path, taus: Sequence[float], code: Path, folder: Path, most: int | None
) -> list[str]:
    """The row of `lethe eval` by the code of a commit; the second tolerance reads the answers of the first, and may add."""
    words = []
    for tau in taus:
        command = ["lethe", "eval", "--model", str(model), "--data", str(QUESTIONS), "--json"]
        command += ["--tau", f"{tau:g}", "--alpha", f"{ALPHA:g}", "--max-new-tokens", f"{TOKENS}"]
        try:
            printed, _ = run(command, folder, code, most)
        except Unfinished:
            words.append("not ended")
            break
        words.append(json.loads(printed)["forgetting"])
    words += ["not run"] * (len(taus) - len(words))
    tables = list(folder.glob("data/eval/*/generations/*/forget.parquet"))
    drawn = span(answers_in(tables[0])) if tables else "-"
    return [drawn, *spent(folder).cells(), *words]


def answers_in(table: Path) -> np.ndarray:
    """(questions,) the sampled answers that an evaluation left."""
    import pandas as pd

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
    took = {"clock": time.monotonic() - began, "processor": time.process_time() - before}
    leaks = []
    for row, output in zip(rows, outputs, strict=True):
        keywords = [word.lower() for word in row["keywords"] or ()]
        texts = [completion.text.lower() for completion in output.outputs]
        leaks.append(sum(any(word in text for word in keywords) for text in texts))
    print(json.dumps({"leaks": leaks, **took}))


def by_hand(
    model: Path, n: int, taus: Sequence[float], folder: Path, most: int | None
) -> tuple[list[str], Cost | None]:
    """The row of ``n`` answers by vLLM, and what its draws took; None where it had not ended."""
    command = ["tests.benchmarks.word", "--model", str(model), "--draw", str(n)]
    try:
        printed, cost = run(command, folder, ROOT, most)
    except Unfinished:
        return [f"{n:,} fixed", *spent(folder).cells(), *["not ended"] * len(taus)], None
    drawn = json.loads(printed.splitlines()[-1])
    leaks = np.array(drawn["leaks"])
    words = [clopper_pearson(leaks, n, tau) for tau in taus]
    return [f"{n:,} fixed", *cost.cells(), *words], Cost(drawn["processor"], drawn["clock"])


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


@dataclass(frozen=True)
class Ways:
    """The folder in which each way works, and in which the row of one that ended is kept."""

    folder: Path

    def row(self, way: str, made: Callable[[Path], list[str]]) -> list[str]:
        """The row of a way: the kept one, or else what is made in its folder; said on standard error."""
        place = self.folder / way.replace(" ", "-")
        place.mkdir(parents=True, exist_ok=True)
        kept = place / "row.json"
        if kept.is_file():
            return list(read_artifact(kept)["row"])
        row = made(place)
        print([way, *row], file=sys.stderr)
        if not {"not ended", "not run"} & set(row):
            write_json(kept, {"schema": SCHEMA_VERSION, "row": row})
        return row


def table_rows(model: Path, chosen: argparse.Namespace, ways: Ways) -> list[list[str]]:
    taus, most = chosen.tau, chosen.most
    rows = [
        ["lethe eval", *ways.row("eval", lambda at: evaluated(model, taus, ROOT, at, most))],
    ]
    measured: list[tuple[int, Cost]] = []
    for n in chosen.measured:

        def drawn(at: Path, n: int = n) -> list[str]:
            row, draws = by_hand(model, n, taus, at, most)
            if draws is not None:
                write_json(at / "draws.json", {"schema": SCHEMA_VERSION, **asdict(draws)})
            return row

        way = f"vllm {n}"
        rows.append(["vLLM, by hand", *ways.row(way, drawn)])
        place = ways.folder / way.replace(" ", "-")
        if (place / "draws.json").is_file():
            facts = read_artifact(place / "draws.json")
            measured.append((n, Cost(facts["processor"], facts["clock"])))
    for n in FIXED:
        if n in chosen.measured:
            continue
        if not measured:
            rows.append(["vLLM, by hand", f"{n:,} fixed", "-", "-", *["not run"] * len(taus)])
            continue
        number, draws = measured[-1]
        whole = spent(ways.folder / f"vllm-{number}")
        rows.append(["vLLM, by hand", *projected(n, number, whole, draws, taus)])
    if chosen.earlier:

        def by_earlier_rule(at: Path) -> list[str]:
            with commit(chosen.earlier) as code:
                return evaluated(model, taus, code, at, most)

        way = f"eval at {chosen.earlier}"
        rows.append([f"lethe {way}", *ways.row(way, by_earlier_rule)])
    return rows


def parser() -> argparse.ArgumentParser:
    options = marks.parser_of(__doc__)
    options.add_argument("--model", type=Path, default=MODEL)
    options.add_argument("--tau", type=float, nargs="+", default=[0.01, 0.9])
    options.add_argument("--measured", type=int, nargs="+", default=[128])
    options.add_argument(
        "--earlier", default=EARLIER, help="a commit with another rule; '' for none"
    )
    options.add_argument("--draw", type=int, help="draw this number by hand, and print the leaks")
    options.add_argument("--keep", type=Path, help="keep the ways here, and go on with them")
    options.add_argument("--most", type=int, help="seconds of a processor for a way in this call")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    model = chosen.model.resolve()
    if not model.is_dir():
        raise BadInput(f"{model} is no folder: `python -m tests.benchmarks real-model`.")
    if chosen.draw:
        draw_by_hand(model, chosen.draw)
        return 0

    with tempfile.TemporaryDirectory() as temporary:
        ways = Ways((chosen.keep or Path(temporary)).resolve())
        rows = table_rows(model, chosen, ways)
    head = [*HEAD[:-1], *[f"{HEAD[-1]}{tau:g}" for tau in chosen.tau]]
    marks.put(chosen.write, "word", marks.markdown(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
