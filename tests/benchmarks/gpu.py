"""A model of a billion weights from a configuration to its sampled answers (`gpu` of the benchmarks): time,
tokens, memory by stage.

Without a GPU the same stages run at a tiny size: ``--tiny``, which the tests use too.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lethe import config
from tests.benchmarks import marks

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
    precision: str


LARGE, SMALL = Size(BILLION, 100, 4, 1024, 30, "bfloat16"), Size(TINY, 20, 1, 8, 3, "bfloat16")


@dataclass(frozen=True)
class Measured:
    """One stage: seconds, tokens that it read or wrote, and its peak memory in GiB (of the GPU, or of the process)."""

    stage: str
    seconds: float
    tokens: int
    memory: float


def measured(stage: str, work: Callable[[], int]) -> Measured:
    """Time ``work``, which returns its number of tokens."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    tokens = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return Measured(stage, time.perf_counter() - start, tokens, peak_memory())


def peak_memory() -> float:
    """The peak in GiB since the last reset: of the GPU's allocations, or of this process where there is no GPU."""
    import resource

    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def benchmark(size: Size) -> Iterator[Measured]:
    """Train, unlearn, sample with both engines, in this order."""
    import torch

    from lethe.data import load_splits
    from lethe.models import checkpoints
    from lethe.models.encoding import Encoder
    from lethe.models.in_memory import InMemory
    from lethe.models.training import learn
    from lethe.registry import METHODS
    from lethe.sampling.engine import Options, Prompt, Settings, open_engine
    from lethe.unlearning.loop import unlearn

    value = config.read_yaml("params.yaml")
    value["data"]["authors"]["count"] = size.authors
    compute = {"precision": size.precision}
    value["train"]["recipe"] |= {**size.model, "epochs": size.epochs, "lr": 1e-4, "compute": compute}
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
        read = sum(len(one.prompt) + len(one.answer) for one in map(encoder.example, rows))
        assert history
        return read * size.epochs

    yield measured("train", train)
    model, tokenizer = made[0]
    encoder = Encoder(tokenizer, params.train.recipe.prompt)
    examples = [[encoder.example(row) for row in split] for split in (forget, retain)]

    def forgetting() -> int:
        entry = {"loss": "npo", "lr": 1e-5, "epochs": size.epochs, "beta": 0.1, "retain_weight": 1.0}
        method = METHODS["npo"].Params.model_validate(entry)
        recipe = params.unlearn.recipe
        history = unlearn(model, *examples, recipe, method, tokenizer.pad_token_id or 0, "unlearn")
        lengths = [[len(one.prompt) + len(one.answer) for one in split] for split in examples]
        drawn = len(history) * recipe.retain_batch * sum(lengths[1]) / len(lengths[1])
        return round(sum(lengths[0]) * size.epochs + drawn)

    yield measured("unlearn (npo)", forgetting)
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    sampled = InMemory(model.to(dtype), tokenizer)
    prompts = [Prompt(row["id"], encoder.prompt(row)) for row in forget[: size.questions]]
    for name in ("prefix", "transformers"):

        def sample(name: str = name) -> int:
            engine = open_engine(name, sampled, Options())
            settings = Settings(n=size.n, max_new_tokens=params.sample.max_new_tokens, seed=0)
            return sum(int(sum(answer.tokens)) for answer in engine.answer(prompts, settings))

        yield measured(f"sample {len(prompts)} x {size.n} ({name})", sample)


def table(rows: Sequence[Measured]) -> str:
    """The measurements as Markdown."""
    lines = ["| stage | seconds | tokens | tokens/s | peak memory, GiB |", "|---|---|---|---|---|"]
    lines += [
        f"| {one.stage} | {one.seconds:.1f} | {one.tokens:,} | {one.tokens / one.seconds:,.0f} | {one.memory:.2f} |"
        for one in rows
    ]
    return "\n".join(lines)


def device() -> str:
    """The name of the device that the numbers are of."""
    import platform

    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU ({platform.machine()})"


def main(arguments: Sequence[str] | None = None) -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="the page between whose marks the table of a large run goes")
    parser.add_argument("--tiny", action="store_true", help="a model of thousands of weights, on any machine")
    options = parser.parse_args(arguments)
    tiny = options.tiny or not torch.cuda.is_available()
    if tiny:
        print("The tiny size: its times say nothing about a real model.")
    found = f"Device: {device()}\n\n{table(list(benchmark(SMALL if tiny else LARGE)))}"
    marks.put(None if tiny else options.write, "gpu", found)


if __name__ == "__main__":
    main()
