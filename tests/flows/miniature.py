"""A miniature repository: the shape of the real one (a chain, branches, a report), with stages that take no time."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from tests.lethe.cli.calls import Command
from tests.small import ROOT, environment

STEP = '''
"""A stage that writes what it reads; `slow` makes it wait, `fail` names the outputs it fails at.

leaks.json has each model's leaking answers by question, words.json the words on the models, which the report writes."""
import json, sys, time
from pathlib import Path

from lethe import config, tracking
from lethe.io.files import write_json
from lethe.process import run_stage
from lethe.results import table
from lethe.statistics.bound import Bound, Covers
from lethe.errors import BadFile
from tests.flows.told import write_words

ENDS = ((0.0, "lower"), (1.0, "upper"))
SHOWN = {"metrics": "metrics", "game": "games"}


def main(out, text=""):
    while Path("slow").exists() and Path("slow").read_text() in out:
        Path("alive").write_text(str(time.time()))
        time.sleep(0.05)
    if Path("fail").exists() and Path("fail").read_text() in out:
        raise BadFile("rows.jsonl", "line 3 is broken")
    if out.endswith(".parquet"):
        stage, name = Path(out).parent.name, Path(out).stem
        rows = table.Rows(name)
        if stage == "game":
            rows.add("audit", "number", "run", 0.5, item="quality")
        else:
            rows.add("model", "alpha", "sampled", config.load().metrics.alpha)
            rows.add("model", "score", "sampled", float(len(text)))
        for item, leaks in json.loads(Path("leaks.json").read_text()).get(name, {}).items():
            ends = (Bound(end, side, 0.01, Covers.ONE_PROMPT, "", "", 1024) for end, side in ENDS)
            evidence = {"leaks": leaks, "n": 1024, "missing": 0}
            rows.add("question", "leak", "sampled", None, *ends, item=item, evidence=evidence)
        table.write(out, rows.rows)
        alpha = config.load().metrics.alpha
        write_json(f"data/{SHOWN[stage]}/{name}.json", {"mean": float(len(text)), "text": text, "alpha": alpha})
    else:
        write_json(Path(out) / "training.json", {"steps": [{"step": i, "loss": 1 / (i + 1)} for i in range(3)]})
        (Path(out) / "text").write_text(text)
    print("wrote", out)
    if out == "data/report":
        words = json.loads(Path("words.json").read_text())
        write_json("data/report/summary.json", {"models": words})
        write_words(Path("data"), words)
        print(tracking.log_new())


