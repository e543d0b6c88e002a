"""Which look at a model's answers a word is."""

from __future__ import annotations

from lethe.sampling.store import look


def test_another_number_of_answers_is_a_further_look_and_a_rerun_is_none(tmp_path):
    place = tmp_path / "looks.json"
    assert [look(place, "npo", n) for n in (64, 256, 64, 1024, 256)] == [1, 2, 1, 3, 2]
    assert look(place, "another model", 256) == 1
