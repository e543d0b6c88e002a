"""`lethe.label`: bounds that rest on a person's labels of a run's own answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.result import SHOWN, Measurement, View
from lethe.errors import BadValue, plural
from lethe.evaluation.labels import LabelledMeasures

if TYPE_CHECKING:
    import pandas as pd

    from lethe.evaluation.labels import Labels, Queue
    from lethe.results.table import Result

LABELS = Path("data/labels")
DATASET = Path("data/dataset/forget.jsonl")


@dataclass(frozen=True, repr=False)
class LabelledBounds(LabelledMeasures, Measurement):
    """The result of `label`: the bounds of each question by the labels so far."""

    name: str = "model"

    __repr__, __str__ = Measurement.__repr__, Measurement.__str__

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question: the labelled mass and both ends."""
        import pandas as pd

        ends = {
            "lower": [end.value for end in self.lower],
            "upper": [end.value for end in self.upper],
        }
        return pd.DataFrame({"prompt_id": self.prompt_ids, "mass": self.mass_of, **ends})

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe label --json`."""
        return self.as_dict()

    def rows(self) -> list[Result]:
        """Return the rows of each question and of all."""
        from lethe.results.table import Rows

        rows = Rows(self.name)
        self.to_rows(rows)
        return rows.rows

    def views(self) -> list[View]:
        """The first questions, and the statements on all of them."""
        ends = zip(self.prompt_ids, self.mass_of, self.lower, self.upper, strict=True)
        rows = [[name, mass, lower, upper] for name, mass, lower, upper in ends]
        notes = self.sentences("the questions")
        if len(rows) > SHOWN:
            notes.append(f"{plural(len(rows) - SHOWN, 'more question')}: see --json.")
        return [View(self.name, ["question", "labelled mass", "leak >=", "leak <="], rows[:SHOWN], notes)]


def label(
    answers: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    mass: float = 0.95,
    rest: int = 100,
    dataset: str | os.PathLike[str] | None = None,
    verdicts: str | os.PathLike[str] | None = None,
    column: str | None = None,
    alpha: float = 0.01,
    ask: Callable[[Queue, Labels], None] | None = None,
) -> LabelledBounds:
    """Label the distinct answers of a run, those that cover most of the probability mass first, and bound its leaks.

    Parameters
    ----------
    answers : path
        A folder of data/generations, or a table with `prompt_id`, `text`, optional `sample`.
    labels : path, optional
        The file of labels, kept after each key. [default: data/labels/NAME.jsonl]
    mass : float
        Label until this share of the mass is covered.
    rest : int
        Then label this many random draws of the rest, for the average and to see the judge's error.
    dataset : path, optional
        JSON lines with `id` and `question`. [default: data/dataset/forget.jsonl]
    verdicts : path, optional
        The judge's verdicts: data/judged/JUDGE/MODEL/forget.parquet.
    column : str, optional
        The column of verdicts in that file. [default: the first]
    alpha : float
        Each bound fails with at most this probability.
    ask : callable, optional
        A function of the queue of answers and of the labels, which adds labels (``labels.add``) until
        ``queue.ahead(labels)`` is None or it stops; by default nothing is asked.

    Returns
    -------
    LabelledBounds
        The bounds of the labels so far.

    Notes
    -----
    Keys: y (a leak), n (no leak), u (undo), q (stop; the next call continues). One half of the draws decides what is
    labelled, the other half is counted. With verdicts, random draws of the rest are labelled
    too; they bound the average, and show the judge's error there, on which no bound rests.
    `--json` asks nothing and prints the bounds of the labels so far. `metrics.labels` of params.yaml brings the labels into
    the metrics and the report.

    Examples
    --------
    >>> import lethe
    >>> found = lethe.label("data/generations/mine", labels="none.jsonl", dataset="forget.jsonl")
    >>> found.finished, found.worst[1].value
    (False, 1.0)
    """
    from lethe.evaluation.labels import Queue, measure, read_draws, read_labels

    if column is not None and verdicts is None:
        raise BadValue("column", column, "left out without verdicts")
    if rest < 0:
        raise BadValue("rest", rest, "0 or more")
    place = Path(answers)
    name = place.name if place.is_dir() else place.stem
    known = Path(dataset) if dataset else DATASET if DATASET.is_file() else None
    draws = read_draws(place, known, Path(verdicts) if verdicts else None, column)
    queue = Queue(draws, mass, rest if verdicts else 0)
    given = read_labels(Path(labels) if labels else LABELS / f"{name}.jsonl")
    if ask is not None:
        ask(queue, given)
    return LabelledBounds(**vars(measure(draws, queue, given, alpha)), name=name)
