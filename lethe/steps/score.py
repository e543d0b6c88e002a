"""Stage `score@MODEL`: the scores of every generation, one column per scorer; a missing score is null, never 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import MissingArtifact
from lethe.io.artifacts import NO_TABLES, SECOND, References, read_items, read_references, read_tables
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder, write_text
from lethe.io.json_files import write_json
from lethe.io.parts import (
    KEYS,
    ROWS,
    PromptRows,
    Tables,
    columns_of,
    read_parts,
    refuse_doubles,
    rows_of,
    write_parts,
)
from lethe.io.tables import read_table, write_parquet

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import JudgeEntry, Score

READ = ("prompt_id", "sample", "text", "production")  # the columns of the answers that scores depend on, if there


def run(
    name: str,
    score: Score,
    root: Path = Path("data"),
    judges: Mapping[str, JudgeEntry] | None = None,
    kept: Path | None = None,
) -> None:
    """Score ``root/generations/name`` and ``root/likelihood/name``; write ``root/scores/name``.

    The columns of ``judges`` are those of ``root/judged``. A judge among the scorers keeps its verdicts below ``kept``. The
    answers pass through memory in parts of `lethe.io.parts.ROWS`.
    """
    from lethe.scoring import answers_of
    from lethe.scoring._tables import score_answers
    from lethe.scoring.likelihood import score_likelihoods

    generations = Tables(root / "generations" / name, f"sample@{name}")
    references = read_references(root / "generations" / name)
    likelihoods = {}
    for split, given in read_tables(root / "likelihood" / name, f"likelihood@{name}").items():
        likelihoods[split] = score_likelihoods(given, read_items(split, root))
    second = root / "generations" / name / SECOND
    if second.is_file():
        drawn = read_table(second)
        scored = score_answers(
            answers_of(drawn, score.parts), read_items("forget", root), score.names, score.params, kept, references
        )
        prompts = scored.assign(prompt=drawn["prompt"].to_numpy(), production=drawn["production"].to_numpy())
        for judge in judges or {}:
            place = root / "judged" / judge / name / SECOND
            prompts = _joined(prompts, read_table(_there(place, judge)), place, ("prompt_id", "prompt", "sample"))
    missing: dict[str, Counter[str]] = {}
    rows: dict[str, int] = {}
    with atomic_folder(root / "scores" / name) as folder:
        if second.is_file():
            write_parquet(folder / SECOND, prompts)
        for split, path in generations.paths.items():
            missing[split] = Counter()
            parts = _scored(name, split, path, score, root, judges or {}, kept, references)
            rows[split] = write_parts(folder / f"{split}.parquet", _counted(parts, missing[split]))
        if not likelihoods:
            given_none = (root / "likelihood" / name / NO_TABLES).read_text(encoding="utf-8")
            write_text(folder / "likelihood" / NO_TABLES, given_none)
        for split, table in likelihoods.items():
            write_parquet(folder / "likelihood" / f"{split}.parquet", table)
        write_json(
            folder / "about.json",
            {"schema": SCHEMA_VERSION, "scorers": [*score.names, *(judges or ())], "missing": missing},
        )
    print(f"{name}: answers scored:", ", ".join(f"{split} {count}" for split, count in rows.items()))


def _scored(
    name: str,
    split: str,
    path: Path,
    score: Score,
    root: Path,
    judges: Mapping[str, JudgeEntry],
    kept: Path | None,
    references: References,
) -> Iterator[pd.DataFrame]:
    from lethe.progress import progress
    from lethe.scoring import THINKING, answers_of, thinking_of
    from lethe.scoring._tables import scored_parts

    total, items = -(-rows_of(path) // ROWS), read_items(split, root)
    columns = [column for column in columns_of(path) if column in READ]
    how = (items, score.names, score.params, kept, references)
    parts = scored_parts(lambda: (answers_of(one, score.parts) for one in read_parts(path, columns)), *how)
    if (marks := score.parts) is not None:
        thoughts = scored_parts(lambda: (thinking_of(one, marks) for one in read_parts(path, columns)), *how)
        parts = (
            one.assign(**{name + THINKING: own[name] for name in own if name not in KEYS})
            for one, own in zip(parts, thoughts, strict=True)
        )
    places = {judge: _there(root / "judged" / judge / name / f"{split}.parquet", judge) for judge in judges}
    verdicts = {judge: PromptRows(place) for judge, place in places.items()}
    for part in progress(parts, f"score {name} {split}", f"parts of {ROWS:,} answers", total):
        for judge, place in places.items():
            part = _joined(part, verdicts[judge].of(part["prompt_id"].unique().tolist()), place)
        yield part


def _counted(parts: Iterator[pd.DataFrame], missing: Counter[str]) -> Iterator[pd.DataFrame]:
    for part in parts:
        missing.update({column: int(part[column].isna().sum()) for column in part if column not in KEYS})
        yield part


def _there(place: Path, judge: str) -> Path:
    if not place.is_file():
        raise MissingArtifact(place, f"judge@{judge}")
    return place


def _joined(table: pd.DataFrame, verdicts: pd.DataFrame, place: Path, keys: Sequence[str] = KEYS) -> pd.DataFrame:
    """The scores with the columns of one judge, which its own stage wrote to ``place``."""
    refuse_doubles(place, verdicts, keys)
    return table.merge(verdicts, on=list(keys), how="left")
