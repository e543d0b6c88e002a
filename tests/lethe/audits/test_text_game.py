"""The text game: whole authors move, references never learned them, planted signals are found, leakage is bounded."""

import itertools
import os

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
from tests.lethe.audits.notes import fail, note, pids_in
from tests.small import ROOT, one_after_another

ATTACKS = TEXT_ATTACKS.names()


def settings():
    """A game of authors, small enough to take seconds."""
    value = read_yaml(ROOT / "flows/presets/game-authors.yaml")["games"]["authors"]
    value |= {"portion": 0.2, "pairs": 1, "seeds": 1, "shared_retrain": True}
    value["data"]["authors"]["count"] = 24
    value["learning"] |= {
        "prompt": str(ROOT / value["learning"]["prompt"]),
        "hidden": 32,
        "heads": 2,
        "kv_heads": 1,
        "layers": 1,
        "feed_forward": 64,
        "vocabulary": 400,
        "epochs": 2,
    }
    value["methods"] = {"npo": {**value["methods"]["npo"], "epochs": 1}}
    value["leakage"] |= {"engine": "transformers", "n": 4, "max_new_tokens": 4}
    return Settings.model_validate(value)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """(result, outcomes) of a game."""
    scratch = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("root")
        patch.chdir(root)
        game = play.play(settings(), scratch, one_after_another)
    assert not list(root.iterdir())  # all that is kept is below the scratch folder
    return game


def authors_of(game, units):
    return [game.rows[row]["author"] for row in game.of(units)]


def test_the_units_of_a_game_of_texts_are_authors(tmp_path):
    game = TextGame(settings(), tmp_path)

    assert (game.units, len(game.rows)) == (24, 144)


def test_whole_authors_are_forgotten(tmp_path):
    game = TextGame(settings(), tmp_path)
    job = next(entry.job for entry in game.played() if entry.method == "npo")

    forgotten = authors_of(game, job.forget)

    assert len(forgotten) == 6 * len(set(forgotten))
    assert set(forgotten).isdisjoint(authors_of(game, job.retain))


@pytest.mark.slow
def test_the_game_is_played_and_grounded(played):
    result, _ = played

    assert list(result.methods) == ["retrain", "npo", "none"]
    assert result.methods["retrain"].quality.value == 1
    assert result.unit == "authors"


@pytest.mark.slow
def test_every_attack_plays_on_both_halves(played):
    _, outcomes = played

    assert {outcome.attack for outcome in outcomes} == set(ATTACKS)
    for outcome in outcomes:
        assert len(outcome.forget) == len(outcome.test) == 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retrain", "npo", "none"])
