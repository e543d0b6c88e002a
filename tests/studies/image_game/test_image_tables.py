"""The tables of one game varied in four ways: which game each number comes from."""

from __future__ import annotations

import numpy as np
import pytest

from lethe.audits.unlearning_game.result import AttackOutcome, Confusion, GameResult, results_by_method
from lethe.io.json_files import restored
from studies.image_game import play as tables
from studies.image_game.play import ImageData, ImageGameParams, ImageTablesParams, Privacy


def game(gap, confusion=None, pairs=1):
    """A game of one method whose advantage is ``gap``."""
    accepted = np.array([1.0, 0.0])
    outcomes = [
        AttackOutcome("npo", pair, half, 0, "loss", accepted, accepted, signed=gap + pair / 10, auc=0.6)
        for pair in range(pairs)
        for half in ("original", "swapped", "random")
    ]
    method = results_by_method(outcomes, 0.05)["npo"]
    values = {**vars(method), "performance": {"test": 0.5 + gap}, "confusion": confusion}
    sizes = {"retain": 4, "forget": 2, "test": 2}
    return GameResult(
        "images",
        "images",
        "accuracy",
        sizes,
        pairs,
        1,
        0.05,
        True,
        {"npo": "npo"},
        {"npo": type(method)(**values)},
    )


def test_each_table_has_its_own_games(monkeypatch):
    played = []

    def play(settings, scratch, run):
        played.append(settings)
        gap = 0.3 if settings.privacy else 0.1
        confusion = Confusion(score=gap, accuracy=0.7) if settings.confused_classes else None
        return game(gap, confusion, settings.pairs), []

    monkeypatch.setattr(tables, "play", play)
    privacy = Privacy(epsilon=1.0, delta=1e-5, clip=1.0)
    base = ImageGameParams.model_construct(
        privacy=None, pairs=1, confused_classes=[0, 1], data=ImageData.model_construct()
    )
    settings = ImageTablesParams.model_construct(
        game=base, private_learning=None, budgets=[privacy], points=[100, 200], repeats=3
    )
    result, _ = tables.play_tables(settings)
    assert [one.pairs for one in played] == [1, 1, 3, 1, 1]
    assert result.kind == "image_tables"
    assert result.tables.quality.values == {
        "1": {"npo": pytest.approx(0.7)},
        tables.NO_PRIVACY: {"npo": pytest.approx(0.9)},
    }
    assert result.tables.quality.accuracy["1"] == {"npo": 0.8}
    assert result.tables.confusion.values["1"] == {"npo": 0.3}
    assert result.tables.confusion.accuracy["1"] == {"npo": 0.7}
    assert result.tables.mia.values["1"] == {"npo": pytest.approx(0.4)}
    assert result.tables.deviation["npo"].swap == pytest.approx(0.1)
    assert list(result.figure.points) == [100, 200]
    assert len(result.figure.repeats["npo"]) == 3
    assert result.bounds == {"1": None}
    assert restored(GameResult, result.as_json()) == result
