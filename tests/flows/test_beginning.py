"""What precedes the stages of a run."""

from flows.beginning import remove_unmeasured


def test_general_utility_of_a_model_without_an_entry_is_deleted(tmp_path):
    folder = tmp_path / "data/results/utility"
    folder.mkdir(parents=True)
    for name in ("base", "npo"):
        (folder / f"{name}.parquet").touch()

    remove_unmeasured(tmp_path, {"npo"})

    assert [place.name for place in folder.iterdir()] == ["npo.parquet"]


def test_a_run_that_measured_no_general_utility_has_nothing_to_delete(tmp_path):
    remove_unmeasured(tmp_path, {})

    assert list(tmp_path.iterdir()) == []
