"""The repository as DVC sees it: what this machine needs, the graph of stages, what is stale, running one stage."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from flows.dvc_child import holder, other_command
from flows.warm import Warm
from lethe.errors import BadFile, BadValue, LetheError, StageFailed
from lethe.io.files import Json, alone, write_text
from lethe.process import PARAMS, cores, git

# Ignored by git and DVC: Prefect's records, locks, progress, the page template of plots.
SCRATCH = Path(".lethe")
PROGRESS = SCRATCH / "progress"
PLOTS_PAGE = SCRATCH / "plots.html"
SITE_CACHE = ".dvc/tmp/site_cache"  # DVC's hashes and links of files
ORIGINAL = SCRATCH / "params.original.yaml"
LOCK_COPY = SCRATCH / "dvc.lock"  # dvc.lock when the last run began
SOURCES = "sources"  # the stage that hashes the code
PARAMS_COPY = SCRATCH / "params.yaml"  # params.yaml when the run in progress began
RESULTS = Path("data/sweeps")  # of sweeps
# What a copy of the sources that can run the stages leaves out.
LEFT = (
    ".git",
    ".venv*",
    "__pycache__",
    "mlruns",
    "mlflow.db*",
    "*.egg-info",
    "build",
    "tests",
    ".hypothesis",
)
NOT_SOURCES = (SCRATCH, RESULTS, "data/eval", ".dvc/cache", ".dvc/tmp", ".dvc/config.local")


class Order(NamedTuple):
    """What one run shall do.

    Attributes
    ----------
    wanted
        The stages, or groups of stages, to bring up to date; none: all.
    pull, push
        Whether to take what was made elsewhere from DVC's remote, and to put there what is made here.
    jobs
        How many stages run at once; None: one for each core, or one by one where they share a GPU.
    scheduler
        The address of a Dask scheduler whose workers run the stages; None: they run here.
    """

    wanted: Sequence[str] = ()
    pull: bool = False
    push: bool = False
    jobs: int | None = None
    scheduler: str | None = None


class Busy(LetheError):
    """Another command of DVC works in the folder."""

    def __init__(self, folder: Path, command: str):
        super().__init__(f"{command} works in {folder}. Wait for it, or end it first.")


def prepare(root: Path) -> None:
    """Make a fresh folder ready for DVC: the settings that depend on this machine go to .dvc/config.local."""
    for name in ("dvc.yaml", "params.yaml"):
        if not (root / name).is_file():
            raise BadFile(
                root / name, "no such file", "Run the command in the root of the repository."
            )
    if not (root / PLOTS_PAGE).exists():
        write_text(root / PLOTS_PAGE, plots_page())

    from dvc.config import Config

    config = Config(dvc_dir=str(root / ".dvc"))
    wanted: dict[str, dict[str, object]] = {
        "core": {"no_scm": not in_git(root)},
        "plots": {"html_template": os.path.join("..", PLOTS_PAGE)},  # DVC reads it from .dvc
    }
    place = config["core"].get("site_cache_dir")
    if "DVC_SITE_CACHE_DIR" not in os.environ and (place is None or place.endswith(SITE_CACHE)):
        # Another path is of a folder that was copied or moved.
        wanted["core"]["site_cache_dir"] = _private_folder((root / SITE_CACHE).resolve())

    missing = {}
    for part, values in wanted.items():
        if not values.items() <= config[part].items():
            missing[part] = values
    if not missing:
        return
    with config.edit("local") as local:
        for part, values in missing.items():
            local.setdefault(part, {}).update(values)


def _private_folder(path: Path) -> str:
    """Make a folder that only this user can enter; DVC makes the folders below it writable for all."""
    try:
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as error:
        remedy = "Make it a folder of your own, or set core.site_cache_dir."
        raise BadFile(path, f"cannot be made: {error.strerror}", remedy) from None
    return str(path)


def plots_page() -> str:
    """The page of `dvc plots show` with Vega's JavaScript, as vl-convert carries it; the page may ask for nothing."""
    import vl_convert

    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # the stub lacks the default of `snippet`
    page = Path(__file__).with_name("plots.html").read_text(encoding="utf-8")
    return page.replace("VEGA", bundle.replace("</script", "<\\/script"), 1)


