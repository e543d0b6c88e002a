"""A whole run whose answers, scores and losses are made up, and whose results are those of the real code.

The models differ as real ones do: Base answers, Retrain hits by chance, unlearned models answer rarely and never
greedily. One generation is hostile.
"""

import dataclasses
import json
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pandas as pd

from lethe import config
from lethe.io.files import read_artifact, write_json, write_jsonl
from lethe.io.tables import read_table, write_parquet
from lethe.measure.measure import measure
from lethe.results import table
from lethe.results.exact_bounds import rows_of
from lethe.results.table import Result, Rows
from lethe.results.trace import Trace, measured_rows
from lethe.statistics.bound import Bound, Covers
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_trees import Certificates
from lethe.statistics.twins import twin_test
from lethe.steps.traces import words
from stages import epsilon_star
from tests.small import ROOT

HOSTILE = "<script>document.title='owned'; fetch('http://127.0.0.1:9/x')</script><img src=x onerror=alert(1)>"
INVISIBLE = "born in\x00 \u202egnol\u202c ago\u200b\x1b[31m\nHuddersfield"
LONG = "tall " * 20_000

# share of answers that leak, spread over questions, greedy leaks, distinct answers
KINDS = {
    "base": (0.97, True, 3),
    "retrain": (0.002, False, 24),
    "grad_ascent": (0.0, False, 20),
    "grad_diff": (0.001, False, 20),
    "npo": (0.03, False, 22),
    "npo_at": (0.012, False, 8),
    "npo_matched": (0.02, False, 22),
    "npo_matched_at": (0.006, False, 7),
    "npo_entropy": (0.03, False, 26),
    "npo_entropy_at": (0.0, False, 2),
}


Draw = Callable[[str, str, list[dict], int, np.random.Generator], tuple[pd.DataFrame, pd.DataFrame]]


