"""Scores of a file as prompts: of a table, as people have them, or of a log of another tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import BadFile, BadInput, BadRow, MissingColumn, check
from lethe.io import csv_form, ids
from lethe.io.artifacts import GREEDY, at_first, first_rows, record_of_draws
from lethe.io.cells import NoNumber, NumberColumn, numbers_of
from lethe.io.copies import copied, copies
from lethe.io.facts import (
    DOCUMENTED,
    Facts,
    LeakIs,
    named,
    of_column,
    reasons_in,
    says_stopped,
    text_of_questions,
)
from lethe.io.logs import is_log, read_log
from lethe.io.packed import suffix_of
from lethe.io.row_ends import without_end
from lethe.io.row_facts import facts_of_rows
from lethe.io.score_blocks import read_score_rows
from lethe.io.tables import (
    file_line,
    form_name,
    is_ours,
    number_column,
    read_table,
    sample_names,
    with_index,
)
from lethe.measure.log_scores import LogScores, scores_of
from lethe.measure.scores import ALL, Missing, PromptScores, as_prompts, split
from lethe.measure.stated import Stated

if TYPE_CHECKING:
    import pandas as pd


NAME_IT = "Name the column of the questions with --by {0} (in Python by='{0}')."


@dataclass(frozen=True)
class ReadScores:
    """The scores of a file as prompts.

    Attributes
    ----------
    prompts
        In the order of the file.
    stated
        What the file states of them, and of how they were drawn.
    missing
        How a missing score counts: as asked, and "worst" for a log that has some.
    log
        Of a log, the log itself.
    understood
        How the file was read, in words.
    stopped
        Whether a table says that a rule could stop the draws.
    texts
        Of a table, the text of each question that it states, by the question's id.
    """

    prompts: list[PromptScores]
    stated: Stated
    missing: Missing | None = None
    log: LogScores | None = None
    understood: str | None = None
    stopped: bool = False
    texts: Mapping[str, str] = field(default_factory=dict)

    def pointed(self) -> ReadScores:
        """The scores with a leak at their high end: turned where the user says that a low score is a leak."""
        if not self.stated.inverted:
            return self
        turned = [replace(prompt, scores=1 - prompt.scores) for prompt in self.prompts]
        return replace(self, prompts=turned)


def read_any_scores(
    path: Path,
    missing: Missing | None,
    score: str | None = None,
    filter: str | None = None,
    by: str | None = None,
    leak_is: LeakIs | None = None,
) -> ReadScores:
    """Read a table of scores, or a log of another tool, as the content decides.

    Parameters
    ----------
    path
        The file, or the folder of a log.
    missing
        How a missing score counts; None refuses it in a table, and counts it as the worst in a log.
    score
        The score of a log, or the column of a table; None for the first, or the usual one.
    filter
        The filter of an lm-eval log; left out for a table.
    by
        The column of the questions of a table; left out for a log, which names its prompts.
    leak_is
        Which end of the score is a leak, where the user says it.
    """
    if not is_log(path):
        legal = "left out: the file is a table of scores, not an lm-eval log"
        check(filter is None, "--filter", filter, legal)
        return read_scores(path, missing, score, by, leak_is)
    check(by is None, "by", by, "left out: the file is a log, which names its prompts")
    scored = scores_of(read_log(path, filter), score, missing)
    stated = Stated(scored.score, scored.log.facts, leak_is)
    if missing is None and scored.missing:
        missing = "worst"
    understood = f"log of {scored.log.tool}, {scored.score}: 1 = {stated.says}"
    return ReadScores(scored.prompts, stated, missing, scored, understood)


def could_stop(path: Path, read: ReadScores) -> bool:
    """Whether a rule could stop the draws of a table of scores, by its column `stopped` or the record of Lethe's own run."""
    return read.stopped or record_of_draws(path).get("stop") == "sequential"


