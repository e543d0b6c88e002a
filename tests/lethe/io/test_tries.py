"""The tries of a gate: counted by draws, written before anything is decided, and sharing one level."""

import math
import multiprocessing

import pytest

from lethe.errors import LetheError
from lethe.io import tries


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tries, "FOLDER", tmp_path / "tries")
    return tmp_path / "tries"


def numbers(*draws, tested="npo"):
    return [tries.begin(tested, draw, 0.01).number for draw in draws]


def test_fresh_draws_are_a_try_and_the_same_draws_are_the_try_that_they_were():
    assert numbers("seed 0", "seed 1", "seed 0", "seed 2", "seed 1") == [1, 2, 1, 3, 2]


def test_another_model_has_tries_of_its_own():
    assert numbers("seed 0", "seed 1") == [1, 2]
    assert numbers("seed 1", tested="simnpo") == [1]


def test_all_tries_together_take_at_most_alpha():
    levels = [tries.Try(number, 0.01).level for number in range(1, 100_001)]

    assert 0.0099 < math.fsum(levels) <= 0.01


def test_a_try_is_written_before_it_is_returned(folder):
    tries.begin("npo", "seed 0", 0.01)

    assert numbers("seed 1") == [2]  # as another process would read it after a kill
    assert len([*folder.glob("*.json")]) == 1


def begin_one(place, draw):
    tries.FOLDER = place
    return tries.begin("npo", draw, 0.01).number


def test_tries_at_the_same_time_are_all_counted(folder):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.starmap(begin_one, [(folder, draw) for draw in range(24)])

    assert sorted(found) == [*range(1, 25)]


def test_a_damaged_record_is_an_error_and_no_new_count(folder):
    tries.begin("npo", "seed 0", 0.01)
    next(folder.glob("*.json")).write_text("{")

    with pytest.raises(LetheError, match="json"):
        tries.begin("npo", "seed 1", 0.01)


def test_a_folder_that_cannot_be_written_is_said_and_counts_nothing(folder):
    folder.write_text("a file")

    attempt = tries.begin("npo", "seed 0", 0.01)

    assert not attempt.kept
    assert "cannot be written" in attempt.sentence()


def test_the_sentence_says_that_tries_elsewhere_are_not_counted():
    said = tries.Try(2, 0.01).sentence()

    assert "try 2 of this gate" in said
    assert "this model and data" in said
    assert "0.01 / (2 x 3)" in said
    assert "on other machines" in said


def test_declared_levels_of_all_tries_together_take_at_most_twice_the_first():
    tried = [tries.declare("npo", f"seed {number}", 0.05) for number in range(50)]

    assert [attempt.is_allowed for attempt in tried[:3]] == [True, False, False]
    assert math.fsum(attempt.level for attempt in tried) <= 0.1
    assert tries.declare("npo", "seed 50", 0.00003).is_allowed
