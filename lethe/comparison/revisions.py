"""A git revision or an experiment of DVC as a folder of what a comparison reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.comparison.run_params import PARAMS, read_params, section_of
from lethe.errors import BadFile
from lethe.io.files import meant
from lethe.process import git

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem

EXPERIMENTS = (
    "refs/exps/[0-9a-f][0-9a-f]/*/*"  # BASELINE/NAME; DVC's own references there have other names
)


@contextmanager
def folder_of_revision(revision: str) -> Iterator[Path]:
    """Yield a temporary folder with the artifacts of a git revision, from DVC's cache and from git."""
    commit = _commit(revision)
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        try:
            files = DVCFileSystem(rev=commit, subrepos=False)
            wanted: list[str] = []
            for folder in ("/data/scores", "/data/dataset", "/data/generations", "/params.yaml"):
                if files.exists(folder):
                    wanted += filter(_is_compared, files.find(folder))
            _fetch(files, wanted, root)
            named = section_of(read_params(root / PARAMS), "sample").get("prompt")
            is_inside = isinstance(named, str) and ".." not in Path(named).parts
            if is_inside and files.isfile(f"/{named}"):
                _fetch(files, [f"/{named}"], root)
        except (DvcException, OSError) as error:
            problem = f"its artifacts cannot be fetched ({str(error).splitlines()[0]})"
            remedy = "Run `dvc pull`, or check out the revision and run the pipeline."
            raise BadFile(revision, problem, remedy) from None
        yield root


def _is_compared(path: str) -> bool:
    """Whether a comparison reads the file: scores and questions of the forget set, settings, params."""
    if "/likelihood/" in path:
        return False
    if path.endswith(("/about.json", "/params.yaml")):
        return True
    return "/forget." in path and "/generations/" not in path


def _commit(revision: str) -> str:
    """The commit of a git revision or of a DVC experiment, which DVC keeps under refs/exps/."""
    if not revision.startswith("-"):
        direct = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if direct:
            return direct
    listed = git("for-each-ref", "--format=%(objectname) %(refname)", EXPERIMENTS) or ""
    commits = []
    for line in listed.splitlines():
        if line.rpartition("/")[2] == revision:
            commits.append(line.split()[0])
    if len(commits) == 1:
        return commits[0]
    if commits:
        remedy = f"Name one by its commit: {', '.join(commits)}."
        raise BadFile(revision, f"names {len(commits)} DVC experiments", remedy)
    problem = (
        "is neither a file nor a folder nor a git revision nor a DVC experiment of this repository"
    )
    remedy = "Name a log, a table of scores, a data folder, or a revision or DVC experiment of this repository."
    raise BadFile(revision, problem, remedy + meant(Path(revision)))


def _fetch(files: DVCFileSystem, paths: Sequence[str], root: Path) -> None:
    """Copy files of a revision below ``root``."""
    for path in paths:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(path, str(target))
