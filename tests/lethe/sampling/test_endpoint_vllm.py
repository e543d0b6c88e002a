"""The server of vLLM, as it comes: the probes pass, and its answers have the exact law of the model."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from scipy.stats import chisquare

from lethe.config.evaluating import Endpoint
from lethe.sampling.endpoint import EndpointEngine
from lethe.sampling.engine import Prompt, Settings
from tests.lethe.sampling.sampling_models import build_llama, exact_probabilities

START = 300  # seconds, on a busy machine
N, LENGTH = 600, 3
LETTERS = "abcdefgh"  # with the end more tokens than a probe asks the log-probabilities of


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
    probes = {one["name"]: one["passed"] for one in engine.served([(prompts, settings)])["probes"]}
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
