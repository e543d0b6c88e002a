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

# The folder of Debian's package dataset-fashion-mnist.
FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
CIFAR10_HUB = "uoft-cs/cifar10"
LARGEST = 1 << 28  # bytes of an unzipped file
CIFAR10_FILES = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
]
CIFAR10_SHAPE = (3, 32, 32)  # channels, height, width
CIFAR10_BYTES = 1 + 3 * 32 * 32  # of an image: its label, then its pixels


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
    """Return the images of a kind: "digits", "fashion_mnist" or "cifar10".

    Parameters
    ----------
    source
        A folder, or the name of CIFAR-10 on the hub; null is the kind's usual place.
    points
        The number of images, chosen at random; null is all of them.
    label_noise
        The share of labels, in [0, 1], that are replaced by another class at random.
    seed
        The seed of both choices.

    Raises
    ------
    BadValue
        An unknown kind, or more points than the kind has.
    BadFile
        Files that are missing or no images.
    """
    loaders = {"digits": _digits, "fashion_mnist": _fashion_mnist, "cifar10": _cifar10}
    if kind not in loaders:
        raise BadValue("data.kind", kind, f"one of {', '.join(loaders)}")
    images = loaders[kind](source)
    seed_of_choice, seed_of_noise = np.random.SeedSequence(seed).spawn(2)
    if points is not None:
        images = _chosen(images, points, np.random.default_rng(seed_of_choice), kind)
    return _with_label_noise(images, label_noise, np.random.default_rng(seed_of_noise))


def _chosen(images: Images, points: int, rng: np.random.Generator, kind: str) -> Images:
    """``points`` random images, in their order."""
    if not 1 <= points <= len(images):
        legal = f"a number from 1 to {len(images)}, the size of {kind}"
        raise BadValue("data.points", points, legal)
    order = rng.permutation(len(images))
    rows = np.sort(order[:points])
    return replace(images, pixels=images.pixels[rows], labels=images.labels[rows])


def _with_label_noise(images: Images, share: float, rng: np.random.Generator) -> Images:
    """The images, of which a share have another class as their label."""
    order = rng.permutation(len(images))
    noisy = order[: round(share * len(images))]
    steps = rng.integers(1, images.classes, size=len(noisy))  # never 0: another class
    labels = images.labels.copy()
    labels[noisy] = (labels[noisy] + steps) % images.classes
    return replace(images, labels=labels)


def _digits(source: str | None) -> Images:
    """1,797 digits of 8 times 8 pixels, which scikit-learn has without a download."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = digits.images.astype(np.uint8)[:, None]
    return Images(pixels, digits.target.astype(np.int64), classes=10, white=16)


def _fashion_mnist(source: str | None) -> Images:
    """70,000 pieces of clothing of 28 times 28 pixels."""
    folder = Path(source or FASHION_MNIST)
    parts = []
    for part in ("train", "t10k"):
        pixels = _idx(folder / f"{part}-images-idx3-ubyte", 3)
        labels = _idx(folder / f"{part}-labels-idx1-ubyte", 1)
        parts.append((pixels, labels))
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
    sizes = [int.from_bytes(data[place : place + 4], "big") for place in range(4, start, 4)]
    has_head = data[:4] == bytes([0, 0, 8, dimensions])
    if not has_head or len(data) != start + math.prod(sizes):
        raise BadFile(path, f"is not an IDX file of bytes in {dimensions} dimensions")
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes)


def _unzipped(path: Path) -> bytes:
    """The content of a gzipped file; raises `BadFile` for one that expands beyond `LARGEST`."""
    with gzip.open(path) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        most = f"{LARGEST >> 20} MiB"
        raise BadFile(path, f"expands to more than {most}; Fashion-MNIST's largest file has 45 MiB")
    return data


def _cifar10(source: str | None) -> Images:
    """60,000 images of 32 times 32 pixels, from a folder or from the hub."""
    folder = Path(source or CIFAR10_HUB)
    if not source or not folder.is_dir():
        return _cifar10_hub(source or CIFAR10_HUB)
    for inner in (folder, folder / "cifar-10-batches-bin"):
        if (inner / CIFAR10_FILES[0]).is_file():
            parts = [_cifar10_binary(inner / name) for name in CIFAR10_FILES]
            return _joined(folder, parts, CIFAR10_SHAPE)
    remedy = "Unpack the binary version of CIFAR-10 there."
    raise BadFile(folder, f"holds no {CIFAR10_FILES[0]}", remedy)


def _cifar10_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The pixels and the labels of a file of the binary version."""
    if not path.is_file():
        raise BadFile(path, "no such file", "CIFAR-10 has five data batches and a test batch.")
    data = np.frombuffer(path.read_bytes(), np.uint8)
    if not len(data) or len(data) % CIFAR10_BYTES:
        raise BadFile(path, f"has {len(data)} bytes, expected a multiple of {CIFAR10_BYTES}")
    rows = data.reshape(-1, CIFAR10_BYTES)
    return rows[:, 1:], rows[:, 0]


def _cifar10_hub(name: str) -> Images:
    """The images of a dataset of the hub with the splits train and test."""
    from datasets import load_dataset

    try:
        data = load_dataset(name)
    except Exception as error:  # the hub's client raises many unrelated classes
        problem = f"is neither a folder nor available from the hub ({reason_of(error)})"
        raise BadFile(name, problem, "Set data.source.") from None
    column = "img" if "img" in data["train"].column_names else "image"
    arrays = []
    for split in ("train", "test"):
        part = data[split]
        images = []
        for image in part[column]:
            pixels = np.asarray(image, np.uint8)
            images.append(pixels.transpose(2, 0, 1))  # channels first
        arrays.append((np.stack(images), np.asarray(part["label"])))
    return _joined(name, arrays, CIFAR10_SHAPE)


def _joined(
    place: str | Path, parts: list[tuple[np.ndarray, np.ndarray]], shape: tuple[int, int, int]
) -> Images:
    """Join all parts of a data set with ten classes; ``shape`` is (channels, height, width) of each image."""
    pixels_of_parts = []
    labels_of_parts = []
    for pixels, labels in parts:
        is_image = pixels.ndim >= 2 and pixels[0].size == math.prod(shape)
        if not is_image or len(pixels) != len(labels):
            problem = f"has images {pixels.shape} and {len(labels)} labels, expected {shape} each"
            raise BadFile(place, problem)
        pixels_of_parts.append(pixels)
        labels_of_parts.append(labels)
    all_labels = np.concatenate(labels_of_parts)
    is_whole = all_labels.dtype.kind in "iu"
    if not is_whole or all_labels.min() < 0 or all_labels.max() > 9:
        raise BadFile(place, "has labels other than the whole numbers from 0 to 9")
    all_pixels = np.concatenate(pixels_of_parts).reshape(-1, *shape)
    return Images(all_pixels, all_labels.astype(np.int64), classes=10, white=255)
