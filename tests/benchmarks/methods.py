"""Tokens per second and peak memory of every unlearning method, against a Hugging Face Trainer that reads as many rows.

``methods` of the benchmarks` prints the table. Each row comes from a separate process. The Trainer takes
supervised steps on the
same rows, with the same batches, optimiser and model; a method of the same cost has the same number of passes per step.
Each process does its work twice and the second time counts, so the start of neither is in the figures.
Without a GPU the seconds are the process's own processor time, to which other work adds little.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from lethe import config
from tests.benchmarks.gpu import BILLION, TINY, device, peak_memory

STEPS = 40
FORGET = 8
RETAIN = 8
TRAINER = "Hugging Face Trainer"
OWN: dict[str, dict] = {
    "npo": {"beta": 0.1},
    "pdu": {"retain_loss_eps": 0.3},
    "altpo": {"max_new_tokens": 8},
}


def run(name: str, shape: dict[str, int]) -> tuple[float, float]:
    """(tokens per second, peak memory in GiB) of one method, or of the Trainer."""
    import torch

    from lethe.data.rows import load_splits
    from lethe.models import checkpoints
    from lethe.models.encoding import Encoder, collate
    from lethe.registry import METHODS
    from lethe.unlearning.loop import second_answers, unlearn
    from lethe.unlearning.protocol import Before

    value = config.read_yaml("params.yaml")
    value["train"]["recipe"] |= shape
    value["unlearn"]["recipe"] |= {"forget_batch": FORGET, "retain_batch": RETAIN}
    params = config.validate(value)
    checkpoints.prepare_torch()
    torch.manual_seed(0)
    splits = load_splits(params.data, Path())
    texts = [
        f"{row['question']} {row['answer']}"
        for split in ("forget", "retain")
        for row in splits[split]
    ]
    model, tokenizer = checkpoints.fresh(params.train.recipe, texts)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    encoder = Encoder(tokenizer, params.train.recipe.prompt)
    padding = tokenizer.pad_token_id or 0
    rows = splits["forget"][:FORGET]
    forget, retain = (
        [encoder.example(row) for row in chosen] for chosen in (rows, splits["retain"][:RETAIN])
    )
    tokens = STEPS * sum(
        len(example.prompt) + len(example.answer) for example in [*forget, *retain]
    )
    if name == TRAINER:
        from transformers import Trainer, TrainingArguments
        from transformers.trainer_callback import PrinterCallback

        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=FORGET + RETAIN,
                num_train_epochs=STEPS,
                learning_rate=1e-5,
                optim="adamw_torch_fused",
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                use_cpu=not torch.cuda.is_available(),
            )

            def together(examples: list) -> dict:
                batch = collate([example["row"] for example in examples], padding)
                return {
                    "input_ids": batch.ids,
                    "attention_mask": batch.mask,
                    "labels": batch.labels,
                }

            data = [{"row": example} for example in [*forget, *retain]]
            arguments.remove_unused_columns = False
            trainer = Trainer(
                model=model, args=arguments, train_dataset=data, data_collator=together
            )  # type: ignore[arg-type]
            trainer.remove_callback(PrinterCallback)
            return tokens / _second_time(trainer.train), peak_memory()
    entry = {"loss": name, "lr": 1e-5, "epochs": STEPS, "retain_weight": 1.0, **OWN.get(name, {})}
    method = METHODS[name].Params.model_validate(entry)
    second = second_answers(method, rows, Before(model, encoder, 0))
    recipe = params.unlearn.recipe
    seconds = _second_time(
        lambda: unlearn(model, forget, retain, recipe, method, padding, name, second)
    )
    return tokens / seconds, peak_memory()


def _processor_seconds() -> float:
    """Processor seconds of this process, to which other work adds nothing; seconds of the clock where a GPU works."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def _second_time(work: Callable[[], object]) -> float:
    """The processor seconds of a call after an equal one, which has loaded and compiled what both need."""
    work()
    start = _processor_seconds()
    work()
    return _processor_seconds() - start


def main() -> None:
    import torch

    from lethe.registry import METHODS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a model of thousands of weights")
    parser.add_argument(
        "names", nargs="*", default=[TRAINER, *METHODS], help="methods; all of them by default"
    )
    options = parser.parse_args()
    # Without a GPU the model is the demonstration's, of 0.6 million weights.
    shape = TINY if options.tiny else BILLION if torch.cuda.is_available() else {}
    print(f"Device: {device()}; {STEPS} steps of {FORGET} forget and {RETAIN} retain rows\n")
    print("| method | tokens/s | peak memory, GiB |\n|---|---|---|")
    for name in options.names:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            speed, memory = pool.submit(run, name, shape).result()
        print(f"| {name} | {speed:,.0f} | {memory:.2f} |", flush=True)


if __name__ == "__main__":
    main()
