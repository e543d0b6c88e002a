"""How many small faults in the core the tests notice: mutation testing by mutmut on a seeded sample.

mutmut changes an operator, number, argument, condition or assignment of a function that has no decorator, runs the tests that
call the function, and stops at the first that fails. Left out are mutants that change only strings, annotations, errors, log
lines, assertions or the `strict` of a `zip`. ``TESTS`` are those of the core, of what stands on it and of the contracts:
mutmut runs all tests without a mutant first. Of tests marked slow it runs those marked seconds.

mutmut works in a copy of the checkout and keeps the results: a second call continues an interrupted one. After an edit it
tries the mutants of the functions that changed and, where a test changed, the survivors.
"""

import argparse
import ast
import difflib
import filecmp
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

import libcst
from mutmut.mutation.diff_apply import read_functions_from_index
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

ROOT = Path(__file__).parents[2]
CORE = ("statistics", "results", "sampling", "scoring")
BESIDE = ("measure", "comparison", "verdict", "cli/test_extract_command.py", "api/test_turns.py")
TESTS = (*(f"tests/lethe/{name}" for name in (*CORE, *BESIDE)), "tests/contract")
KILLED = {"killed", "timeout", "segfault"}  # what hangs or crashes would do so in the suite
# Mutants that no test can notice, by `Mutant.key`, each with the reason.
EQUIVALENT: dict[str, str] = json.loads(
    Path(__file__).with_name("equivalent_mutants.json").read_text("utf-8")
)
STATISTICS = "mutants/mutmut-stats.json"  # seconds of tests, and the tests of each function
CODES = "exit_code_by_key"
SETTINGS = {
    "debug": "true",  # the log has what pytest prints
    "source_paths": "lethe",
    "only_mutate": "\n".join(f"lethe/{name}/*" for name in CORE),
    "pytest_add_cli_args": "-p\nno:xdist\n-p\ntests.benchmarks.mutants\n--hypothesis-seed=0\n-m\nnot slow or seconds",
    **{"timeout_constant": "10", "timeout_multiplier": "5", "use_git_change_detection": "false"},
}


class Mutant(NamedTuple):
    """A changed function: mutmut's name, and the text without and with the change; ``key`` stays when lines move."""

    file: str
    name: str
    before: str
    after: str

    @property
    def difference(self) -> list[str]:
        return list(
            difflib.unified_diff(
                self.before.splitlines(), self.after.splitlines(), lineterm="", n=0
            )
        )[2:]

    @property
    def function(self) -> tuple[str, str | None]:
        return orig_function_and_class_names_from_key(self.name)

    @property
    def key(self) -> str:
        function, owner = self.function
        sides = (
            " ".join(line[1:].strip() for line in self.difference if line[0] == sign)
            for sign in "-+"
        )
        return f"{self.file}: {f'{owner}.' if owner else ''}{function}: {' -> '.join(sides)}"

    @property
    def outcome(self) -> str:
        return (
            "equivalent"
            if self.key in EQUIVALENT
            else status_by_exit_code[codes(self.file)[self.name]]
        )


class Quiet(ast.NodeTransformer):
    """Blanks what is not behaviour."""

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Constant(str()) | ast.JoinedStr() | ast.Lambda(body=ast.Constant(None)):
                return ast.Constant(None)
            case ast.Raise() | ast.Assert():
                return ast.Pass()
            case ast.Call(ast.Name("zip")):
                node.keywords = []
            case ast.Call(ast.Name("check"), [good, *_]):
                return good
            case ast.Call(ast.Attribute(ast.Name("logger"))):
                return ast.Constant(None)
            case ast.Call(ast.Name("cast"), [_, value]):
                return value
        return node


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".lethe/mutants", help="of the copy and the results"
    )
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders or files of tests")
    options = parser.parse_args()
    if any(options.folder.glob("*")) and not (options.folder / "mutmut.log").exists():
        parser.error(
            "--folder must be empty or that of an earlier call, since old files in it are deleted."
        )
    (options.folder / "mutants").mkdir(parents=True, exist_ok=True)  # where the tests run
    os.chdir(options.folder)  # where mutmut reads and writes
    refresh("\n".join(options.tests))
    mutmut("no.mutant__mutmut_1")  # stops after all that comes before the first mutant
    if not Path(STATISTICS).exists():
        sys.exit(f"The tests fail without a mutant: {Path.cwd()}/mutmut.log says how.")
    chosen = list(itertools.islice(mutants(options.seed), options.count))
    if ahead := [mutant.name for mutant in chosen if mutant.outcome == "not checked"]:
        mutmut(*ahead)  # without a name it would try every mutant
    return report(chosen)


