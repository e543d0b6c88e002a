from lethe.io import cache, scratch
from lethe.io.scratch import Levels
from lethe.statistics.bands import berk_jones_eta


def test_a_level_is_solved_once_and_kept_on_disk(tmp_path, monkeypatch):
    from lethe.statistics import bands

    eta = berk_jones_eta(40, 0.05, Levels(tmp_path))
    monkeypatch.setattr(bands, "_solve_eta", lambda n, alpha: 1 / 0)
    assert berk_jones_eta(40, 0.05, Levels(tmp_path)) == eta
    del Levels(tmp_path)[40, 0.05]
    assert (40, 0.05) not in Levels(tmp_path)


def test_a_broken_or_forbidden_cache_costs_time_only(tmp_path):
    levels = Levels(tmp_path)
    levels[30, 0.05] = 0.001
    levels._place((30, 0.05)).write_text("half a numb")
    assert berk_jones_eta(30, 0.05, levels) > 0.001
    (tmp_path / "file").write_text("")
    assert 0 < berk_jones_eta(30, 0.05, Levels(tmp_path / "file" / "below")) < 0.05


def test_the_folder_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LETHE_CACHE", str(tmp_path))
    Levels()[5, 0.1] = 0.01
    assert list((tmp_path / "berk-jones").iterdir())


def test_an_edited_solver_solves_anew(tmp_path, monkeypatch):
    Levels(tmp_path)[40, 0.05] = 0.001
    assert Levels(tmp_path)[40, 0.05] == 0.001
    edited = cache.Sources(cache.library().root)
    edited.sources["lethe.statistics.checks"] = b"# what the solver imports"
    with monkeypatch.context() as patch:
        patch.setattr(cache, "library", lambda: edited)
        assert (40, 0.05) not in Levels(tmp_path)
    monkeypatch.setattr(scratch, "versions", lambda *names: dict.fromkeys(names, "0"))
    assert (40, 0.05) not in Levels(tmp_path)