def read_scores(
    path: Path,
    missing: Missing | None,
    column: str | None = None,
    by: str | None = None,
    leak_is: LeakIs | None = None,
    asks: str = NAME_IT,
) -> ReadScores:
    """Return the prompts of a file in order of first appearance.

    Parameters
    ----------
    path
        A table: CSV with any separator, JSON lines or Parquet, also packed.
    missing
        How a missing score counts: "worst" (as a leak above and as none below), "drop", or None, which refuses it.
    column
        The column of scores in [0, 1]; "A=B" is 1 where the columns A and B agree. Without it the scores are those of
        `score`, or else of the only column that says that a 1 is a leak.
    by
        The column of the questions; by default `prompt_id`.
    leak_is
        Which end of the score is a leak, where the user says it.
    asks
        How the question to the user ends, of a table without `prompt_id` whose other columns repeat.

    Raises
    ------
    BadFile, BadRow
        If there is no such column, no row, a score out of range, or an answer twice.
    """
    read_by_block = _read_by_block(path, missing, column, by, leak_is)
    if read_by_block is not None:
        return read_by_block
    name = by or ids.PROMPT
    table, columns = _table_of_scores(path, column, by)
    column = "=".join(columns)
    stated = Stated(column, facts_of_columns(columns, path), leak_is)
    empty_texts = suffix_of(path) in csv_form.SUFFIXES
    broken = without_end(table.drop(columns=columns), empty_texts=empty_texts)

    # The questions. The agreement of two columns is about all rows, whatever they answer, unless it is called a leak.
    about_all_rows = name not in table and len(columns) > 1 and leak_is is None
    if name not in table:
        if not about_all_rows:
            stated = replace(stated, ids_not_understood=_unused_ids(path, table, columns, asks))
        table = table.assign(**{name: ALL})
    stated = _of_rows(stated, table, name)
    if about_all_rows:
        stated = replace(stated, facts=replace(stated.facts, mixed=None))

    # The scores; that of an answer that no model ended is missing.
    read = [number_column(table, name, path) for name in columns]
    values = _agreement([numbers.values for numbers in read])
    values = np.where(broken, np.nan, values)
    stopped = says_stopped(table)

    # The drawn answers alone.
    lines = np.arange(len(table))
    samples: np.ndarray | None = None
    if "sample" in table:
        table = table.assign(sample=sample_names(table["sample"]))
        lines = np.flatnonzero(table["sample"] != str(GREEDY))
        values = values[lines]
        table = table.iloc[lines]
        samples = table["sample"].to_numpy()
        if table.empty:
            remedy = "Give one row per sampled answer."
            raise BadFile(path, "holds the greedy answers (sample -1) only", remedy)

    _check_cells(_Cells(path, table, values, lines), name, column, missing, broken[lines])
    prompts = _grouped(path, values, table[name], samples, missing, broken[lines])
    understood = _understood(path, prompts, name, stated, read[0])
    texts = text_of_questions(table, name)
    return ReadScores(prompts, stated, missing, understood=understood, stopped=stopped, texts=texts)


def _read_by_block(
    path: Path,
    missing: Missing | None,
    column: str | None,
    by: str | None,
    leak_is: LeakIs | None,
) -> ReadScores | None:
    """As `read_scores`, of a CSV in which nothing is wrong; None for another table."""
    import pandas as pd

    name = by or ids.PROMPT
    score = column or DOCUMENTED
    if "=" in score or at_first(path) is not None:
        return None
    rows = read_score_rows(path, name, score, [score, by] if by else [score])
    if rows is None or (column is None and _of_leaks(rows.header)):
        return None

    # The drawn answers alone; a prompt without any goes.
    codes = rows.codes
    samples = rows.samples
    broken = rows.broken
    values = rows.numbers.values
    labels = np.array(rows.prompts, dtype=object)
    if samples is not None:
        is_drawn = samples != GREEDY
        if not is_drawn.all():
            codes, places = pd.factorize(codes[is_drawn])
            labels = labels[places]
            values = values[is_drawn]
            samples = samples[is_drawn]
            broken = broken[is_drawn]

    # Where something is wrong, the other reader says what.
    is_missing = np.isnan(values)
    if missing is None and is_missing.any():
        return None
    is_legal = is_missing | ((values >= 0) & (values <= 1))
    if not len(values) or not is_legal.all() or _answers_repeat(codes, samples):
        return None
    prompts = split(labels, codes, values, missing, samples, broken)
    if not all(prompt.n for prompt in prompts):
        return None

    stated = Stated(score, facts_of_columns([score], path), leak_is)
    stated = _of_rows(stated, rows.statements, name, rows.times)
    understood = _understood(path, prompts, name, stated, rows.numbers)
    stopped = says_stopped(rows.statements)
    texts = text_of_questions(rows.statements, name)
    return ReadScores(prompts, stated, missing, understood=understood, stopped=stopped, texts=texts)


