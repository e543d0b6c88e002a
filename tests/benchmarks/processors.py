"""The small pipeline's first stages on emulated processors of other makers, against the bytes of this machine.

QEMU's user mode runs this Python on a processor that it emulates, with the instruction sets of that one alone
(Debian: ``apt-get install qemu-user``). It is some fifty times slower than the machine, so the stages run in one process,
which loads the libraries once, and training is short: a kernel that sums otherwise shows in the first step. What a real
processor approximates (the reciprocal square root), QEMU computes exactly: a difference here need not be one on the real
processor, but equal bytes come from code that both run.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import golden
from tests.small import environment, make_repository, small_params

# The stages after these crash QEMU 7.2; on a real processor they run.
STAGES = (("prepare",), ("train", "base"), ("unlearn", "npo_entropy"), ("likelihood", "base"))
FILES = ("models/*/model.safetensors", "likelihood/base/*.parquet")
PROCESSORS = ("EPYC-Rome", "Haswell", "Skylake-Client")  # of AMD, Intel and Intel, none with AVX-512


RUN = """
from lethe.process import same_numbers
same_numbers()
import importlib, json, sys, time
for stage, *name in json.loads(sys.argv[1]):
    began = time.monotonic()
    importlib.import_module(f"stages.{stage}").main(*name)
    print(f"  {stage} {' '.join(name)}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
"""


def made(folder: Path, before: Sequence[str], expected: Mapping[str, str]) -> dict[str, str]:
    """The hashes of what the stages write, in one process started behind the command ``before``.

    After each stage a line says whether all files so far have the expected hashes.
    """
    params = small_params()
    params["train"]["recipe"]["epochs"] = 2
    params["unlearn"]["methods"]["npo_entropy"]["epochs"] = 1
    make_repository(folder, params, git=False)
    # The base interpreter: an emulator does not follow the environment's link to it.
    python = os.path.realpath(sys.executable)
    packages = os.pathsep.join([str(folder), sysconfig.get_paths()["purelib"]])
    command = [*before, python, "-c", RUN, json.dumps(STAGES)]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment() | {"PYTHONPATH": packages},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        for line in running.stderr or ():
            if "TCG doesn't support" in line:  # what the emulator lacks of the processor, in every process anew
                continue
            if expected and line.startswith("  "):
                found = golden.hashes(folder / "data", FILES)
                same = sum(expected[name] == digest for name, digest in found.items())
                line = f"{line.rstrip()}, {same} of {len(found)} files equal\n"
            print(line, end="", file=sys.stderr, flush=True)
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, command)
    return golden.hashes(folder / "data", FILES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("processors", nargs="*", default=PROCESSORS)
    options = parser.parse_args()
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        print("qemu-x86_64 is not installed (Debian: qemu-user).", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        here = made(Path(place) / "here", [], {})
        differ = False
        for processor in options.processors:
            began = time.monotonic()
            lines = golden.differences(made(Path(place) / processor, [emulator, "-cpu", processor], here), here)
            differ |= bool(lines)
            print(
                f"{processor}: {'; '.join(lines) or f'{len(here)} files equal'} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
