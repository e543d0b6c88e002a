"""Labelled tables for classifiers: UCI Adult, Purchase-100 (real or of its shape), scikit-learn's digits.

Each table is split at random, once, into a training set and a population. An audit of Epsilon* compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lethe.errors import BadFile, BadValue, MissingColumn
from lethe.io.tables import read_table

PURCHASE_FEATURES, PURCHASE_CLASSES = 600, 100
GENERATED = 20_000  # rows of generated purchases by default
INCOME = "income"  # Adult's label column
SEPARATION = 0.5  # generated purchases: sd of a class's log-odds around each feature's base rate


Side = tuple[np.ndarray, np.ndarray]  # features and labels
Loaded = tuple[np.ndarray, np.ndarray, int, str]  # features, labels, number of classes, a note


@dataclass(frozen=True)
class Classification:
    """Training set and population: each has features (n, d) float32 and labels (n,) int64 in 0..``classes``-1."""

    train: tuple[np.ndarray, np.ndarray]
    population: tuple[np.ndarray, np.ndarray]
    classes: int
    note: str


def load(kind: str, source: str | None, points: int | None, population: float, seed: int) -> Classification:
    loaders = {"adult": _adult, "purchase100": _purchase, "digits": _digits}
    if kind not in loaders:
        raise BadValue("data.kind", kind, f"one of {', '.join(loaders)}")
    draw, split = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    features, labels, classes, note = loaders[kind](source, points, draw)
    if points is not None and not 10 <= points <= len(labels):
        raise BadValue("data.points", points, f"a number from 10 to {len(labels)}, the rows of {kind}, or null")
    rows = split.permutation(len(labels))[:points]
    aside = round(population * len(rows))
    if not 2 <= aside <= len(rows) - 2:
        raise BadValue("data.population", population, "a share that leaves at least 2 rows on each side")
    train, others = (
        (features[part].astype(np.float32), labels[part].astype(np.int64)) for part in (rows[aside:], rows[:aside])
    )
    if kind == "adult":
        train, others = _standardised(train, others)
    return Classification(train, others, classes, note)


def _adult(source: str | None, points: int | None, rng: np.random.Generator) -> Loaded:
    """Numbers stay as they are; every other value becomes a column of 0s and 1s. Incomplete rows are dropped."""
    if source is None:
        raise BadFile(
            "UCI Adult", "no file is named", "Set data.source to a CSV with a header and a column income."
        )
    table = read_table(source, required=[INCOME])
    import pandas as pd

    # A column of objects may hold integers too, those of 20 digits and more.
    table = table.apply(
        lambda column: (
            column
            if pd.api.types.is_numeric_dtype(column)
            else column.map(lambda value: value.strip() if isinstance(value, str) else value)
        )
    )
    complete = table.replace("?", np.nan).dropna()
    labels = complete[INCOME].astype(str).str.rstrip(".")
    names = sorted(labels.unique())
    if len(names) != 2:
        raise BadFile(source, f"income has the values {', '.join(names[:5])}", "Use two values: <=50K and >50K.")
    features = pd.get_dummies(complete.drop(columns=INCOME), dtype=np.float32)
    if features.empty:
        raise MissingColumn(source, "age", table.columns)
    note = f"UCI Adult, {len(complete):,} complete rows of {len(table):,}"
    return features.to_numpy(np.float32), (labels == names[-1]).to_numpy(np.int64), 2, note


def _standardised(train: Side, others: Side) -> tuple[Side, Side]:
    """Scale features to mean 0 and standard deviation 1 on the training set; constant features become 0."""
    learned = train[0].astype(float)
    mean, sd = learned.mean(axis=0), learned.std(axis=0)

    def scaled(features: np.ndarray) -> np.ndarray:
        return ((features - mean) / np.where(sd > 0, sd, 1)).astype(np.float32)

    return (scaled(train[0]), train[1]), (scaled(others[0]), others[1])


def _purchase(source: str | None, points: int | None, rng: np.random.Generator) -> Loaded:
    """The published file (label from 1, then 600 features, no header), an .npz of features and labels, or generated rows."""
    if source is None:
        note = "generated purchases: 600 binary features, 100 classes"
        return *_generated(points or GENERATED, rng), PURCHASE_CLASSES, note
    path = Path(source)
    if not path.is_file():
        raise BadFile(path, "no such file", "Set data.source to the file of Purchase-100, or to null.")
    try:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                features, labels = arrays["features"], arrays["labels"]
        else:
            import pandas as pd

            values = pd.read_csv(path, header=None, dtype=np.int16).to_numpy()
            features, labels = values[:, 1:], values[:, 0]
    except (ValueError, KeyError, OSError) as error:
        raise BadFile(path, f"cannot be read as Purchase-100 ({error})") from None
    labels = labels.argmax(axis=1) if labels.ndim == 2 else labels
    labels = labels - labels.min()
    if features.ndim != 2 or features.shape[1] != PURCHASE_FEATURES or labels.max() >= PURCHASE_CLASSES:
        raise BadFile(
            path,
            f"has {features.shape[-1]} features and labels up to {labels.max() + 1}",
            f"Purchase-100 has {PURCHASE_FEATURES} and {PURCHASE_CLASSES}.",
        )
    return features, labels, PURCHASE_CLASSES, f"Purchase-100, {len(labels):,} rows"


def _generated(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `PURCHASE_FEATURES` independent bits; each class has its own log-odds around a common base."""
    base = rng.normal(-1.5, 1.0, PURCHASE_FEATURES)
    log_odds = base + rng.normal(0, SEPARATION, (PURCHASE_CLASSES, PURCHASE_FEATURES))
    shares = rng.dirichlet(np.full(PURCHASE_CLASSES, 5.0))
    labels = rng.choice(PURCHASE_CLASSES, size=rows, p=shares)
    chances = (1 / (1 + np.exp(-log_odds))).astype(np.float32)
    features = np.empty((rows, PURCHASE_FEATURES), np.uint8)
    for start in range(0, rows, 10_000):
        part = slice(start, start + 10_000)
        features[part] = rng.random((len(labels[part]), PURCHASE_FEATURES), np.float32) < chances[labels[part]]
    return features, labels


def _digits(source: str | None, points: int | None, rng: np.random.Generator) -> Loaded:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.data / 16, digits.target, 10, "scikit-learn's handwritten digits, 1,797 images of 8 x 8"
