import contextlib
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.data import images
from lethe.errors import BadFile


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def fashion_folder(folder: Path, zipped: bool) -> np.ndarray:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
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


@given(st.binary(max_size=40))
def test_no_bytes_break_the_idx_reader(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("idx") / "x"
    path.write_bytes(data)
    with contextlib.suppress(BadFile):
        assert images._idx(path, 1).ndim == 1


def cifar_rows(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (4, 3072), dtype=np.uint8), rng.integers(0, 10, 4, dtype=np.uint8)


def write_cifar10(folder: Path, change=lambda rows: rows) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(images.CIFAR10_FILES):
        pixels, labels = cifar_rows(number)
        (folder / name).write_bytes(change(np.hstack([labels[:, None], pixels])).tobytes())


def test_cifar10_from_a_folder(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    loaded = images.load("cifar10", str(tmp_path))
    parts = [cifar_rows(number) for number in range(6)]
    assert (loaded.pixels.reshape(24, -1) == np.concatenate([pixels for pixels, _ in parts])).all()
    assert (loaded.labels == np.concatenate([labels for _, labels in parts])).all()


@pytest.mark.parametrize(
    ("change", "told"), [(lambda rows: rows[:, 1:], "multiple of 3073"), (lambda rows: rows * 0 + 10, "0 to 9")]
)
def test_a_broken_batch_is_refused(tmp_path, change, told):
    write_cifar10(tmp_path, change)
    with pytest.raises(BadFile, match=told):
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
    with pytest.raises(BadFile, match=r"someone/cifar.*neither a folder nor .* hub"):
        images.load("cifar10", "someone/cifar")
