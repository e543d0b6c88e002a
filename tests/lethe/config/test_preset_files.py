"""Presets: one reader for all commands, and one way to set keys of params.yaml without writing the file."""

import pytest

from lethe.config.yaml import changed_document, read_preset
from lethe.errors import BadParam, BadValue


def test_a_preset_is_read_by_name_or_refused_with_the_names(tmp_path):
    (tmp_path / "two.yaml").write_text("sample.n: 7\nmodels: {mine: {path: m}}\n")
    assert list(read_preset(tmp_path, "two").items()) == [("sample.n", 7), ("models", {"mine": {"path": "m"}})]
    with pytest.raises(BadValue, match=r"^landscape: got 'one'.*two"):
        read_preset(tmp_path, "one", "landscape")
    with pytest.raises(BadValue, match="--preset"):
        read_preset(tmp_path, "../two")


def test_keys_are_set_in_order_and_the_file_stays(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("sample: {n: 1, seed: 0}\n")
    before = path.read_bytes()
    changes = [("sample.n", 5), ("sample.new", None), ("sample", {"n": 6}), ("sample.seed", 2), ("other", [1])]
    assert changed_document(changes, path) == {"sample": {"n": 6, "seed": 2}, "other": [1]}
    assert path.read_bytes() == before
    with pytest.raises(BadParam, match=r"^mine\.yaml, key metrics\.alpha"):
        changed_document([("metrics.alpha", 0.1)], path, "mine.yaml")
