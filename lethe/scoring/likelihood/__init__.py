"""Measures of the log-probabilities of given answers, without sampling.

A measure is a function of an `Item`; a value that cannot be computed (no answer tokens, no perturbed answers, ...) is NaN.
A module defines ``measure``, or several measures in ``MEMBERS``. The ``mia_`` measures are membership inference scores: a
higher score means that the row looks more like training data. `lethe.statistics.two_sample.auc_interval` makes them an AUC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lethe.errors import BadInput
from lethe.registry import LIKELIHOODS

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row
    from lethe.models.likelihood import AnswerTokens


@dataclass(frozen=True)
class Item:
    """One row of a data set under one model: its answers, token by token; ``text`` is the answer as written."""

    text: str
    answer: AnswerTokens
    paraphrased: AnswerTokens | None = None
    perturbed: tuple[AnswerTokens, ...] = ()


def loss(tokens: AnswerTokens) -> float:
    """Mean negative log-probability per token in nats, end of sequence included; NaN without tokens."""
    return -float(tokens.log_probs.mean()) if len(tokens.log_probs) else float("nan")


def score_likelihoods(given: pd.DataFrame, rows: Mapping[str, Row]) -> pd.DataFrame:
    """``prompt_id`` and one float64 column per measure, one row per prompt in the order of ``given``; NaN is missing."""
    import pandas as pd

    measures = {name: LIKELIHOODS[name] for name in LIKELIHOODS}
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
    from lethe.models.likelihood import AnswerTokens

    def of(kind: str) -> list[AnswerTokens]:
        columns = answers[answers["kind"] == kind].sort_values("number")
        return [
            AnswerTokens(row.log_probs, row.expected, row.spread, row.greedy)
            for row in columns.itertuples(index=False)
        ]

    (answer,), paraphrased = of("answer"), of("paraphrased")
    return Item(text, answer, paraphrased[0] if paraphrased else None, tuple(of("perturbed")))
