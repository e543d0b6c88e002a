"""The tables of a model's run, as MLflow shows and compares them: its metrics, its questions, its worst answers.

Questions and answers are untrusted text. MLflow shows the cells of a table as plain text; invisible characters are named
here, and long texts are cut, so that no cell can pass for another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.io.artifacts import GREEDY, expected, read_references
from lethe.io.json_files import read_jsonl
from lethe.io.parts import columns_of, joined_parts
from lethe.results import table
from lethe.results.ends import SAME_DRAWS
from lethe.results.exact_bounds import certificates_of
from lethe.results.quantities import QUESTION
from lethe.results.table import Results
from lethe.statistics.bound import Bound
from lethe.statistics.leak_trees import AnswerTree
from lethe.text import LONGEST, named
from lethe.tracking.entries import Entry, Pipeline

if TYPE_CHECKING:
    import pandas as pd

METRICS, QUESTIONS, ANSWERS, MODELS = "metrics.json", "questions.json", "worst_answers.json", "models.json"


def of(entry: Entry, workspace: Path) -> dict[str, pd.DataFrame]:
    """The tables of one run by the name of their file; a table whose artifacts are missing is left out."""
    found = {METRICS: metrics(entry)}
    if entry.kind == "model":
        found[QUESTIONS] = questions(entry, workspace)
        found[ANSWERS] = worst_answers(entry, workspace)
        found[LEAKS] = heaviest_leaks(entry.name, workspace, plain)
        found[QUERIES] = leaks_at(entry.name, workspace, plain)
    return {name: table for name, table in found.items() if len(table)}


def models(pipeline: Pipeline) -> pd.DataFrame:
    """A row per run of the pipeline, in the order of dvc.lock."""
    import pandas as pd

    return pd.DataFrame(
        [
            {"model": entry.name, "verdict": entry.standing or entry.kind, **entry.metrics}
            for entry in pipeline.entries
        ]
    )


def metrics(entry: Entry) -> pd.DataFrame:
    """Every measured number, and the guarantee of each bound."""
    import pandas as pd

    rows = []
    for key, value in entry.numbers.items():
        bound = entry.bounds.get(key)
        guarantee = bound.guarantee_dict() if bound else {}
        told = {name: guarantee.get(name) for name in ("side", "alpha", "covers", "assumes", "method")}
        rows.append({"metric": key, "value": shown(entry, key), "exact": value, **told})
    return pd.DataFrame(rows)


def shown(entry: Entry, key: str) -> str:
    """A number of the entry in a few digits; empty if the entry has no number of this name."""
    return worded(entry.numbers[key], entry.bounds.get(key)) if key in entry.numbers else ""


def worded(value: float, bound: Bound | None) -> str:
    """A number in a few digits; one that has the guarantee of ``bound`` is rounded away from its claim."""
    return replace(bound, value=value).significant() if bound else f"{value:.4g}"


def questions(entry: Entry, workspace: Path) -> pd.DataFrame:
    """A row per forget question, the one that may leak most first; the numbers of leaks stand before the others."""
    import pandas as pd

    asked = workspace / "data" / "dataset" / "forget.jsonl"
    texts = {row["id"]: row.get("question", "") for _, row in read_jsonl(asked)} if asked.is_file() else {}
    found = Results({entry.name: entry.rows}).questions(entry.name)
    rows = [
        {
            "prompt_id": plain(item),
            "question": plain(str(texts.get(item, ""))),
            **{key: _cell(value) for key, value in numbers.values.items()},
        }
        for item, numbers in found.items()
    ]
    table = pd.DataFrame(rows).dropna(axis="columns", how="all")
    uppers = [name for row in reversed(QUESTION) if row.basis in SAME_DRAWS and (name := row.names[2]) in table]
    by = [name for kind in ("leak", "score") for name in uppers if name in _names(kind)]
    table = table.sort_values(by, ascending=False, kind="stable") if by else table
    first = [key for key in table if key in ("prompt_id", "question", *_names("leak"))]
    return table[[*first, *(key for key in table if key not in first)]].reset_index(drop=True)


def _names(quantity: str) -> list[str]:
    """The exported names of one quantity of a question, of every basis."""
    return [name for row in QUESTION if row.key == quantity for name in row.names if name]


def worst_answers(entry: Entry, workspace: Path) -> pd.DataFrame:
    """For each forget question, the sampled answer with the highest score; the highest of all questions comes first.

    The 0/1 score decides, then the score whose distribution is bounded; among equals the answer drawn most often. An
    answer that scores 0 throughout is left out, and so is one that was not judged.
    """
    import pandas as pd

    data = workspace / "data"
    drawn, scores = (data / kind / entry.name / "forget.parquet" for kind in ("generations", "scores"))
    asked = data / "dataset" / "forget.jsonl"
    if not (drawn.is_file() and scores.is_file()):
        return pd.DataFrame()
    named = [entry.params.get(f"metrics.{name}") for name in ("binary", "leak")]
    known = columns_of(scores)
    scorers = [name for name in named if name is not None and name in known]
    if not scorers:
        return pd.DataFrame()
    references = read_references(drawn.parent)
    questions = [row for _, row in read_jsonl(asked)] if asked.is_file() else []
    rows = {row["id"]: {**row, "answer": expected(row, references)} for row in questions}
    parts = [_worst_of(part, scorers) for part in joined_parts(drawn, scores, ["text", *scorers])]
    ranked = pd.concat(parts, ignore_index=True).sort_values(
        [*scorers, "drawn"], ascending=False, kind="stable", na_position="last"
    )
    return pd.DataFrame(
        {
            "question": _told(rows, ranked["prompt_id"], "question"),
            "worst_answer": [plain(text) for text in ranked["text"]],
            "expected": _told(rows, ranked["prompt_id"], "answer"),
            **{name: ranked[name].to_numpy() for name in (*scorers, "drawn", "answers", "greedy_too")},
            "prompt_id": [plain(key) for key in ranked["prompt_id"]],
        }
    )


def _worst_of(table: pd.DataFrame, scorers: list[str]) -> pd.DataFrame:
    """The worst answer of each question of a part, with the number of its draws and of the question's answers."""
    import pandas as pd

    greedy = table[table["sample"] == GREEDY].set_index("prompt_id")["text"]
    sampled = table[table["sample"] != GREEDY].dropna(subset=scorers, how="all")
    groups = sampled.groupby(["prompt_id", "text"], sort=False)
    ranked = groups[scorers].first().assign(drawn=groups.size()).reset_index()
    ranked = ranked[(ranked[scorers].fillna(0) > 0).any(axis=1)]
    ranked = ranked.sort_values([*scorers, "drawn"], ascending=False, kind="stable", na_position="last")
    ranked = ranked.drop_duplicates("prompt_id")
    too = [greedy.get(key) == text for key, text in zip(ranked["prompt_id"], ranked["text"], strict=True)]
    answers = ranked["prompt_id"].map(sampled.groupby("prompt_id").size()).astype("int64")
    # a part without a leak has no rows, and must not change the types of the others
    return ranked.assign(answers=answers, greedy_too=pd.Series(too, index=ranked.index, dtype=bool))


