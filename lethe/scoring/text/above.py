"""Above: 1 if the score of another text scorer exceeds a threshold, else 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from lethe.config.evaluating import ScorerParams
from lethe.config.fields import Real

BINARY = True


class Params(ScorerParams):
    """The scorer whose score is compared, with its own defaults, and the threshold."""

    scorer: str = "rouge_l"
    above: Annotated[Real, Field(ge=0, lt=1)] = 0.5


def score(generations: Sequence[str], item: Mapping, params: Params | None = None) -> np.ndarray:
    """0 or 1 per generation; NaN where the other scorer gives NaN."""
    from lethe.scoring import scorer

    how = params or Params()
    scores = scorer(how.scorer)(generations, item)
    return np.where(np.isnan(scores), np.nan, scores > how.above)
