"""The text game: whole authors move, references never learned them, planted signals are found, leakage is bounded."""

import os
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from lethe.audits import in_processes
from lethe.audits.unlearning_game import text_play as play
from lethe.audits.unlearning_game.result import (
    HALVES,
    RANDOM,
    AttackOutcome,
    GameResult,
    results_by_method,
)
from lethe.audits.unlearning_game.rounds import Shadow, ThresholdAttack
from lethe.audits.unlearning_game.text_game import Params as Settings
from lethe.audits.unlearning_game.text_play import TextGame, TextView
from lethe.config.load import read_yaml
from lethe.errors import BadFile
from lethe.io.files import restored
from lethe.models.likelihood import AnswerTokens
from lethe.process import cores
from lethe.registry import TEXT_ATTACKS
from lethe.scoring.likelihood import Item
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.unlearning_game import signed_advantage
from tests.small import ROOT, one_after_another

ATTACKS = TEXT_ATTACKS.names()


def settings(**changes):
    value = read_yaml(ROOT / "flows/presets/game-authors.yaml")["games"]["authors"]
    value["data"]["authors"]["count"] = 24
    value["learning"].update(
        prompt=str(ROOT / value["learning"]["prompt"]), hidden=32, heads=2, kv_heads=1
    )
    value["learning"].update(layers=1, feed_forward=64, vocabulary=400, epochs=2)
    value.update(portion=0.2, pairs=1, seeds=1, shared_retrain=True, **changes)
    value["methods"] = {"npo": {**value["methods"]["npo"], "epochs": 1}}
    value["leakage"].update(engine="transformers", n=4, max_new_tokens=4)
    return Settings.model_validate(value)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    from lethe.audits.unlearning_game.text_play import play

    scratch = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("root")
        patch.chdir(root)
        result, outcomes = play(settings(), scratch, one_after_another)
    assert not list(root.iterdir())  # all that is kept is below the scratch folder
    return scratch, result, outcomes


def test_whole_authors_are_forgotten(tmp_path):
    game = TextGame(settings(), tmp_path)
    assert (game.units, len(game.rows)) == (24, 144)
    job = next(one.job for one in game.played() if one.method == "npo")
    forgotten, kept = (
        [game.rows[i]["author"] for i in game.of(units)] for units in (job.forget, job.retain)
    )
    assert len(forgotten) == 6 * len(set(forgotten))
    assert not set(forgotten) & set(kept)


def test_the_game_is_played_and_grounded(played):
    _, result, outcomes = played
    assert list(result.methods) == ["retrain", "npo", "none"]
    assert result.methods["retrain"].quality.value == 1
    assert {one.attack for one in outcomes} == set(ATTACKS)
    assert all(len(one.forget) == len(one.test) == 12 for one in outcomes)
    assert result.unit == "authors"


def test_leakage_is_bounded_beside_the_quality(played):
    _, result, _ = played
    for method in result.methods.values():
        leakage = method.leakage
        assert (leakage["questions"], leakage["n"], leakage["worst_metric"]) == (12, 4, "m_bin")
        assert leakage["mean"] <= leakage["pooled_bound"] <= leakage["worst_bound"] <= 1
        for key, covers in (("worst_bound", Covers.WORST_PROMPT), ("pooled_bound", Covers.AVERAGE)):
            bound = Bound.from_dict({"value": leakage[key], **leakage["guarantees"][key]})
            assert (bound.side, bound.alpha, bound.covers) == ("upper", leakage["alpha"], covers)


def test_the_reference_never_learned_the_author(tmp_path):
    game = TextGame(settings(), tmp_path)
    shadows = game.shadows()

    def answers(mark):
        return [AnswerTokens(*(np.full(2, float(mark)) for _ in range(4))) for _ in game.rows]

    pairs = [(job, answers(i)) for i, job in enumerate(shadows)]
    view = game.view(shadows[0], answers(9), game.shadow, pairs[1:])
    for unit, reference in zip(game.shadow, view.references[::6], strict=True):
        assert unit not in shadows[int(reference.log_probs[0])].retain


def draw(rng, n, gain):
    """n rows whose tokens a model that learned them finds likelier by ``gain`` nats."""

    def answer(extra):
        log_probs = -np.abs(rng.normal(2, 1, 12)) * np.exp(-extra)
        return AnswerTokens(log_probs, np.full(12, -2.0), np.full(12, 1.0), np.zeros(12, bool))

    return TextView(
        [Item(f"row {i} of text", answer(gain)) for i in range(n)], [answer(0) for _ in range(n)]
    )


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_finds_a_planted_signal_and_none_on_null_data(name):
    rng = np.random.default_rng(1)
    adversary = ThresholdAttack(
        TEXT_ATTACKS[name].score, [Shadow(draw(rng, 150, 1.0), draw(rng, 150, 0)) for _ in range(2)]
    )

    def gained(gain):
        return signed_advantage(
            adversary.accept(draw(rng, 500, gain)), adversary.accept(draw(rng, 500, 0))
        )

    assert gained(1.0) > 0.5
    assert abs(gained(0.0)) < 4 * np.sqrt(2 * 0.25 / 500)


def test_rows_without_or_with_uneven_authors_are_refused(tmp_path, monkeypatch):
    for rows, said in (
        ([{"id": "a", "author": None}], "row a names no author"),
        ([{"id": i, "author": name} for i, name in enumerate("aab")], "1 to 2 rows each"),
    ):
        play._rows.cache_clear()
        monkeypatch.setattr(
            play, "load_splits", lambda _, rows=rows: {"forget": rows, "retain": []}
        )
        with pytest.raises(BadFile, match=said):
            TextGame(settings(), tmp_path)
    play._rows.cache_clear()


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
            signed=scale
            * (0.1 * pair + 0.01 * seed)
            * {"original": 1, "swapped": 0.5, "random": 2}[half],
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


def note(folder: Path, name: str) -> None:
    """Waits for the note of another process, which may take long to start."""
    (folder / name).write_text(str(os.getpid()))
    deadline = time.monotonic() + 60 * (len(os.sched_getaffinity(0)) > 1)
    while time.monotonic() < deadline and len({path.read_text() for path in folder.iterdir()}) == 1:
        time.sleep(0.02)


def fail(folder: Path, name: str) -> None:
    raise RuntimeError(f"{name} went wrong")


def test_every_call_is_made_in_other_processes(tmp_path, capsys):
    in_processes(note, [(tmp_path, str(i)) for i in range(5)], "notes")
    assert f"notes: 5 tasks, {min(5, cores())} at once" in capsys.readouterr().err
    pids = {int(path.read_text()) for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 5
    if len(os.sched_getaffinity(0)) > 1:
        assert os.getpid() not in pids
        assert len(pids) > 1


def test_an_error_comes_through(tmp_path):
    with pytest.raises(RuntimeError, match="went wrong"):
        in_processes(fail, [(tmp_path, str(i)) for i in range(3)], "notes")
