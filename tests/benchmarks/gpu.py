"""A model of a billion weights from a configuration to its bounds, and a chat model as its user has it: time, tokens,
peak memory (`gpu` of the benchmarks). The chat model is the folder of `real-model`, where it exists.

Each stage is printed as it ends, and none begins after ``--minutes``, so that a card that is lent for fifteen minutes gives
what it can. Without a GPU the same stages run at a tiny size: ``--tiny``.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lethe import config
from tests.benchmarks import marks

if TYPE_CHECKING:
    from lethe.models.checkpoints import Source
    from lethe.models.encoding import Encoder
    from lethe.sampling.engine import Engine, Prompt, Settings

BILLION = {"hidden": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "feed_forward": 8192}
TINY = {"hidden": 32, "layers": 2, "heads": 2, "kv_heads": 1, "feed_forward": 64, "vocabulary": 400}


@dataclass(frozen=True)
class Size:
    """How much work: the model, the authors, epochs, and answers per question."""

    model: dict[str, int]
    authors: int
    epochs: int
    n: int
    questions: int
    rows: int
    precision: str


LARGE, SMALL = (
    Size(BILLION, 100, 4, 1024, 30, 5_000, "bfloat16"),
    Size(TINY, 20, 1, 8, 3, 200, "bfloat16"),
)
CHAT = Path("data/models/smollm2-135m-instruct")
ASKED = Path(__file__).parent / "exact_questions/harry_potter.jsonl"


@dataclass(frozen=True)
class Measured:
    """One stage: seconds, tokens that it read or wrote, and its peak memory in GiB (of the GPU, or of the process)."""

    stage: str
    seconds: float
    tokens: int
    memory: float


def measured(stage: str, work: Callable[[], int]) -> Measured:
    """Time ``work``, which returns its number of tokens, and print the figures at once: a later stage can run out of time."""
    import torch

    gc.collect()  # models of earlier stages are no memory of this one
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    tokens = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    done = Measured(stage, time.perf_counter() - start, tokens, peak_memory())
    print(done, file=sys.stderr, flush=True)
    return done


def peak_memory() -> float:
    """The peak in GiB since the last reset: of the GPU's allocations, or of this process where there is no GPU."""
    import resource

    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def billion(size: Size) -> Iterator[Measured]:
    """Train, sample with both engines, unlearn, sample again, bound exactly, and ask each engine in two batches."""
    import torch

    import lethe
    from lethe.data.rows import load_splits
    from lethe.models import checkpoints
    from lethe.models.encoding import Encoder
    from lethe.models.training import learn
    from lethe.registry import METHODS
    from lethe.unlearning.loop import unlearn

    value = config.read_yaml("params.yaml")
    value["data"]["authors"]["count"] = size.authors
    compute = {"precision": size.precision}
    value["train"]["recipe"] |= {
        **size.model,
        "epochs": size.epochs,
        "lr": 1e-4,
        "compute": compute,
    }
    value["unlearn"]["recipe"] |= {"compute": compute}
    params = config.validate(value)
    checkpoints.prepare_torch()
    splits = load_splits(params.data, Path())
    forget, retain = splits["forget"], splits["retain"]
    rows = [*forget, *retain]
    made = []

    def train() -> int:
        model, tokenizer, history = learn(rows, rows, params.train.recipe, 0, "train")
        made.append((model, tokenizer))
        encoder = Encoder(tokenizer, params.train.recipe.prompt)
        read = sum(
            len(example.prompt) + len(example.answer) for example in map(encoder.example, rows)
        )
        assert history
        return read * size.epochs

    yield measured("train", train)
    model, tokenizer = made[0]
    encoder = Encoder(tokenizer, params.train.recipe.prompt)
    examples = [[encoder.example(row) for row in split] for split in (forget, retain)]

    asked = forget[: size.questions]
    tokens = params.sample.max_new_tokens
    yield from sampling(checkpoints.InMemory(model, tokenizer), encoder, asked, size.n, tokens)

    def forgetting() -> int:
        entry = {
            "loss": "npo",
            "lr": 1e-5,
            "epochs": size.epochs,
            "beta": 0.1,
            "retain_weight": 1.0,
        }
        method = METHODS["npo"].Params.model_validate(entry)
        recipe = params.unlearn.recipe
        history = unlearn(model, *examples, recipe, method, tokenizer.pad_token_id or 0, "unlearn")
        lengths = [
            [len(example.prompt) + len(example.answer) for example in split] for split in examples
        ]
        drawn = len(history) * recipe.retain_batch * sum(lengths[1]) / len(lengths[1])
        return round(sum(lengths[0]) * size.epochs + drawn)

    yield measured("unlearn (npo)", forgetting)
    model = model.to(torch.bfloat16 if torch.cuda.is_available() else torch.float32)
    unlearned = checkpoints.InMemory(model, tokenizer)
    yield from sampling(unlearned, encoder, asked, size.n, tokens, of="unlearned")
    few = forget[: max(1, size.questions // 3)]

    def bounded() -> int:
        bounds = lethe.exact(
            model,
            few,
            tokenizer=tokenizer,
            rows=size.rows,
            max_new_tokens=tokens,
            prompt=params.sample.prompt,
        )
        return sum(tree.rows for tree in bounds.certificates.trees)

    yield measured(f"exact {len(few)} x {size.rows:,} rows", bounded)
    with tempfile.TemporaryDirectory() as place:
        checkpoints.save(Path(place), model, tokenizer)
        yield from invariance(Path(place), encoder, asked, size.n, tokens)


def invariance(
    folder: Path, encoder: Encoder, asked: Sequence[dict], n: int, tokens: int
) -> Iterator[Measured]:
    """Whether an engine's answers to a question are the same alone and beside other questions."""
    import torch

    from lethe.sampling.engine import Options, Prompt, Settings, open_engine

    prompts = [Prompt(row["id"], encoder.prompt(row)) for row in asked]
    settings = Settings(n=n, max_new_tokens=tokens, seed=0)
    names = ["prefix"]
    if torch.cuda.is_available() and importlib.util.find_spec("vllm") is not None:
        names.append("vllm")
    for name in names:
        engine = open_engine(
            name, folder, Options(adaptive=False, gpu_memory=0.5)
        )  # the model is still there
        drawn = []

        def compare(engine: Engine = engine, drawn: list = drawn) -> int:
            share, count = same_alone_and_together(engine, prompts, settings)
            drawn.append(share)
            return count

        done = measured(f"the first question alone and beside all ({name})", compare)
        mode = getattr(engine, "batch_invariant", None)
        kernels = "" if mode is None else f", batch-invariant kernels: {mode}"
        yield replace(done, stage=f"{done.stage}: {drawn[0]:.2%} equal{kernels}")
        getattr(engine, "close", lambda: None)()


def same_alone_and_together(
    engine: Engine, prompts: Sequence[Prompt], settings: Settings
) -> tuple[float, int]:
    """The share of the first prompt's answers that are the same alone and beside the others, and the tokens drawn."""
    together = {answers.prompt_id: answers for answers in engine.answer(prompts, settings)}
    (alone,) = engine.answer(prompts[:1], settings)
    beside = together[alone.prompt_id]
    pairs = list(zip(alone.texts, beside.texts, strict=True))
    equal = [first == second for first, second in pairs]
    tokens = sum(int(sum(answers.tokens)) for answers in (*together.values(), alone))
    return sum(equal) / len(equal), tokens


def sampling(
    source: Source,
    encoder: Encoder,
    asked: Sequence[dict],
    n: int,
    tokens: int,
    of: str = "base",
) -> Iterator[Measured]:
    """Both engines that need no server; `transformers` is `generate` with every row of a question in one batch."""
    from lethe.sampling.engine import Options, Prompt, Settings, open_engine

    prompts = [Prompt(row["id"], encoder.prompt(row)) for row in asked]
    for name in ("prefix", "transformers"):
        engine = open_engine(name, source, Options())

        def sample(engine: Engine = engine) -> int:
            settings = Settings(n=n, max_new_tokens=tokens, seed=0)
            return sum(int(sum(answers.tokens)) for answers in engine.answer(prompts, settings))

        yield measured(f"sample {of}, {len(prompts)} x {n:,} ({name})", sample)


def chat(folder: Path, size: Size) -> Iterator[Measured]:
    """`lethe.evaluate`, `lethe.exact` and both engines on a chat model, with the defaults of the commands."""
    import lethe
    from lethe.config.measuring import SAMPLE
    from lethe.io.tables import read_table
    from lethe.models import checkpoints
    from lethe.models.encoding import Encoder

    asked = [json.loads(line) for line in ASKED.read_text().splitlines()][: size.questions]

    def evaluate() -> int:
        with tempfile.TemporaryDirectory() as place:
            lethe.evaluate(folder, asked, n=size.n, folder=place)
            drawn = list(Path(place).rglob("generations/**/*.parquet"))
            return sum(int(read_table(path)["tokens"].sum()) for path in drawn)

    def exact() -> int:
        return sum(
            tree.rows for tree in lethe.exact(folder, asked, rows=size.rows).certificates.trees
        )

    yield measured(f"eval {len(asked)} x {size.n:,}, page included", evaluate)
    yield measured(f"exact {len(asked)} x {size.rows:,} rows", exact)
    encoder = Encoder(checkpoints.tokenizer_of(folder), checkpoints.default_prompt(folder))
    yield from sampling(folder, encoder, asked, size.n, SAMPLE.max_new_tokens, of=folder.name)


def until(deadline: float, stages: Iterator[Measured]) -> list[Measured]:
    """The stages that begin before ``deadline``, a value of `time.monotonic`."""
    done: list[Measured] = []
    while time.monotonic() < deadline:
        stage = next(stages, None)
        if stage is None:
            return done
        done.append(stage)
    print("The time is over: what follows was not run.", file=sys.stderr, flush=True)
    return done


def table(rows: Sequence[Measured]) -> str:
    """The measurements as Markdown."""
    head = ["stage", "seconds", "tokens", "tokens/s", "peak memory, GiB"]
    figures = [
        (row.stage, row.seconds, row.tokens, row.tokens / row.seconds, row.memory) for row in rows
    ]
    lines = [[a, f"{b:.1f}", f"{c:,}", f"{d:,.0f}", f"{e:.2f}"] for a, b, c, d, e in figures]
    return marks.markdown(head, lines)


def device() -> str:
    import platform

    import torch

    return (
        torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU ({platform.machine()})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", type=Path, help="the page between whose marks the table of a large run goes"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a model of thousands of weights, on any machine"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=14.0,
        help="no stage begins later; the default leaves a minute of fifteen",
    )
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * options.minutes
    tiny = options.tiny or not torch.cuda.is_available()
    if tiny:
        print(
            "The tiny size, whose times say nothing about a real model; the target needs a GPU of 40 GiB and torch's CUDA."
        )
    size = SMALL if tiny else LARGE
    lines = [f"Device: {device()}", table(until(deadline, billion(size)))]
    if CHAT.is_dir():
        lines += [CHAT.name, table(until(deadline, chat(CHAT, size)))]
    marks.put(None if tiny else options.write, "gpu", "\n\n".join(lines))


if __name__ == "__main__":
    main()
