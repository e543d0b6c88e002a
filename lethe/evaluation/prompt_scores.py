"""The scores of sampled answers as prompts, from any accepted form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from lethe.errors import BadValue

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from lethe.results.table import Rows

ALL = "all"  # the name of a single prompt without a name

Missing = Literal["worst", "drop"]


@dataclass(frozen=True)
class PromptScores:
    """One prompt's scores in sampling order; each of the ``missing`` scores is NaN, or omitted if they were dropped."""

    prompt_id: str
    scores: np.ndarray
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Plain:
    """Statistics of scores, without a guarantee; NaN if there is no score."""

    mean: float
    sd: float
    max: float
    ed_score: float

    @classmethod
    def of(cls, judged: np.ndarray, rho: float) -> Plain:
        """The statistics of the judged scores; the ED score is the mean plus ``rho`` standard deviations."""
        if not len(judged):
            return cls(math.nan, math.nan, math.nan, math.nan)
        average, sd = float(judged.mean()), float(judged.std())
        return cls(average, sd, float(judged.max()), average + rho * sd)


def plain_rows(rows: Rows, prompt: PromptScores, rho: float, greedy: float | None = None) -> None:
    """Add the statistics of a prompt's scores, which have no guarantee, and the score of its greedy answer if given."""
    plain = Plain.of(prompt.scores[~np.isnan(prompt.scores)], rho)
    numbers = [("answers", len(prompt.scores)), ("unscored", prompt.missing), ("score", plain.mean)]
    for quantity, number in (*numbers, ("sd", plain.sd), ("max", plain.max), ("ed_score", plain.ed_score)):
        rows.add("question", quantity, "sampled", number, item=prompt.prompt_id, split="forget")
        if quantity == "unscored" and greedy is not None:
            rows.add("question", "score", "greedy", greedy, item=prompt.prompt_id, split="forget")


Scores: TypeAlias = "Sequence[PromptScores] | Mapping[str, ArrayLike] | ArrayLike"


def as_prompts(scores: Scores, missing: Missing | None = None) -> list[PromptScores]:
    """Return named prompts from scores in any accepted form; a NaN is an error unless ``missing`` states its treatment."""
    if isinstance(scores, Mapping):
        named = [(str(name), _numbers(own)) for name, own in scores.items()]
    elif isinstance(scores, Sequence) and scores and isinstance(scores[0], PromptScores):
        return list(scores)  # made by a reader of files, which has already counted the missing scores
    else:
        values = _numbers(scores)
        if values.ndim > 2:
            raise BadValue("scores", f"shape {values.shape}", "n scores, or an array of shape (prompts, n)")
        named = [(ALL, values)] if values.ndim < 2 else [(str(place), row) for place, row in enumerate(values)]
    prompts = []
    for name, own in named:
        absent = np.isnan(own)
        if absent.any() and missing is None:
            raise BadValue("scores", "NaN", "numbers in [0, 1]", "Say how it counts: missing='worst' or 'drop'.")
        kept = own[~absent] if missing == "drop" else own
        if kept.ndim != 1 or not kept.size:
            raise BadValue("scores", f"shape {kept.shape} for {name!r}", "at least one score of each prompt")
        prompts.append(PromptScores(name, kept, int(absent.sum())))
    if not prompts:
        raise BadValue("scores", "none", "at least one prompt")
    return prompts


def _numbers(scores: object) -> np.ndarray:
    try:
        return np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):  # words, or lists of several lengths
        raise BadValue(
            "scores", scores, "numbers in [0, 1], equally many per prompt or a dict by prompt"
        ) from None


def mean(values: Iterable[float] | np.ndarray) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    given = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=np.float64)
    return float(np.nanmean(given)) if np.isfinite(given).any() else math.nan
