"""Tiny random models with a tokenizer of single letters, so that a text tells its tokens."""

from pathlib import Path

import pytest

from lethe.registry import ENGINES
from lethe.sampling.engine import open_engine
from tests.lethe.sampling.sampling_models import build_llama


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """Six tokens, the last of which ends an answer: small enough to enumerate every sequence."""
    return build_llama(tmp_path_factory.mktemp("models") / "tiny", letters="abcde", scale=1.0)


EVERY = [pytest.param(name, marks=[pytest.mark.slow] if name == "vllm" else []) for name in ENGINES]


@pytest.fixture(scope="session", params=EVERY)
def tiny_engine(request, tiny_model):
    """The tiny model in each engine; opened once, since vLLM takes its time to start."""
    return open_engine(request.param, tiny_model)


@pytest.fixture(scope="session")
def sure_model(tmp_path_factory) -> Path:
    """Twenty-seven tokens and large logits: a model that is often sure, whose samples share long prefixes."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return build_llama(tmp_path_factory.mktemp("models") / "sure", letters=letters, scale=2.5)
