"""`lethe.bounds`: bounds on the whole output distribution from scores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.result import Measurement
from lethe.errors import BadInput
from lethe.evaluation.measure_settings import SHARE_ABOVE, THRESHOLDS, MeasureSettings
from lethe.evaluation.prompt_scores import Missing, Scores
from lethe.evaluation.prompts import PromptMeasures, measure_prompts
from lethe.statistics.judge_error import Calibration

if TYPE_CHECKING:
    import pandas as pd

    from lethe.evaluation.prompt_scores import PromptScores
    from lethe.results.table import Result
    from lethe.statistics.many_prompts import Together


@dataclass(frozen=True, repr=False)
class Bounds(PromptMeasures, Measurement):
    """The result of `bounds`: the measures of each prompt and of all prompts."""

    __repr__, __str__ = Measurement.__repr__, Measurement.__str__

    def rows(self) -> list[Result]:
        """Return the rows of each prompt, of the worst prompt and of the average."""
        from lethe.evaluation.score_files import rows_of

        return rows_of("scores", self)


def bounds(
    scores: Scores | pd.DataFrame | str | os.PathLike[str],
    alpha: float = 0.01,
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    missing: Missing | None = None,
    together: Together = "none",
    share_above: float = SHARE_ABOVE,
    calibration: Calibration | str | os.PathLike[str] | None = None,
) -> Bounds:
    """Bound the leakage of each prompt, of the worst prompt and of the average, from the scores of sampled answers.

    Parameters
    ----------
    scores : array, list, dict, pandas.DataFrame or path
        Scores in [0, 1] of independent answers, in sampling order: n of one prompt, an array (prompts, n), the scores
        by prompt, a table with the column ``score`` and optionally ``prompt_id`` and ``sample`` (sample -1, the greedy
        answer, is left out), or a file with such a table.
    alpha : float
        The probability with which each bound may fail, above 0 and at most 0.5.
    thresholds : list of float
        Each x at which the share of answers with a score above x is bounded.
    missing : {None, "worst", "drop"}
        The treatment of a missing score (NaN): refused, counted against each bound, or left out.
    together : {"none", "bonferroni", "holm"}
        The correction for statements about all prompts together.
    share_above : float
        The threshold: prompts whose bound exceeds it are counted, and ``together`` certifies prompts under it.
    calibration : Calibration or path, optional
        The error of the judge that gave the scores: counts, or a file with the columns ``label`` (of a person) and
        ``verdict`` (of the judge). The attribute ``judged`` of the result then bounds the true leak probability.

    Returns
    -------
    Bounds
        ``worst()``, ``pooled`` and ``prompts`` hold `Bound` objects; ``to_frame()`` has one row per prompt,
        ``to_results()`` one row per quantity, and ``sentences()`` the guarantees in words.

    Raises
    ------
    BadInput
        If a score is outside [0, 1], a score is missing and ``missing`` is None, or there is no score.

    Notes
    -----
    Each bound of a prompt holds by itself with probability 1 - alpha, assuming independent draws for the prompt.
    The bounds assume nothing about the distribution. The largest bound covers the worst prompt without a correction.

    Examples
    --------
    >>> import lethe
    >>> found = lethe.bounds([0] * 97 + [1] * 3, alpha=0.05)
    >>> print(found.worst().bound.significant())
    0.07572
    >>> found.to_frame()[["prompt_id", "n", "mean"]].to_dict("records")
    [{'prompt_id': 'all', 'n': 100, 'mean': 0.03}]

    Several prompts, and the prompts that are certified together:

    >>> found = lethe.bounds({"ada": [0] * 400, "bo": [0, 1] * 200}, together="holm")
    >>> found.together.certified
    ('ada',)
    """
    settings = MeasureSettings(
        alpha=alpha,
        thresholds=thresholds,
        missing=missing,
        together=together,
        share_above=share_above,
        calibration=calibration_of(calibration, missing),
    )
    if isinstance(scores, (str, os.PathLike)):
        from lethe.evaluation.score_files import measure_file, read_scores

        found = measure_file(read_scores(Path(scores), missing), settings)
    else:
        found = measure_prompts(_of_table(scores, missing) if hasattr(scores, "columns") else scores, settings)
    return Bounds(found.settings, found.prompts, found.together)


def calibration_of(
    given: Calibration | str | os.PathLike[str] | None, missing: Missing | None
) -> Calibration | None:
    """Return the judge's error as counts; ``missing`` is the treatment of a missing verdict in a file."""
    if given is None or isinstance(given, Calibration):
        return given
    from lethe.io.calibration import read_calibration

    answers = read_calibration(given, missing or "refuse")
    return Calibration.of(answers.labels, answers.verdicts)


def _of_table(table: pd.DataFrame, missing: Missing | None) -> Sequence[PromptScores]:
    """Return the prompts in the order of their first rows, and the scores of each in the order of the rows."""
    from lethe.evaluation.prompt_scores import ALL, as_prompts
    from lethe.sampling.engine import GREEDY

    if "score" not in table:
        columns = ", ".join(map(str, table.columns)) or "none"
        raise BadInput(
            f"scores: the table has no column 'score'; its columns are {columns}. Rename the column of scores."
        )
    drawn = table[table["sample"] != GREEDY] if "sample" in table else table
    if "prompt_id" not in drawn:
        return as_prompts({ALL: drawn["score"].to_numpy()}, missing)
    groups = drawn.groupby("prompt_id", sort=False, dropna=False)["score"]
    return as_prompts({str(name): own.to_numpy() for name, own in groups}, missing)
