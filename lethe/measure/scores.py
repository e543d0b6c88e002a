"""Scores of sampled answers as prompts, from arrays; the plain statistics of a prompt, without a guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from lethe.errors import BadFile, BadValue, check
from lethe.io import ids

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from lethe.results.table import Rows


ALL = "all"  # the name of a single prompt without a name
Missing = Literal["worst", "drop"]
Scores: TypeAlias = "Sequence[PromptScores] | Mapping[str, ArrayLike] | ArrayLike"


@dataclass(frozen=True)
class PromptScores:
    """One prompt's scores in sampling order.

    Attributes
    ----------
    prompt_id
        The id of the prompt.
    scores
        (n,) in [0, 1]; each missing one is NaN, or omitted if missing ones were dropped.
    missing
        The number of missing scores.
    samples
        (n,) the names of the answers; None where the source has none.
    lost
        The names of those of which the source states that no model ended them, also of dropped ones.
    """

    prompt_id: str
    scores: np.ndarray
    missing: int = 0
    samples: np.ndarray | None = None
    lost: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """The number of scores."""
        return len(self.scores)


def as_prompts(scores: Scores, missing: Missing | None = None) -> list[PromptScores]:
    """Return named prompts from scores in any accepted form; a NaN is an error unless ``missing`` states its treatment.

    The forms: a mapping of ids to scores, an array of shape (n,) or (prompts, n), or prompts that a reader of files made.
    Raises a sentence for anything else.
    """
    if isinstance(scores, Sequence) and scores and isinstance(scores[0], PromptScores):
        # made by a reader of files, which has already counted the missing scores
        return list(scores)
    prompts = []
    for name, values in _named(scores):
        absent = np.isnan(values)
        if absent.any() and missing is None:
            how = "Say how it counts: missing='worst' or 'drop'."
            raise BadValue("scores", "NaN", "numbers in [0, 1]", how)
        counted = values
        if missing == "drop":
            counted = values[~absent]
        if counted.ndim != 1 or not counted.size:
            shape = f"shape {counted.shape} for {name!r}"
            raise BadValue("scores", shape, "at least one score of each prompt")
        prompts.append(PromptScores(name, counted, int(absent.sum())))
    check(prompts, "scores", {}, "at least one prompt")
    return prompts


def _named(scores: Scores) -> Iterator[tuple[str, np.ndarray]]:
    """The scores of each prompt with its id, or with its place where the prompts have no ids."""
    if isinstance(scores, Mapping):
        found = ids.alike(scores)
        if found is not None:
            raise BadFile("scores", found.problem("the prompts"), ids.REMEDY)
        for name, values in scores.items():
            if name is None or name != name:
                raise BadValue("scores", f"the prompt {name}", "a name of each prompt")
            yield ids.id_text(name), _numbers(values)
        return
    array = _numbers(scores)
    shapes = "n scores, or an array of shape (prompts, n)"
    check(array.ndim < 3, "scores", f"shape {array.shape}", shapes)
    if array.ndim < 2:
        yield ALL, array
        return
    for place, row in enumerate(array):
        yield str(place), row


def _numbers(scores: object) -> np.ndarray:
    """An array of scores, NaN where one is masked; raises `BadValue` for words, or for lists of several lengths."""
    try:
        array = np.asanyarray(scores)
        if np.iscomplexobj(array):  # NumPy would drop the imaginary parts
            raise TypeError
        return np.ma.filled(array.astype(np.float64), math.nan)
    except (TypeError, ValueError):  # words, or lists of several lengths
        legal = "numbers in [0, 1], equally many per prompt or a dict by prompt"
        raise BadValue("scores", scores, legal) from None


def split(
    labels: np.ndarray,
    codes: np.ndarray,
    values: np.ndarray,
    missing: Missing | None,
    samples: np.ndarray | None = None,
    broken: np.ndarray | None = None,
) -> list[PromptScores]:
    """The scores of each prompt, in the order of ``labels``.

    Parameters
    ----------
    labels
        (prompts,) the ids.
    codes, values
        (rows,) the place of each row's prompt among the labels, and its score; NaN where missing.
    missing
        "drop" leaves missing scores out.
    samples
        (rows,) the names of the answers.
    broken
        (rows,) whether the source states of an answer with a name that no model ended it.
    """
    if not len(codes):
        return []
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        values = values[order]
        if samples is not None:
            samples = samples[order]
        if broken is not None:
            broken = broken[order]
    begins = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
    prompts = []
    for place, (begin, end) in enumerate(pairwise(begins)):
        scores = values[begin:end]
        names = None
        lost: tuple[str, ...] = ()
        if samples is not None:
            names = samples[begin:end]
            if broken is not None:
                lost = tuple(map(str, names[broken[begin:end]].tolist()))
        absent = np.isnan(scores)
        n_missing = int(np.count_nonzero(absent))
        if n_missing and missing == "drop":
            scores = scores[~absent]
            if names is not None:
                names = names[~absent]
        prompt = PromptScores(
            prompt_id=str(labels[place]),
            scores=scores,
            missing=n_missing,
            samples=names,
            lost=lost,
        )
        prompts.append(prompt)
    return prompts


def plain_rows(rows: Rows, prompt: PromptScores, rho: float) -> None:
    """Add the statistics of a prompt's scores, which have no guarantee."""
    add = partial(rows.add, "question", item=prompt.prompt_id, split="forget")
    add("answers", "sampled", prompt.n)
    add("unscored", "sampled", prompt.missing)
    for quantity, value in plain_statistics(prompt.scores, rho).items():
        add(quantity, "sampled", value)


def plain_statistics(scores: np.ndarray, rho: float) -> dict[str, float]:
    """Statistics of the judged scores, without a guarantee; NaN if there is none."""
    judged = scores[~np.isnan(scores)]
    if not len(judged):
        return dict.fromkeys(("score", "sd", "max", "ed_score"), math.nan)
    average = float(judged.mean())
    sd = float(judged.std())
    return {
        "score": average,
        "sd": sd,
        "max": float(judged.max()),
        "ed_score": average + rho * sd,
    }


def mean(values: Iterable[float | None] | np.ndarray) -> float:
    """The mean of the values that are there; NaN if there are none."""
    if not isinstance(values, np.ndarray):
        values = list(values)
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).any():
        return math.nan
    return float(np.nanmean(numbers))
