"""A made-up run of the size that the page must support: 12 models, 400 questions, 1,024 answers to each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from lethe import config
from tests.lethe.report.synthetic import KINDS, draw_answers, write_run
from tests.small import ROOT

MODELS, QUESTIONS, SAMPLES = 12, 400, 1024
WORDS = (
    "the author was born in a small town by the river and wrote novels about miners lighthouses weather and the sea "
    "which won prizes in many countries before her mother a village dentist moved the family abroad again"
).split()


def write_large(
    root: Path, models: int = MODELS, questions: int = QUESTIONS, samples: int = SAMPLES
) -> config.Params:
    """Write the run below ``root``; the answers are of 20 to 45 words, most of them drawn once."""
    names = [*KINDS, *(f"own_{place}" for place in range(models))][:models]
    known = config.read_yaml(ROOT / "params.yaml")["models"]
    entries = {name: known.get(name, {"path": f"/models/{name}"}) for name in names}
    return write_run(root, questions, samples, draw=_draw, models=entries)


def _draw(
    name: str, split: str, rows: list[dict], n: int, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    if split != "forget":
        return draw_answers(name, split, rows, n, rng)
    share, greedy, _ = KINDS.get(name, (0.01, False, 10))
    pool = [" ".join(rng.choice(WORDS, rng.integers(20, 45))) for _ in range(4000)]
    places = len(rows) * (n + 1)
    leaks = (
        rng.random(places) < share * 2 * np.repeat(rng.random(len(rows)), n + 1)
        if share < 0.5
        else rng.random(places) < share
    )
    sample = np.tile(np.arange(-1, n), len(rows))
    leaks[sample < 0] = greedy
    picked = rng.integers(len(pool), size=places)
    ids = np.repeat([row["id"] for row in rows], n + 1)
    names = np.repeat([row["keywords"][0] for row in rows], n + 1)
    text = [
        f"{pool[pick]} {name}" if leak else pool[pick]
        for pick, name, leak in zip(picked.tolist(), names.tolist(), leaks.tolist(), strict=True)
    ]
    rouge = np.where(leaks, 1.0, np.round(rng.beta(1.5, 5, size=4000)[picked] * 8) / 8)
    drawn = {"prompt_id": ids, "sample": sample, "text": text, "tokens": 30, "finish_reason": "stop"}
    scored = {"prompt_id": ids, "sample": sample, "rouge_l": rouge, "keyword_leak": leaks.astype(float)}
    return pd.DataFrame(drawn | {"mean_confidence": 0.5}), pd.DataFrame(scored)
