"""vLLM in the stage `sample` with two models at a time, and its server: the answers have the exact law of the model."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

import lethe
from lethe.config.evaluating import Endpoint
from lethe.sampling.endpoint import EndpointEngine
from lethe.sampling.engine import Prompt, Settings
from tests.lethe.sampling.sampling_models import build_llama, exact_probabilities
from tests.small import ROOT

START = 300  # seconds, on a busy machine
N, LENGTH = 600, 3
LETTERS = "abcdefghijklmnopqrs"  # with the end as many tokens as a walk asks the log-probabilities of


@pytest.fixture
def served(tmp_path):
    """The model's folder and the address of its server."""
    pytest.importorskip("vllm")
    folder = build_llama(tmp_path / "model", LETTERS, scale=1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--max-model-len", "128", "--max-logprobs", "20"]
    given = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, env={**os.environ, **given}, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}/v1"
            _wait(url, process)
            yield folder, url
        finally:
            process.terminate()
            process.wait(60)


def _wait(url: str, process: subprocess.Popen) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        assert process.poll() is None
        try:
            urllib.request.urlopen(f"{url}/models", timeout=5)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise TimeoutError(url)


@pytest.mark.slow
def test_answers_of_a_vllm_server_have_the_law_of_the_model(served, tmp_path):
    folder, url = served
    engine = EndpointEngine(Endpoint(endpoint=url, name="tiny"), tmp_path / "scratch", chat=False)
    prompts, settings = [Prompt("p", (), text="ab")], Settings(n=N, max_new_tokens=LENGTH)
    (answers,) = engine.answer(prompts, settings)
    probes = {one["name"]: one["passed"] for one in engine.served()["probes"]}
    assert probes.pop("seed") in (True, False, None)
    assert set(probes.values()) == {True}
    law: dict[str, float] = {}
    for tokens, mass in exact_probabilities(folder, (0, 1), LENGTH).items():
        text = "".join(f"{LETTERS} "[token] for token in tokens).strip()
        law[text] = law.get(text, 0) + mass
    counts = {text: answers.texts[1:].count(text) for text in law}
    assert sum(counts.values()) == N
    large = [text for text, mass in law.items() if mass * N >= 5]
    seen, masses = [counts[text] for text in large], [law[text] * N for text in large]
    seen, masses = [*seen, N - sum(seen)], [*masses, N - sum(masses)]
    assert chisquare(seen, np.array(masses) * N / sum(masses)).pvalue > 1e-3
    rows = [{"id": "a", "question": "ab", "answer": "c", "keywords": ["c", "hg"]}]
    given = {"prompt": "{question}", "max_new_tokens": LENGTH}
    (own,) = lethe.exact(folder, rows, exact_only=True, **given).certificates.trees
    (stated,) = lethe.exact("tiny", rows, endpoint=url, requests=2000, **given).certificates.trees
    assert stated.lower == pytest.approx(own.lower, rel=1e-3)  # 0.001: neither is 0 here
    assert 0 < stated.lower <= stated.upper_certain <= own.upper_certain * (1 + 1e-3)


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