def refresh(tests: str, root: Path = ROOT) -> None:
    """Copy what changed in the checkout, so that mutmut keeps the results of the rest."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=root, text=True).splitlines()
    names = {name for name in tracked if (root / name).is_file()}
    for old in list(Path().rglob("*.py")):
        if str(old).removeprefix("mutants/") not in names:
            old.unlink()
            Path(f"{old}.meta").unlink(missing_ok=True)
    there = {name for name in names if Path(name).is_file()}
    changed = names - {name for name in there if filecmp.cmp(root / name, name, shallow=False)}
    for name in changed:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, name)
        Path("mutants", name).unlink(missing_ok=True)
    if any(name.startswith("tests/") for name in changed):
        forget(changed)
    copied = "\n".join({name.partition("/")[0] for name in names} - {"lethe"})
    settings = SETTINGS | {"also_copy": copied, "pytest_add_cli_args_test_selection": tests}
    lines = [f"{key} = {value}".replace("\n", "\n  ") for key, value in settings.items()]
    Path("setup.cfg").write_text("\n".join(["[mutmut]", *lines, ""]), encoding="utf-8")


def forget(changed: set[str]) -> None:
    """Let mutmut find again what the changed tests call, and try again what no test noticed."""
    for path in filter(Path.exists, [Path(STATISTICS), *Path("mutants").rglob("*.meta")]):
        known = json.loads(path.read_text("utf-8"))
        statuses = known.get(CODES, {})
        seconds = known.get("duration_by_test", {})
        statuses |= dict.fromkeys(
            name for name in statuses if status_by_exit_code[statuses[name]] not in KILLED
        )
        for test in [name for name in seconds if name.partition("::")[0] in changed]:
            del seconds[test]
        path.write_text(json.dumps(known), encoding="utf-8")


def pytest_configure() -> None:
    """As a plug-in of pytest: a process that a test starts cannot count for mutmut which functions it calls."""
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        del os.environ["MUTANT_UNDER_TEST"]


def mutmut(*names: str) -> None:
    """Generate the mutants of what changed, find the tests of each function, and try the named mutants."""
    environment = os.environ | {"PYTHONPATH": os.path.abspath("mutants"), "OMP_NUM_THREADS": "1"}
    command = [Path(sys.executable).with_name("mutmut"), "run", *names]
    with open("mutmut.log", "w", encoding="utf-8") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)


def codes(file: str) -> dict[str, int | None]:
    """Exit statuses of the tests by the mutants of a file."""
    return json.loads(Path("mutants", f"{file}.meta").read_text("utf-8"))[CODES]


def mutants(
    seed: int, functions: Container[tuple[str, str | None]] | None = None
) -> Iterator[Mutant]:
    """All mutants of behaviour, or those of the functions, in an order that the seed draws and no edit elsewhere changes."""
    paths = (
        str(path.with_suffix("").relative_to("mutants")) for path in Path("mutants").rglob("*.meta")
    )
    files = {name: file for file in paths for name in codes(file)}
    for name in sorted(files, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest()):
        if functions is not None and orig_function_and_class_names_from_key(name) not in functions:
            continue
        texts = [
            libcst.Module([function]).code.strip()
            for function in read_functions_from_index(name, files[name]) or ()
        ]
        if len({ast.unparse(Quiet().visit(ast.parse(text))) for text in texts}) == 2:
            yield Mutant(files[name], name, *texts)


def report(chosen: list[Mutant]) -> int:
    """Print every mutant that no test noticed, and a row per folder; 1 where fewer than 95 % were noticed."""
    for mutant in chosen:
        if mutant.outcome not in KILLED | {"equivalent"}:
            print(f"\n{mutant.outcome}: {mutant.name}", mutant.key, *mutant.difference, sep="\n")
    print("\nfolder|mutants|equivalent|killed|survived", "---|---|---|---|---", sep="\n")
    for folder in (*(f"lethe/{name}/" for name in CORE), "lethe/"):
        counts = Counter(mutant.outcome for mutant in chosen if mutant.file.startswith(folder))
        killed = sum(counts[name] for name in KILLED)
        equivalent = counts["equivalent"]
        print(
            f"`{folder}`",
            counts.total(),
            equivalent,
            killed,
            counts.total() - equivalent - killed,
            sep="|",
        )
    share = killed / max(counts.total() - equivalent, 1)
    print(f"\n{share:.1%} killed; {dict(counts)}")
    return int(share < 0.95)


if __name__ == "__main__":
    sys.exit(main())
