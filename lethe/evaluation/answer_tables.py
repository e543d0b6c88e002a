"""The answers of one model joined with their scores, read from disk a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.io.parts import columns_of, joined_parts, same_answers

if TYPE_CHECKING:
    import pandas as pd


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
