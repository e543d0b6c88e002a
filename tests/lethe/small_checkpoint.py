"""Two questions, and a model of a few thousand random weights whose tokenizer knows their answers."""

import types
from pathlib import Path

ROWS = [
    {"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]},
    {"id": "b", "question": "Where is Bo?", "answer": "Bo is at sea.", "keywords": ["sea"]},
]


def small_model(texts, **changes):
    """(model, tokenizer): the same weights at every call; the random state of the process stays as it was."""
    import torch

    from lethe.models import checkpoints

    checkpoints.prepare_torch()
    shape = {
        "vocabulary": 300,
        "hidden": 16,
        "layers": 1,
        "heads": 2,
        "kv_heads": 1,
        "feed_forward": 32,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return checkpoints.fresh(
            types.SimpleNamespace(**(shape | {"context": 512} | changes)), texts
        )


def save_small_checkpoint(folder: Path) -> Path:
    from lethe.models import checkpoints

    checkpoints.save(folder, *small_model([row["answer"] for row in ROWS]))
    return folder
