"""The image game on a hundred digits: splits, grounding, resuming, comparisons."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from lethe import config, identity
from lethe.audits.unlearning_game.result import (
    AttackOutcome,
    Confusion,
    GameResult,
    results_by_method,
)
from lethe.cli.app import app
from lethe.errors import BadInput
from lethe.io.files import restored
from studies.commands import PRESETS
from studies.image_game import play as tables
from studies.image_game.play import (
    ImageData,
    ImageGame,
    ImageGameParams,
    ImageTablesParams,
    Privacy,
    play,
)
from studies.image_game.play import ImageGameParams as Settings
from tests.cases import cases, merged
from tests.small import ROOT, one_after_another, touched

DIGITS = config.read_yaml(PRESETS / "game-digits.yaml")["games"]["digits"]
SMALL = DIGITS | {
    "data": DIGITS["data"] | {"points": 120, "label_noise": 0.3},
    "portion": 0.2,
    "pairs": 2,
    "seeds": 2,
    "learning": DIGITS["learning"] | {"lr": 0.05, "epochs": 6, "batch": 20, "milestones": [5]},
    "shadow_models": 4,
    "shared_retrain": True,
    "methods": {"retrain": {"method": "retrain"}, "none": {"method": "none"}},
    "attacks": ["correctness", "confidence", "likelihood_ratio"],
}


def settings(**changes):
    return Settings.model_validate({**SMALL, **changes})


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def played(scratch):
    """The game as processes play it: each call is pickled."""

    def pickled(function, arguments, label):
        return [
            call(*arguments_of_call)
            for call, arguments_of_call in pickle.loads(
                pickle.dumps([(function, arguments_of_call) for arguments_of_call in arguments])
            )
        ]

    return play(settings(), scratch, pickled)


def test_shadow_half_and_data_set_are_disjoint_and_splits_stay_inside(tmp_path):
    game = ImageGame(settings(), tmp_path)
    assert not set(game.target) & set(game.shadow)
    assert len(game.target) == len(game.shadow) == 60
    original, swapped = game.split(0, "original"), game.split(0, "swapped")
    assert (original.forget == swapped.test).all()
    assert (original.test == swapped.forget).all()
    assert (original.retain == swapped.retain).all()
    assert set(np.concatenate([original.learned, original.test])) == set(game.target)
    assert len(original.forget) == 10
    others = [game.split(1, "original"), game.split(0, "random")]
    assert all(set(other.forget) != set(original.forget) for other in others)


def test_every_shadow_point_is_learned_by_half_of_the_shadow_models(tmp_path):
    game = ImageGame(settings(shadow_models=6), tmp_path)
    learned = np.concatenate([job.retain for job in game.shadows()])
    assert np.unique(learned, return_counts=True)[1].tolist() == [3] * 60
    assert set(learned) == set(game.shadow)


def test_no_shadow_model_is_a_reference_for_what_it_learned_or_for_itself(tmp_path, monkeypatch):
    game = ImageGame(settings(), tmp_path)
    real = game.view
    seen = []

    def view(job, observed, units, shadows):
        shown = real(job, observed, units, shadows)
        seen.append((job, units, [shadow for shadow, _ in shadows], shown.reference))
        return shown

    monkeypatch.setattr(game, "view", view)
    monkeypatch.setattr(game, "observe", lambda job: np.zeros((len(game.images), 10), np.float32))
    monkeypatch.setattr(game, "fit", lambda name, shadows, seed: None)
    game.adversaries()
    assert len(seen) == 2 * 4  # members and others of each shadow model
    for job, units, shadows, reference in seen:
        assert len(shadows) == 3
        assert all(shadow.seed != job.seed for shadow in shadows)
        learned = np.stack([np.isin(units, shadow.retain) for shadow in shadows])
        assert (np.isnan(reference).all(axis=2) == learned).all()
        assert np.isnan(reference).any(axis=2).sum() == learned.sum()


@pytest.mark.slow
def test_a_retrained_model_that_serves_both_halves_has_quality_exactly_one(played):
    result, _ = played
    assert result.methods["retrain"].quality.value == 1
    assert result.methods["retrain"].by_pair == [1, 1]


@pytest.mark.slow
def test_what_was_not_unlearned_is_found(played):
    result, _ = played
    none = result.methods["none"]
    assert none.quality.value < 0.9
    assert none.performance["forget"] > none.performance["test"]


@pytest.mark.parametrize(
    ("module", "moved"),
    [
        ("lethe.models.dp_sgd", {"retrain", "fisher", "learned"}),
        ("studies.image_game.models", {"retrain", "fisher", "learned"}),
        ("studies.image_game.play", set()),
        ("lethe.audits.unlearning_game.rounds", set()),
    ],
)
def test_edited_code_makes_the_models_anew_that_it_made(tmp_path, monkeypatch, module, moved):
    methods = {"retrain": {"method": "retrain"}, "fisher": {"method": "fisher", "noise": 0.01}}
    game = ImageGame(settings(methods=methods), tmp_path)

    def places():
        return {model.method: game.place(model.job) for model in game.played()} | {
            "learned": game.place(game.shadows()[0])
        }

    before = places()
    monkeypatch.setattr(identity, "library", lambda edited=touched(module): edited)
    after = places()
    assert {name for name in before if before[name] != after[name]} == moved


@pytest.mark.slow
def test_a_kill_in_the_middle_resumes_without_repeating(tmp_path):
    """A real SIGKILL of a real process; what stands then is whole, is kept, and ends in the same result."""
    script = tmp_path / "game.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests/studies/image_game')!r}]\n"
        "from pathlib import Path\n"
        "from test_image_game import one_after_another, settings\n"
        "from studies.image_game.play import play\n"
        f"play(settings(pairs=1, seeds=1), Path({str(tmp_path / 'scratch')!r}), one_after_another)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "scratch").glob("[0-9a-f]*"))) < 3:
        assert process.poll() is None, "the game ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stood = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "scratch").glob("[0-9a-f]*/logits.npy")
    }
    assert len(stood) >= 3

    resumed, _ = play(settings(pairs=1, seeds=1), tmp_path / "scratch", one_after_another)
    assert {path: path.stat().st_mtime_ns for path in stood} == stood
    untouched, _ = play(settings(pairs=1, seeds=1), tmp_path / "other", one_after_another)
    assert resumed == untouched


@pytest.mark.slow
def test_a_private_game_states_its_group_privacy(tmp_path):
    private = settings(
        pairs=1,
        seeds=1,
        random_splits=False,
        confused_classes=None,
        methods={"retrain": {"method": "retrain"}},
        learning={**SMALL["learning"], "epochs": 1},
        privacy={"epsilon": 8.0, "delta": 1e-3, "clip": 1.0},
    )
    result, _ = play(private, tmp_path, one_after_another)
    assert result.privacy.vacuous
    assert "group privacy" in result.privacy.assumes
    assert result.methods["retrain"].quality.value == 1


def game(gap, confusion=None, pairs=1):
    """A game of one method whose advantage is ``gap``."""
    accepted = np.array([1.0, 0.0])
    outcomes = [
        AttackOutcome(
            "npo", pair, half, 0, "loss", accepted, accepted, signed=gap + pair / 10, auc=0.6
        )
        for pair in range(pairs)
        for half in ("original", "swapped", "random")
    ]
    method = replace(
        results_by_method(outcomes, 0.05)["npo"],
        performance={"test": 0.5 + gap},
        confusion=confusion,
    )
    sizes = {"retain": 4, "forget": 2, "test": 2}
    about = ("images", "images", "accuracy", sizes, pairs, 1, 0.05, True, {"npo": "npo"})
    return GameResult(*about, {"npo": method})


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
    assert [game.pairs for game in played] == [1, 1, 3, 1, 1]
    whole, near = result.tables, pytest.approx
    assert result.kind == "image_tables"
    assert whole.quality.values == {"1": {"npo": near(0.7)}, tables.NO_PRIVACY: {"npo": near(0.9)}}
    cells = [
        whole.quality.accuracy,
        whole.confusion.values,
        whole.confusion.accuracy,
        whole.mia.values,
    ]
    assert [cell["1"]["npo"] for cell in cells] == near([0.8, 0.3, 0.7, 0.4])
    assert whole.deviation["npo"].swap == near(0.1)
    assert list(result.figure.points) == [100, 200]
    assert len(result.figure.repeats["npo"]) == 3
    assert result.bounds == {"1": None}
    assert restored(GameResult, result.as_json()) == result


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    value = yaml.safe_load((ROOT / "params.yaml").read_text())
    few = {"pairs": 1, "seeds": 1, "attacks": ["confidence"]}
    few |= {"random_splits": False, "confused_classes": None, "shared_retrain": False}
    learning = SMALL["learning"] | {"epochs": 2, "milestones": []}
    value["games"] = {
        "tiny": SMALL | few | {"data": SMALL["data"] | {"points": 100}, "learning": learning}
    }
    folder = tmp_path_factory.mktemp("root")
    (folder / "params.yaml").write_text(yaml.safe_dump(value))
    shutil.copy(ROOT / "dvc.yaml", folder)
    for name in ("flows", "studies"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
def test_the_command_plays_a_game(folder, monkeypatch):
    monkeypatch.chdir(folder)
    # In this process: each that starts costs more than this game.
    monkeypatch.setattr("lethe.audits.cores", lambda: 1)

    done = CliRunner().invoke(app, ["study", "game", "tiny", "--json"])

    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert set(result["methods"]) == {"retrain", "none"}
    assert (folder / "data/games/tiny/index.html").is_file()
    kept = json.loads((folder / "data/studies/outcomes/game-tiny.json").read_text())
    assert kept["values"]["methods"] == result["methods"]
    assert kept["settings"]["pairs"] == 1
    # Four shadow models; learned and two methods in either half.
    assert len(list((folder / ".lethe/scratch/game").glob("*/logits.npy"))) == 4 + 2 * 3


@pytest.mark.slow
@cases
def test_an_unknown_game_is_told(folder, monkeypatch, arguments, said):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["study", "game", *arguments])
    assert done.exit_code == 2
    assert said in done.stderr


def with_games(preset):
    return config.read_yaml(ROOT / "params.yaml") | config.read_yaml(PRESETS / f"{preset}.yaml")


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("game-*.yaml")))
def test_every_preset_is_valid(preset):
    assert config.validate(with_games(preset)).games


@cases
def test_a_mistake_is_named_by_its_key(change, key):
    value = merged(with_games("game-digits"), {"games": {"digits": change}})
    with pytest.raises(BadInput, match=key):
        config.validate(value)
