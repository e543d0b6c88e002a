"""The tables of a model's run, as MLflow shows and compares them: its metrics, its questions, its worst answers.

Questions and answers are untrusted text. MLflow shows the cells of a table as plain text; invisible characters are named
here, and long texts are cut, so that no cell can pass for another.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lethe.io.artifacts import Row, expected, read_items, read_references
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
from lethe.tracking.entries import Entry, Pipeline


def of(entry: Entry, workspace: Path) -> dict[str, pd.DataFrame]:
    """The tables of one run by the name of their file; a table whose artifacts are missing is left out."""
    tables = {"metrics.json": metrics(entry)}
    if entry.kind == "model":
        tables["questions.json"] = questions(entry, workspace)
        tables["worst_answers.json"] = worst_answers(entry, workspace)
        tables["heaviest_leaks.json"] = heaviest_leaks(entry.name, workspace)
        tables["leak_at.json"] = leaks_at(entry.name, workspace)
    return {name: table for name, table in tables.items() if len(table)}


def models(pipeline: Pipeline) -> pd.DataFrame:
    rows = [
        {"model": one.name, "verdict": one.standing or one.kind, **one.metrics}
        for one in pipeline.entries
    ]
    return pd.DataFrame(rows)


def metrics(entry: Entry) -> pd.DataFrame:
    rows = []
    for key, value in entry.numbers.items():
        bound = entry.bounds.get(key)
        guarantee = bound.guarantee_dict() if bound else {}
        facts = {
            name: guarantee.get(name) for name in ("side", "alpha", "covers", "assumes", "method")
        }
        rows.append({"metric": key, "value": shown(entry, key), "exact": value, **facts})
    return pd.DataFrame(rows)


def shown(entry: Entry, key: str) -> str:
    """A number of the entry in a few digits; empty if the entry has no number of this name."""
    return worded(entry.numbers[key], entry.bounds.get(key)) if key in entry.numbers else ""


def worded(value: float, bound: Bound | None) -> str:
    """A number in a few digits; one that has the guarantee of ``bound`` is rounded away from its claim."""
    return replace(bound, value=value).significant() if bound else f"{value:.4g}"


def questions(entry: Entry, workspace: Path) -> pd.DataFrame:
    """A row per forget question, the one that may leak most first; the numbers of leaks stand before the others."""
    asked = _asked(workspace)
    measured = Results({entry.name: entry.rows}).questions(entry.name)
    rows = [
        {
            "prompt_id": plain(item),
            "question": _question(asked, item),
            **{
                key: plain(own) if isinstance(own, str) else own
                for key, own in numbers.values.items()
            },
        }
        for item, numbers in measured.items()
    ]
    table = pd.DataFrame(rows).dropna(axis="columns", how="all")
    uppers = [
        name
        for row in reversed(QUESTION)
        if row.basis in SAME_DRAWS and (name := row.names[2]) in table
    ]
    by = [name for kind in ("leak", "score") for name in uppers if name in _names(kind)]
    table = table.sort_values(by, ascending=False, kind="stable") if by else table
    first = [key for key in table if key in ("prompt_id", "question", *_names("leak"))]
    return table[[*first, *(key for key in table if key not in first)]].reset_index(drop=True)


def _names(quantity: str) -> list[str]:
    return [name for row in QUESTION if row.key == quantity for name in row.names if name]


def worst_answers(entry: Entry, workspace: Path) -> pd.DataFrame:
    """For each forget question, the sampled answer with the highest score; the highest of all questions comes first.

    The 0/1 score decides, then the score whose distribution is bounded; among equals the answer drawn most often. An
    answer that scores 0 throughout is left out, and so is one that was not judged; ``answers`` counts all draws.
    """
    files = tuple(
        workspace / "data" / kind / entry.name / "forget.parquet"
        for kind in ("generations", "scores")
    )
    if not all(file.is_file() for file in files):
        return pd.DataFrame()
    tables = AnswerTables({"forget": (files[0], files[1])})
    named = [entry.params.get(f"metrics.{name}") for name in ("binary", "leak")]
    scorers = [name for name in named if name is not None and name in tables.columns("forget")]
    if not scorers:
        return pd.DataFrame()
    references, asked = read_references(files[0].parent), _asked(workspace)
    drawn = question_answers(tables, scorers, scorers[-1], 1) or {}
    rows = [
        {
            "question": _question(asked, worst.prompt_id),
            "worst_answer": plain(worst.text),
            "expected": plain(
                expected(asked[worst.prompt_id], references) if worst.prompt_id in asked else ""
            ),
            **dict(zip(scorers, worst.scores, strict=True)),
            "drawn": worst.times,
            "answers": drawn[worst.prompt_id].drawn,
            "greedy_too": worst.greedy,
            "prompt_id": plain(worst.prompt_id),
        }
        for worst in worst_most(drawn.values(), len(drawn))
    ]
    return pd.DataFrame(rows)


def plain(text: str) -> str:
    names = (named(character) or character for character in text[:LONGEST])
    visible = "".join(name if len(name) == 1 else f"<{name}>" for name in names)
    return visible + (
        f" … cut here: {len(text):,} characters in all" if len(text) > LONGEST else ""
    )


def heaviest_leaks(name: str, workspace: Path) -> pd.DataFrame:
    """A row per question and leaking text, the likeliest first; empty without exact bounds."""
    rows = [
        {
            "question": question,
            "leak": plain(leak.text),
            "probability": leak.probability,
            "leaks_at_least": tree.bounds["lower"].significant(),
            "leaks_at_most": tree.bounds["upper"].significant(),
            "prompt_id": plain(tree.id),
        }
        for question, tree in _trees(name, workspace)
        for leak in tree.heaviest_leaks
    ]
    return pd.DataFrame(sorted(rows, key=lambda row: -float(str(row["probability"]))))


def leaks_at(name: str, workspace: Path) -> pd.DataFrame:
    """A row per question, the worst first: queries until an even chance of a leak, and leak@N from and to."""
    rows: list[dict[str, object]] = []
    for question, tree in sorted(_trees(name, workspace), key=lambda pair: -pair[1].lower):
        first, last = (
            queries if math.isfinite(queries) else None for queries in tree.queries_until_half
        )
        row: dict[str, object] = {"question": question, "queries_from": first, "queries_to": last}
        for n, (low, high) in tree.leak_at.items():
            row |= {f"leak@{n} from": low, f"leak@{n} to": high}
        rows.append(row | {"prompt_id": plain(tree.id)})
    return pd.DataFrame(rows)


def _trees(name: str, workspace: Path) -> list[tuple[str, AnswerTree]]:
    path = table.place(workspace / "data", "exact", name)
    exact = (
        certificates_of(table.Results({name: tuple(table.read_rows(path))}), name)
        if path.is_file()
        else None
    )
    asked = _asked(workspace)
    return [(_question(asked, tree.id), tree) for tree in (exact.trees if exact else ())]


def _asked(workspace: Path) -> dict[str, Row]:
    there = (workspace / "data" / "dataset" / "forget.jsonl").is_file()
    return read_items("forget", workspace / "data") if there else {}


def _question(asked: Mapping[str, Row], item: str) -> str:
    return plain(asked[item]["question"]) if item in asked else ""