def in_git(root: Path) -> bool:
    """Whether git tracks this folder; a folder that its repository ignores, such as a sweep's copy, does not count."""
    if not any((folder / ".git").exists() for folder in (root, *root.parents)):
        return False
    return git("check-ignore", ".", root=root) is None


def outputs(root: Path) -> set[str]:
    """Return the paths, relative to ``root``, of what stages with a command make."""
    from dvc.repo import Repo

    paths: set[str] = set()
    with Repo(str(root)) as repo:
        for out in repo.index.outs:
            if out.stage.cmd is not None:
                paths.add(os.path.relpath(out.fs_path, root))
    return paths


def no_source(root: Path) -> Callable[[str, list[str]], set[str]]:
    """Return what `shutil.copytree` must leave out of a copy of ``root``: outputs, caches, records, environments."""
    paths: list[str | Path] = [*outputs(root), *NOT_SOURCES]
    left = {root / path for path in paths}
    by_pattern = shutil.ignore_patterns(*LEFT)

    def leave(place: str, names: list[str]) -> set[str]:
        by_path = {name for name in names if Path(place, name) in left}
        return by_pattern(place, names) | by_path

    return leave


def keep_cache(root: Path, cache: Path) -> None:
    """Have DVC keep what is made in ``root`` in the folder ``cache``."""
    from dvc.config import Config

    with Config(dvc_dir=str(root / ".dvc")).edit("local") as local:
        local.setdefault("cache", {})["dir"] = str(cache)


def cache_of(root: Path) -> Path:
    """Return the folder of the DVC cache of ``root``."""
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        return Path(repo.cache.local.path).parents[1]


@dataclasses.dataclass(frozen=True)
class Graph:
    """The stages as DVC sees them, each behind those that it reads."""

    upstream: dict[str, list[str]]  # stage -> the stages whose outputs it reads
    stale: dict[str, list[str]]  # stage -> what changed about it, for stages changed themselves
    whole: bool = True  # whether every stage of dvc.yaml is there

    def towards(self, wanted: Sequence[str]) -> Graph:
        """The part of the graph that the ``wanted`` stages and groups need; raises `BadValue` for an unknown name."""
        stages: set[str] = set()
        for name in wanted:
            named = {stage for stage in self.upstream if name in (stage, stage.partition("@")[0])}
            if not named:
                raise _no_stage(name, list(self.upstream))
            stages |= named
        for stage in reversed(self.upstream):  # what a stage reads stands before the stage
            if stage in stages:
                stages.update(self.upstream[stage])
        upstream = {stage: before for stage, before in self.upstream.items() if stage in stages}
        stale = {stage: why for stage, why in self.stale.items() if stage in stages}
        return Graph(upstream, stale, whole=False)

    def behind(self) -> list[str]:
        """The stages that changed, and those that read what such a stage makes; each behind what it reads."""
        stages: dict[str, None] = {}
        for stage, before in self.upstream.items():
            if stage in self.stale or any(name in stages for name in before):
                stages[stage] = None
        return list(stages)

    def height(self) -> dict[str, int]:
        """Return the length of the longest chain of stages behind each stage; the longest should start first."""
        height = dict.fromkeys(self.upstream, 0)
        for stage in reversed(self.upstream):
            for before in self.upstream[stage]:
                height[before] = max(height[before], height[stage] + 1)
        return height


def check_stages(root: Path, wanted: Sequence[str], params: str) -> None:
    """Refuse a wanted stage that dvc.yaml would not have under this content of params.yaml, without DVC's graph."""
    from lethe.io.yaml import load_yaml, read_yaml

    values = load_yaml(params)
    stages = read_yaml(root / "dvc.yaml").get("stages")
    if not isinstance(stages, dict):
        stages = {}
    for name in wanted:
        group, at, entry = name.partition("@")
        if group not in stages:
            raise _no_stage(name, list(stages))
        if not at:
            continue
        entries = _entries(stages[group], values)
        if entry not in entries:
            raise _no_stage(name, [f"{group}@{legal}" for legal in entries] or [group])


def _entries(stage: object, values: object) -> list[str]:
    """The entries of a group of stages: those of ``foreach``, or of the key of params.yaml that it names."""
    entries = stage.get("foreach") if isinstance(stage, dict) else None
    if isinstance(entries, str):
        key = entries.removeprefix("${").removesuffix("}")
        for part in key.split("."):
            values = values.get(part) if isinstance(values, dict) else None
        entries = values
    if not isinstance(entries, dict | list):
        return []
    return [str(entry) for entry in entries]


