from __future__ import annotations

import contextlib
import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.datasets import images
from stages.errors import BadFile, BadValue


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def fashion_folder(folder: Path, zipped: bool) -> np.ndarray:
    pixels = np.arange(5 * 4, dtype=np.uint8).reshape(5, 2, 2)
    for part, rows in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        for name, values in (("images-idx3", pixels[rows]), ("labels-idx1", np.arange(5, dtype=np.uint8)[rows])):
            data = idx(values)
            if zipped:
                (folder / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(data))
            else:
                (folder / f"{part}-{name}-ubyte").write_bytes(data)
    return pixels


def test_digits():
    digits = images.load("digits")
    assert digits.pixels.shape == (1797, 1, 8, 8)
    assert digits.pixels.max() == digits.white == 16
    assert set(digits.labels) == set(range(digits.classes))


def test_points_are_drawn_at_random_and_alike_for_one_seed():
    some, again, other = (images.load("digits", points=50, seed=seed) for seed in (1, 1, 2))
    assert len(some) == 50
    assert (some.pixels == again.pixels).all()
    assert (some.pixels != other.pixels).any()
    with pytest.raises(BadValue, match=r"data.points.*1 to 1797"):
        images.load("digits", points=1798)


def test_label_noise_changes_exactly_its_share():
    clean, noisy = images.load("digits"), images.load("digits", label_noise=0.25)
    assert (clean.labels != noisy.labels).sum() == round(0.25 * 1797)
    assert noisy.labels.min() >= 0
    assert noisy.labels.max() <= 9


@pytest.mark.parametrize("zipped", [True, False])
def test_fashion_mnist_from_a_folder(tmp_path, zipped):
    pixels = fashion_folder(tmp_path, zipped)
    loaded = images.load("fashion_mnist", str(tmp_path))
    assert (loaded.pixels[:, 0] == pixels).all()
    assert loaded.labels.tolist() == [0, 1, 2, 3, 4]


def test_a_missing_fashion_mnist_says_where_to_get_it(tmp_path):
    with pytest.raises(BadFile, match="dataset-fashion-mnist"):
        images.load("fashion_mnist", str(tmp_path))


@given(st.binary(max_size=40))
def test_no_bytes_break_the_idx_reader(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("idx") / "x"
    path.write_bytes(data)
    with contextlib.suppress(BadFile):
        assert images._idx(path, 1).ndim == 1


def cifar_rows(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (4, 3072), dtype=np.uint8), rng.integers(0, 10, 4, dtype=np.uint8)


def test_cifar10_python_and_binary_folders_hold_the_same(tmp_path):
    python, binary = tmp_path / "py", tmp_path / "bin" / "cifar-10-batches-bin"
    python.mkdir()
    binary.mkdir(parents=True)
    for i, name in enumerate(images.CIFAR10_FILES):
        pixels, labels = cifar_rows(i)
        (python / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": labels.tolist()}))
        (binary / f"{name}.bin").write_bytes(np.hstack([labels[:, None], pixels]).tobytes())
    one, other = images.load("cifar10", str(python)), images.load("cifar10", str(tmp_path / "bin"))
    assert one.pixels.shape == (24, 3, 32, 32)
    assert (one.pixels == other.pixels).all()
    assert (one.labels == other.labels).all()


class Evil:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize("batch", [Evil(), {b"data": Evil()}, {b"labels": [1]}, 3])
def test_a_batch_that_is_more_than_arrays_is_refused_and_not_run(tmp_path, batch, capsys):
    for name in images.CIFAR10_FILES:
        (tmp_path / name).write_bytes(pickle.dumps(batch))
    with pytest.raises(BadFile, match=r"data_batch_1: is no batch of CIFAR-10"):
        images.load("cifar10", str(tmp_path))
    assert capsys.readouterr().out == ""


@given(st.binary(max_size=30))
def test_no_bytes_break_the_pickle_reader(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cifar") / "x"
    path.write_bytes(data)
    with pytest.raises(BadFile):
        images._cifar10_python(path)


def test_an_empty_cifar10_folder_is_told(tmp_path):
    with pytest.raises(BadFile, match="holds neither"):
        images.load("cifar10", str(tmp_path))


def test_cifar10_from_the_hub(monkeypatch):
    import datasets

    pixels, labels = np.zeros((2, 32, 32, 3), np.uint8), [3, 4]
    pixels[1, 5, 6, 2] = 9
    part = datasets.Dataset.from_dict({"img": [p.tolist() for p in pixels], "label": labels})
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": part, "test": part})
    loaded = images.load("cifar10")
    assert loaded.labels.tolist() == [3, 4, 3, 4]
    assert loaded.pixels[3, 2, 5, 6] == 9


def test_a_hub_out_of_reach_is_told(monkeypatch):
    import datasets

    def fail(name):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(BadFile, match="no route"):
        images.load("cifar10", "someone/cifar")