def _told(rows: dict[str, dict[str, Any]], ids: pd.Series, key: str) -> list[str]:
    return [plain(str(rows.get(name, {}).get(key, ""))) for name in ids]


def plain(text: str) -> str:
    """An untrusted text in visible characters."""
    said = "".join(_character(character) for character in text[:LONGEST])
    return said + (f" … cut here: {len(text):,} characters in all" if len(text) > LONGEST else "")


def _character(character: str) -> str:
    shown = named(character) or character
    return shown if len(shown) == 1 else f"<{shown}>"


def _cell(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


LEAKS, QUERIES = "heaviest_leaks.json", "leak_at.json"


def heaviest_leaks(name: str, workspace: Path, shown: Callable[[str], str]) -> pd.DataFrame:
    """A row per question and leaking text, the likeliest first; empty without exact bounds."""
    import pandas as pd

    rows = [
        {
            "question": shown(question),
            "leak": shown(leak.text),
            "probability": leak.probability,
            "leaks_at_least": tree.bounds["lower"].significant(),
            "leaks_at_most": tree.bounds["upper"].significant(),
            "prompt_id": shown(tree.id),
        }
        for question, tree in _asked(name, workspace)
        for leak in tree.heaviest_leaks
    ]
    return pd.DataFrame(sorted(rows, key=lambda row: -float(str(row["probability"]))))


def leaks_at(name: str, workspace: Path, shown: Callable[[str], str]) -> pd.DataFrame:
    """A row per question: queries until an even chance of a leak, and leak@N from and to, for every N; the worst first.

    An end that is never reached is an empty cell. The parameters are those of `heaviest_leaks`.
    """
    import pandas as pd

    trees = sorted(_asked(name, workspace), key=lambda pair: -pair[1].lower)
    rows = [
        {
            "question": shown(question),
            "queries_from": _finite(tree.queries_until_half[0]),
            "queries_to": _finite(tree.queries_until_half[1]),
            **{
                f"leak@{n} {end}": value
                for n, band in tree.leak_at.items()
                for end, value in zip(("from", "to"), band, strict=True)
            },
            "prompt_id": shown(tree.id),
        }
        for question, tree in trees
    ]
    return pd.DataFrame(rows)


def _finite(queries: float) -> float | None:
    return queries if math.isfinite(queries) else None


def _asked(name: str, workspace: Path) -> list[tuple[str, AnswerTree]]:
    """The text of each question with its tree; none without exact bounds."""
    path = table.place(workspace / "data", "exact", name)
    found = certificates_of(table.Results({name: tuple(table.read_rows(path))}), name) if path.is_file() else None
    asked = workspace / "data" / "dataset" / "forget.jsonl"
    rows = {row["id"]: row for _, row in read_jsonl(asked)} if asked.is_file() else {}
    return [(str(rows.get(tree.id, {}).get("question", "")), tree) for tree in (found.trees if found else ())]
