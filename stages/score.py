"""Stage `score@MODEL`: every generation against its question's answer, a column a scorer; missing is null, never 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stages import params
from stages.artifacts import SCHEMA_VERSION, atomic_folder, read_split, read_tables, write_json, write_parquet
from stages.entry import run_stage


def main(name: str) -> None:
    run(name, params.load().score)


def run(name: str, score: Any, root: Path = Path("data")) -> None:
    """Score ``root/generations/name`` into ``root/scores/name``."""
    from stages.progress import progress
    from stages.scoring._tables import score_answers
    from stages.scoring.likelihood.table import score_likelihoods

    tables, missing = {}, {}
    generations = read_tables(root / "generations" / name, f"sample@{name}")
    for split, drawn in progress(list(generations.items()), f"score {name}", "splits"):
        items = {row["id"]: row for row in read_split(split, root / "dataset")}
        tables[split] = score_answers(drawn, items, score.scorers)
        missing[split] = {scorer: int(tables[split][scorer].isna().sum()) for scorer in score.scorers}
    likelihoods = {}
    for split, given in read_tables(root / "generations" / name / "likelihood", f"sample@{name}").items():
        items = {row["id"]: row for row in read_split(split, root / "dataset")}
        likelihoods[split] = score_likelihoods(given, items)
    with atomic_folder(root / "scores" / name) as folder:
        for split, table in tables.items():
            write_parquet(folder / f"{split}.parquet", table)
        for split, table in likelihoods.items():
            write_parquet(folder / "likelihood" / f"{split}.parquet", table)
        write_json(folder / "about.json", {"schema": SCHEMA_VERSION, "scorers": score.scorers, "missing": missing})
    print(", ".join(f"{split} {len(table)} answers" for split, table in tables.items()))


if __name__ == "__main__":
    run_stage(main)
