"""The answers of a model joined with their scores, read from disk a part at a time, and what a scorer gave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.artifacts import CUT_OFF
from lethe.io.parts import columns_of, joined_parts, same_answers

if TYPE_CHECKING:
    import pandas as pd

    from lethe.evaluation.run import Model


class AnswerTables(Mapping[str, "pd.DataFrame"]):
    """A table per split: generations joined with scores, rows in drawing order.

    ``tables[split]`` reads the whole table anew; `parts` reads a part of it at a time.
    """

    def __init__(self, files: Mapping[str, tuple[Path, Path]]):
        self.files = files
        self._same: dict[str, bool] = {}  # by split, so that the keys of both files are compared once

    def __getitem__(self, split: str) -> pd.DataFrame:
        import pandas as pd

        return pd.concat(self.parts(split), ignore_index=True)

    def parts(self, split: str, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """The table of a split a part at a time, as `lethe.io.parts.joined_parts` gives it."""
        if split not in self._same:
            self._same[split] = same_answers(*self.files[split])
        yield from joined_parts(*self.files[split], columns, self._same[split])

    def __contains__(self, split: object) -> bool:
        return split in self.files  # a Mapping's own would read the table to see whether it is there

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def columns(self, split: str) -> list[str]:
        """The columns of a split's table."""
        return list(dict.fromkeys(name for path in self.files[split] for name in columns_of(path)))


def answer_columns(answers: Mapping[str, pd.DataFrame], split: str) -> list[str]:
    """The columns of a split; none if the split has no answers."""
    if isinstance(answers, AnswerTables):
        return answers.columns(split) if split in answers else []
    return list(answers[split].columns) if split in answers else []


def answer_parts(
    answers: Mapping[str, pd.DataFrame], split: str, columns: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """The answers of a split a part at a time, whole questions each; a table that lies in memory is one part."""
    wanted = list(dict.fromkeys(("prompt_id", "sample", *columns)))
    if isinstance(answers, AnswerTables):
        yield from answers.parts(split, wanted)
    else:
        yield answers[split][wanted]


def scored(
    model: Model, split: str, scorer: str, without: Sequence[str] = (), cut_off: bool = False
) -> list[np.ndarray]:
    """Scores of the sampled answers: one array per question, in sampling order.

    The list is empty where the scorer judged no answer, or where the questions differ in n. A pooled mean would then
    weight the questions unequally, and an n that depends on the answers allows no interval for a fixed n.
    """
    if scorer not in answer_columns(model.answers, split):
        return []
    groups: list[np.ndarray] = []
    for part in answer_parts(model.answers, split, [scorer, *(["finish_reason"] if cut_off else [])]):
        sampled = part.loc[(part["sample"] >= 0) & ~part["prompt_id"].isin(list(without))]
        if cut_off:
            kept = sampled[scorer].where(sampled["finish_reason"] != CUT_OFF)
            sampled = sampled.assign(**{scorer: kept})
        own = sampled.groupby("prompt_id", sort=False)[scorer]
        groups += [group.to_numpy(dtype=np.float64) for _, group in own]
    if all(np.isnan(group).all() for group in groups):
        return []
    return groups if len({len(group) for group in groups}) == 1 else []


def enough(groups: Sequence[np.ndarray]) -> bool:
    """Whether an interval of a mean exists: two draws of each question, and four in all (`lethe.statistics.comparison`)."""
    return bool(groups) and len(groups[0]) >= 2 and len(groups) * len(groups[0]) >= 4


def judges(scorer: str | None, models: list[Model]) -> bool:
    """Whether a scorer judged the forget answers of at least one model, and gave only 0 and 1 to those of every model."""
    judged = False
    if scorer is None:
        return False
    for model in models:  # the scores of one model in memory at a time
        for group in scored(model, "forget", scorer):
            if not np.isin(group[~np.isnan(group)], (0.0, 1.0)).all():
                return False
            judged = True
    return judged


def unjudged(model: Model) -> list[str]:
    """The forget questions that the 0/1 scorer cannot judge, because they have no keywords."""
    if not any(row.value("m_bin") is not None for row in model.questions):
        return []  # there is no 0/1 scorer, or all questions stopped early
    return [row.prompt_id for row in model.questions if row.value("m_bin") is None]
