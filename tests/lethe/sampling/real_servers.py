"""Real OpenAI-compatible servers on 127.0.0.1: vLLM's and that of transformers, each in a process of its own."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START = 900  # seconds, on a busy machine
QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "true"}


@contextmanager
def vllm_server(folder: Path, log: Path, context: int = 128, cache: int = 1) -> Iterator[str]:
    """The address of vLLM's server, whose model is called "tiny"; ``cache`` is in GiB."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    # Reading prompts in parts, vLLM 0.32 cannot draw by a seed on the CPU: the server ends.
    command += "--served-model-name tiny --dtype float32 --enforce-eager --no-enable-chunked-prefill".split()
    command += ["--max-model-len", str(context), "--max-logprobs", "20"]
    with _started(command, log, "v1/models", {"VLLM_CPU_KVCACHE_SPACE": str(cache)}) as url:
        yield url


@contextmanager
def transformers_server(folder: Path, log: Path) -> Iterator[str]:
    """The address of `transformers serve`, whose model is called like the folder."""
    command = [
        str(Path(sys.executable).with_name("transformers")),
        "serve",
        str(folder),
        "--device",
        "cpu",
    ]
    with _started(
        command, log, "health", {}
    ) as url:  # it lists models only beside a cache of the hub
        yield url


@contextmanager
def _started(command: list[str], log: Path, ready: str, variables: dict[str, str]) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*command, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env={**os.environ, **QUIET, **variables}, stdout=file, stderr=file
        )
        try:
            _wait(f"http://127.0.0.1:{port}/{ready}", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(60)


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(log.read_text()[-2000:])
        try:
            urllib.request.urlopen(url, timeout=5)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise TimeoutError(url)
