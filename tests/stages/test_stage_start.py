"""How every stage starts: the instruction set is fixed before a numerical library is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.small import ROOT

STAGES = sorted(path.stem for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_loads_no_numerical_library_before_it_runs(stage, project):
    script = f"import sys, stages.{stage}\nprint([m for m in ('numpy', 'scipy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
