"""What is stale, as `dvc status` finds it, with every file hashed once and params.yaml parsed once.

DVC's own status reads all of dvc.yaml and dvc.lock a second time. Then it parses params.yaml for every stage, walks
through all of it for every key, and looks a source file up for every stage that lists the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dvc.output import Output
    from dvc.repo import Repo


def stale(repo: Repo) -> dict[str, list[Any]]:
    """Return DVC's status entry of each changed stage by its address; the caller must hold the repository's lock."""
    found: dict[str, list[Any]] = {}
    with _each_file_once():
        for stage in repo.index.stages:
            found |= stage.status(check_updates=True)
    return found


@contextlib.contextmanager
def _each_file_once() -> Iterator[None]:
    """Have DVC keep the hash of each path and the content of each params file, as long as this lasts."""
    from dvc.dependency import param
    from dvc.output import Output

    hashes: dict[tuple[str, str], object] = {}
    contents: dict[tuple[str, str], object] = {}
    get_hash, load_path, search = Output.get_hash, param.load_path, param.dpath.get

    def hashed(output: Output) -> object:
        if output.fs.protocol != "local":
            return get_hash(output)
        # One file may be an old output by another kind of hash, and a new one.
        key = (output.fs_path, output.hash_name)
        if key not in hashes:
            hashes[key] = get_hash(output)
        return hashes[key]

    def loaded(path: str, fs: Any, **options: Any) -> object:
        key = (path, repr(sorted(options)))
        if key not in contents:
            contents[key] = load_path(path, fs, **options)
        return contents[key]

    def got(config: Any, key: str, **options: Any) -> object:
        value = config
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                return search(config, key, **options)
            value = value[part]
        return value

    Output.get_hash, param.load_path, param.dpath.get = hashed, loaded, got
    try:
        yield
    finally:
        Output.get_hash, param.load_path, param.dpath.get = get_hash, load_path, search
