"""Bounds from a table of labels of random draws, and whether the draws can have been chosen at random."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadFile, BadRow, plural
from lethe.io.artifacts import GREEDY
from lethe.io.tables import file_line, numeric_column, read_table, sample_names
from lethe.results.licence import Source
from lethe.statistics import counts as count_bounds
from lethe.statistics.bound import Bound, Covers, both_ends, significant
from lethe.statistics.random_choice import REFUTED, blind_p_value, uniform_p_value

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Rows


SMALLEST_SHOWN = 1e-12  # a smaller p-value tells a reader no more


@dataclass(frozen=True)
class PromptAnswers:
    """The answers of one prompt that labels may be of.

    Attributes
    ----------
    n
        Their number.
    verdict_of_sample
        The verdict, 1 or 0, by the name of a sample; None without 0/1 verdicts.
    missing
        The number of answers without a verdict.
    unjudged
        The names of those of them that have one.
    dropped
        The number of further answers that were left out.
    lost
        The names of the answers that the file itself states as lost, which have no text to label.
    samples
        The names of all answers; None where they are not known.
    """

    n: int
    verdict_of_sample: Mapping[str, float] | None = None
    missing: int = 0
    unjudged: frozenset[str] = frozenset()
    dropped: int = 0
    lost: frozenset[str] = frozenset()
    samples: frozenset[str] | None = None

    def holds(self, sample: str) -> bool:
        """Whether a name may be that of one of these answers."""
        return self.samples is None or sample in self.samples


def label_rows(
    rows: Rows, path: str | os.PathLike[str], drawn: Mapping[str, PromptAnswers], alpha: float
) -> Source:
    """Add the ends of the leak probability of each labelled prompt, and of the average over all prompts.

    Parameters
    ----------
    path
        A table ``prompt_id, sample, label`` (0 or 1) of random draws.
    drawn
        The answers of each prompt.
    alpha
        The probability that both ends of a prompt, or of the average, fail.

    Returns
    -------
    Source
        What is known of the labels. The average has no ends where they cannot have been chosen at random.

    Raises
    ------
    BadFile
        If there is no label.
    BadRow
        If a label is of another prompt, of the greedy answer, of an answer that the file states as lost or does not hold, or
        is given twice.
    """
    table = _random_labels(path, drawn)
    labels = numeric_column(table, "label", path, words=True)
    names = table["prompt_id"].astype(str).to_numpy()
    lost = _lost(table, drawn)
    assumes = count_bounds.AT_RANDOM
    if any(lost.values()):
        assumes += count_bounds.OF_PRESENT
    if any(answers.dropped for answers in drawn.values()):
        assumes += count_bounds.OF_DROPPED
    how = (assumes, count_bounds.METHOD_AT_RANDOM)

    # Each prompt. Where answers are lost, the bound of their share takes half of the level.
    for name in dict.fromkeys(names.tolist()):
        of_prompt = labels[names == name]
        n_labels = len(of_prompt)
        level = alpha / 2 if lost[name] else alpha
        (lower,), (upper,) = count_bounds.rate_bounds([of_prompt.sum()], [n_labels], level)
        both = count_bounds.with_lost((lower, upper), [lost[name]], [drawn[name].n], level)
        ends = both_ends(*both, alpha, Covers.ONE_PROMPT, *how, n_labels)
        rows.add("question", "leak", "labelled", None, *ends, item=name, split="forget")

    # The average of all prompts.
    ends_of_average: tuple[Bound, ...] = ()
    problem = _not_random(table, drawn, Path(path))
    if problem is None:
        level = alpha / 2 if any(lost.values()) else alpha
        both = count_bounds.random_labels(int(labels.sum()), len(labels), level)
        sizes = [drawn[name].n for name in lost]
        both = count_bounds.with_lost(both, list(lost.values()), sizes, level)
        ends_of_average = both_ends(*both, alpha, Covers.AVERAGE, *how, len(labels))
    rows.add("model", "leak", "labelled", None, *ends_of_average, split="forget")
    return Source(labels_not_random=problem)


def _lost(table: pd.DataFrame, drawn: Mapping[str, PromptAnswers]) -> dict[str, int]:
    """The answers of each prompt that may never have come: those without a verdict and without a label."""
    lost = {name: answers.missing for name, answers in drawn.items()}
    for name, sample in _pairs(table):
        lost[name] -= sample in drawn[name].unjudged
    return lost


def _pairs(table: pd.DataFrame) -> list[tuple[str, str]]:
    """The prompt and the sample of each label."""
    return list(zip(table["prompt_id"].astype(str), table["sample"].astype(str), strict=True))


def _random_labels(
    path: str | os.PathLike[str], drawn: Mapping[str, PromptAnswers]
) -> pd.DataFrame:
    """The checked table of labels, whose samples are named as `lethe.io.tables.sample_names` names them.

    Each kind of wrong row has its sentence; the first row of the first kind is reported.
    """
    table = read_table(path, required=["prompt_id", "sample", "label"], ids=["prompt_id"])
    if table.empty:
        raise BadFile(path, "holds no labels")
    table = table.assign(sample=sample_names(table["sample"]))
    labels = numeric_column(table, "label", path, words=True)
    names = table["prompt_id"].astype(str).to_numpy()
    n_of_prompt = {name: answers.n for name, answers in drawn.items()}
    place_in_prompt = table.groupby("prompt_id").cumcount()
    is_lost = []
    is_unknown = []
    for name, sample in _pairs(table):
        answers = drawn.get(name)
        is_lost.append(answers is not None and sample in answers.lost)
        is_unknown.append(answers is not None and not answers.holds(sample))
    wrong_by_problem = {
        "label must be 0 (no leak) or 1 (leak)": ~np.isin(labels, (0, 1)),
        "prompt_id must be a prompt of the scores": ~np.isin(names, list(drawn)),
        "labels a draw a second time": table.duplicated(["prompt_id", "sample"]).to_numpy(),
        "labels the greedy answer, no random draw": (table["sample"] == str(GREEDY)).to_numpy(),
        "labels an answer that the scores state as lost": np.array(is_lost),
        "labels an answer that the scores do not hold": np.array(is_unknown),
        "labels more draws of the prompt than have scores": (
            place_in_prompt >= table["prompt_id"].map(n_of_prompt)
        ).to_numpy(),
    }
    for problem, wrong in wrong_by_problem.items():
        if wrong.any():
            place = int(np.argmax(wrong))
            cells = [f"{name} {table[name][place]}" for name in ("prompt_id", "sample", "label")]
            raise BadRow(path, file_line(path, place), f"{problem}; got {', '.join(cells)}")
    return table


def _not_random(table: pd.DataFrame, drawn: Mapping[str, PromptAnswers], path: Path) -> str | None:
    """Why the labels cannot be of draws chosen at random; None where nothing refutes it.

    The two tests share `REFUTED`, so that one honest file in a million is refused at most.
    """
    n_of_prompt = Counter(table["prompt_id"].astype(str))
    labels_of_prompt = [n_of_prompt[name] for name in drawn]
    p_value = uniform_p_value(labels_of_prompt)
    if p_value < REFUTED / 2:
        most = max(labels_of_prompt)
        labelled = sum(count > 0 for count in labels_of_prompt)
        return (
            f"{path.name} has {len(table):,} labels, of {labelled} of {plural(len(drawn), 'prompt')} and up to {most:,} of "
            f"one, which a uniform choice of the prompt brings with probability {_at_most(p_value)}"
        )
    p_value = _blind(table, drawn)
    if p_value < REFUTED / 2:
        return (
            f"The labelled answers of {path.name} have other verdicts than all answers, which a choice without sight of the "
            f"verdicts brings with probability {_at_most(p_value)}"
        )
    return None


def _at_most(p_value: float) -> str:
    """A p-value in words, rounded up."""
    return f"at most {significant(max(p_value, SMALLEST_SHOWN), 2, 'upper')}"


def _blind(table: pd.DataFrame, drawn: Mapping[str, PromptAnswers]) -> float:
    """The p-value of labels without sight of the verdicts, by the labelled answers that have a verdict; 1 without any."""
    called = 0
    labelled: list[int] = []
    verdicts: list[int] = []
    n: list[int] = []
    for name, rows in table.groupby(table["prompt_id"].astype(str), sort=False):
        verdict_of_sample = drawn[str(name)].verdict_of_sample or {}
        samples = [sample for sample in rows["sample"].astype(str) if sample in verdict_of_sample]
        if not samples:
            continue
        called += int(sum(verdict_of_sample[sample] for sample in samples))
        labelled.append(len(samples))
        verdicts.append(int(sum(verdict_of_sample.values())))
        n.append(len(verdict_of_sample))
    return blind_p_value(called, labelled, verdicts, n) if n else 1.0
