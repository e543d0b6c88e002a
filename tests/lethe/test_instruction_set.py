"""The numbers do not depend on what the environment or the processor would choose."""

import os
import subprocess
import sys

import pytest

from lethe.instruction_set import CHOICE, VARIABLES
from tests.small import ROOT

# exp of float64, a matrix product and a few steps of training: each differs between AVX-512 and AVX2.
SCRIPT = """
from lethe.instruction_set import fix_instruction_set
{fix}
import hashlib
import numpy as np
x = np.random.default_rng(0).random(40_000)
parts = [np.exp(x), np.log(x), x.reshape(100, 400) @ x.reshape(400, 100)]
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 64))
optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
data = torch.randn(64, 64)
for _ in range(5):
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(model(data), torch.arange(64)).backward()
    optimiser.step()
parts += [parameter.detach().numpy() for parameter in model.parameters()]
print(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
"""
OTHERS = {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Nehalem", "MKL_CBWR": "AVX2"}


def run(environment: dict[str, str], script: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in {*VARIABLES, CHOICE}}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=clean | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_environment_does_not_decide_the_bytes():
    fixed = SCRIPT.format(fix="assert fix_instruction_set() is None")
    assert run({}, fixed) == run(OTHERS, fixed)


@pytest.mark.slow
def test_without_the_fix_the_environment_decides():
    """The control: the script notices other kernels, so that the test above can fail."""
    assert run({}, SCRIPT.format(fix="")) != run(OTHERS, SCRIPT.format(fix=""))


def test_a_library_that_is_loaded_already_is_refused():
    script = (
        "import numpy\nfrom lethe.instruction_set import fix_instruction_set\nfix_instruction_set()"
    )
    with pytest.raises(AssertionError, match="must run before numpy"):
        run({}, script)
    assert run(VARIABLES, script) == "", "a parent process has fixed it before"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "before", "shared"),
    [
        (VARIABLES, "", True),
        ({}, "", False),
        ({}, f"import os, torch; torch.ones(9).exp(); os.environ.update({VARIABLES})\n", False),
        (VARIABLES | {"ATEN_CPU_CAPABILITY": "default"}, "", False),
    ],
    ids=["fixed", "as it is", "fixed too late", "other kernels"],
)
def test_the_kernels_in_use_are_those_of_pytorch(environment, before, shared):
    script = f"{before}from lethe.instruction_set import SHARED, kernels_in_use\n"

    found = run(environment, f"{script}print(kernels_in_use() == SHARED)")

    assert found == str(shared)


def test_the_machine_s_own_kernels_on_request():
    script = "from lethe.instruction_set import fix_instruction_set\nprint(fix_instruction_set())"
    assert CHOICE in run({CHOICE: "machine"}, script)


@pytest.mark.parametrize(
    ("arguments", "kernels"),
    [("eval", "own"), ("exact --portable", "avx2"), ("bounds scores.csv", "avx2")],
)
@pytest.mark.parametrize("environment", [{}, {CHOICE: "machine"}])
def test_a_command_on_your_model_takes_the_machine_s_kernels_unless_portable(
    arguments, kernels, environment
):
    script = (
        "import os, sys; from lethe.cli import app; app.app = lambda **_: None\n"
        f"sys.argv = 'lethe {arguments}'.split(); app.main(); print(os.environ.get('ATEN_CPU_CAPABILITY', 'own'))"
    )
    expected = "own" if environment and arguments.startswith("bounds") else kernels
    assert run(environment, script) == expected


def test_results_of_different_kernels_have_different_keys():
    script = "from lethe.identity import cache_key, versions\nprint(cache_key(settings=1, libraries=versions('numpy')))"
    assert run({}, script) == run({CHOICE: "other"}, script) != run({CHOICE: "machine"}, script)
