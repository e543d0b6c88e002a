import gzip
from pathlib import Path

import datasets
import numpy as np
import pytest

from lethe.data import images
from lethe.errors import BadFile


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def fashion_folder(folder: Path, zipped: bool) -> np.ndarray:
    pixels, labels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8), np.arange(5)
    for part, rows in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        for name, values in (("images-idx3", pixels[rows]), ("labels-idx1", labels[rows])):
            data = gzip.compress(idx(values)) if zipped else idx(values)
            (folder / f"{part}-{name}-ubyte{'.gz' * zipped}").write_bytes(data)
    return pixels


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


def write_cifar10(folder: Path, change=lambda rows: rows) -> np.ndarray:
    """All rows: a label and its pixels each."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng(0).integers(0, 256, (6, 4, 3073), dtype=np.uint8)
    rows[:, :, 0] %= 10
    for name, own in zip(images.CIFAR10_FILES, rows, strict=True):
        (folder / name).write_bytes(change(own).tobytes())
    return rows.reshape(24, -1)


def test_cifar10_from_a_folder(tmp_path):
    rows = write_cifar10(tmp_path / "cifar-10-batches-bin")
    loaded = images.load("cifar10", str(tmp_path))
    assert (loaded.pixels.reshape(24, -1) == rows[:, 1:]).all()
    assert (loaded.labels == rows[:, 0]).all()


@pytest.mark.parametrize(
    ("change", "told"), [(lambda rows: rows[:, 1:], "multiple of 3073"), (lambda rows: rows * 0 + 10, "0 to 9")]
)
def test_a_broken_batch_is_refused(tmp_path, change, told):
    write_cifar10(tmp_path, change)
    with pytest.raises(BadFile, match=told):
        images.load("cifar10", str(tmp_path))


def test_cifar10_from_the_hub(monkeypatch):
    pixels, labels = np.zeros((2, 32, 32, 3), np.uint8), [3, 4]
    pixels[1, 5, 6, 2] = 9
    part = datasets.Dataset.from_dict({"img": [p.tolist() for p in pixels], "label": labels})
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": part, "test": part})
    loaded = images.load("cifar10")
    assert loaded.labels.tolist() == [3, 4, 3, 4]
    assert loaded.pixels[3, 2, 5, 6] == 9


def test_a_hub_out_of_reach_is_told(monkeypatch):
    def fail(name):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(BadFile, match=r"someone/cifar.*neither a folder nor .* hub"):
        images.load("cifar10", "someone/cifar")