def _no_stage(name: str, groups: Sequence[str]) -> BadValue:
    """The error of a stage that is not there."""
    remedy = "`dvc stage list` prints each stage of these groups."
    return BadValue("STAGE", name, f"one of {', '.join(groups)}", remedy)


def read_graph(root: Path) -> Graph:
    """Read the stages and what is stale; the stage `sources` runs first where it is stale, because others read it."""
    command = other_command(root)
    if command:
        raise Busy(root, command)
    _keep_lock(root)
    graph = _graph(root)
    if SOURCES in graph.stale:
        with contextlib.closing(Processes()) as processes:
            result = processes.reproduce(SOURCES, lambda stage, line: None)
        if result.state == "failed":
            raise StageFailed(SOURCES, result.status, result.tail)
        graph = _graph(root)
    return graph


def _graph(root: Path) -> Graph:
    """The stages as they are now. Raises `Busy` where another command of DVC runs, and `BadFile` for a broken file."""
    from dvc.exceptions import DvcException
    from dvc.lock import LockError
    from dvc.repo import Repo

    # It warns of a killed run's lock, which it removes.
    logging.getLogger("dvc.rwlock").setLevel(logging.ERROR)
    upstream: dict[str, list[str]] = {}
    try:
        with Repo(str(root)) as repo:
            status = repo.status()
            edges = repo.index.graph
            # Only stages with a command run; files tracked by a .dvc file of their own are inputs.
            stages = {stage.addressing: stage for stage in edges if stage.cmd is not None}
            for name, stage in stages.items():
                inputs = {before.addressing for before in edges.successors(stage)}
                upstream[name] = sorted(inputs & set(stages))
    except LockError:
        raise Busy(root, other_command(root, 0) or holder(root) or "another DVC command") from None
    except DvcException as error:
        raise _unusable(root, error) from error
    stale = {name: _reasons(change) for name, change in status.items() if name in stages}
    order = TopologicalSorter(upstream).static_order()
    return Graph({name: upstream[name] for name in order}, stale)


def _unusable(root: Path, error: Exception) -> BadFile:
    """The error of a dvc.yaml or dvc.lock that DVC cannot read; the error of a broken file has its path."""
    problem = f"DVC cannot use it: {sentence(error)}"
    if os.path.basename(str(getattr(error, "path", ""))) == "dvc.lock":
        remedy = "Take the last good one (`git checkout dvc.lock`), or delete the file: DVC then runs every stage again."
        return BadFile(root / "dvc.lock", problem, remedy)
    return BadFile(root / "dvc.yaml", problem)


def _keep_lock(root: Path) -> None:
    """Copy dvc.lock where it is whole; put the copy back where a kill left dvc.lock half written."""
    import yaml

    lock = root / "dvc.lock"
    copy = root / LOCK_COPY
    if not lock.exists():
        return
    text = lock.read_text(encoding="utf-8", errors="replace")
    try:
        whole = isinstance(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)), dict)
    except yaml.YAMLError:
        whole = False
    if whole:
        write_text(copy, text)
    elif copy.exists():
        write_text(lock, copy.read_text(encoding="utf-8"))


def _reasons(changes: list) -> list[str]:
    """What changed about a stage, from DVC's status: texts, and dictionaries of paths or keys."""
    texts: list[str] = []
    entries: list[str] = []
    for change in changes:
        if not isinstance(change, dict):
            texts.append(str(change))
            continue
        for paths in change.values():
            for path, what in paths.items():
                how_of_name = what if isinstance(what, dict) else {path: what}
                for name, how in how_of_name.items():
                    # In a fresh clone DVC calls deleted what was never there.
                    how_now = "missing" if how == "deleted" else how
                    entries.append(f"{name} {how_now}")
    return texts + entries


