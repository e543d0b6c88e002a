"""The DVC remote that several machines share: what it holds is fetched and not computed again."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dvc.config import Config
from dvc.exceptions import CheckoutError, DownloadError
from dvc.repo import Repo

from flows import workspace
from flows.dvc_child import damaged, silence
from lethe.errors import BadInput, LetheError, plural
from lethe.tracking import without_password


def has(root: Path) -> bool:
    """Whether DVC has a default remote here."""
    return bool(Config(dvc_dir=str(root / ".dvc"))["core"].get("remote"))


def require(root: Path) -> None:
    """Raise `BadInput` or `LetheError` unless there is a default remote that answers."""
    if not has(root):
        raise BadInput(
            "DVC has no default remote, and machines share results through one. "
            "Name a folder or a bucket: `dvc remote add -d NAME URL`."
        )
    with _repo(root) as repo:
        name = repo.config["core"]["remote"]
        with _errors_of(f"The DVC remote {name} ({_url(repo)}) does not work"):
            try:
                store = repo.cloud.get_remote_odb(name)
                store.fs.ls(store.path)
            except FileNotFoundError as error:
                # With a cause it is the answer of a server: no such bucket. A new remote has no folder yet.
                if error.__cause__:
                    raise


def pull(root: Path) -> str:
    """Fetch what the remote holds and put back the outputs that are missing here; returns a sentence for the user."""
    with _repo(root) as repo:
        with (
            _errors_of(f"The DVC remote ({_url(repo)}) failed"),
            contextlib.suppress(DownloadError),
        ):
            repo.fetch(run_cache=True)  # some files may not be there
        # An output without a hash is not in dvc.lock.
        locked = [out for out in repo.index.outs if out.stage.cmd is not None and out.hash_info]
        bad = 0
        missing = sorted(out.fs_path for out in locked if not Path(out.fs_path).exists())
        if missing:
            with contextlib.suppress(CheckoutError):
                repo.checkout(targets=missing, allow_missing=True)
            bad = len(list(damaged(out for out in locked if out.fs_path in missing)))
    lacking = sum(not Path(path).exists() for path in missing)
    back = f"{len(missing) - lacking} of {plural(len(missing), 'missing output')} restored"
    told = f"DVC remote: {back}."
    if bad:
        told += f" {plural(bad, 'output')} of the remote had damaged files."
    if lacking > bad:
        told += f" The remote lacks {lacking - bad} of them."
    return told


def push(root: Path) -> str:
    """Send every output and the cache of runs to the remote; returns a sentence for the user."""
    require(root)
    with _errors_of("Not everything went to the DVC remote"), _repo(root) as repo:
        sent = repo.push(run_cache=True)
    return f"DVC remote: {plural(sent, 'file')} sent."


@contextlib.contextmanager
def _errors_of(problem: str) -> Iterator[None]:
    """Name the problem of every error, because each kind of remote raises errors of its own library."""
    try:
        yield
    except Exception as error:
        raise LetheError(f"{problem}: {workspace.sentence(error)}.") from error


def _repo(root: Path) -> Repo:
    silence()  # neither bars nor messages of DVC
    return Repo(str(root))


def _url(repo: Repo) -> str:
    return without_password(str(repo.config["remote"][repo.config["core"]["remote"]]["url"]))
