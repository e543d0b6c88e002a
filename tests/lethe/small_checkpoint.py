"""Two questions, and a checkpoint of a few thousand random weights whose tokenizer knows their answers."""

import types
from pathlib import Path

ROWS = [
    {"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]},
    {"id": "b", "question": "Where is Bo?", "answer": "Bo is at sea.", "keywords": ["sea"]},
]


def save_small_checkpoint(folder: Path) -> Path:
    """The same weights at every call; the random state of the process stays as it was."""
    import torch

    from lethe.models import checkpoints

    checkpoints.prepare_torch()
    recipe = types.SimpleNamespace(
        vocabulary=300, hidden=16, layers=1, heads=2, kv_heads=1, feed_forward=32, context=512
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        checkpoints.save(folder, *checkpoints.fresh(recipe, [row["answer"] for row in ROWS]))
    return folder
