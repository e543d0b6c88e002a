"""The small pipeline's first stages on emulated processors of other makers, against the bytes of this machine.

QEMU's user mode runs this Python on an emulated processor, with only the instruction sets of that processor
(Debian: ``apt-get install qemu-user``). The emulation is much slower than the machine. What a real processor approximates
(the reciprocal square root), QEMU computes exactly: a difference here need not exist on the real processor, but equal bytes
come from code that both run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests import golden
from tests.small import environment, make_repository, small_params

# The stages after these crash QEMU 7.2; on a real processor they run.
STAGES = (("prepare",), ("train", "base"), ("unlearn", "npo_entropy"), ("likelihood", "base"))
FILES = ("models/*/model.safetensors", "likelihood/base/*.parquet")
PROCESSORS = ("Haswell", "Skylake-Client", "EPYC-Rome")  # of Intel, Intel and AMD, none with AVX-512


def made(folder: Path, before: Sequence[str]) -> dict[str, str]:
    """The hashes of what the stages write, each started behind the command ``before``."""
    make_repository(folder, small_params(), git=False)
    # The base interpreter: an emulator does not follow the environment's link to it.
    python = os.path.realpath(sys.executable)
    packages = os.pathsep.join([str(folder), sysconfig.get_paths()["purelib"]])
    for stage, *name in STAGES:
        command = [*before, python, "-m", f"stages.{stage}", *name]
        subprocess.run(
            command,
            cwd=folder,
            env=environment() | {"PYTHONPATH": packages},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return golden.hashes(folder / "data", FILES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("processors", nargs="*", default=PROCESSORS)
    options = parser.parse_args()
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        print("qemu-x86_64 is not installed (Debian: qemu-user).", file=sys.stderr)
        return 2
    differ = False
    with tempfile.TemporaryDirectory() as place:
        here = made(Path(place) / "here", [])
        for processor in options.processors:
            began = time.monotonic()
            lines = golden.differences(made(Path(place) / processor, [emulator, "-cpu", processor]), here)
            differ |= bool(lines)
            print(
                f"{processor}: {'; '.join(lines) or f'{len(here)} files equal'} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