def _answers_repeat(codes: np.ndarray, samples: np.ndarray | None) -> bool:
    """Whether two rows are the same answer to the same prompt; ``codes`` and ``samples`` are (rows,)."""
    if samples is None:
        return False
    least = int(samples.min())
    span = int(samples.max()) - least + 1
    if span * (int(codes.max()) + 1) >= 2**62:
        keys = np.stack([codes, samples], axis=1)
        return len(np.unique(keys, axis=0)) < len(keys)
    key = codes.astype(np.int64) * span + (samples - least)
    key.sort()
    return bool((key[1:] == key[:-1]).any())


def _table_of_scores(
    path: Path, column: str | None, by: str | None
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a file and its columns of scores; a file without them is asked for the right ones."""
    name = by or ids.PROMPT
    columns = (column or DOCUMENTED).split("=")
    required = [*columns, by] if by else columns
    try:
        table = read_table(path, required=required, ids=[name], optional=["sample"])
    except MissingColumn as error:
        of_leaks = [present for present in error.present if of_column(present) == "leak"]
        if column is None and error.column == DOCUMENTED and len(of_leaks) == 1:
            return _table_of_scores(path, of_leaks[0], by)
        if by == error.column and by not in columns:
            raise MissingColumn(path, by, error.present, ids.NAME_THEM) from None
        refused = _refused_columns(path, error, name, columns)
        if refused is None:
            raise
        raise refused from None
    if table.empty:
        raise BadFile(path, "holds no rows", "Give one row per sampled answer.")
    if column is None:
        _check_one_meaning(path, table)
    if "sample" in table:
        table = first_rows(table, path)
    return table, columns


def _of_leaks(header: Iterable[str]) -> list[str]:
    """The columns but `score` whose name says that a 1 is a leak."""
    return [name for name in header if name != DOCUMENTED and named(name) == "leak"]


def _check_one_meaning(path: Path, table: pd.DataFrame) -> None:
    """Refuse a table whose `score`, which nobody named, is another number than its column of leaks."""
    scores = number_column(table, DOCUMENTED, path).values
    for name in _of_leaks(table.columns):
        try:
            leaks = numbers_of(table[name]).values
        except NoNumber:
            continue  # words, such as what leaked
        if not np.array_equal(scores, leaks, equal_nan=True):
            problem = (
                f"its columns {DOCUMENTED!r} and {name!r} differ, and either may say what leaked"
            )
            raise BadFile(path, problem, f"Name one: --score {DOCUMENTED} or --score {name}.")


def _refused_columns(
    path: Path, error: MissingColumn, name: str, columns: Sequence[str]
) -> BadFile | None:
    """The refusal of a table without the column of scores; None where it lacks another column, or has none to offer."""
    others = [present for present in error.present if present not in (name, "sample", "text")]
    has_texts = "text" in error.present
    if error.column not in columns or not (others or has_texts):
        return None
    score = f"lethe score {path} --scorer keyword_leak --data FORGET.jsonl"
    remedy = f"Score its texts first: {score}"
    if others:
        remedy = f"Name its column of scores: --score {' or '.join(others)}"
    problem = f"no column {error.column!r}; its columns are {', '.join(error.present)}"
    return BadFile(path, problem, f"{remedy}.")


def _unused_ids(
    path: Path | str, table: pd.DataFrame, columns: Sequence[str], asks: str = NAME_IT
) -> str | None:
    """Ask the user where a column repeats, as the names of questions do; say which column else looks like ids."""
    found = ids.candidates(table, columns)
    repeating = [name for name in found if ids.repeats(table[name])]
    if repeating:
        named = ", ".join(map(repr, repeating))
        problem = f"no column {ids.PROMPT!r}, and rows share a value of {named}, as answers to one question do"
        raise BadFile(path, problem, asks.format(repeating[0]))
    if not found:
        return None
    return f"The column {found[0]!r} looks like ids and was not used"


def facts_of_columns(columns: Sequence[str], path: Path | None = None) -> Facts:
    """What a table states of its columns; that two columns agree says that they match."""
    if len(columns) > 1:
        return Facts({"=".join(columns): "match"})
    if path is not None and is_ours(path):
        return Facts(dict.fromkeys(columns, "leak"))
    return Facts({name: of_column(name) for name in columns})


def _of_rows(
    stated: Stated, table: pd.DataFrame, name: str, times: np.ndarray | None = None
) -> Stated:
    """What is stated of scores, with what their rows say: several models, or why nothing can be claimed.

    Each row counts so many ``times``, (rows,), by default once.
    """
    drawn = table
    if "sample" in table:
        is_drawn = (sample_names(table["sample"]) != str(GREEDY)).to_numpy()
        drawn = table[is_drawn]
        if times is not None:
            times = times[is_drawn]
    facts = facts_of_rows(drawn, name, stated.score, times)
    refused = dict.fromkeys((*reasons_in(table), *facts.refused))
    facts = replace(facts, means=stated.facts.means, refused=tuple(refused))
    return replace(stated, facts=facts)


def _agreement(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The values of one column, or 1 where several columns agree."""
    values, *rest = columns
    for other in rest:
        absent = np.isnan(values) | np.isnan(other)
        values = np.where(absent, np.nan, values == other)
    return values


@dataclass(frozen=True)
class _Cells:
    """The scores of a file and their rows; ``lines`` are the places of the rows in the file."""

    path: Path
    table: pd.DataFrame
    values: np.ndarray
    lines: np.ndarray

    def refuse(self, wrong: np.ndarray, problem: str, remedy: str = "") -> None:
        """Raises `BadRow` for the first cell of ``wrong``, (rows,); ``{}`` in the problem stands for its value."""
        if not wrong.any():
            return
        place = int(np.argmax(wrong))
        line = file_line(self.path, int(self.lines[place]))
        raise BadRow(self.path, line, problem.format(self.values[place]), remedy)


def _check_cells(
    cells: _Cells, name: str, column: str, missing: Missing | None, broken: np.ndarray
) -> None:
    """Refuse a missing score without a rule, a score out of range, a missing id, and an answer that stands twice.

    ``broken`` answers, (rows,), are missing because the file says that no model ended them.
    """
    table = cells.table
    values = cells.values
    absent = np.isnan(values)
    if missing is None:
        how = "Say how it counts: --missing worst or --missing drop."
        problem = f"{column} is missing, since the row says that no model ended this answer"
        cells.refuse(broken, problem, how)
        cells.refuse(absent, f"{column} is missing", how)
    is_legal = (values >= 0) & (values <= 1)
    outside = ~absent & ~is_legal
    cells.refuse(outside, f"{column}: got {{}}; must be a number in [0, 1]")
    cells.refuse(table[name].isna().to_numpy(), f"{name} is missing")
    cells.refuse(copies(table, name), *copied(table, name))


def _grouped(
    path: Path,
    values: np.ndarray,
    names: pd.Series,
    samples: np.ndarray | None,
    missing: Missing | None,
    broken: np.ndarray,
) -> list[PromptScores]:
    """The scores by prompt, in the order of the file."""
    import pandas as pd

    codes, labels = pd.factorize(names)
    prompts = split(labels, codes, values, missing, samples, broken)
    empty = [prompt.prompt_id for prompt in prompts if not prompt.n]
    if empty:
        remedy = "Remove the prompt, or use --missing worst."
        raise BadFile(path, f"prompt {empty[0]!r} has no score left", remedy)
    return prompts


def _understood(
    path: Path,
    prompts: Sequence[PromptScores],
    name: str,
    stated: Stated,
    numbers: NumberColumn,
) -> str:
    """How a table was read: its form, the column of its questions, and what a 1 of the score says.

    Example: "semicolon table, question_id as prompt, leaked: yes = leak".
    """
    question = f"{name} as prompt"
    is_without_ids = len(prompts) == 1 and prompts[0].prompt_id == ALL
    if is_without_ids:
        question = "one prompt"
    score = f"{stated.score}: {numbers.word_of_1} = {stated.says}"
    if numbers.form in ("percent", "decimal comma"):
        score += f" ({numbers.form})"
    return f"{form_name(path)}, {question}, {score}"


def as_frame(scores: Any) -> Any:
    """A table of another library, and a series whose index may name the questions, as a frame; other scores as they are.

    The scores of a series are called `score`, unless its name says that a 1 is no leak.
    """
    import pandas as pd

    if hasattr(scores, "to_pandas"):
        return scores.to_pandas()
    if not isinstance(scores, pd.Series) or isinstance(scores.index, pd.RangeIndex):
        return scores
    name = str(scores.name)
    if named(name) in ("leak", "unknown"):
        name = DOCUMENTED
    return scores.to_frame(name)


def of_frame(
    table: pd.DataFrame,
    missing: Missing | None,
    column: str = DOCUMENTED,
    by: str | None = None,
    leak_is: LeakIs | None = None,
) -> ReadScores:
    """As `read_scores`, of a table in memory, for which no line can be named.

    Raises `BadInput` without the column, and `BadFile` for ids that are alike but not equal.
    """
    name = by or ids.PROMPT
    table = with_index(table)
    columns = ", ".join(map(str, table.columns)) or "none"
    if column not in table:
        problem = f"scores: no column {column!r}; its columns are {columns}"
        raise BadInput(f"{problem}. Rename the column of scores.")
    check(by is None or by in table, "by", by, f"one of {columns}")

    # What the columns and rows state.
    stated = Stated(column, facts_of_columns([column]), leak_is)
    if name not in table:
        unused = _unused_ids("scores", table, [column])
        stated = replace(stated, ids_not_understood=unused)
        table = table.assign(**{name: ALL})
    stated = _of_rows(stated, table, name)

    # What is wrong with ids and rows.
    found = ids.alike_in(table[name])
    if found is not None:
        raise BadFile("scores", found.problem(name), ids.REMEDY)
    names = ids.as_text(table[name])
    if names.isna().any():
        raise BadFile("scores", f"{name} is missing in row {int(names.isna().argmax())}")
    table = table.assign(**{name: names})
    is_copy = copies(table, name)
    if is_copy.any():
        wrong, remedy = copied(table, name)
        raise BadFile("scores", f"row {int(is_copy.argmax())}: {wrong}", remedy)

    broken = without_end(table.drop(columns=column), empty_texts=False)
    if broken.any():
        table = table.assign(**{column: table[column].where(~broken)})
    drawn = table
    if "sample" in table:
        drawn = table[sample_names(table["sample"]) != str(GREEDY)]
    groups = drawn.groupby(name, sort=False)[column]
    scores = {str(prompt): values.to_numpy() for prompt, values in groups}
    return ReadScores(as_prompts(scores, missing), stated, missing)
