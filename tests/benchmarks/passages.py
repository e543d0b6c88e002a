"""p_z of the windows of a text beside the product by hand, and the speed beside transformers' own scoring.

python -m tests.benchmarks passages MODEL TEXT [--windows 200]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper

from lethe.config.measuring import ExtractSettings
from lethe.sampling.draws import Law
from lethe.sampling.extraction import Window, scan, windows_of
from lethe.sampling.predictor import ModelPredictor

BATCH = 8


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    for name, value in [("windows", 200), ("prefix", 50), ("suffix", 50), ("top-k", 40)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    settings = ExtractSettings(prefix=options.prefix, suffix=options.suffix, top_k=options.top_k)
    predictor = ModelPredictor(options.model)
    tokens = predictor.checkpoint.tokenizer(options.text.read_text(), add_special_tokens=False)[
        "input_ids"
    ]
    every = windows_of(tokens, options.prefix, options.suffix, 1)
    places = np.linspace(0, len(every) - 1, min(options.windows, len(every))).round().astype(int)
    windows = [every[place] for place in places]
    law = Law(predictor.checkpoint.end_ids, options.suffix, top_k=options.top_k)
    warpers = LogitsProcessorList(
        [TemperatureLogitsWarper(settings.temperature), TopKLogitsWarper(options.top_k)]
    )
    model = predictor.forward.model
    seconds = {}
    values = {}
    for name, score in [
        (
            "Lethe",
            lambda: [
                probabilities.prod()
                for probabilities in scan(predictor, windows, law, settings.memory << 20)
            ],
        ),
        (
            "transformers",
            lambda: [value for part in _parts(windows) for value in _scored(model, part, warpers)],
        ),
    ]:
        begun = time.perf_counter()
        values[name] = np.array(score())
        seconds[name] = time.perf_counter() - begun
    by_hand = np.array([_by_hand(model, window, settings) for window in windows])
    for name, products in values.items():
        equal = np.isclose(products, by_hand, rtol=1e-3, atol=0)
        error = np.abs(products[by_hand > 0] / by_hand[by_hand > 0] - 1).max(initial=0)
        rows = options.prefix + options.suffix
        speed = len(windows) / seconds[name]
        print(
            f"{name}: {equal.sum()} of {len(windows)} windows equal the product by hand (largest relative difference "
            f"{error:.1e}); {rows} rows a window, {speed:.1f} windows a second"
        )


def _parts(windows: list[Window]) -> list[list[Window]]:
    return [windows[start : start + BATCH] for start in range(0, len(windows), BATCH)]


@torch.inference_mode()
def _scored(
    model: torch.nn.Module, windows: list[Window], warpers: LogitsProcessorList
) -> list[float]:
    """The product of the probabilities that transformers' own processors leave, a batch of windows in one pass."""
    ids = torch.tensor([[*window.prefix, *window.suffix] for window in windows])
    length = len(windows[0].suffix)
    logits = model(input_ids=ids).logits[:, -length - 1 : -1].float()
    warped = warpers(ids, logits.reshape(-1, logits.shape[-1])).reshape(logits.shape)
    chances = warped.log_softmax(-1).gather(-1, ids[:, -length:, None])[..., 0]
    return chances.sum(1).exp().tolist()


@torch.inference_mode()
def _by_hand(model: torch.nn.Module, window: Window, settings: ExtractSettings) -> float:
    """The definition, token by token, from one pass of one window in float64."""
    ids = torch.tensor([[*window.prefix, *window.suffix]])
    logits = model(input_ids=ids).logits[0].double().numpy()
    product = 1.0
    for place, token in enumerate(window.suffix, start=len(window.prefix) - 1):
        row = logits[place] / settings.temperature
        kept = row >= np.sort(row)[-settings.top_k]
        weights = np.where(kept, np.exp(row - row.max()), 0)
        product *= float(weights[token] / weights.sum())
    return product


if __name__ == "__main__":
    main()
