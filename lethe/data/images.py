"""Labelled images for the unlearning game: scikit-learn's digits, Fashion-MNIST, CIFAR-10.

Training and test images are joined, since the game draws its own splits. Pixels are integers until a batch needs floats.
"""

import gzip
import math
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lethe.errors import BadFile, BadValue, reason_of

FASHION_MNIST = (
    "/usr/share/datasets/fashion-mnist"  # the folder of Debian's package dataset-fashion-mnist
)
CIFAR10_HUB = "uoft-cs/cifar10"
LARGEST = 1 << 28  # bytes of an unzipped file
CIFAR10_FILES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


@dataclass(frozen=True)
class Images:
    """``pixels`` (n, channels, height, width) uint8 in 0..``white``; ``labels`` (n,) int64 in 0..``classes``-1."""

    pixels: np.ndarray
    labels: np.ndarray
    classes: int
    white: int

    def __len__(self) -> int:
        return len(self.labels)


def load(
    kind: str,
    source: str | None = None,
    points: int | None = None,
    label_noise: float = 0.0,
    seed: int = 0,
) -> Images:
    loaders = {"digits": _digits, "fashion_mnist": _fashion_mnist, "cifar10": _cifar10}
    if kind not in loaders:
        raise BadValue("data.kind", kind, f"one of {', '.join(loaders)}")
    images = loaders[kind](source)
    chosen, noise = np.random.SeedSequence(seed).spawn(2)
    if points is not None:
        if not 1 <= points <= len(images):
            raise BadValue(
                "data.points", points, f"a number from 1 to {len(images)}, the size of {kind}"
            )
        rows = np.sort(np.random.default_rng(chosen).permutation(len(images))[:points])
        images = replace(images, pixels=images.pixels[rows], labels=images.labels[rows])
    rng = np.random.default_rng(noise)
    noisy = rng.permutation(len(images))[: round(label_noise * len(images))]
    labels = images.labels.copy()
    labels[noisy] = (
        labels[noisy] + rng.integers(1, images.classes, size=len(noisy))
    ) % images.classes
    return replace(images, labels=labels)


def _digits(source: str | None) -> Images:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Images(
        digits.images.astype(np.uint8)[:, None], digits.target.astype(np.int64), 10, white=16
    )


def _fashion_mnist(source: str | None) -> Images:
    folder = Path(source or FASHION_MNIST)
    parts = [
        (
            _idx(folder / f"{part}-images-idx3-ubyte", 3),
            _idx(folder / f"{part}-labels-idx1-ubyte", 1),
        )
        for part in ("train", "t10k")
    ]
    return _joined(folder, parts, (1, 28, 28))


def _idx(path: Path, dimensions: int) -> np.ndarray:
    """An IDX file, plain or gzipped: two zero bytes, type 8 (uint8), the dimensions, their sizes, the values."""
    zipped = path.with_name(path.name + ".gz")
    if not path.is_file() and not zipped.is_file():
        remedy = "Install Debian's dataset-fashion-mnist or set data.source to a folder."
        raise BadFile(path, "no such file, plain or .gz", remedy)
    try:
        data = path.read_bytes() if path.is_file() else _unzipped(zipped)
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(zipped, f"cannot be unzipped ({error})") from None
    start = 4 + 4 * dimensions
    sizes = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    if data[:4] != bytes([0, 0, 8, dimensions]) or len(data) != start + math.prod(sizes):
        raise BadFile(path, f"is not an IDX file of bytes in {dimensions} dimensions")
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes)


def _unzipped(path: Path) -> bytes:
    with gzip.open(path) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise BadFile(
            path,
            f"expands to more than {LARGEST >> 20} MiB; Fashion-MNIST's largest file has 45 MiB",
        )
    return data


def _cifar10(source: str | None) -> Images:
    folder = Path(source) if source else None
    if folder is None or not folder.is_dir():
        return _cifar10_hub(source or CIFAR10_HUB)
    for inner in (folder, folder / "cifar-10-batches-bin"):
        if (inner / CIFAR10_FILES[0]).is_file():
            return _joined(
                folder, [_cifar10_binary(inner / name) for name in CIFAR10_FILES], (3, 32, 32)
            )
    raise BadFile(
        folder, f"holds no {CIFAR10_FILES[0]}", "Unpack the binary version of CIFAR-10 there."
    )


def _cifar10_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not path.is_file():
        raise BadFile(path, "no such file", "CIFAR-10 has five data batches and a test batch.")
    data = np.frombuffer(path.read_bytes(), np.uint8)
    if not len(data) or len(data) % 3073:
        raise BadFile(path, f"has {len(data)} bytes, expected a multiple of 3073")
    rows = data.reshape(-1, 3073)
    return rows[:, 1:], rows[:, 0]


def _cifar10_hub(name: str) -> Images:
    from datasets import load_dataset

    try:
        data = load_dataset(name)
    except Exception as error:  # the hub's client raises many unrelated classes
        problem = f"is neither a folder nor available from the hub ({reason_of(error)})"
        raise BadFile(name, problem, "Set data.source.") from None
    parts = [data[part] for part in ("train", "test")]
    image, label = ("img", "label") if "img" in parts[0].column_names else ("image", "label")
    arrays = [
        (
            np.stack([np.asarray(one, np.uint8).transpose(2, 0, 1) for one in part[image]]),
            np.asarray(part[label]),
        )
        for part in parts
    ]
    return _joined(name, arrays, (3, 32, 32))


def _joined(
    place: str | Path, parts: list[tuple[np.ndarray, np.ndarray]], shape: tuple[int, int, int]
) -> Images:
    """Join all parts of a data set with ten classes; ``shape`` is (channels, height, width) of each image."""
    for pixels, labels in parts:
        if pixels.ndim < 2 or pixels[0].size != math.prod(shape) or len(pixels) != len(labels):
            raise BadFile(
                place, f"has images {pixels.shape} and {len(labels)} labels, expected {shape} each"
            )
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > 9:
        raise BadFile(place, "has labels other than the whole numbers from 0 to 9")
    return Images(pixels.reshape(-1, *shape), labels.astype(np.int64), 10, white=255)
