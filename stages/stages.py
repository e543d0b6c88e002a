"""`python stages/sample.py npo` starts the stage as `python -m stages.sample npo` does.

Python puts the folder of a script on its path, so that a stage finds this file in place of the package
`stages`. A stage must fix the instruction set before a library loads, so a new process begins.
"""

import os
import sys
from pathlib import Path

if __name__ == "stages":
    _root = str(Path(__file__).resolve().parents[1])
    _before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([_root, _before] if _before else [_root])
    _stage = f"stages.{Path(sys.argv[0]).stem}"
    os.execv(sys.executable, [sys.executable, "-m", _stage, *sys.argv[1:]])
