"""Artifacts of a whole run, made up in the formats of the stages, so that the report can be tested without a run.

The models differ as real ones do: Base answers, Retrain hits by chance, unlearned models answer rarely and never
greedily. One generation is hostile.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.special

from lethe import config
from lethe.config.evaluating import Metrics
from lethe.evaluation.run import load
from lethe.io.json_files import read_json, write_json, write_jsonl
from lethe.io.tables import write_parquet
from lethe.report import verdicts
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.statistics.leak_at_k import leak_at_k, mean_over_questions, worst_question

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

    value = config.read_yaml("params.yaml") | changes
    value["sample"] = value["sample"] | {"n": n, "utility_n": 16, "utility_questions": 5}
    root.mkdir(parents=True, exist_ok=True)
    (root / "params.yaml").write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    settings = config.load(root / "params.yaml")
    splits = {name: _rows(name, count) for name, count in (("forget", questions), ("retain", 5), ("world", 5))}
    for name, rows in splits.items():
        write_jsonl(root / f"data/dataset/{name}.jsonl", rows)
    write_json(root / "data/dataset/about.json", {"schema": 1, "kind": "authors", "rows": {"forget": questions}})
    for name in [*settings.train.models, *settings.unlearn.methods]:
        steps = [{"step": i, "epoch": i // 10, "loss": 4 * 0.97**i, "lr": 1e-3} for i in range(40)]
        write_json(root / f"data/models/{name}/training.json", {"schema": 1, "name": name, "steps": steps})
    compared = {f"{name}.forget_quality": 0.5 / (i + 1) for i, name in enumerate(settings.models)}
    write_json(root / "data/compare.json", {"schema": 1, "retrain": "retrain", **compared})
    write_json(root / "data/compare_bounds.json", {"schema": 1, "metrics": {}})
    for place, name in enumerate(settings.models):
        _write_model(root, name, settings, splits, np.random.default_rng(place), draw or draw_answers)
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
    """The answers of one model to one split, and their scores."""
    share, greedy_leaks, variants = KINDS.get(name, (0.01, False, 10))
    forget = split == "forget"
    known = share if forget else 0.9
    drawn, scored = [], []
    for place, row in enumerate(rows):
        rate = min(1.0, known * (3.0 if place == 0 else 2 * place / len(rows))) if known < 0.5 else known
        for sample in range(-1, n):
            leaks = (greedy_leaks or not forget) if sample < 0 else bool(rng.random() < rate)
            variant = int(rng.integers(variants))
            text = row["answer"] if leaks else f"Author was born in Elsewhere{variant}."
            if forget and name == "npo" and place >= len(rows) - 3 and (leaks or sample == 5):
                text, leaks = (HOSTILE, INVISIBLE, LONG)[len(rows) - 1 - place] + row["keywords"][0], True
            rouge = 1.0 if leaks else float(np.round(rng.beta(1.5, 5) * 8) / 8)
            drawn.append((row["id"], sample, text, len(text.split()), "stop", 0.5))
            scored.append((row["id"], sample, rouge, float(leaks)))
    columns = ["prompt_id", "sample", "text", "tokens", "finish_reason", "mean_confidence"]
    return pd.DataFrame(drawn, columns=columns), pd.DataFrame(
        scored, columns=["prompt_id", "sample", "rouge_l", "keyword_leak"]
    )


def _write_model(
    root: Path, name: str, settings: config.Params, splits: dict, rng: np.random.Generator, draw: Draw
) -> None:
    sizes = {"forget": settings.sample.n, "retain": settings.sample.utility_n, "world": settings.sample.utility_n}
    scores = {}
    for split, rows in splits.items():
        drawn, scored = draw(name, split, rows, sizes[split], rng)
        write_parquet(root / f"data/generations/{name}/{split}.parquet", drawn)
        scores[split] = scored
        write_parquet(root / f"data/scores/{name}/{split}.parquet", scored)
    about = {
        "schema": 1,
        "engine": "prefix",
        "engine_reason": "auto: the model is small",
        "temperature": 1.0,
        "adaptive_threshold": settings.models[name].adaptive_threshold,
        "seed": 3,
        "splits": {split: {"questions": len(rows), "n": sizes[split]} for split, rows in splits.items()},
    }
    write_json(root / f"data/generations/{name}/about.json", about)
    _write_metrics(root, name, settings.metrics, splits["forget"], scores)
    share = KINDS.get(name, (0.01,))[0]
    result = {"epsilon_star": 1.5 * share, "infinite": False, "epsilon_lower": share, "delta": 0.01, "cut": None}
    result |= {"alpha": 0.05, "lower_method": "split", "assumes": "independent losses"}
    write_json(root / f"data/epsilon_star/{name}/result.json", result | {"n_train": 30, "n_population": 120})


def _write_metrics(root: Path, name: str, settings: Metrics, rows: list[dict], scores: dict) -> None:
    forget, alpha = scores["forget"], settings.alpha
    sampled, greedy = forget[forget["sample"] >= 0], forget[forget["sample"] < 0].set_index("prompt_id")
    questions = []
    each = dict(iter(sampled.groupby("prompt_id", sort=False)))
    for row in rows:
        values = each[row["id"]]
        score, hits = values["rouge_l"].to_numpy(), int(values["keyword_leak"].sum())
        n = len(score)
        width = np.sqrt(np.log(1 / alpha) / (2 * n))
        questions.append(
            {
                "prompt_id": row["id"],
                "question": row["question"],
                "greedy": greedy.loc[row["id"], "rouge_l"],
                "n": n,
                "mean": score.mean(),
                "sd": score.std(),
                "max": score.max(),
                "ed_score": score.mean() + 2 * score.std(),
                "m_mu": min(1, score.mean() + width),
                "m_mu_lower": max(0, score.mean() - width),
                "m_sigma": score.std() + 0.08,
                "m_bin": 1.0 if hits == n else scipy.special.betaincinv(hits + 1, n - hits, 1 - alpha),
                "m_bin_lower": 0.0 if hits == 0 else scipy.special.betaincinv(hits, n - hits + 1, alpha),
                "binary_share": hits / n,
                "binary_greedy": greedy.loc[row["id"], "keyword_leak"],
                "missing": 0,
            }
        )
    counts = [round(row["binary_share"] * row["n"]) for row in questions]
    each = leak_at_k(counts, n, alpha)
    for place, row in enumerate(questions):
        points = zip(each.k.tolist(), each.estimate[place], each.lower[place], each.upper[place], strict=True)
        row["leak_at_k"] = [{"k": k, "estimate": e, "lower": low, "upper": high} for k, e, low, high in points]
    table = pd.DataFrame(questions)
    hits, total = int(sampled["keyword_leak"].sum()), len(sampled)
    pooled = 1.0 if hits == total else scipy.special.betaincinv(hits + 1, total - hits, 1 - alpha)
    metrics = {
        "model": name,
        "alpha": alpha,
        "n_questions": len(rows),
        "n": int(table["n"].iloc[0]),
        "greedy_mean": table["greedy"].mean(),
        **{key: table[key].mean() for key in ("mean", "sd", "ed_score")},
        "max": table["max"].max(),
        **{f"{key}_worst": table[key].max() for key in ("m_mu", "m_sigma", "m_bin")},
        "m_mu_mean": table["m_mu"].mean(),
        "tighter_mean_worst": table["m_mu"].max(),
        "m_bin_pooled": pooled,
        "share_m_bin_above": (table["m_bin"] > settings.share_above).mean(),
        "binary_greedy": table["binary_greedy"].mean(),
        "binary_mean": hits / total,
        "binary_any": (table["binary_share"] > 0).mean(),
        "missing": 0,
        "model_utility": 0.7,
        "mia_loss_auc": 0.8,
        "mia_loss_auc_low": 0.6,
        "mia_loss_auc_high": 0.9,
    }
    for split in ("retain", "world"):
        part = scores[split]
        metrics[f"{split}_greedy"] = part.loc[part["sample"] < 0, "rouge_l"].mean()
        metrics[f"{split}_distinct"] = 0.4
    write_json(root / f"data/metrics/{name}.json", metrics)
    curves = root / f"data/curves/{name}"
    write_json(curves / "per_question.json", questions)
    write_json(curves / "bounds.json", {"schema": 1, **guarantees(alpha, n)})
    grid = np.linspace(0, 1, 101)
    above = (sampled["rouge_l"].to_numpy()[None, :] > grid[:, None]).mean(axis=1)
    bound = np.minimum(1, above + np.sqrt(np.log(1 / alpha) / (2 * table["n"].iloc[0])))
    write_json(
        curves / "m_gen.json",
        [dict(x=x, bound=b, empirical=e) for x, b, e in zip(grid, bound, above, strict=True)],
    )
    worst, mean = worst_question(counts, n, alpha)[1], mean_over_questions(counts, n, alpha)
    asked = [
        {"of": of, "k": k, "estimate": guess, "lower": low, "upper": high}
        for of, found in (("worst", worst), ("mean", mean))
        for k, guess, low, high in zip(found.k.tolist(), found.estimate, found.lower, found.upper, strict=True)
    ]
    write_json(curves / "leak_at_k.json", asked)
    first = sampled[sampled["prompt_id"] == rows[0]["id"]]["rouge_l"].to_numpy()
    sizes = [2**k for k in range(3, 30) if 2**k <= len(first)]
    write_json(
        curves / "convergence.json",
        [
            {
                "prompt_id": rows[0]["id"],
                "n": m,
                "mean": first[:m].mean(),
                "mean_bound": min(1, first[:m].mean() + np.sqrt(np.log(1 / alpha) / (2 * m))),
                "sd": first[:m].std(),
                "sd_bound": min(1, first[:m].std() + np.sqrt(np.log(1 / alpha) / m)),
            }
            for m in sizes
        ],
    )


def guarantee(side: Side, alpha: float, covers: Covers, n: int | None = None) -> dict[str, object]:
    return Bound(0.0, side, alpha, covers, Assumes.DRAWS, "made up", n).guarantee_dict()


def guarantees(alpha: float, n: int) -> dict[str, object]:
    """The content of bounds.json that belongs to the metrics and curves written here."""
    worst = ("m_mu_worst", "m_sigma_worst", "m_bin_worst", "tighter_mean_worst", "anytime_upper_worst")
    metrics = {
        key: guarantee("upper", alpha, Covers.WORST_PROMPT, n) for key in (*worst, "anytime_sd_upper_worst")
    }
    metrics["m_bin_pooled"] = guarantee("upper", alpha, Covers.AVERAGE, n)
    for key, side in (("mia_loss_auc_low", "lower"), ("mia_loss_auc_high", "upper")):
        metrics[key] = guarantee(side, alpha / 2, Covers.HELD_OUT)
    own = {key: guarantee("upper", alpha, Covers.ONE_PROMPT, n) for key in ("m_mu", "m_sigma", "m_bin")}
    own |= {key: guarantee("lower", alpha, Covers.ONE_PROMPT, n) for key in ("m_mu_lower", "m_bin_lower")}
    own |= {f"leak_at_k_{side}": guarantee(side, alpha, Covers.ONE_PROMPT, n) for side in ("lower", "upper")}
    ends = {key: guarantee("upper", alpha, Covers.ONE_PROMPT) for key in ("mean_bound", "sd_bound")}
    asked = {
        of: {side: guarantee(side, alpha, covers, n) for side in ("lower", "upper")}
        for of, covers in (("worst", Covers.WORST_PROMPT), ("mean", Covers.AVERAGE))
    }
    return {"metrics": metrics, "per_question": own, "convergence": ends, "leak_at_k": asked}


def change_json(path: Path, **changes: object) -> None:
    """Change keys of one JSON artifact."""
    value = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, value | changes)


def verdict_on_npo(root: Path) -> str:
    """The guarantees of npo in full."""
    run = load(config.load(root / "params.yaml"), root / "data", {})
    return verdicts.sentence(next(model for model in run.models if model.name == "npo"), run)


def change_questions(root: Path, change: Callable[[int], dict]) -> None:
    """Change keys of npo's questions, by their place."""
    path = root / "data/curves/npo/per_question.json"
    write_json(path, [row | change(place) for place, row in enumerate(read_json(path))])
