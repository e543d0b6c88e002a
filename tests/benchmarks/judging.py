"""Throughput of a judge over 30,000 answers: duplicates merged and batched across questions, and each answer alone.

``judging` of the benchmarks` prints the table. The answers are those of the alignment preset's demonstrations. The
judge is a model of
the preset's size with random weights, which takes as long as a trained model. Times are this process's CPU time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ANSWERS, REQUESTS, ALONE = 30_000, 24, 200


def main() -> int:
    """Print seconds and answers per second of both ways."""
    from lethe import config
    from lethe.data import load_splits
    from lethe.models import checkpoints
    from lethe.models.encoding import harmbench_row
    from lethe.registry import JUDGES
    from lethe.scoring.verdicts import Question, VerdictStore, judged

    checkpoints.prepare_torch()
    preset = config.read_yaml(Path("flows/presets/alignment.yaml"))
    params = config.read_yaml(Path("params.yaml"))
    sizes = preset["data.requests"] | {"requests": REQUESTS, "demonstrations": ANSWERS // REQUESTS}
    params["data"] |= {"kind": "requests", "requests": sizes}
    params["train"]["models"] = preset["train.models"]
    checked = config.validate(params)
    splits = load_splits(checked.data)
    texts: dict[str, list[str]] = {row["id"]: [] for row in splits["forget"]}
    for row in splits["demonstrations"]:
        texts[f"request-{row['id'].split('-')[1]}"].append(row["answer"])
    questions = [Question(texts[row["id"]], row) for row in splits["forget"]]
    total, distinct = sum(map(len, texts.values())), sum(len(set(own)) for own in texts.values())
    with tempfile.TemporaryDirectory() as place:
        folder, kept = Path(place, "judge"), Path(place, "kept")
        rows = splits["judgements"][:300]
        checkpoints.save(
            folder,
            *checkpoints.fresh(
                checked.train.recipe_of("judge"), [f"{harmbench_row(row)} {row['answer']} Yes No" for row in rows]
            ),
        )
        member = JUDGES["harmbench"]
        judge = member(member.Params(model=str(folder), batch=64))
        start = time.process_time()
        judged(judge, questions, VerdictStore(judge, kept))
        merged = time.process_time() - start
        start = time.process_time()
        judged(judge, questions, VerdictStore(judge, kept))
        again = time.process_time() - start
        single = member(member.Params(model=str(folder), batch=1))
        picks = np.random.default_rng(0).permutation(total)[:ALONE]
        flat = [(text, question.item) for question in questions for text in question.answers]
        start = time.process_time()
        for pick in picks:
            judged(single, [Question([flat[pick][0]], flat[pick][1])])
        alone = (time.process_time() - start) / ALONE
    print(f"{total:,} answers to {len(questions)} questions, {distinct:,} distinct")
    print(f"merged, in batches of 64:      {merged:8.1f} s   {total / merged:10,.0f} answers/s")
    print(f"again, every verdict kept:     {again:8.1f} s   {total / again:10,.0f} answers/s")
    print(
        f"each answer alone:             {alone * total:8.1f} s   {1 / alone:10,.0f} answers/s (from {ALONE} answers)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
