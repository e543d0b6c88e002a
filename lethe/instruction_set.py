"""One instruction set for every x86-64 machine, so that equal inputs give equal bytes on all of them. Numerical libraries
choose their kernels by processor, whose rounding differs, and training amplifies that. Every x86-64 server since 2015 has
AVX2 with FMA; only MKL needs its compatible branch, as its AVX2 branch differs between Intel and AMD.
"""

import contextlib
import os
import platform
import re
import sys
from pathlib import Path

# Each library reads its variable when the library is loaded, so all must be set before the first import.
VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch's own kernels
    "MKL_CBWR": "COMPATIBLE",  # PyTorch's matrix products: the only branch with equal results on Intel and AMD processors
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # PyTorch's fused kernels
    "OPENBLAS_CORETYPE": "Haswell",  # NumPy's and SciPy's matrix products
    # NumPy's vectorised functions: exp and log of float64 differ under AVX-512.
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}
LIBRARIES = ("numpy", "scipy", "torch")
NEEDED = {"avx2", "fma"}
SHARED = "fixed AVX2 kernels"
CHOICE = "LETHE_KERNELS"  # `machine`: the fastest kernels of this machine, as `lethe eval` has without --portable


def fix_instruction_set() -> str | None:
    """Make the numerical libraries of this process and its children use AVX2 kernels, whatever the environment says."""
    if own_kernels() is not None:
        return f"{CHOICE}=machine: the kernels are this machine's own, and so are the numbers."
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"{platform.machine()} is not x86-64: the numbers differ from those of an x86-64 machine."
    # A parent process or an earlier call may have set the variables.
    already_fixed = VARIABLES.items() <= os.environ.items()
    loaded = [name for name in LIBRARIES if name in sys.modules]
    if loaded and not already_fixed:
        raise RuntimeError(
            f"fix_instruction_set() must run before {', '.join(loaded)} is imported."
        )
    os.environ.update(VARIABLES)
    lacking = NEEDED - features()
    if not lacking:
        return None
    listed = ", ".join(sorted(lacking))
    return f"This processor lacks {listed}: the numbers differ from those of other machines."


def own_kernels() -> str | None:
    """Return the processor whose own kernels `CHOICE` selects; None with the kernels that all machines share."""
    if os.environ.get(CHOICE) != "machine":
        return None
    return processor()


def kernels_in_use() -> str:
    """Return what rounds the last bits of this process's PyTorch: `SHARED`, or the processor whose own kernels it has.

    Variables that were set after PyTorch was loaded change nothing, so PyTorch is asked.
    """
    import torch

    is_fixed = VARIABLES.items() <= os.environ.items() and not NEEDED - features()
    return SHARED if is_fixed and torch.backends.cpu.get_cpu_capability() == "AVX2" else processor()


def _cpuinfo(place: Path, key: str) -> str | None:
    """Return the first value of a key of the system's list of processors; None where there is none."""
    try:
        text = place.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def features(place: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Return the processor's instruction sets; where the system does not list them, assume the needed ones."""
    flags = _cpuinfo(place, "flags")
    if flags is None:
        return set(NEEDED)
    return set(flags.split())


def processor(place: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor's model, or of its architecture where the system does not name the model."""
    return _cpuinfo(place, "model name") or platform.processor() or platform.machine()


def in_use() -> dict[str, str]:
    """Return processor, instruction set, BLAS and PyTorch build of this process, for the provenance of its numbers."""
    import numpy as np

    fixed = VARIABLES.items() <= os.environ.items()
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    used = {
        "processor": processor(),
        "instruction set": "AVX2, fixed" if fixed else "the machine's own",
        "NumPy BLAS": f"{blas['name']} {blas['version']}",
    }
    with contextlib.suppress(ImportError):
        import torch

        build = torch.__config__.show()
        mkl = re.search(r"Math Kernel Library Version (\S+)", build)
        used["torch BLAS"] = f"MKL {mkl[1]}" if mkl else "not MKL"
        used["torch build"] = f"{torch.__version__}, {torch.version.git_version[:12]}"
        used["torch kernels"] = torch.backends.cpu.get_cpu_capability()
    return used