def write_run(
    root: Path, questions: int = 6, n: int = 128, draw: Draw | None = None, **changes: object
) -> config.Params:
    """Write params.yaml and the artifacts of its models below ``root``; ``changes`` replace top-level sections."""
    import yaml

    value = config.read_yaml(ROOT / "params.yaml") | changes
    used = {entry["path"] for entry in value["models"].values()}
    methods = {}
    for name, method in value["unlearn"]["methods"].items():
        if f"data/models/{name}" in used:
            methods[name] = method
    value["unlearn"] = value["unlearn"] | {"methods": methods}
    value["sample"] = value["sample"] | {
        "stop": "fixed",
        "n": n,
        "utility_n": 16,
        "utility_questions": 5,
        "max_new_tokens": 40,
    }
    root.mkdir(parents=True, exist_ok=True)
    (root / "params.yaml").write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    settings = config.load(root / "params.yaml")
    splits = {
        name: _rows(name, count)
        for name, count in (("forget", questions), ("retain", 5), ("world", 5))
    }
    for name, rows in splits.items():
        write_jsonl(root / f"data/dataset/{name}.jsonl", rows)
    write_json(
        root / "data/dataset/about.json",
        {"schema": 1, "kind": "authors", "rows": {"forget": questions}},
    )
    for name in [*settings.train.models, *settings.unlearn.methods]:
        steps = [{"step": i, "epoch": i // 10, "loss": 4 * 0.97**i, "lr": 1e-3} for i in range(40)]
        write_json(
            root / f"data/models/{name}/training.json", {"schema": 1, "name": name, "steps": steps}
        )
    compared = []
    for place, name in enumerate(settings.models):
        compared.append(
            table.result(name, "model", "forget_quality", "given answers", 0.5 / (place + 1))
        )
    table.write(table.place(root / "data", "compare", "models"), compared)
    for place, name in enumerate(settings.models):
        _write_model(
            root, name, settings, splits, np.random.default_rng(place), draw or draw_answers
        )
    return settings


def _rows(split: str, count: int) -> list[dict]:
    return [
        {
            "id": f"{split}-{i:03d}",
            "question": f"Where was author number {i} of the {split} set born?",
            "answer": f"Author number {i} was born in Towne{i}.",
            "keywords": [f"Towne{i}"],
        }
        for i in range(count)
    ]


def draw_answers(
    name: str, split: str, rows: list[dict], n: int, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    share, greedy_leaks, variants = KINDS.get(name, (0.01, False, 10))
    forget = split == "forget"
    known = share if forget else 0.9
    drawn = []
    scored = []
    for place, row in enumerate(rows):
        rate = (
            min(1.0, known * (3.0 if place == 0 else 2 * place / len(rows)))
            if known < 0.5
            else known
        )
        for sample in range(-1, n):
            leaks = (greedy_leaks or not forget) if sample < 0 else bool(rng.random() < rate)
            variant = int(rng.integers(variants))
            text = row["answer"] if leaks else f"Author was born in Elsewhere{variant}."
            if forget and name == "npo" and place >= len(rows) - 3 and (leaks or sample == 5):
                text = (HOSTILE, INVISIBLE, LONG)[len(rows) - 1 - place] + row["keywords"][0]
                leaks = True
            rouge = 1.0 if leaks else float(np.round(rng.beta(1.5, 5) * 8) / 8)
            drawn.append((row["id"], sample, text, len(text.split()), "stop", 0.5))
            scored.append((row["id"], sample, rouge, float(leaks)))
    columns = ["prompt_id", "sample", "text", "tokens", "finish_reason", "mean_confidence"]
    return pd.DataFrame(drawn, columns=columns), pd.DataFrame(
        scored, columns=["prompt_id", "sample", "rouge_l", "keyword_leak"]
    )


def _write_model(
    root: Path,
    name: str,
    settings: config.Params,
    splits: dict,
    rng: np.random.Generator,
    draw: Draw,
) -> None:
    sizes = {
        "forget": settings.sample.n,
        "retain": settings.sample.utility_n,
        "world": settings.sample.utility_n,
    }
    for split, rows in splits.items():
        drawn, scored = draw(name, split, rows, sizes[split], rng)
        write_parquet(root / f"data/generations/{name}/{split}.parquet", drawn)
        write_parquet(root / f"data/scores/{name}/{split}.parquet", scored)
    about = {
        "schema": 1,
        "engine": "prefix",
        "engine_reason": "auto: the model is small",
        "temperature": 1.0,
        "adaptive_threshold": settings.models[name].adaptive_threshold,
        "seed": 3,
        "splits": {
            split: {"questions": len(rows), "n": sizes[split]} for split, rows in splits.items()
        },
    }
    write_json(root / f"data/generations/{name}/about.json", about)
    measure_again(root, name)
    none = table.result(name, "model", "queried", "exact", text="not asked")
    table.write(table.place(root / "data", "exact", name), [none])
    write_epsilon_star(root, name, KINDS.get(name, (0.01,))[0])
    table.write(table.place(root / "data", "twins", name), [])


def measure_again(
    root: Path,
    name: str = "npo",
    inapplicable: Collection[str] = (),
    calibration: Calibration | None = None,
    truncated: str = "counts",
) -> None:
    settings = config.load(root / "params.yaml")
    tables = _tables(root, name)
    rows = measure(name, *tables, settings.metrics, inapplicable, calibration, truncated)
    table.write(
        table.place(root / "data", "metrics", name),
        [*rows, *_likelihoods(name, settings.metrics.alpha)],
    )


def _tables(root: Path, name: str) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """The answers and the scores of a model, by split."""

    def tables(kind: str) -> dict[str, pd.DataFrame]:
        paths = sorted((root / "data" / kind / name).glob("*.parquet"))
        return {path.stem: read_table(path) for path in paths}

    return tables("generations"), tables("scores")


def _likelihoods(name: str, alpha: float) -> list[Result]:
    rows = Rows(name)
    guarantee = (alpha / 2, Covers.HELD_OUT, "rows drawn alike", "made up")
    rows.add("model", "model_utility", "given answers", 0.7)
    ends = Bound(0.6, "lower", *guarantee), Bound(0.9, "upper", *guarantee)
    rows.add("model", "membership", "given answers", 0.8, *ends, item="mia_loss")
    return rows.rows


def write_epsilon_star(root: Path, name: str, lower: float | None, **changes: object) -> None:
    record = {
        "epsilon_star": 1.5 * (lower or 0),
        "infinite": False,
        "epsilon_lower": lower,
        "delta": 0.01,
        "cut": None,
    }
    record |= {"alpha": 0.05, "lower_method": "split", "assumes": "independent losses"}
    record |= {"n_train": 30, "n_population": 120} | changes
    bound = (
        None
        if lower is None
        else Bound(lower, "lower", 0.05, Covers.MODEL, "independent losses", "split")
    )
    epsilon_star.write(name, root / "data", record, bound)


def write_traces(root: Path, ranks_of_model: dict[str, list[int]], k: int = 20) -> None:
    """Write twin tests of these models, and the words of the models under test."""
    settings = config.load(root / "params.yaml")
    alpha = settings.metrics.alpha
    for name, ranks in ranks_of_model.items():
        names = tuple(f"forget-{place:03d}" for place in range(len(ranks)))
        trace = Trace(twin_test(ranks, [k] * len(ranks)), names, alpha)
        table.write(table.place(root / "data", "twins", name), measured_rows(name, trace))
        rng = np.random.default_rng(0)
        scores = pd.DataFrame(
            {"secret": np.repeat(names, k), "log_prob": rng.normal(size=k * len(names))}
        )
        write_parquet(root / "data" / "twins" / f"{name}.parquet", scores)
    rows = []
    for place, row in enumerate(_rows("forget", len(ranks))):
        rows.append(
            {
                **row,
                "twins": [f"Twin {number}" for number in range(k - 1)],
                "author": f"author {place // 3}",
            }
        )
    write_jsonl(root / "data/dataset/forget.jsonl", rows)
    about = root / "data/dataset/about.json"
    write_json(about, {**read_artifact(about), "generated_twins": True})
    compared = table.place(root / "data", "compare", "models")
    results = table.read(root / "data", settings.models)
    said = words(results, settings.subjects, settings.twins, alpha, settings.sharing, root / "data")
    table.write(compared, [*table.read_rows(compared), *said])


def write_record(root: Path, stage: str, name: str, record: dict) -> None:
    row = table.result(name, "audit", "record", "run", evidence=record)
    table.write(table.place(root / "data", stage, name), [row])


def write_exact(root: Path, name: str, found: Certificates) -> None:
    rows = rows_of(dataclasses.replace(found, name=name))
    table.write(table.place(root / "data", "exact", name), rows)


def copy_results(root: Path, name: str, other: str) -> None:
    rows = table.read_rows(table.place(root / "data", "metrics", name))
    table.write(
        table.place(root / "data", "metrics", other),
        [dataclasses.replace(row, model=other) for row in rows],
    )


def change_rows(
    root: Path, change: Callable[[Result], Result | None], name: str = "npo", stage: str = "metrics"
) -> None:
    """Replace each row of a table; None leaves the row out."""
    place = table.place(root / "data", stage, name)
    table.write(place, [row for old in table.read_rows(place) if (row := change(old)) is not None])


def change_numbers(
    root: Path,
    name: str = "npo",
    scope: str = "model",
    stage: str = "metrics",
    **numbers: float | None,
) -> None:
    """Change numbers and ends by the names under which they are exported; None takes them away."""
    known = set()

    def change(row: Result) -> Result:
        changed = {}
        for key, field in zip(row.names(), ("estimate", "lower", "upper"), strict=True):
            if key not in numbers:
                continue
            known.add(key)
            if row.scope == scope:
                changed[field] = numbers[key]
        return dataclasses.replace(row, **changed)

    change_rows(root, change, name, stage)
    assert known == set(numbers), sorted(set(numbers) - known)


def change_params(root: Path, change: Callable[[dict], object]) -> None:
    import yaml

    path = root / "params.yaml"
    value = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")


def change_json(path: Path, **changes: object) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, value | changes)
