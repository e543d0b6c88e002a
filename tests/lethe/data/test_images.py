from __future__ import annotations

import contextlib
import gzip
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.data import images
from lethe.errors import BadFile, BadValue


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


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("train-labels-idx1-ubyte", np.arange(2), "2 labels"),
        ("train-labels-idx1-ubyte", np.array([0, 1, 10]), "0 to 9"),
        ("train-images-idx3-ubyte", np.zeros((3, 2, 2)), r"\(1, 28, 28\)"),
        ("t10k-images-idx3-ubyte", np.zeros((3, 28)), "3 dimensions"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path, name, values, said):
    fashion_folder(tmp_path, zipped=False)
    (tmp_path / name).write_bytes(idx(values))
    with pytest.raises(BadFile, match=said):
        images.load("fashion_mnist", str(tmp_path))


@pytest.mark.skipif(
    not Path(images.FASHION_MNIST).is_dir(), reason="Debian's package dataset-fashion-mnist is not installed"
)
def test_the_real_fashion_mnist():
    loaded = images.load("fashion_mnist")
    assert loaded.pixels.shape == (70_000, 1, 28, 28)
    assert np.bincount(loaded.labels).tolist() == [7000] * 10
    assert loaded.labels[0] == 9  # an ankle boot
    assert loaded.pixels.max() == loaded.white


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


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """The bytes that Python 2 and its NumPy wrote, as the published batches have them: text opcodes, byte strings."""

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"tR"
    kind = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNNJ" + b"\xff" * 4
    kind += b"J" + b"\xff" * 4 + b"K\x00tb"
    shape = b"".join(b"J" + size.to_bytes(4, "little") for size in pixels.shape)
    state = b"(K\x01(" + shape + b"t" + kind + b"\x89" + text(pixels.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + state + text(b"labels") + numbers + b"u."


def test_cifar10_as_python_2_pickled_it(tmp_path):
    parts = [cifar_rows(i) for i in range(6)]
    for name, (pixels, labels) in zip(images.CIFAR10_FILES, parts, strict=True):
        (tmp_path / name).write_bytes(python2_batch(pixels, labels.tolist()))
    loaded = images.load("cifar10", str(tmp_path))
    assert (loaded.pixels.reshape(24, -1) == np.concatenate([pixels for pixels, _ in parts])).all()
    assert (loaded.labels == np.concatenate([labels for _, labels in parts])).all()


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({b"data": np.zeros((2, 5), np.uint8), b"labels": [1, 2]}, r"\(3, 32, 32\)"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "1 labels"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 10]}, "0 to 9"),
    ],
)
def test_a_batch_of_the_wrong_shape_is_refused(tmp_path, batch, said):
    for name in images.CIFAR10_FILES:
        (tmp_path / name).write_bytes(pickle.dumps(batch))
    with pytest.raises(BadFile, match=said):
        images.load("cifar10", str(tmp_path))


class Evil:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize("batch", [Evil(), {b"data": Evil()}, {b"labels": [1]}, 3])
def test_a_batch_that_is_more_than_arrays_is_refused_and_not_run(tmp_path, batch, capsys):
    for name in images.CIFAR10_FILES:
        (tmp_path / name).write_bytes(pickle.dumps(batch))
    with pytest.raises(BadFile, match="data_batch_1: is not a batch"):
        images.load("cifar10", str(tmp_path))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "trick",
    [
        b"]r\x00\x00\x00\x40",  # place 2^30 of the memo: 17 GB
        b"cnumpy\nndarray\n(J\x00\x00\x00\x10tR",  # an array of 2^28 numbers that the file does not hold
        b"}K\x01" + b"\x85" * 40 + b"K\x00s",  # a key of tuples within tuples
        b"}(U\x04data](K\x01eU\x06labels]u",
    ],
)
def test_a_pickle_takes_no_more_than_its_bytes_need(tmp_path, trick):
    path = tmp_path / "data_batch_1"
    path.write_bytes(b"\x80\x02" + trick + b".")
    held = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), held[1]))
    try:
        with pytest.raises(BadFile, match=r"must be|asks for more|not callable"):
            images._cifar10_python(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, held)


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
    with pytest.raises(BadFile, match=r"someone/cifar.*neither a folder nor .* hub"):
        images.load("cifar10", "someone/cifar")
