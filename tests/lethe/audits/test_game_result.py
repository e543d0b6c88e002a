"""From outcomes to qualities: what is averaged over what."""

from dataclasses import asdict

import numpy as np
import pytest

from lethe.audits.unlearning_game.result import HALVES, RANDOM, AttackOutcome, GameResult, results_by_method
from lethe.io.json_files import restored

PAIRS, SEEDS = 3, 2


def outcomes(attack="loss", scale=1.0, halves=(*HALVES, RANDOM)):
    """Signed advantages 0.1 pair + 0.01 seed in the original half, half of it in the swapped, double in the random."""
    return [
        AttackOutcome(
            "npo",
            pair,
            half,
            seed,
            attack,
            forget=np.array([1.0, 0.0]),
            test=np.array([0.0, 0.0]),
            signed=scale * (0.1 * pair + 0.01 * seed) * {"original": 1, "swapped": 0.5, "random": 2}[half],
            auc=0.6 if half == "original" else 0.9,
        )
        for seed in range(SEEDS)
        for half in halves
        for pair in range(PAIRS)
    ]


def test_each_pair_has_its_own_quality_and_the_deviation_is_over_pairs():
    found = results_by_method([*outcomes(), *outcomes("zlib", scale=0.1)], alpha=0.05)["npo"]
    swapped = [1 - 0.75 * (0.1 * pair + 0.005) for pair in range(PAIRS)]
    random = [1 - 1.5 * (0.1 * pair + 0.005) for pair in range(PAIRS)]
    assert found.by_pair == pytest.approx(swapped)
    assert found.random_splits.by_pair == pytest.approx(random)
    assert asdict(found.deviation) == pytest.approx(
        {"swap": np.std(swapped, ddof=1), "random": np.std(random, ddof=1)}
    )
    assert found.quality.value == pytest.approx(np.mean(swapped))
    assert (found.quality.attack, found.quality.n_pairs, found.quality.n_seeds) == ("loss", 3, 2)


def test_a_game_comes_back_from_its_json_with_the_keys_of_its_kind():
    common = {
        "unit": "images",
        "performs": "accuracy",
        "sizes": {"retain": 4, "forget": 2, "test": 2},
        "pairs": PAIRS,
    }
    common |= {"seeds": SEEDS, "alpha": 0.05, "shared_retrain": True, "defenders": {"npo": "npo"}}
    methods = results_by_method(outcomes(), alpha=0.05)
    for kind, own, others in (("images", "confusion", "leakage"), ("text", "leakage", "confusion")):
        result = GameResult(kind=kind, methods=methods, **common)
        written = result.as_json()
        assert restored(GameResult, written) == result
        assert own in written["methods"]["npo"]
        assert others not in written["methods"]["npo"]
        assert ("privacy" in written) == (kind == "images")
        assert not {"tables", "figure", "bounds"} & set(written)
