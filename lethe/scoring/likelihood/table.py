"""Likelihood measures of a table of tokenized answers, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lethe.errors import BadInput
from lethe.models.likelihood import AnswerTokens
from lethe.registry import LIKELIHOODS
from lethe.scoring.likelihood import Item, likelihood

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row


def score_likelihoods(given: pd.DataFrame, rows: Mapping[str, Row]) -> pd.DataFrame:
    """``prompt_id`` and one float64 column per measure, one row per prompt in the order of ``given``; NaN is missing."""
    import pandas as pd

    measures = {name: likelihood(name) for name in LIKELIHOODS}
    scored = []
    for prompt_id, answers in given.groupby("prompt_id", sort=False):
        if prompt_id not in rows:
            raise BadInput(
                f"Likelihoods of prompt {prompt_id!r}: the dataset has no such id. Run `dvc repro` again."
            )
        item = _item(rows[prompt_id]["answer"], answers)
        scored.append({"prompt_id": prompt_id, **{name: measure(item) for name, measure in measures.items()}})
    return pd.DataFrame(scored)


def _item(text: str, answers: pd.DataFrame) -> Item:
    def of(kind: str) -> list[AnswerTokens]:
        columns = answers[answers["kind"] == kind].sort_values("number")
        return [
            AnswerTokens(row.log_probs, row.expected, row.spread, row.greedy)
            for row in columns.itertuples(index=False)
        ]

    (answer,), paraphrased = of("answer"), of("paraphrased")
    return Item(text, answer, paraphrased[0] if paraphrased else None, tuple(of("perturbed")))
