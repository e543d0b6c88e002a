"""One audit of n = 1e6 bits, r = 2e5 released: time and epsilon of each method on the same data, and of jax_privacy.

`tests.benchmarks one-run` runs it; the interpreter named by --beside has jax_privacy, whose two auditors take the r highest
outputs as guesses of 1 (they know one side only), the threshold given.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

N, R, MU, DELTA, ALPHA = 10**6, 2 * 10**5, 1.0, 1e-5, 0.05

BESIDE = """
import json, sys, time
import numpy as np
from jax_privacy import auditing
data = np.load(sys.argv[1])
outputs, bits, r = data["outputs"], data["bits"], int(sys.argv[2])
delta, alpha = float(sys.argv[3]), float(sys.argv[4])
auditor = auditing.CanaryScoreAuditor(outputs[bits == 1], outputs[bits == 0])
threshold = auditing.Explicit(float(np.sort(outputs)[-r]))
for name in ("epsilon_one_run", "epsilon_one_run_fdp"):
    began = time.perf_counter()
    epsilon = getattr(auditor, name)(alpha, delta, threshold_strategy=threshold)
    print(json.dumps([name, time.perf_counter() - began, float(epsilon)]), flush=True)
"""


def main() -> None:
    from lethe.statistics.one_run.audit import audit
    from lethe.statistics.one_run.channel import Gaussian, family
    from lethe.statistics.one_run.counts import release
    from tests.lethe.statistics.one_run.simulated_mechanisms import by_rank, fair_bits

    options = argparse.ArgumentParser()
    options.add_argument("--beside", type=Path)
    beside = options.parse_args().beside
    rng = np.random.default_rng(0)
    bits = fair_bits(N, rng)
    outputs = MU * bits + rng.standard_normal(N)
    drawn = by_rank(bits, outputs)
    counts = release(drawn.bits, drawn.guesses, drawn.scores, R)
    print(
        f"n = {N}, r = {R}, {counts.errors} errors; Gaussian mechanism, mu = {MU}, delta = {DELTA}, alpha = {ALPHA}"
    )
    print(f"true epsilon {Gaussian(MU).epsilon(DELTA):.4f}")
    times = {}
    for method in ("exact", "chernoff", "steinke", "mahloujifar"):
        began = time.perf_counter()
        value = audit(counts, family(), delta=DELTA, alpha=ALPHA, methods=[method])[0].value
        times[method] = time.perf_counter() - began
        row(method, times[method], value, times["exact"])
    if beside:
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/data.npz", outputs=outputs, bits=bits)
            command = [beside, "-c", BESIDE, f"{folder}/data.npz", str(R), str(DELTA), str(ALPHA)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                for line in process.stdout:
                    name, seconds, value = json.loads(line)
                    row(f"jax_privacy {name}", seconds, value, times["exact"])
        if process.returncode:
            sys.exit("jax_privacy failed")


def row(name: str, seconds: float, epsilon: float, exact: float) -> None:
    print(f"{name:34} {seconds:9.3f} s   epsilon {epsilon:.4f}   {seconds / exact:8.1f} times exact", flush=True)


if __name__ == "__main__":
    main()
