"""Every value of params.yaml changes what its stages write, and is a DVC param of each of them."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.small import ROOT, make_repository, small_params, work, write_params

# A key, its stage, and another value for it; where a key matters only beside others, those come with it. `MORE` names
# the other stages that read a key.
SEQUENTIAL = {"sample.stop": "sequential"}
AS_KL = {"unlearn.methods.npo_entropy": {"loss": "kl", "lr": 5e-4, "epochs": 2, "retain_weight": 20.0}}
CHANGES: dict[str, tuple[str, Any] | tuple[str, Any, dict[str, Any]]] = {
    "data.kind": ("prepare", "jsonl"),
    "data.source": ("prepare", "data/other", {"data.kind": "jsonl"}),
    "data.forget": ("prepare", "forget10"),
    "data.seed": ("prepare", 1),
    "data.authors.count": ("prepare", 30),
    "data.authors.heldout": ("prepare", 6),
    "data.authors.world_facts": ("prepare", 6),
    "train.recipe.start_from": ("train@retrain", "data/models/base"),
    "train.recipe.knowledge": ("train@retrain", []),
    "train.recipe.prompt": ("train@retrain", "data/prompt.txt"),
    "train.recipe.vocabulary": ("train@retrain", 390),
    "train.recipe.context": ("train@retrain", 256),
    "train.recipe.hidden": ("train@retrain", 16),
    "train.recipe.layers": ("train@retrain", 2),
    "train.recipe.heads": ("train@retrain", 2),
    "train.recipe.kv_heads": ("train@retrain", 1),
    "train.recipe.feed_forward": ("train@retrain", 32),
    "train.recipe.epochs": ("train@retrain", 2),
    "train.recipe.batch": ("train@retrain", 8),
    "train.recipe.lr": ("train@retrain", 1e-3),
    "train.recipe.betas": ("train@retrain", [0.8, 0.98]),
    "train.recipe.weight_decay": ("train@retrain", 0.1),
    "train.recipe.warmup": ("train@retrain", 0.5),
    "train.recipe.clip": ("train@retrain", 0.1),
    "train.recipe.seed": ("train@retrain", 5),
    "train.models.base.rows": ("train@base", "retain"),
    "train.models.retrain.rows": ("train@retrain", "all"),
    "unlearn.recipe.start_from": ("unlearn@npo_entropy", "data/models/retrain"),
    "unlearn.recipe.forget_batch": ("unlearn@npo_entropy", 3),
    "unlearn.recipe.retain_batch": ("unlearn@npo_entropy", 8),
    "unlearn.recipe.betas": ("unlearn@npo_entropy", [0.8, 0.98]),
    "unlearn.recipe.weight_decay": ("unlearn@npo_entropy", 0.1),
    "unlearn.recipe.warmup": ("unlearn@npo_entropy", 0.9),
    "unlearn.recipe.clip": ("unlearn@npo_entropy", 0.1),
    "unlearn.recipe.seed": ("unlearn@npo_entropy", 5),
    "unlearn.methods.npo_entropy.loss": ("unlearn@npo_entropy", "grad_diff", AS_KL),
    "unlearn.methods.npo_entropy.lr": ("unlearn@npo_entropy", 1e-4),
    "unlearn.methods.npo_entropy.epochs": ("unlearn@npo_entropy", 3),
    "unlearn.methods.npo_entropy.beta": ("unlearn@npo_entropy", 0.3),
    "unlearn.methods.npo_entropy.retain_weight": ("unlearn@npo_entropy", 1.0),
    "unlearn.methods.npo_entropy.entropy.forget": ("unlearn@npo_entropy", 1.0),
    "unlearn.methods.npo_entropy.entropy.retain": ("unlearn@npo_entropy", -1.0),
    "unlearn.methods.npo_entropy.entropy.ramp": ("unlearn@npo_entropy", 1.0),
    "models.base.path": ("sample@base", "data/models/retrain"),
    "models.retrain.path": ("sample@retrain", "data/models/base"),
    "models.npo_entropy_at.path": ("sample@npo_entropy_at", "data/models/base"),
    "models.npo_entropy_at.adaptive_threshold": ("sample@npo_entropy_at", 0.001),
    "sample.engine": ("sample@base", "transformers"),
    "sample.prompt": ("sample@base", "data/prompt.txt"),
    "sample.language": ("sample@base", "data/language.yaml"),
    "sample.temperature": ("sample@base", 0.5),
    "sample.top_p": ("sample@base", 0.5),
    "sample.top_k": ("sample@base", 2),
    "sample.max_new_tokens": ("sample@base", 3),
    "sample.seed": ("sample@base", 4),
    "sample.stop": ("sample@base", "sequential"),
    "sample.sequential.scorer": ("sample@base", "exact_match", SEQUENTIAL),
    "sample.sequential.chunk": ("sample@base", 16, SEQUENTIAL),
    "sample.sequential.tau": ("sample@base", 0.3, SEQUENTIAL | {"sample.sequential.tau_leak": 0.9}),
    "sample.sequential.tau_leak": ("sample@base", 0.9, SEQUENTIAL),
    "sample.sequential.alpha": ("sample@base", 0.4, SEQUENTIAL),
    "sample.n": ("sample@base", 20),
    "sample.row_budget": ("sample@base", 1, {"sample.n": "auto", "sample.max_new_tokens": 2}),
    "sample.utility_n": ("sample@base", 2),
    "sample.utility_questions": ("sample@base", 2),
    "sample.dtype": ("sample@base", "bfloat16"),
    "sample.truncated": ("metrics@base", "missing"),
    "score.scorers": ("score@base", ["rouge_l", "keyword_leak", "exact_match"]),
    "metrics.alpha": ("metrics@base", 0.05),
    "metrics.together": ("metrics@base", "bonferroni"),
    "metrics.utility": ("metrics@base", "keyword_leak"),
    "metrics.calibration": ("metrics@base", "data/labelled.csv"),
    "metrics.labels.folder": ("metrics@base", "data/labels"),
    "metrics.labels.mass": ("metrics@base", 0.1, {"metrics.labels.folder": "data/labels"}),
    "metrics.labels.rest": (
        "metrics@base",
        0,
        {"metrics.labels.folder": "data/labels", "metrics.labels.mass": 0.5},
    ),
    "metrics.rho": ("metrics@base", 1.0),
    "metrics.thresholds": ("metrics@base", [0.2, 0.5]),
    "metrics.leak": ("metrics@base", "keyword_leak"),
    "metrics.binary": ("metrics@base", None),
    "metrics.share_above": ("metrics@base", 1.0),
    "exact.rows": ("exact@base", 90),
    "exact.guide": ("exact@base", 1.0, {"exact.rows": 3000}),
    # Answers of few nats: above 25 nothing is explored.
    "exact.theta_rho": ("exact@base", 2.0, {"exact.rows": 2000, "sample.top_k": 2}),
    "exact.alpha": ("exact@base", 0.2),
    "exact.tau": ("exact@base", 0.9),
    "exact.ratio": ("compare", 2.0),
    "exact.target": ("exact@base", 0.2),
    "exact.exact_only": ("exact@base", True),
    "exact.scorer": ("exact@base", "exact_match"),
    "exact.above": ("exact@base", 0.1, {"exact.scorer": "rouge_l"}),
    "exact.queries": ("exact@base", [7]),
    "exact.seed": ("exact@base", 9),
    "epsilon_star.method": ("epsilon_star@base", "empirical"),
    "epsilon_star.delta": ("epsilon_star@base", 0.1),
    "epsilon_star.cut": ("epsilon_star@base", 0.4),
    "epsilon_star.alpha": ("epsilon_star@base", 0.2),
    "report.base": ("report", "npo_entropy_at"),
    "report.retrain": ("report", "npo_entropy_at"),
    "report.tau": ("report", 0.5),
    "report.tau_graded": ("report", 0.5, {"metrics.binary": None}),
    "report.most_truncated": ("report", 0.9),
    "report.look": ("report", 2),
}
MORE: dict[str, list[str]] = {
    "train.recipe.prompt": ["unlearn@npo_entropy"],
    "sample.prompt": ["likelihood@base", "exact@base", "epsilon_star@base"],
    "sample.temperature": ["exact@base"],
    "sample.top_p": ["exact@base"],
    "sample.top_k": ["exact@base"],
    "sample.max_new_tokens": ["exact@base"],
    "sample.dtype": ["exact@base"],
    "sample.seed": ["likelihood@base"],
    "sample.utility_questions": ["likelihood@base"],
    "models.base.path": ["likelihood@base", "exact@base", "epsilon_star@base"],
    "models.npo_entropy_at.adaptive_threshold": ["exact@npo_entropy_at"],
    "metrics.alpha": ["compare"],
    "report.retrain": ["compare"],
}
# How answers are drawn changes no likelihood of a given answer.
DRAWING = [
    "engine",
    "temperature",
    "top_p",
    "top_k",
    "language",
    "max_new_tokens",
    "stop",
    "sequential",
    "n",
    "utility_n",
    "dtype",
    "truncated",
]
# Keys for how the work is done: if they change, the answers stay the same, byte for byte.
INERT = {
    "exact.memory": 64,
    "sample.max_rows": 64,
    "sample.tensor_parallel": 2,
    "sample.data_parallel": 2,
    "sample.vllm_from": 1,
}
# The TOFU keys need TOFU's files: tests/lethe/data/test_tofu.py changes each.
# tests/lethe/scoring/text/test_keyword_leak.py changes score.keyword_match: few texts hold a keyword inside a word.
ELSEWHERE = {
    "score.keyword_match",
    "data.tofu.hub",
    "data.tofu.retain_authors",
    "data.tofu.heldout_authors",
    "attacks",
    "audits",
    "games",
    "judges",  # tests/stages/test_judge_stage.py
}

OUTS = {
    "prepare": ["data/dataset"],
    "train": ["data/models/{}"],
    "unlearn": ["data/models/{}"],
    "sample": ["data/generations/{}"],
    "likelihood": ["data/likelihood/{}"],
    "score": ["data/scores/{}"],
    "metrics": ["data/results/metrics/{}.parquet", "data/metrics/{}.json"],
    "compare": ["data/results/compare/models.parquet"],
    "exact": ["data/results/exact/{}.parquet"],
    "epsilon_star": ["data/epsilon_star/{}", "data/results/epsilon_star/{}.parquet"],
    "report": ["data/report"],
}
# Files that only repeat the params; a change must show in the results themselves.
RECORDS = {"about.json", "training.json"}


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Dotted key to value; lists and empty tables are values."""
    if not isinstance(tree, dict) or not tree:
        return {path: tree}
    return {key: value for name in tree for key, value in leaves(tree[name], f"{path}.{name}".strip(".")).items()}