def test_leakage_is_bounded_beside_the_quality(played, name):
    result, _ = played

    leakage = result.methods[name].leakage

    assert (leakage["questions"], leakage["n"], leakage["worst_metric"]) == (12, 4, "m_bin")
    assert leakage["mean"] <= leakage["pooled_bound"] <= leakage["worst_bound"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retrain", "npo", "none"])
@pytest.mark.parametrize(
    ("key", "covers"), [("worst_bound", Covers.WORST_PROMPT), ("pooled_bound", Covers.AVERAGE)]
)
def test_a_bound_of_leakage_has_its_guarantee(played, name, key, covers):
    result, _ = played
    leakage = result.methods[name].leakage

    bound = Bound.from_dict({"value": leakage[key], **leakage["guarantees"][key]})

    assert (bound.side, bound.alpha, bound.covers) == ("upper", leakage["alpha"], covers)


def answers_of_shadow(number, rows):
    """Answers to all rows whose values name the shadow."""
    values = np.full(2, float(number))
    return [AnswerTokens(values, values, values, values) for _ in rows]


def test_the_reference_never_learned_the_author(tmp_path):
    game = TextGame(settings(), tmp_path)
    shadows = game.shadows()
    pairs = []
    for number, job in enumerate(shadows):
        pairs.append((job, answers_of_shadow(number, game.rows)))

    view = game.view(shadows[0], answers_of_shadow(9, game.rows), game.shadow, pairs[1:])

    references = view.references[::6]  # of the first row of each author
    for unit, reference in zip(game.shadow, references, strict=True):
        shadow = shadows[int(reference.log_probs[0])]
        assert unit not in shadow.retain


def draw_answer(rng, gain):
    """Twelve tokens that a model which learned them finds likelier by ``gain`` nats."""
    log_probs = -np.abs(rng.normal(2, 1, 12)) * np.exp(-gain)
    return AnswerTokens(log_probs, np.full(12, -2.0), np.full(12, 1.0), np.zeros(12, bool))


def draw_view(rng, n, gain):
    """n rows beside the answers of a reference that never learned them."""
    items = [Item(f"row {number} of text", draw_answer(rng, gain)) for number in range(n)]
    references = [draw_answer(rng, 0) for _ in range(n)]
    return TextView(items, references)


def advantage_of_attack(name, gain):
    """The signed advantage on rows with a signal, after the attack has learned on shadows with one of 1 nat."""
    rng = np.random.default_rng(1)
    shadows = [Shadow(draw_view(rng, 150, 1.0), draw_view(rng, 150, 0)) for _ in range(2)]
    adversary = ThresholdAttack(TEXT_ATTACKS[name].score, shadows)
    forget = adversary.accept(draw_view(rng, 500, gain))
    return signed_advantage(forget, adversary.accept(draw_view(rng, 500, 0)))


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_finds_a_planted_signal(name):
    assert advantage_of_attack(name, gain=1.0) > 0.5


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_finds_a_signal_in_null_data(name):
    assert abs(advantage_of_attack(name, gain=0.0)) < 4 * np.sqrt(2 * 0.25 / 500)


UNEVEN = [{"id": 0, "author": "a"}, {"id": 1, "author": "a"}, {"id": 2, "author": "b"}]


@pytest.fixture
def forget_rows(monkeypatch):
    """Set the rows that the game reads."""

    def set_rows(rows):
        play._rows.cache_clear()
        monkeypatch.setattr(play, "load_splits", lambda _: {"forget": rows, "retain": []})

    yield set_rows
    play._rows.cache_clear()


@pytest.mark.parametrize(
    ("rows", "problem"),
    [([{"id": "a", "author": None}], "row a names no author"), (UNEVEN, "1 to 2 rows each")],
)
def test_rows_without_or_with_uneven_authors_are_refused(tmp_path, forget_rows, rows, problem):
    forget_rows(rows)

    with pytest.raises(BadFile, match=problem):
        TextGame(settings(), tmp_path)


PAIRS = 3
SEEDS = 2
SCALE_OF_HALF = {"original": 1, "swapped": 0.5, "random": 2}


def outcomes_of(attack="loss", scale=1.0):
    """Signed advantages 0.1 pair + 0.01 seed in the original half, half of it in the swapped, double in the random."""
    outcomes = []
    for seed, half, pair in itertools.product(range(SEEDS), (*HALVES, RANDOM), range(PAIRS)):
        outcome = AttackOutcome(
            "npo",
            pair,
            half,
            seed,
            attack,
            forget=np.array([1.0, 0.0]),
            test=np.array([0.0, 0.0]),
            signed=scale * SCALE_OF_HALF[half] * (0.1 * pair + 0.01 * seed),
            auc=0.6 if half == "original" else 0.9,
        )
        outcomes.append(outcome)
    return outcomes


# Of each pair, 1 less the mean advantage over halves and seeds.
BY_SWAPPED_PAIR = [1 - 0.75 * (0.1 * pair + 0.005) for pair in range(PAIRS)]
BY_RANDOM_PAIR = [1 - 1.5 * (0.1 * pair + 0.005) for pair in range(PAIRS)]


@pytest.fixture
def of_npo():
    """What two attacks, of which the second is weaker, make of npo."""
    outcomes = outcomes_of() + outcomes_of("zlib", scale=0.1)
    return results_by_method(outcomes, alpha=0.05)["npo"]


def test_each_pair_has_its_own_quality(of_npo):
    assert of_npo.by_pair == pytest.approx(BY_SWAPPED_PAIR)
    assert of_npo.random_splits.by_pair == pytest.approx(BY_RANDOM_PAIR)


def test_the_deviation_is_over_pairs(of_npo):
    assert of_npo.deviation.swap == pytest.approx(np.std(BY_SWAPPED_PAIR, ddof=1))
    assert of_npo.deviation.random == pytest.approx(np.std(BY_RANDOM_PAIR, ddof=1))


def test_the_quality_is_that_of_the_stronger_attack(of_npo):
    quality = of_npo.quality

    assert quality.value == pytest.approx(np.mean(BY_SWAPPED_PAIR))
    assert (quality.attack, quality.n_pairs, quality.n_seeds) == ("loss", 3, 2)


def result_of_kind(kind):
    return GameResult(
        kind=kind,
        methods=results_by_method(outcomes_of(), alpha=0.05),
        unit="images",
        performs="accuracy",
        sizes={"retain": 4, "forget": 2, "test": 2},
        pairs=PAIRS,
        seeds=SEEDS,
        alpha=0.05,
        shared_retrain=True,
        defenders={"npo": "npo"},
    )


@pytest.mark.parametrize("kind", ["images", "text"])
def test_a_game_comes_back_from_its_json(kind):
    result = result_of_kind(kind)

    assert restored(GameResult, result.as_json()) == result


@pytest.mark.parametrize(
    ("kind", "held", "not_held"),
    [("images", "confusion", "leakage"), ("text", "leakage", "confusion")],
)
def test_the_json_of_a_game_has_the_keys_of_its_kind(kind, held, not_held):
    written = result_of_kind(kind).as_json()

    assert held in written["methods"]["npo"]
    assert not_held not in written["methods"]["npo"]
    assert ("privacy" in written) == (kind == "images")
    assert {"tables", "figure", "bounds"}.isdisjoint(written)


def test_every_call_is_made_in_other_processes(tmp_path, capsys):
    calls = [(tmp_path, str(number)) for number in range(5)]

    in_processes(note, calls, "notes")

    assert f"notes: 5 tasks, {min(5, cores())} at once" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 5
    if len(os.sched_getaffinity(0)) > 1:
        assert str(os.getpid()) not in pids_in(tmp_path)
        assert len(pids_in(tmp_path)) > 1


def test_an_error_comes_through(tmp_path):
    calls = [(tmp_path, str(number)) for number in range(3)]

    with pytest.raises(RuntimeError, match="went wrong"):
        in_processes(fail, calls, "notes")
