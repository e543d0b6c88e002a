"""A finished run of one model, written without drawing: its rows, answers, scores and questions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lethe.io.artifacts import version_of_questions, write_splits
from lethe.io.files import read_json, write_json
from lethe.io.tables import write_parquet
from lethe.measure.anytime import METHOD
from lethe.models.checkpoints import content
from lethe.results import table
from lethe.results.evidence import upper_at_stop
from lethe.results.exact_bounds import rows_of
from lethe.results.table import Result, Rows
from lethe.statistics.answer_tree import Masses, Remainder, Rounding, leak_interval
from lethe.statistics.bound import Assumes, Bound, Covers, both_ends
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.statistics.leak_trees import AnswerTree, Certificates, How, Version

ALPHA = 0.01


def write_run(
    root: Path, model: Path, scores_of: Mapping[str, Sequence[float]], rows: Sequence[dict]
) -> Path:
    """A folder as `lethe eval` leaves it, with sampled answers of these scores (NaN: without one) and a greedy answer."""
    name = model.name
    drawn = []
    scored = []
    results = Rows(name)
    for question, scores in scores_of.items():
        for sample, score in enumerate([0.0, *scores], start=-1):
            key = {"prompt_id": question, "sample": sample}
            text = f"answer {sample} to {question}"
            drawn.append({**key, "text": text, "tokens": 4, "finish_reason": "stop"})
            scored.append({**key, "rouge_l": 0.0, "keyword_leak": score})
        _add_row(results, question, scores)
    facts = {"score": "rouge_l", "leak": "keyword_leak"}
    counted = Result(
        name, "model", "answers", "sampled", split="forget", estimate=1, evidence=facts
    )
    table.write(_made(table.place(root, "metrics", name)), [*results.rows, counted])
    write_parquet(_made(root / "generations" / name / "forget.parquet"), pd.DataFrame(drawn))
    write_parquet(_made(root / "scores" / name / "forget.parquet"), pd.DataFrame(scored))
    write_splits({"forget": list(rows)}, "forget.jsonl", root / "dataset")
    about = {"schema": 1, "engine": "prefix", "dtype": "float32", "seed": 0, "temperature": 1.0}
    about |= {"top_p": 1.0, "top_k": 0, "max_new_tokens": 4}
    if model.is_dir():
        about["model"] = content(model)
    about["questions"] = version_of_questions(root / "dataset")
    write_json(root / "generations" / name / "about.json", about)
    write_json(root / "evaluated.json", {"schema": 1, "model": str(model.resolve())})
    return root


def add_counts_at_any_time(
    root: Path, model: str, counts: Mapping[str, tuple[int, int]], first: int
) -> None:
    """Add the rows of all answers to each question, as (leaks, n), with ends at any time; ``first`` came before a word."""
    record = root / "generations" / model / "about.json"
    splits = {"forget": {"questions": len(counts), "n": first}}
    write_json(record, read_json(record) | {"stop": "word", "splits": splits})
    place = table.place(root, "metrics", model)
    results = Rows(model)
    for question, (leaks, n) in counts.items():
        upper = float(upper_at_stop(leaks, n, ALPHA)[0])
        lower = 1 - float(upper_at_stop(n - leaks, n, ALPHA)[0])
        guarantee = (ALPHA, Covers.ONE_PROMPT, Assumes.DRAWS, METHOD, n)
        results.add(
            "question",
            "leak",
            "anytime",
            leaks / n,
            *both_ends(lower, upper, *guarantee),
            item=question,
            split="forget",
            evidence={"leaks": leaks, "n": n, "missing": 0},
        )
    table.write(place, [*table.read_rows(place), *results.rows])


def add_trees(
    root: Path, model: str, trees: Mapping[str, tuple[Masses, Remainder]], of: Version
) -> None:
    """Write the exact bounds of answer trees of these masses and samples of the rest, as stage exact does."""
    made = []
    for question, (masses, rest) in trees.items():
        ends = leak_interval(masses, rest, ALPHA, Rounding(1e-6, 4))
        tree = AnswerTree.of(question, ends, masses, rest, (1,), rows=9, heaviest_leaks=())
        made.append(replace(tree, assumes=ends.assumes))
    how = How("keyword_leak", 1.0, 0, 1.0, None, 4, "float32", 1e-6)
    certificates = Certificates(model, tuple(made), how, 0.05, of=of)
    table.write(_made(table.place(root, "exact", model)), rows_of(certificates))


def _add_row(results: Rows, question: str, scores: Sequence[float]) -> None:
    n = len(scores)
    missing = sum(score != score for score in scores)
    leaks = sum(score == 1 for score in scores)
    low = float(binary_lower(leaks, n, ALPHA))
    high = float(binary_upper(leaks + missing, n, ALPHA))
    guarantee = (ALPHA, Covers.ONE_PROMPT, Assumes.DRAWS, "Clopper-Pearson", n)
    results.add(
        "question",
        "leak",
        "sampled",
        leaks / n,
        Bound(low, "lower", *guarantee),
        Bound(high, "upper", *guarantee),
        item=question,
        split="forget",
        evidence={"leaks": leaks, "n": n, "missing": missing},
    )


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
