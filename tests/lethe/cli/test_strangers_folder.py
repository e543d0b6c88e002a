"""A command in a stranger's folder runs no code of that folder."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lethe.cli.app import COMMANDS, GROUPS, IN_A_PIPELINE
from lethe.comparison.revisions import folder_of_revision
from lethe.process import git
from lethe.report.page import revision
from tests.small import ROOT, python

# Names that a command of Lethe imports, or that a library or Python itself looks for.
LIBRARIES = (
    *("numpy", "pandas", "typer", "rich", "pydantic", "torch", "openai", "multiprocessing"),
    *("pathlib", "json", "mlflow", "prefect", "dvc", "sitecustomize", "gunicorn.conf", "conftest"),
)
PIPELINE = ("flows/__init__", "flows/cli", "flows/pipeline", "studies/__init__", "studies/commands")
SCORES = "prompt_id,score\na,0\na,1\nb,0\n"
ANSWERS = "prompt_id,sample,text,score\na,0,Ron,1\nb,0,,0\n"
CALLS = (
    ["bounds", "scores.csv", "--json"],
    ["log", "answers.csv", "--json"],
    ["compare", "scores.csv", "scores.csv", "--json"],
    ["plan", "--alpha", "0.01", "--tau", "0.05", "--prompts", "4", "--json"],
    ["audit", "one-run", *"--n 100 --r 20 --errors 3 --mechanism gaussian --delta 1e-5".split()],
)
# Every call in one process, as the installed command makes it: Python's path does not begin with the folder.
RUNNER = """
import json, sys
from typer.testing import CliRunner
from lethe.cli.app import app
statuses = [CliRunner().invoke(app, call).exit_code for call in json.loads(sys.argv[1])]
print(json.dumps(statuses))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a pipeline; each module in it writes ``RAN`` when it runs."""
    place = tmp_path / "stranger"
    for name in (*LIBRARIES, *PIPELINE):
        module = place / f"{name}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(f"open({str(place / 'RAN')!r}, 'a').write({name!r} + '\\n')\n")
    (place / "dvc.yaml").touch()
    (place / "params.yaml").touch()
    (place / "scores.csv").write_text(SCORES)
    (place / "answers.csv").write_text(ANSWERS)
    return place


def ran(folder: Path) -> list[str]:
    """The modules of the folder that ran."""
    told = folder / "RAN"
    return told.read_text().split() if told.exists() else []


def calls_of_help() -> list[list[str]]:
    names = [[name] for commands in COMMANDS.values() for name in commands]
    names += [[group, name] for group, (_, commands) in GROUPS.items() for name in commands]
    return [["--help"], *([*name, "--help"] for name in (*names, ["ui"]))]


@pytest.mark.slow
def test_no_command_but_those_of_a_pipeline_runs_code_of_the_folder(folder, tmp_path):
    script = tmp_path / "lethe_command.py"
    script.write_text(RUNNER)
    calls = [*calls_of_help(), *CALLS]

    done = python(folder, str(script), json.dumps(calls), PYTHONPATH=str(ROOT))

    statuses = json.loads(done.stdout.splitlines()[-1])
    assert dict(zip(map(str, calls), statuses, strict=True)) == dict.fromkeys(map(str, calls), 0)
    assert ran(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("call", [["bounds", "scores.csv"], ["--help"]])
def test_python_m_lethe_takes_no_library_from_the_folder(folder, call):
    python(folder, "-m", "lethe", *call, PYTHONPATH=str(ROOT))

    assert ran(folder) == []


def git_of(folder: Path, *arguments: str) -> None:
    """git as its user runs it, with all that the repository names."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(folder) -> Path:
    """A repository whose settings name a command wherever git can run one, and whose files of code look changed."""
    trap = folder / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho $1 >> {folder / 'RAN'}\ncat\n")
    trap.chmod(0o755)
    hooks = folder / "hooks"
    hooks.mkdir()
    (hooks / "post-index-change").symlink_to(trap)
    (folder / ".gitattributes").write_text("params.yaml filter=a=b\n*.txt filter=long\n")
    (folder / "lethe/a.txt").parent.mkdir(exist_ok=True)
    (folder / "lethe/a.txt").write_text("1")
    git_of(folder, "init", "-q")
    git_of(folder, "add", "params.yaml", "lethe/a.txt", ".gitattributes")
    git_of(folder, "commit", "-q", "-m", "a")
    for key, value in {
        "core.fsmonitor": f"{trap} fsmonitor",
        "core.hooksPath": str(hooks),
        "filter.a=b.clean": f"{trap} clean",
        "filter.a=b.required": "true",
        "filter.long.process": f"{trap} process",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{trap} fetch",
        "protocol.ext.allow": "always",
    }.items():
        git_of(folder, "config", key, value)
    for name in ("params.yaml", "lethe/a.txt"):
        path = folder / name
        path.write_text(path.read_text())
        os.utime(path, (0, 0))
    return folder


