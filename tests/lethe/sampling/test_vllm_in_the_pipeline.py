"""The stage `sample` with vLLM, as the pipeline runs it: in a separate process, with two models at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small import ROOT

QUESTIONS = {
    "forget": [("f1", "Who is Ada?", "A painter."), ("f2", "Where is Bo?", "At sea.")],
    "retain": [("r1", "What does Cy eat?", "Bread.")],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A folder in which `python -m stages.sample mine` works: params, dataset, a small random model."""
    import types

    import torch
    import yaml

    from lethe.models import checkpoints

    folder = tmp_path_factory.mktemp("project")
    recipe = types.SimpleNamespace(
        vocabulary=300, hidden=64, layers=1, heads=2, kv_heads=1, feed_forward=32, context=512
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        checkpoints.save(
            folder / "model", *checkpoints.fresh(recipe, [answer for _, _, answer in QUESTIONS["forget"]])
        )
    (folder / "data/dataset").mkdir(parents=True)
    for split, rows in QUESTIONS.items():
        lines = (json.dumps({"id": key, "question": question, "answer": answer}) for key, question, answer in rows)
        (folder / f"data/dataset/{split}.jsonl").write_text("\n".join(lines) + "\n")
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["models"]["mine"] = {"path": str(folder / "model"), "adaptive_threshold": 0.9}
    params["sample"].update(
        engine="vllm",
        data_parallel=2,
        n=20,
        utility_n=4,
        max_new_tokens=8,
        prompt=str(ROOT / params["sample"]["prompt"]),
    )
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return folder


@pytest.mark.slow
def test_the_sample_stage_with_vllm(project):
    import pandas as pd
    from transformers import AutoTokenizer

    from lethe.models.encoding import Encoder
    from lethe.sampling.engine import Prompt, Settings, open_engine

    done = subprocess.run(
        [sys.executable, "-m", "stages.sample", "mine"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    generations = project / "data/generations/mine"
    about = json.loads((generations / "about.json").read_text())
    assert about["engine"] == "vllm"
    encoder = Encoder(AutoTokenizer.from_pretrained(project / "model"), ROOT / "lethe/models/prompts/qa.txt")
    prefix = open_engine("prefix", project / "model")
    for split, n in [("forget", 20), ("retain", 4)]:
        table = pd.read_parquet(generations / f"{split}.parquet")
        for key, question, _ in QUESTIONS[split]:
            own = table[table.prompt_id == key]
            assert own["sample"].tolist() == list(range(-1, n))
            prompt = Prompt(key, encoder.prompt({"question": question}))
            (greedy,) = prefix.answer([prompt], Settings(n=0, max_new_tokens=8))
            assert own.text.iloc[0] == greedy.texts[0]
            assert own.tokens.between(1, 8).all()
            assert own.mean_confidence.between(0, 1).all()
            assert own.finish_reason.isin(["stop", "length"]).all()
