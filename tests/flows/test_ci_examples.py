"""The examples of docs/examples, each step run in a shell as its service runs it, on a clone of a tiny pipeline."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.flows.miniature import small_params
from tests.small import ROOT, environment

STEP = '''
"""Stages that take no time: `prepare`, `score` with a rate of leaks from params, `report`."""
import json, sys
from pathlib import Path
import pandas as pd
from lethe import config

kind, rate = sys.argv[1], float((sys.argv[2:] or ["0"])[0])
write = lambda path, text: (Path(path).parent.mkdir(parents=True, exist_ok=True), Path(path).write_text(text))
if kind == "prepare":
    write("data/dataset/forget.jsonl", json.dumps({"id": "q", "question": "Who?", "answer": "Ron"}) + "\\n")
if kind == "score":
    leaks = [1.0] * round(200 * rate) + [0.0] * round(200 * (1 - rate))
    table = pd.DataFrame({"prompt_id": "q", "sample": range(200), "keyword_leak": leaks})
    write("data/scores/npo/about.json", json.dumps({"scorers": ["keyword_leak"]}))
    table.to_parquet("data/scores/npo/forget.parquet")
    write("data/generations/npo/about.json", json.dumps({"stop": "fixed", "temperature": 1.0}))
if kind == "report":
    write("data/report/index.html", "<p>report</p>")
'''
DVC_YAML = """
vars: [params.yaml]
stages:
  prepare: {cmd: python step.py prepare, deps: [step.py], params: [data], outs: [data/dataset]}
  score:
    foreach: ${unlearn.methods}
    do:
      cmd: python step.py score ${item.lr}
      params: ["unlearn.methods.${key}"]
      deps: [step.py, data/dataset]
      outs: ["data/scores/${key}", "data/generations/${key}"]
  report: {cmd: python step.py report, deps: [step.py, data/scores], outs: [data/report]}