def sentence(error: Exception) -> str:
    """Return the text of an error on one line without the full stop, or the error's name."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@dataclasses.dataclass(frozen=True)
class Reproduced:
    """How a stage ended.

    Attributes
    ----------
    state
        "ran", "unchanged", "restored" (from DVC's cache), "failed" or "stopped".
    status
        The stage's own exit status.
    tail
        Why it failed, or its last lines.
    """

    state: str
    status: int = 0
    tail: str = ""


class Processes:
    """The processes of the stages, each of which a process that holds DVC starts; many may run at once.

    Parameters
    ----------
    notes
        The folder for the stages' progress; None: they note none.
    pull
        Whether DVC takes from its remote what was made elsewhere.
    """

    def __init__(self, notes: Path | None = None, pull: bool = False) -> None:
        self.stopped = False
        self.threads = cores()
        if Path("/dev/nvidia0").exists():  # stages that share a GPU run one by one
            self.threads = 1
        self._environment = child_environment()
        if notes:
            self._environment["LETHE_PROGRESS"] = str(notes)
        if PARAMS_COPY.exists():
            self._environment[PARAMS] = str(PARAMS_COPY.absolute())
        self._pull = pull
        self._warm = Warm(self._environment)
        self._lock = threading.Lock()

    def reproduce(self, stage: str, say: Callable[[str, str], None]) -> Reproduced:
        """Have DVC bring one stage up to date here; ``say(stage, line)`` gets each line of the stage at once."""
        answer, last = self.call(
            {"stage": stage, "pull": self._pull}, lambda line: say(stage, line)
        )
        if answer is not None:
            return Reproduced(answer["state"], answer["status"], answer["tail"] or last)
        if self.stopped:
            return Reproduced("stopped")
        return Reproduced("failed", 1, last)

    def call(
        self, job: dict[str, object], say: Callable[[str], None]
    ) -> tuple[dict[str, Json] | None, str]:
        """Have a process do a job of `flows.dvc_child`; return its answer, None if it died, and its last lines."""
        answer, writing = os.pipe()
        lines, printing = os.pipe()
        with (
            open(answer, encoding="utf-8") as answer_file,
            open(lines, encoding="utf-8", errors="replace") as line_file,
        ):
            try:
                with self._lock:
                    if self.stopped:
                        return None, ""
                    self._warm.submit(job, (printing, writing))
            finally:
                os.close(writing)
                os.close(printing)
            tail: list[str] = []
            for line in line_file:
                tail = [*tail[-2:], line.rstrip()]
                say(tail[-1])
            text = answer_file.read()
        last = "\n".join(tail)
        if not text:
            return None, last or self._warm.errors()
        return json.loads(text), last

    def close(self) -> None:
        """End the process that starts the stages; each of these has ended."""
        self._warm.close()

    def stop(self) -> None:
        """Send SIGTERM to every running process, which ends its stage; no process starts afterwards."""
        with self._lock:
            self.stopped = True
            self._warm.stop()


def save_experiment(name: str | None) -> tuple[str | None, str]:
    """Keep the changed run as an experiment of DVC; return its name, None if it is not kept, and a sentence."""
    if not in_git(Path.cwd()):
        sentence = (
            "No git repository here: the changed params.yaml stays, no DVC experiment is kept."
        )
        return None, sentence
    with contextlib.closing(Processes()) as processes:
        answer, last = processes.call({"save": name}, lambda line: None)
    if answer is None:
        return None, f"Not kept as a DVC experiment: {last}"
    if not answer["name"]:
        return None, f"Not kept as a DVC experiment: {answer['reason']}"
    return answer["name"], f"Kept as the DVC experiment {answer['name']} (`dvc exp show`)."


def child_environment() -> dict[str, str]:
    """Return the environment of a stage: this interpreter first in PATH (stages run `python`), one thread per process."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    return {"OMP_NUM_THREADS": "1"} | os.environ | {"PATH": path, "PYTHONUNBUFFERED": "1"}


def keep_params(root: Path) -> None:
    """Copy params.yaml for the stages of the new run; the caller must hold the folder's lock."""
    write_text(root / PARAMS_COPY, (root / "params.yaml").read_text(encoding="utf-8"))


def only_run(root: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the folder's lock, to run a pipeline or change its params; raises `LetheError` where another holds it."""
    remedy = f"works in {root}. Wait for it, or end it first."
    return alone(
        root / SCRATCH / "run.lock", lambda pid: LetheError(f"Another run (process {pid}) {remedy}")
    )


def only_schedule(root: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the folder's lock of schedules; raises `LetheError` where another `lethe serve` holds it."""
    remedy = f"already keeps the schedule of {root}. End it before you start another."
    return alone(
        root / SCRATCH / "serve.lock",
        lambda pid: LetheError(f"`lethe serve` (process {pid}) {remedy}"),
    )
