"""What a GPU made is not taken up on a CPU: the keys of kept results contain the device."""

from __future__ import annotations

from pathlib import Path

import torch

from lethe.config.schema import Compute
from lethe.models import training
from lethe.models.checkpoints import default_device
from lethe.scoring.verdicts import VerdictStore
from tests.lethe.scoring.judges.test_verdicts import Counting


class OfAModel(Counting):
    """A judge whose parameters name a model."""

    def __init__(self, folder: Path):
        super().__init__()
        object.__setattr__(self.params, "model", str(folder))


def keys(folder: Path) -> dict[str, str]:
    judge = OfAModel(folder)
    kept = training.resumable(
        folder, torch.nn.Linear(1, 1), Compute(checkpoint_every=1), ("lethe.models.training",)
    )
    return {
        "verdicts": VerdictStore(judge, folder).key,
        "training": kept.folder.name,
    }


def test_the_key_of_a_kept_result_contains_the_device(tmp_path, monkeypatch):
    torch.manual_seed(0)
    (tmp_path / "weights").write_text("x")
    monkeypatch.setattr(
        torch.nn.Linear, "reset_parameters", lambda self: [p.data.fill_(1) for p in self.parameters()]
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_device() == "cpu"
    here = keys(tmp_path)
    assert keys(tmp_path) == here
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_device() == "cuda"
    there = keys(tmp_path)
    assert {name for name in here if here[name] == there[name]} == set()