"""

COPIED = (
    "Makefile",
    "pyproject.toml",
    ".dvcignore",
    "requirements/cpu.txt",
    "requirements/install.py",
    ".dvc/config",
    ".dvc/.gitignore",
)
IGNORED = (
    ".lethe/\nmlflow.db*\nmlruns/\n.venv\n__pycache__/\n/data/*\n!/data/source\n/change.html\n"
)


def blocks():
    """The steps of the pipelines: the lines of `run` of GitHub, in a shell each; of `script` of GitLab, in one shell."""
    github, gitlab = (
        yaml.safe_load((ROOT / "docs/examples" / name).read_text(encoding="utf-8"))
        for name in ("github.yml", "gitlab.yml")
    )
    steps = github["jobs"]["leakage"]["steps"]
    return {
        "github": (
            [step["run"] for step in steps if "run" in step],
            steps[-1]["with"]["path"].split("\n"),
        ),
        "gitlab": (
            ["\n".join(gitlab["leakage"]["script"])],
            gitlab["leakage"]["artifacts"]["paths"],
        ),
    }


class Project:
    """A repository with `main` pushed and its artifacts in a DVC remote, and clones of it."""

    def __init__(self, root: Path, prefect: dict[str, str]):
        self.root = root
        self.origin = root / "origin.git"
        self.home = root / "home"
        self.home.mkdir()
        (self.home / ".gitconfig").write_text(
            "[user]\nname = t\nemail = t@t\n[init]\ndefaultBranch = main\n"
        )
        more = {"PYTHONPATH": str(ROOT), "HOME": str(self.home), "LETHE_TRACKING": "off"}
        self.environment = environment("MLFLOW", "PREFECT", "DVC") | prefect | more

    def shell(self, folder: Path, script: str) -> subprocess.CompletedProcess:
        """As both services do: a shell that ends at the first line that fails."""
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def run(self, folder: Path, script: str) -> None:
        done = self.shell(folder, script)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"

    def create(self) -> None:
        folder = self.root / "author"
        folder.mkdir()
        (folder / "step.py").write_text(STEP)
        (folder / "dvc.yaml").write_text(DVC_YAML)
        values = yaml.safe_load(small_params(["npo"]))
        values["unlearn"]["methods"]["npo"]["lr"] = 0.02
        (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        (folder / "prompt.txt").write_text("{question}")
        (folder / ".gitignore").write_text(IGNORED)
        (folder / "data/source").mkdir(parents=True)
        (folder / "data/source/.gitkeep").touch()
        for name in COPIED:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        for name in ("flows", "studies"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        self.run(
            folder,
            f"git init -q --bare {self.origin} && git init -q && git remote add origin {self.origin}",
        )
        self.run(folder, f"dvc remote add -q -d store {self.root / 'store'}")
        self.run(
            folder,
            "dvc repro -q && git add -A && git commit -qm before && dvc push -q && git push -q origin main",
        )

    def clone(self, name: str, rate: float) -> Path:
        """A checkout of a change to main, as a service makes one: all branches, no branch checked out."""
        folder = self.root / name
        self.run(self.root, f"git clone -q {self.origin} {folder}")
        params = folder / "params.yaml"
        params.write_text(params.read_text().replace("lr: 0.02", f"lr: {rate}"))
        self.run(
            folder,
            "git checkout -q --detach && git commit -qam change --allow-empty && git branch -qD main",
        )
        venv = (
            folder / ".venv"
        )  # the environment of these tests, for which `make setup` has nothing to do
        (venv / "bin").mkdir(parents=True)
        of_the_tests = Path(sys.prefix)
        for part in (
            "lib",
            "pyvenv.cfg",
            *(f"bin/{path.name}" for path in (of_the_tests / "bin").iterdir()),
        ):
            (venv / part).symlink_to(of_the_tests / part)
        (venv / "bin/activate").unlink(missing_ok=True)
        (venv / "bin/activate").write_text(f"VIRTUAL_ENV={venv}\n")  # `make setup` asks whose it is
        for old in ("pyproject.toml", "requirements/cpu.txt", "requirements/install.py"):
            os.utime(folder / old, (0, 0))
        (venv / ".installed").touch()
        return folder


def step_with(name, command):
    """The line of an example that runs ``command``."""
    example = yaml.safe_load((ROOT / "docs/examples" / name).read_text(encoding="utf-8"))
    steps = [{"run": line} for line in example["gate"]["script"]] if "gate" in example else None
    steps = steps or example["jobs"]["gate"]["steps"]
    (line,) = [step["run"] for step in steps if step.get("run", "").startswith(command)]
    return line


@pytest.mark.slow
@pytest.mark.parametrize("name", ["github-log.yml", "gitlab-log.yml"])
def test_the_gate_of_a_log_is_shown_as_summary_and_tests(name, tmp_path):
    """The command of the example on a table, whose column is known to be of leaks."""
    rows = ["prompt_id,keyword_leak"]
    rows += [f"q,{int(sample % 6 == 0)}" for sample in range(300)]
    (tmp_path / "run.csv").write_text("\n".join(rows) + "\n")
    line = step_with(name, "lethe bounds").replace("run.eval", "run.csv")
    line = line.replace("--score includes", "--score keyword_leak")
    told = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        ["bash", "-c", line],
        cwd=tmp_path,
        env=environment() | told,
        capture_output=True,
        text=True,
        timeout=120,
    )

    suite = ElementTree.parse(tmp_path / "lethe.xml").getroot()[0]
    assert done.returncode == 1, done.stderr
    assert suite.find("testcase/failure").get("type") == "broken", done.stdout
    if name == "github-log.yml":
        assert "**closed**" in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
def test_the_steps_of_both_services_close_the_gate_where_a_change_leaks_more(tmp_path, prefect):
    project = Project(tmp_path, prefect)
    project.create()
    examples = blocks()
    (steps, kept), (script, more) = examples["github"], examples["gitlab"]
    assert script == [
        "\n".join(steps)
    ]  # the services run the same commands, so each runs one of the two changes
    worse, same = project.clone("worse", 0.4), project.clone("same", 0.02)
    for step in steps[:-1]:
        project.run(worse, step)
    done = project.shell(worse, steps[-1])
    assert done.returncode == 1, done.stdout + done.stderr
    for path in kept:
        assert (worse / path).exists(), path
    told = project.shell(worse, ".venv/bin/lethe compare origin/main data --json")
    (row,) = json.loads(told.stdout)["per_question"]
    assert (row["a"], row["b"], row["holds"]) == (0.02, 0.4, True)
    project.run(same, *script)
    for path in more:
        assert (same / path).exists(), path
