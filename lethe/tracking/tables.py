"""The tables of a model's run, as MLflow shows and compares them: its metrics, its questions, its worst answers.

Questions and answers are untrusted text. MLflow shows the cells of a table as plain text; invisible characters are named
here, and long texts are cut, so that no cell can pass for another.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from lethe.comparison.over_seeds import OverSeeds
from lethe.comparison.ranking import Ranking
from lethe.io.artifacts import Row, expected, read_items, read_references
from lethe.io.files import Json
from lethe.measure.answers import AnswerTables, question_answers
from lethe.measure.answers import worst_answers as worst_most
from lethe.results import table
from lethe.results.ends import SAME_DRAWS
from lethe.results.exact_bounds import certificates_of
from lethe.results.quantities import QUESTION
from lethe.results.table import Results
from lethe.statistics.bound import Bound
from lethe.statistics.leak_trees import AnswerTree
from lethe.text import LONGEST, named
from lethe.tracking.entries import Pipeline, RunEntry


def of(entry: RunEntry, workspace: Path) -> dict[str, pd.DataFrame]:
    """The tables of one run by the name of their file; a table whose artifacts are missing is left out.

    ``workspace`` is the folder that holds params.yaml and data/.
    """
    tables = {"metrics.json": metrics(entry)}
    if entry.kind == "model":
        tables["questions.json"] = questions(entry, workspace)
        tables["worst_answers.json"] = worst_answers(entry, workspace)
        tables["heaviest_leaks.json"] = heaviest_leaks(entry.name, workspace)
        tables["leak_at.json"] = leaks_at(entry.name, workspace)
    return {name: table for name, table in tables.items() if len(table)}


def models(pipeline: Pipeline) -> pd.DataFrame:
    """A row per model, audit and game: its words and its headline numbers."""
    rows = []
    for entry in pipeline.entries:
        words = {"model": entry.name, "verdict": entry.standing or entry.kind}
        rows.append(words | entry.headlines)
    return pd.DataFrame(rows)


def rankings(pipeline: Pipeline) -> dict[str, pd.DataFrame]:
    """The ranks of the models under test and every pair of them, by the name of their file; none without a ranking."""
    ranking = Ranking.among(pipeline.compared)
    if ranking is None:
        return {}
    contents = {"ranks.json": ranking.table(), "pairs.json": ranking.pair_table()}
    tables = {}
    for name, (columns, rows) in contents.items():
        if rows:
            tables[name] = pd.DataFrame(rows, columns=columns)
    return tables


def methods(pipeline: Pipeline) -> dict[str, pd.DataFrame]:
    """The methods over their seeds and every two of them, by the name of their file; none without several seeds."""
    found = OverSeeds(pipeline.compared)
    if not found:
        return {}
    rows = []
    for title in found.titles:
        cells = {name: found.cell(title, name) for name in found.names}
        rows.append({"method": title, **cells, "words": found.words(title)})
    tables = {"methods.json": pd.DataFrame(rows)}

    columns, pairs = found.pair_table()
    if pairs:
        tables["method_pairs.json"] = pd.DataFrame(pairs, columns=columns)
    return tables


def metrics(entry: RunEntry) -> pd.DataFrame:
    """A row per number of an entry, with what its guarantee says; the facts of a number without one are empty."""
    rows = []
    for key, value in entry.numbers.items():
        row = {"metric": key, "value": shown(entry, key), "exact": value}
        guarantee: Mapping[str, Json] = {}
        bound = entry.bounds.get(key)
        if bound is not None:
            guarantee = bound.guarantee_dict()
        for fact in ("side", "alpha", "covers", "assumes", "method"):
            row[fact] = guarantee.get(fact)
        rows.append(row)
    return pd.DataFrame(rows)


def shown(entry: RunEntry, key: str) -> str:
    """A number of the entry in a few digits; empty if the entry has no number of this name."""
    if key not in entry.numbers:
        return ""
    return worded(entry.numbers[key], entry.bounds.get(key))


def worded(value: float, bound: Bound | None) -> str:
    """A number in a few digits; one that has the guarantee of ``bound`` is rounded away from its claim."""
    if bound is None:
        return f"{value:.4g}"
    return replace(bound, value=value).significant()


def questions(entry: RunEntry, workspace: Path) -> pd.DataFrame:
    """A row per forget question, the one that may leak most first.

    The columns are the id, the text, and a column a number under its name in the vocabulary. The numbers of leaks stand
    before the others, and a number that no question has is left out.
    """
    asked = _asked(workspace)
    measured = Results({entry.name: entry.rows}).questions(entry.name)
    rows = []
    for item, numbers in measured.items():
        row: dict[str, object] = {"prompt_id": plain(item), "question": _question(asked, item)}
        for key, value in numbers.values.items():
            row[key] = plain(value) if isinstance(value, str) else value
        rows.append(row)
    table = pd.DataFrame(rows).dropna(axis="columns", how="all")

    uppers = [name for name in (*_uppers("leak"), *_uppers("score")) if name in table]
    if uppers:
        table = table.sort_values(uppers, ascending=False, kind="stable")

    before_others = {"prompt_id", "question", *_names("leak")}
    first = [key for key in table if key in before_others]
    others = [key for key in table if key not in first]
    return table[first + others].reset_index(drop=True)


def _names(quantity: str) -> list[str]:
    """The names of all numbers of a quantity of a question: estimates and ends."""
    return [name for row in QUESTION if row.key == quantity for name in row.names if name]


def _uppers(quantity: str) -> list[str]:
    """The names of the upper ends of a quantity that all questions have by the same draws, the last of them first."""
    uppers = []
    for row in reversed(QUESTION):
        if row.key == quantity and row.basis in SAME_DRAWS:
            uppers.append(row.names[2])
    return uppers


def worst_answers(entry: RunEntry, workspace: Path) -> pd.DataFrame:
    """For each forget question, the sampled answer with the highest score; the highest of all questions comes first.

    The 0/1 score decides, then the score whose distribution is bounded; among equals the answer drawn most often. An
    answer that scores 0 throughout is left out, and so is one that was not judged; ``answers`` counts all draws.
    """
    drawn = workspace / "data" / "generations" / entry.name / "forget.parquet"
    scored = workspace / "data" / "scores" / entry.name / "forget.parquet"
    if not (drawn.is_file() and scored.is_file()):
        return pd.DataFrame()

    tables = AnswerTables({"forget": (drawn, scored)})
    columns = tables.columns("forget")
    stated = (entry.params.get("metrics.binary"), entry.params.get("metrics.leak"))
    scorers = [name for name in stated if name is not None and name in columns]
    if not scorers:
        return pd.DataFrame()

    references = read_references(drawn.parent)
    asked = _asked(workspace)
    of_question = question_answers(tables, scorers, scorers[-1], most=1) or {}
    rows = []
    for worst in worst_most(of_question.values(), len(of_question)):
        item = worst.prompt_id
        row: dict[str, object] = {
            "question": _question(asked, item),
            "worst_answer": plain(worst.text),
            "expected": "",
        }
        if item in asked:
            row["expected"] = plain(expected(asked[item], references))
        row |= zip(scorers, worst.scores, strict=True)
        row["drawn"] = worst.times
        row["answers"] = of_question[item].drawn
        row["greedy_too"] = worst.greedy
        row["prompt_id"] = plain(item)
        rows.append(row)
    return pd.DataFrame(rows)


def plain(text: str) -> str:
    """A text with the names of invisible characters in their places, cut after `LONGEST` characters.

    >>> plain("left\\u202eright")
    'left<U+202E>right'
    """
    visible = []
    for character in text[:LONGEST]:
        name = named(character) or character
        visible.append(name if len(name) == 1 else f"<{name}>")
    if len(text) > LONGEST:
        visible.append(f" … cut here: {len(text):,} characters in all")
    return "".join(visible)


def heaviest_leaks(name: str, workspace: Path) -> pd.DataFrame:
    """A row per question and leaking text, the likeliest first; empty without exact bounds."""
    rows: list[dict[str, Any]] = []
    for question, tree in _trees(name, workspace):
        for leak in tree.heaviest_leaks:
            row = {
                "question": question,
                "leak": plain(leak.text),
                "probability": leak.probability,
                "leaks_at_least": tree.bounds["lower"].significant(),
                "leaks_at_most": tree.bounds["upper"].significant(),
                "prompt_id": plain(tree.id),
            }
            rows.append(row)
    rows.sort(key=lambda row: row["probability"], reverse=True)
    return pd.DataFrame(rows)


def leaks_at(name: str, workspace: Path) -> pd.DataFrame:
    """A row per question, the worst first: queries until an even chance of a leak, and leak@N from and to.

    No number of queries stands where a leak may never come.
    """
    rows = []
    worst_first = sorted(_trees(name, workspace), key=lambda pair: -pair[1].lower)
    for question, tree in worst_first:
        row: dict[str, object] = {"question": question}
        fewest, most = tree.queries_until_half
        row["queries_from"] = fewest if math.isfinite(fewest) else None
        row["queries_to"] = most if math.isfinite(most) else None
        for n, (low, high) in tree.leak_at.items():
            row[f"leak@{n} from"] = low
            row[f"leak@{n} to"] = high
        row["prompt_id"] = plain(tree.id)
        rows.append(row)
    return pd.DataFrame(rows)


def _trees(name: str, workspace: Path) -> list[tuple[str, AnswerTree]]:
    """The questions of a model with exact bounds, and their answer trees."""
    path = table.place(workspace / "data", "exact", name)
    if not path.is_file():
        return []
    results = table.Results({name: tuple(table.read_rows(path))})
    exact = certificates_of(results, name)
    if not exact:
        return []
    asked = _asked(workspace)
    return [(_question(asked, tree.id), tree) for tree in exact.trees]


def _asked(workspace: Path) -> dict[str, Row]:
    """The forget rows by id; empty where the workspace has no dataset."""
    data = workspace / "data"
    if not (data / "dataset" / "forget.jsonl").is_file():
        return {}
    return read_items("forget", data)


def _question(asked: Mapping[str, Row], item: str) -> str:
    """The text of a question; empty where the dataset does not have it."""
    if item not in asked:
        return ""
    return plain(asked[item]["question"])