def changed(params: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A copy with other values."""
    params = copy.deepcopy(params)
    for key, value in values.items():
        *parents, last = key.split(".")
        section = params
        for name in parents:
            section = section[name]
        section[last] = copy.deepcopy(value)
    return params


@pytest.fixture(scope="module")
def params() -> dict[str, Any]:
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 4, "world_facts": 4}
    params["train"]["recipe"]["epochs"] = 3
    params["unlearn"]["methods"]["npo_entropy"]["epochs"] = 2
    params["sample"] |= {"n": 32, "utility_n": 3, "utility_questions": 3, "max_new_tokens": 8}
    params["sample"]["sequential"]["chunk"] = 32  # at most n
    return params


@pytest.fixture(scope="module")
def folder(params, tmp_path_factory):
    """The project after every stage has run once, in this process: a process each would cost minutes."""
    folder = make_repository(tmp_path_factory.mktemp("params") / "lethe", params, git=False)
    (folder / "data/prompt.txt").write_text("Q: {question} A:")
    (folder / "data/language.yaml").write_text("prefix: [null, Sure]\n")
    (folder / "data/labelled.csv").write_text("label,verdict\n1,1\n1,0\n0,0\n")
    (folder / "data/other").mkdir()
    for name, rows in {"forget": ["f1", "f2"], "retain": ["r1"]}.items():
        for place in ("data/source", "data/other"):
            lines = [json.dumps({"id": key, "question": f"{place} {key}?", "answer": "Yes."}) for key in rows]
            (folder / place / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    former = Path.cwd()
    os.chdir(folder)
    work("prepare")
    for stage in ("train", "unlearn"):
        for name in params["train"]["models"] if stage == "train" else params["unlearn"]["methods"]:
            work(f"{stage}@{name}")
    for name in params["models"]:
        for stage in ("sample", "likelihood", "score", "exact", "metrics", "epsilon_star"):
            work(f"{stage}@{name}")
    work("compare")
    work("report")
    label(folder, "base")
    yield folder
    os.chdir(former)


def label(folder: Path, model: str) -> None:
    """Labels of every answer of one model, every third a leak, as `lethe label` keeps them."""
    drawn = pd.read_parquet(folder / f"data/generations/{model}/forget.parquet")
    texts = drawn[["prompt_id", "text"]].drop_duplicates().to_dict("records")
    rows = [{**row, "label": int(place % 3 == 0), "part": "mass"} for place, row in enumerate(texts)]
    (folder / "data/labels").mkdir()
    (folder / f"data/labels/{model}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def places(stage: str) -> list[Path]:
    name, _, key = stage.partition("@")
    return [Path(out.format(key)) for out in OUTS[name]]


def digest(stage: str) -> dict[str, str]:
    files = [
        file for place in places(stage) for file in ([place] if place.is_file() else sorted(place.rglob("*")))
    ]
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file() and file.name not in RECORDS
    }


@pytest.fixture(scope="module")
def outcome(folder, params):
    """What a stage writes with some values of params.yaml; its outputs on disk stay what they were."""

    @functools.cache
    def unchanged(stage: str, context: str) -> dict[str, str]:
        values = json.loads(context)
        return written(stage, values) if values else digest(stage)

    def written(stage: str, values: dict[str, Any]) -> dict[str, str]:
        write_params(folder, changed(params, values))
        kept = {place: place.rename(f"{place}.kept") for place in places(stage)}
        try:
            work(stage)
            return digest(stage)
        finally:
            for place, other in kept.items():
                shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
                other.rename(place)
            write_params(folder, params)

    def compare(stage: str, key: str, value: Any, context: dict[str, Any]) -> tuple[dict, dict]:
        return unchanged(stage, json.dumps(context)), written(stage, context | {key: value})

    return compare


def test_every_key_is_here(params):
    assert set(CHANGES) | set(INERT) | ELSEWHERE == set(leaves(params))


def inert_stage(key: str) -> str:
    """The stage that reads a key of `INERT`."""
    return f"{key.partition('.')[0]}@base"


CONSUMERS = [(key, stage) for key in CHANGES for stage in (CHANGES[key][0], *MORE.get(key, ()))]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "stage"), CONSUMERS)
def test_a_value_changes_what_its_stages_write(outcome, key, stage):
    _, value, *context = CHANGES[key]
    before, after = outcome(stage, key, value, context[0] if context else {})
    assert before != after


@pytest.mark.slow
@pytest.mark.parametrize("key", INERT)
def test_how_the_work_is_done_changes_nothing(outcome, key):
    before, after = outcome(inert_stage(key), key, INERT[key], {})
    assert before == after


@pytest.mark.parametrize(("key", "stage"), [*CONSUMERS, *((key, inert_stage(key)) for key in INERT)])
def test_a_value_is_a_dvc_param_of_its_stages(key, stage):
    assert any(key == entry or key.startswith(f"{entry}.") for entry in listed(stage))


@pytest.mark.parametrize("key", DRAWING)
def test_how_answers_are_drawn_is_no_param_of_the_likelihoods(key):
    assert f"sample.{key}" in {".".join(key.split(".")[:2]) for key in (*CHANGES, *INERT)}
    entries = listed("likelihood@base")
    assert not any(entry == "sample" or f"{entry}.".startswith(f"sample.{key}.") for entry in entries)


def test_what_a_bound_makes_of_truncated_answers_draws_none_again():
    assert not [entry for entry in listed("sample@base") if "sample.truncated".startswith(entry)]


def listed(stage: str) -> list[str]:
    """The params of a stage in dvc.yaml."""
    name, _, instance = stage.partition("@")
    entry = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"][name]
    return [each.replace("${key}", instance) for each in entry.get("do", entry)["params"] if isinstance(each, str)]