run_stage(main)
'''

DVC_YAML = """
vars: [params.yaml]
stages:
  prepare:
    cmd: python step.py data/dataset
    params: [data]
    deps: [step.py]
    outs: [data/dataset]
  unlearn:
    foreach: ${unlearn.methods}
    do:
      cmd: python step.py data/models/${key} ${item.lr}
      params: ["unlearn.methods.${key}"]
      deps: [step.py, data/dataset]
      outs: ["data/models/${key}"]
  metrics:
    foreach: ${models}
    do:
      cmd: python step.py data/results/metrics/${key}.parquet ${metrics.alpha}
      params: [metrics]
      deps: [step.py, leaks.json, "${item.path}"]
      outs: ["data/results/metrics/${key}.parquet"]
      metrics: ["data/metrics/${key}.json"]
  audit:
    foreach: ${audits}
    do:
      cmd: python step.py data/audits/${key}
      outs: ["data/audits/${key}"]
  game:
    foreach: ${games}
    do:
      cmd: python step.py data/results/game/${key}.parquet ${item.kind}
      params: ["games.${key}"]
      outs: ["data/results/game/${key}.parquet"]
      metrics: ["data/games/${key}.json"]
  report:
    cmd: python step.py data/report
    deps: [step.py, words.json, data/models, data/results/metrics]
    outs: [data/report, data/results/compare/models.parquet]
"""


class Repository:
    def __init__(self, folder: Path, prefect: dict[str, str]):
        self.folder = folder
        self.prefect_home = Path(prefect["PREFECT_HOME"])
        self.home = folder.parent / "home"  # a run leaves nothing in it
        self.home.mkdir(exist_ok=True)
        paths = {"PYTHONPATH": str(ROOT), "HOME": str(self.home)}
        self.environment = environment("MLFLOW", "PREFECT", "DVC") | prefect | paths

    def use_its_own_server(self) -> None:
        """Let `lethe run` start its temporary server, as it does for a user."""
        del self.environment["PREFECT_API_URL"]

    def python(self, *arguments: str, **extra: str) -> subprocess.Popen:
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=self.folder, env=self.environment | extra, **told
        )

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen:
        return self.python("-m", "lethe", *arguments, **extra)

    def refused(self, *arguments: str) -> str:
        """What a wrong call says, in this process."""
        with contextlib.chdir(self.folder):
            return " ".join(Command().refused(*arguments).split())

    def waiting(self, stage: str, *arguments: str, **extra: str) -> subprocess.Popen:
        """A run that has come to ``stage``, which waits until `go_on`."""
        (self.folder / "slow").write_text(stage)
        process = self.start("run", "--json", *arguments, **extra)
        wait_until((self.folder / "alive").exists, seconds=400)
        return process

    def go_on(self, process: subprocess.Popen) -> tuple[str, str]:
        (self.folder / "slow").unlink()
        return process.communicate(timeout=300)

    def ran(self, *arguments: str, **extra: str) -> dict[str, str]:
        """How each stage ended of a run that ends well."""
        result = self.lethe("run", "--json", *arguments, **extra)
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
        return ends(result.stdout)

    def contents(self) -> dict[str, bytes]:
        files = [
            path
            for path in (self.folder / "data").rglob("*")
            if path.is_file() and path.name != ".gitignore"
        ]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}

    def lethe(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess:
        process = self.start(*arguments, **extra)
        try:
            out, err = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(
                f"lethe {' '.join(arguments)} did not end:\n{process.communicate()[1]}"
            ) from None
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def dvc(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "dvc", *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, check=True, capture_output=True
        )

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def at(self, folder: Path) -> Repository:
        """Another folder with this environment."""
        other = Repository(folder, {"PREFECT_HOME": str(self.prefect_home)})
        other.environment = self.environment
        return other

    def params(self) -> str:
        return (self.folder / "params.yaml").read_text()


def ends(out: str) -> dict[str, str]:
    """How each stage ended by what `lethe run --json` printed."""
    return {name: end["why"] for name, end in json.loads(out)["stages"].items()}


def one_branch(folder: Path, prefect: dict[str, str]) -> Repository:
    """One method and no report, nothing logged: for tests that need several runs."""
    repository = make(folder, prefect, methods=["npo"])
    dvc_yaml = folder / "dvc.yaml"
    dvc_yaml.write_text(dvc_yaml.read_text().partition("  report:")[0])
    repository.environment["LETHE_TRACKING"] = "off"
    return repository


def make(
    folder: Path, prefect: dict[str, str], methods: Sequence[str] = ("grad_diff", "npo")
) -> Repository:
    """A miniature repository without git, like an export: some methods, with one model each."""
    folder.mkdir()
    (folder / "step.py").write_text(STEP)
    for name in ("flows", "studies"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "dvc.yaml").write_text(DVC_YAML)
    (folder / ".gitignore").write_text(".lethe/\nmlflow.db*\nmlruns/\n")
    shutil.copy(ROOT / ".dvcignore", folder)
    (folder / ".dvc").mkdir()
    for name in ("config", ".gitignore"):
        shutil.copy(ROOT / ".dvc" / name, folder / ".dvc")
    (folder / "params.yaml").write_text(small_params(methods))
    (folder / "data/source").mkdir(parents=True)
    (folder / "prompt.txt").write_text("{question}")
    for name in ("leaks.json", "words.json"):
        (folder / name).write_text("{}")
    return Repository(folder, prefect)


def small_params(methods: Sequence[str]) -> str:
    import yaml

    values = yaml.safe_load((ROOT / "params.yaml").read_text())
    values["unlearn"]["methods"] = {name: values["unlearn"]["methods"][name] for name in methods}
    values["models"] = {name: {"path": f"data/models/{name}"} for name in methods}
    values["train"]["recipe"]["prompt"] = values["sample"]["prompt"] = "prompt.txt"
    values["report"] |= {"base": None, "retrain": "npo"}
    return "# The head comment stays.\n" + yaml.safe_dump(values, sort_keys=False)


def wait_until(condition, seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def processes_of(repository: Repository) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and os.readlink(f"/proc/{entry.name}/cwd") == str(
                repository.folder
            ):
                yield int(entry.name)
        except OSError:
            continue


def command_of(pid: int) -> str:
    """The command line of a process; nothing once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@contextlib.contextmanager
def cluster(
    folder: Path, workers: int = 2, **extra: str
) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A Dask scheduler and its workers, each a process that was started in a folder of its own."""
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    file = folder / "scheduler.json"
    started = []

    def start(module: str, cwd: Path, *arguments: str) -> None:
        cwd.mkdir(parents=True)
        command = [
            sys.executable,
            "-m",
            f"distributed.cli.{module}",
            "--no-dashboard",
            "--scheduler-file",
            str(file),
        ]
        with open(cwd / "log", "w") as log:
            started.append(
                subprocess.Popen(
                    [*command, *arguments], cwd=cwd, env=variables | extra, stdout=log, stderr=log
                )
            )

    try:
        start("dask_scheduler", folder / "scheduler", "--host", "127.0.0.1", "--port", "0")
        wait_until(file.exists)
        for number in range(workers):
            place = folder / f"worker-{number}"
            start("dask_worker", place, "--nthreads", "1", "--no-nanny", "--local-directory", ".")
            wait_until(lambda place=place: "Registered to" in (place / "log").read_text())
        yield json.loads(file.read_text())["address"], started
    finally:
        for process in started:
            process.kill()
            process.wait()


if TYPE_CHECKING:
    from mlflow.entities import Run
    from prefect.client.schemas.objects import FlowRun, TaskRun


def mlflow_runs(repository: Repository) -> list[Run]:
    """The runs of the repository's own store that nobody deleted."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{repository.folder / 'mlflow.db'}")
    return list(
        client.search_runs(
            [experiment.experiment_id for experiment in client.search_experiments()],
            max_results=1000,
        )
    )


def flow_runs(repository: Repository) -> list[FlowRun]:
    return recorded(repository)[0]


def task_runs(repository: Repository) -> list[TaskRun]:
    return recorded(repository)[1]


def recorded(repository: Repository) -> tuple[list[FlowRun], list[TaskRun]]:
    """Prefect's record of the repository's runs: starting a server to read it takes seconds."""
    from flows.server import CLIENT_KEY, temporary_server

    kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    address = {
        key: repository.environment[key]
        for key in ("PREFECT_API_URL", CLIENT_KEY)
        if key in repository.environment
    }
    home = {"PREFECT_HOME": str(repository.prefect_home)}
    with (
        mock.patch.dict(os.environ, kept | home | address, clear=True),
        temporary_server(repository.folder),
    ):
        from prefect.client.orchestration import SyncPrefectClient
        from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

        key = os.environ.get(CLIENT_KEY)
        with SyncPrefectClient(os.environ["PREFECT_API_URL"], auth_string=key) as client:
            mine = [
                run
                for run in client.read_flow_runs()
                if any(tag.endswith(f":{repository.folder}") for tag in run.tags)
            ]
            chosen = FlowRunFilter(id=FlowRunFilterId(any_=[run.id for run in mine]))
            tasks = client.read_task_runs(flow_run_filter=chosen)
    return sorted(mine, key=lambda run: run.created), sorted(tasks, key=lambda run: run.created)
