"""Which libraries a process of Lethe's own loads for a model."""

from __future__ import annotations

import subprocess
import sys

from tests.small import environment

PROGRAM = """
import sys
from lethe import process
process.same_numbers()
from lethe.models.checkpoints import fresh
from lethe.models.quick_import import import_models
import_models()
from transformers import LlamaForCausalLM
print("sklearn" in sys.modules)
import sklearn.exceptions
print(process.owned, LlamaForCausalLM.generate.__name__)
"""


def test_a_stage_loads_models_without_scikit_learn_and_may_import_it_later():
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment(), capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True", "generate"], done.stderr


def test_another_process_imports_what_transformers_has(monkeypatch):
    from lethe import process
    from lethe.models.quick_import import import_models

    monkeypatch.setattr(process, "owned", False)
    monkeypatch.delitem(sys.modules, "sklearn", raising=False)
    monkeypatch.delitem(sys.modules, "transformers.generation.candidate_generator", raising=False)
    import_models()
    assert "transformers.generation.candidate_generator" not in sys.modules
    assert "sklearn" not in sys.modules
