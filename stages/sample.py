"""Stage `sample@MODEL`: many answers to each forget question, fewer to those that measure utility, and greedy ones."""

from __future__ import annotations

from pathlib import Path

from stages import params
from stages.artifacts import SCHEMA_VERSION, atomic_folder, write_json, write_parquet
from stages.entry import run_stage


def main(name: str) -> None:
    from stages.learning.models import prepare_torch
    from stages.sampling.engine import open_engine
    from stages.sampling.store import AnswerStore, model_digest
    from stages.sampling.tasks import draw, tasks

    settings = params.load()
    sample, model = settings.sample, settings.models[name]
    folder = Path(model.path)
    prepare_torch()
    engine = open_engine(sample.engine, folder, {"max_rows": sample.max_rows})
    store = AnswerStore(model_digest(folder), engine.name)
    work = tasks(folder, sample, model)
    tables = {task.split: draw(task, engine, store, f"sample {name} {task.split}") for task in work}
    with atomic_folder(Path("data/generations") / name) as out:
        for split, table in tables.items():
            write_parquet(out / f"{split}.parquet", table)
        about = {
            "schema": SCHEMA_VERSION,
            "engine": engine.name,
            "engine_reason": getattr(engine, "reason", f"sample.engine is {sample.engine}"),
            "temperature": sample.temperature,
            "top_p": sample.top_p,
            "top_k": sample.top_k,
            "adaptive_threshold": model.adaptive_threshold,
            "seed": sample.seed,
            "splits": {task.split: {"questions": len(task.prompts), "n": task.settings.n} for task in work},
        }
        write_json(out / "about.json", about)
    for task in work:
        store.forget(task.prompts, task.settings)
    print(", ".join(f"{split} {len(table)} answers" for split, table in tables.items()))


if __name__ == "__main__":
    run_stage(main)
