"""How many of the faults that ``mutants`` sampled the tests of an older commit notice in its own code.

The older commit has a mutant where mutmut makes the same change of the same statement in a function of that name. Which
tests run, and what is left out, are as in ``mutants``. A second call continues an interrupted one.
"""

import argparse
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.mutants import (
    CORE,
    KILLED,
    ROOT,
    STATISTICS,
    TESTS,
    Mutant,
    mutants,
    mutmut,
    refresh,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks old-suite", description=__doc__
    )
    parser.add_argument(
        "--sample",
        type=Path,
        default=ROOT / ".lethe/mutants",
        help="folder of the finished call of mutants",
    )
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", default="0154156", help="the older commit")
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / ".lethe/old-suite",
        help="of the clone and the results",
    )
    options = parser.parse_args()
    sample, folder = options.sample.resolve(), options.folder.resolve()
    prepare(folder, options.commit)
    os.chdir(sample)  # where `mutants` reads
    chosen = [
        mutant
        for mutant in itertools.islice(mutants(options.seed), options.count)
        if mutant.outcome != "equivalent"
    ]
    now = {mutant.key: mutant.outcome for mutant in chosen}
    if "not checked" in now.values():
        parser.error(
            "--sample must be the folder of a finished call of mutants with this --count and --seed."
        )
    os.chdir(folder / "run")
    there = same(chosen)
    if ahead := [mutant.name for mutant in there.values() if mutant.outcome == "not checked"]:
        mutmut(*ahead)
    print(
        *(
            f"{mutant.outcome}: {key}"
            for key, mutant in there.items()
            if mutant.outcome not in KILLED
        ),
        sep="\n",
    )
    print("\nfolder|mutants|in the commit|killed then|killed now", "---|---|---|---|---", sep="\n")
    for part in (*(f"lethe/{name}/" for name in CORE), "lethe/"):
        keys = [key for key in now if key.startswith(part)]
        both = [key for key in keys if key in there]
        then = sum(there[key].outcome in KILLED for key in both)
        print(
            f"`{part}`",
            len(keys),
            len(both),
            then,
            sum(now[key] in KILLED for key in both),
            sep="|",
        )


def prepare(folder: Path, commit: str) -> None:
    """Clone the commit and let mutmut make its mutants and find the tests of each function."""
    clone, run = folder / "clone", folder / "run"
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", ROOT, clone], check=True)
    subprocess.run(["git", "checkout", "--quiet", "--force", commit], cwd=clone, check=True)
    (run / "mutants").mkdir(parents=True, exist_ok=True)
    os.chdir(run)
    refresh("\n".join(name for name in TESTS if (clone / name).exists()), clone)
    for name in ("mutants.py", "equivalent_mutants.json"):  # the plug-in of pytest
        for target in ("tests/benchmarks", "mutants/tests/benchmarks"):
            Path(target).mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(__file__).with_name(name), target)
    mutmut("no.mutant__mutmut_1")
    if not Path(STATISTICS).exists():
        sys.exit(f"The tests fail without a mutant: {run}/mutmut.log says how.")


def same(chosen: list[Mutant]) -> dict[str, Mutant]:
    """The mutants that the older commit has, by their keys of today: in a file of the same name before another."""
    olds: dict[str, list[Mutant]] = {}
    for mutant in mutants(0, {mutant.function for mutant in chosen}):
        olds.setdefault(mutant.key.partition(": ")[2], []).append(mutant)
    found = {}
    for mutant in chosen:
        if old := olds.get(mutant.key.partition(": ")[2]):
            found[mutant.key] = min(
                old, key=lambda other: Path(other.file).name != Path(mutant.file).name
            )
    return found


if __name__ == "__main__":
    main()
