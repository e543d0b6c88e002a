"""Stage `score@MODEL`: the scores of every generation, one column per scorer; a missing score is null, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import MissingArtifact
from lethe.io.artifacts import SECOND, read_split, read_tables
from lethe.io.atomic import SCHEMA_VERSION, atomic_folder
from lethe.io.json_files import write_json
from lethe.io.references import read_references
from lethe.io.tables import read_table, write_parquet

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import JudgeEntry, Score


def run(
    name: str,
    score: Score,
    root: Path = Path("data"),
    judges: Mapping[str, JudgeEntry] | None = None,
    kept: Path | None = None,
) -> None:
    """Score ``root/generations/name`` and ``root/likelihood/name``; write ``root/scores/name``.

    The columns of ``judges`` are those of ``root/judged``. A judge among the scorers keeps its verdicts below ``kept``.
    """
    from lethe.progress import progress
    from lethe.scoring._tables import score_answers
    from lethe.scoring.likelihood.table import score_likelihoods

    tables, missing = {}, {}
    generations = read_tables(root / "generations" / name, f"sample@{name}")
    references = read_references(root / "generations" / name)
    for split, drawn in progress(list(generations.items()), f"score {name}", "splits"):
        items = {row["id"]: row for row in read_split(split, root / "dataset")}
        tables[split] = score_answers(drawn, items, score.names, score.params, kept, references)
        for judge in judges or {}:
            place = root / "judged" / judge / name / f"{split}.parquet"
            tables[split] = _joined(tables[split], place, judge, ["prompt_id", "sample"])
        columns = [column for column in tables[split] if column not in ("prompt_id", "sample")]
        missing[split] = {column: int(tables[split][column].isna().sum()) for column in columns}
    likelihoods = {}
    for split, given in read_tables(root / "likelihood" / name, f"likelihood@{name}").items():
        items = {row["id"]: row for row in read_split(split, root / "dataset")}
        likelihoods[split] = score_likelihoods(given, items)
    second = root / "generations" / name / SECOND
    if second.is_file():
        drawn = read_table(second)
        items = {row["id"]: row for row in read_split("forget", root / "dataset")}
        scored = score_answers(drawn, items, score.names, score.params, kept, references)
        prompts = scored.assign(prompt=drawn["prompt"].to_numpy(), production=drawn["production"].to_numpy())
        for judge in judges or {}:
            place = root / "judged" / judge / name / SECOND
            prompts = _joined(prompts, place, judge, ["prompt_id", "prompt", "sample"])
    with atomic_folder(root / "scores" / name) as folder:
        if second.is_file():
            write_parquet(folder / SECOND, prompts)
        for split, table in tables.items():
            write_parquet(folder / f"{split}.parquet", table)
        for split, table in likelihoods.items():
            write_parquet(folder / "likelihood" / f"{split}.parquet", table)
        write_json(
            folder / "about.json",
            {"schema": SCHEMA_VERSION, "scorers": [*score.names, *(judges or ())], "missing": missing},
        )
    print(f"{name}: answers scored:", ", ".join(f"{split} {len(table)}" for split, table in tables.items()))


def _joined(table: pd.DataFrame, place: Path, judge: str, keys: list[str]) -> pd.DataFrame:
    """The scores with the columns of one judge, which its own stage wrote."""
    if not place.is_file():
        raise MissingArtifact(place, f"judge@{judge}")
    return table.merge(read_table(place), on=keys, how="left", validate="one_to_one")