def test_git_runs_no_command_that_the_folder_names(repository):
    listed = git("status", "--porcelain", root=repository)
    missing = git("rev-parse", "--verify", f"{'0' * 39}1^{{commit}}", root=repository)

    assert "scores.csv" in listed
    assert "params.yaml" not in listed  # its bytes are those of the commit
    assert missing is None
    assert ran(repository) == []


def test_git_runs_the_filter_of_the_folder_when_its_user_calls_it(repository):
    """Without this the test above would pass in a repository whose traps do not work."""
    git_of(repository, "status", "--porcelain")

    assert {"fsmonitor", "clean"} <= set(ran(repository))


def test_a_compared_revision_is_read_without_a_command_that_the_folder_names(
    repository, tmp_path, monkeypatch
):
    """DVC reads the objects of git itself: it runs neither git nor what git would run."""
    git_of(repository, "config", "--unset", "extensions.partialClone")  # which DVC does not read
    (repository / "params.yaml").write_text("seed: 1\n")
    (repository / ".dvc").mkdir(exist_ok=True)
    (repository / ".dvc/config").write_text("")
    git_of(repository, "add", "-f", ".dvc/config", "params.yaml")
    git_of(repository, "commit", "-q", "-m", "b")
    spy = tmp_path / "bin/git"
    spy.parent.mkdir()
    spy.write_text(f"#!/bin/sh\necho git >> {repository / 'RAN'}\nexit 1\n")
    spy.chmod(0o755)
    commit = git("rev-parse", "HEAD", root=repository)
    (repository / "RAN").unlink(missing_ok=True)
    monkeypatch.setattr("lethe.comparison.revisions._commit", lambda revision: commit)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(repository)

    with folder_of_revision("HEAD") as root:
        read = (root / "params.yaml").read_text()

    assert read == "seed: 1\n"
    assert ran(repository) == []


def test_the_revision_of_a_report_runs_nothing_of_a_submodule(folder, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.txt").write_text("1")
    (inner / ".gitattributes").write_text("*.txt filter=x\n")
    git_of(inner, "init", "-q")
    git_of(inner, "add", ".")
    git_of(inner, "commit", "-q", "-m", "a")
    git_of(folder, "init", "-q")
    git_of(folder, "submodule", "add", "-q", str(inner), "stages/inner")
    git_of(folder, "commit", "-q", "-m", "a")
    within = folder / "stages/inner"
    git_of(within, "config", "filter.x.clean", f"sh -c 'echo x >> {folder / 'RAN'}; cat'")
    os.utime(within / "a.txt", (0, 0))

    told = revision(folder)

    assert len(told) >= 12
    assert ran(folder) == []


BROKEN = {
    "raises": "raise KeyError('no such thing')",
    "lacks commands": "",
    "leaves": "import sys; sys.exit()",
    "has no table": "commands = 3",
    "has no command": "def commands(): return {}",
    "gives a number": "def commands(): return dict.fromkeys(('run', 'serve', 'sweep', 'study'), 3)",
    "does not parse": "def (",
    "has an option of a type that no command line has": "def run(x: list[list[int]]): pass\n"
    "def commands(): return dict.fromkeys(('run', 'serve', 'sweep', 'study'), run)",
    "names no study": "def commands(): return {'study': {'game': 'missing'}}",
}
# Every command of a pipeline in one process, on every broken file.
OF_A_PIPELINE = """
import json, pathlib, sys
from typer.testing import CliRunner
from lethe.cli.app import app
told = {}
for broken, code in json.loads(sys.argv[1]).items():
    pathlib.Path("flows/cli.py").write_text(code)
    pathlib.Path("studies/commands.py").write_text("")
    for call in (["run"], ["run", "--help"], ["serve"], ["sweep"], ["study"], ["study", "game"]):
        for name in [name for name in sys.modules if name.partition(".")[0] in ("flows", "studies")]:
            del sys.modules[name]
        result = CliRunner().invoke(app, call)
        told[f"{broken}: {call}"] = [result.exit_code, result.stderr]
print(json.dumps(told))
"""


def test_a_pipeline_folder_whose_code_gives_no_command_is_refused_in_a_sentence(folder):
    for name in ("flows/__init__.py", "studies/__init__.py"):
        (folder / name).write_text("")

    done = python(
        folder, "-P", "-c", OF_A_PIPELINE, json.dumps(BROKEN), PYTHONPATH=f"{ROOT}", check=False
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) == 6 * len(BROKEN)
    for case, (status, errors) in told.items():
        assert (case, status, errors.count("lethe: ")) == (case, 2, 1)
        assert "gives no command" in errors


def test_a_command_of_a_pipeline_runs_the_code_of_its_folder(folder):
    """Without this the tests above would pass in a folder whose traps do not work."""
    python(folder, "-m", "lethe", "run", check=False, PYTHONPATH=str(ROOT))

    assert "flows/cli" in ran(folder)
    assert set(IN_A_PIPELINE) == {"run", "serve", "sweep", "study"}
