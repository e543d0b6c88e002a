"""The sampled answers to each forget question of a model: the histogram of scores, and the worst answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lethe.evaluation.answer_scores import answer_columns, answer_parts
from lethe.evaluation.run import Model

if TYPE_CHECKING:
    import pandas as pd

BINS = 25  # of a histogram of scores in [0, 1]


@dataclass(frozen=True, slots=True)
class DrawnAnswer:
    """One text among the answers to a question; ``scores`` are in the order in which they rank the answers.

    A missing score is None. A missing score ranks as 0, because nothing shows that the answer leaks.
    """

    prompt_id: str
    text: str
    times: int  # the number of samples with this text
    first: int  # the number of the first sample with this text
    scores: tuple[float | None, ...]
    greedy: bool  # whether the greedy answer has the same text

    @property
    def rank(self) -> tuple[float, ...]:
        """The sort key: scores, then frequency, then the earlier first sample. The largest key is the worst answer."""
        return (*(score or 0.0 for score in self.scores), self.times, -self.first)


@dataclass(frozen=True, slots=True)
class QuestionAnswers:
    """The sampled answers to one question.

    ``histogram`` counts the judged answers in `BINS` equal bins of the leakage score from 0 to 1. Bins are closed on the
    left, and the last bin includes 1. ``worst`` has the distinct answers with a score above 0, the worst first.
    """

    prompt_id: str
    drawn: int
    histogram: tuple[int, ...]
    worst: tuple[DrawnAnswer, ...]


def question_answers(
    model: Model, ranking: Sequence[str], leak: str, most: int
) -> dict[str, QuestionAnswers] | None:
    """The answers of a model by forget question, in sampling order."""
    if not {*ranking, leak} <= set(answer_columns(model.answers, "forget")):
        return None
    found: dict[str, QuestionAnswers] = {}
    for part in answer_parts(model.answers, "forget", ["text", *ranking, leak]):
        found |= _of_part(part, ranking, leak, most)
    return found


def _of_part(table: pd.DataFrame, ranking: Sequence[str], leak: str, most: int) -> dict[str, QuestionAnswers]:
    sampled, greedy = table[table["sample"] >= 0], table[table["sample"] < 0]
    codes, names = sampled["prompt_id"].factorize()
    drawn = np.bincount(codes, minlength=len(names)).tolist()
    counts = _histograms(codes, sampled[leak].to_numpy(dtype=np.float64), len(names)).tolist()
    worst = _worst(sampled, ranking, most, dict(zip(greedy["prompt_id"], greedy["text"], strict=True)))
    return {
        name: QuestionAnswers(name, drawn[place], tuple(counts[place]), tuple(worst.get(name, ())))
        for place, name in enumerate(names)
    }


def worst_answers(questions: Iterable[QuestionAnswers], most: int) -> list[DrawnAnswer]:
    """Return the worst answer of each question, limited to the ``most`` worst of these."""
    first = [question.worst[0] for question in questions if question.worst]
    return sorted(first, key=lambda answer: answer.rank, reverse=True)[:most]


def judged(model: Model, ranking: Sequence[str]) -> bool:
    """Whether one of the scorers judged any forget answer of the model."""
    columns = answer_columns(model.answers, "forget")
    known = [name for name in ranking if name in columns]
    return bool(known) and any(
        not part[known].isna().all(axis=None) for part in answer_parts(model.answers, "forget", known)
    )


def _histograms(codes: np.ndarray, values: np.ndarray, questions: int) -> np.ndarray:
    """(questions, BINS) counts of the values that are not missing."""
    known = ~np.isnan(values)
    edges = np.linspace(0, 1, BINS + 1)
    bins = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, BINS - 1)
    return np.bincount(codes[known] * BINS + bins, minlength=questions * BINS).reshape(questions, BINS)


def _worst(
    sampled: pd.DataFrame, ranking: Sequence[str], most: int, greedy: Mapping[str, str]
) -> dict[str, list[DrawnAnswer]]:
    """The worst distinct answers by question, the worst first."""
    if not most:
        return {}
    # Equal texts of one question have equal scores, so the first represents all. An answer with score 0 is never listed.
    above = sampled[(sampled[list(ranking)] > 0).any(axis=1)]
    groups = above.groupby(["prompt_id", "text"], sort=False)
    ranked = groups.agg(
        times=("sample", "size"), first=("sample", "min"), **{name: (name, "first") for name in ranking}
    ).reset_index()
    keys = [f"rank_{name}" for name in ranking]
    ranked[keys] = ranked[list(ranking)].fillna(0.0).astype(float).to_numpy()
    ranked = ranked.sort_values(
        [*keys, "times", "first"], ascending=[*(False for _ in keys), False, True], kind="stable"
    )
    found: dict[str, list[DrawnAnswer]] = {}
    kept = ranked.groupby("prompt_id", sort=False).head(most)
    columns = [kept[name].tolist() for name in ("prompt_id", "text", "times", "first")]
    scores = zip(
        *([None if value != value else float(value) for value in kept[name]] for name in ranking), strict=True
    )
    for (name, text, times, first), row in zip(zip(*columns, strict=True), scores, strict=True):
        answer = DrawnAnswer(name, text, times, first, row, greedy.get(name) == text)
        found.setdefault(name, []).append(answer)
    return found
