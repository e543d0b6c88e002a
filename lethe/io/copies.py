"""Which answers of a file are copies of others, by their names or by their texts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import shortened
from lethe.io.column_names import ALONE, columns_of
from lethe.io.ids import as_texts

if TYPE_CHECKING:
    import pandas as pd

# Columns that name an answer, where a table has no `sample`: of two rows that are alike in all columns one is a copy.
NAMES = (
    *("sample_id", "sample_idx", "sample_index", "sample_number", "epoch", "trial", "draw"),
    *("repeat", "repetition", "iteration", "generation_id", "response_id", "request_id"),
    *("completion_id", "answer_id", "message_id", "id", "uuid", "seed"),
)
# Columns of an answer's text.
TEXTS = ("text", "response", "completion", "generation", "output", "reply")
# Columns that say who or what judged an answer, or by what: an answer has a row for each of them.
JUDGING = (
    *("annotator", "annotator_id", "rater", "rater_id", "labeler", "labeller", "labelled_by"),
    *("labeled_by", "worker", "worker_id", "coder", "reviewer", "grader", "evaluator", "scorer"),
    *("judge", "judge_model", "judge_name", "detector", "metric", "criterion", "rubric", "aspect"),
)
# Of a question whose answers count as copies: so many answers, and so many words of their one text. A model that always
# refuses in one sentence, or that answers in a word, draws such copies too; one that does so with another long text for each
# question is not known.
FEWEST_COPIES = 4
FEWEST_WORDS = 8
# Below this probability texts that all stand equally often are no chance: one false alarm in a million honest files.
REFUTED = 1e-6


def copies(table: pd.DataFrame, name: str) -> np.ndarray:
    """Which rows of a table, (rows,), are copies: they repeat the question and the `sample` of an earlier row.

    Without samples they repeat a whole row, whose answer has a name that tells the answers to some question apart (`NAMES`).
    """
    if "sample" in table:
        is_copy: np.ndarray = (
            table.duplicated([name, "sample"]) & table["sample"].notna()
        ).to_numpy()
        return is_copy
    texts = table.apply(as_texts)
    for column in naming(table.columns, name):
        pairs = texts[[name, column]].drop_duplicates()
        if len(pairs) > texts[name].nunique():
            return (texts.duplicated() & table[column].notna()).to_numpy()
    return np.zeros(len(table), dtype=bool)


def copied(table: pd.DataFrame, name: str) -> tuple[str, str]:
    """What is wrong with a row that is a copy, and what to do."""
    if "sample" in table:
        return f"{name} and sample repeat an earlier line", "Leave out the copy."
    remedy = "Leave out the copy, or number the answers to each question in a column 'sample'."
    return "repeats an earlier row in all columns, the name of the answer among them", remedy


def naming(header: Iterable[str], name: str) -> list[str]:
    """The columns of a table without samples that name its answers, beside that of the questions."""
    if "sample" in header:
        return []
    return columns_of((column for column in header if column != name), NAMES, ALONE)


def judging(header: Iterable[str]) -> list[str]:
    """The columns of a table without samples that say who judged its answers."""
    if "sample" in header:
        return []
    return columns_of(header, JUDGING, ALONE)


def judged_twice(
    table: pd.DataFrame, name: str, texts: Iterable[str], score: str = ""
) -> tuple[str, str] | None:
    """Why several rows of a question may judge one answer, and what to do; None where nothing says so.

    They may where the rows of a question are of several people, judges or metrics, and nothing tells the answers apart:
    neither a name of the answer (`NAMES`) nor its text, in one of the columns ``texts``.
    """
    answers = [*naming(table.columns, name), *texts]
    if any(not table[[name, answer]].apply(as_texts).duplicated().any() for answer in answers):
        return None
    for column in judging(table.columns):
        pairs = table.loc[table[column].notna(), [name, column]].apply(as_texts).drop_duplicates()
        several = pairs[pairs.duplicated(name, keep=False)]
        if column in (name, score) or several.empty:
            continue
        values = several.loc[several[name] == several[name].iloc[0], column].tolist()
        named = " and ".join(map(shortened, values[:2]))
        problem = f"rows of a question have {len(values)} values of {column} ({named}), and several may judge one answer"
        remedy = "Give a row for each answer, or number the answers to each question in a column 'sample'."
        return problem, remedy
    return None


def repeated_texts(
    answers: pd.DataFrame, name: str, text: str, setting: str | None = None
) -> str | None:
    """Why the answers of a table are copies by their texts alone, as of a cache or of one seed; None where they are not.

    Parameters
    ----------
    answers
        The rows, (rows,), whose empty texts are left out.
    name, text
        The columns of the questions and of the texts.
    setting
        A setting that repeats an answer on some servers, if the table states one. It did, where all answers to each of the
        questions are the same.
    """
    said = as_texts(answers[text].astype(object).where(answers[text].notna(), ""))
    questions = answers[name]
    if (
        setting
        and len(said) > questions.nunique()
        and (said.groupby(questions).nunique() == 1).all()
    ):
        return f"All answers to each question are the same text, and {setting}"
    said = said[said.str.strip() != ""]
    times_of_text = said.groupby([questions, said], sort=False).size()
    if times_of_text.empty or times_of_text.min() < 2:
        return None
    groups = times_of_text.groupby(level=0, sort=False)
    first = said.groupby(questions, sort=False).first()
    fewest = int(groups.sum().min())
    are_one = bool((groups.size() == 1).all()) and not first.duplicated().any()
    are_long = bool((first.str.split().str.len() >= FEWEST_WORDS).all())
    if are_one and are_long and len(first) > 1 and fewest >= FEWEST_COPIES:
        answered = f"The {fewest} or more answers to each of {len(first)} questions"
        return f"{answered} are one text each time, as from a cache or with one seed"
    if (groups.max() - groups.min() > 1).any():
        return None
    log_chances = map(log_chance_of_even, groups.sum().tolist(), groups.size().tolist())
    if sum(log_chances) > math.log(REFUTED):
        return None
    return (
        "Each answer stands as often as every other one to its question, and twice or more, as where a server stored them "
        "or a log was written twice"
    )


def stand_equally_often(codes: np.ndarray, hashes: np.ndarray) -> bool:
    """Whether all texts of each question stand equally often but for one time, and twice or more, as `repeated_texts` asks.

    ``codes`` names the question of each text and ``hashes`` the text, both (texts,).
    """
    if not len(codes):
        return False
    pairs = np.stack([codes.astype(np.uint64), hashes], axis=1)
    distinct, times = np.unique(pairs, axis=0, return_counts=True)
    starts = np.flatnonzero(np.diff(distinct[:, 0], prepend=-1))
    least = np.minimum.reduceat(times, starts)
    most = np.maximum.reduceat(times, starts)
    return bool((least > 1).all() and (most - least <= 1).all())


def log_chance(several: int, times: int) -> float:
    """The log of a bound on the probability that independent answers are so many texts, each so many ``times``.

    The bound counts each way in which all texts of a question can stand equally often, so that the bounds of many questions
    may be multiplied.
    """
    n = several * times
    ways = sum(n % number == 0 for number in range(2, n + 1))
    return _log_chance_of_counts(n, several) + math.log(ways)


def log_chance_of_even(n: int, several: int) -> float:
    """As `log_chance`, that n answers are so many texts of which none stands more than once oftener than another.

    Each text stands twice or more. A store that is read in turn brings such counts, whenever it is asked no more.
    """
    return _log_chance_of_counts(n, several) + math.log(n // 2)


def _log_chance_of_counts(n: int, several: int) -> float:
    """The log of a bound on the probability of one way in which n answers are so many texts, equally often but for one time.

    Of two texts whose probabilities have a fixed sum this probability is convex in the product of the two, so it is largest
    where they are equal or one is 0: the answers are then equally probable, and more may exist than came.
    """
    if several == 1:
        return 0.0
    times, more = divmod(n, several)
    orders = math.lgamma(n + 1) - several * math.lgamma(times + 1) - more * math.log(times + 1)
    orders += _log_choices(several, more)
    most = -math.inf
    for texts in itertools.count(several):
        chance = _log_choices(texts, several) + orders - n * math.log(texts)
        if chance < most:
            break
        most = chance
    return most


def _log_choices(several: int, chosen: int) -> float:
    return math.lgamma(several + 1) - math.lgamma(chosen + 1) - math.lgamma(several - chosen + 1)
