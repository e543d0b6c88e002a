"""Prefect's settings: the ones of Lethe and of the user's environment, and none of a file of the current folder.

Prefect also reads .env, prefect.toml and [tool.prefect] of pyproject.toml in the current folder, and profiles.toml of its
home, which lies there too. A stranger's folder could name another server, add a header or switch off a check.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.workspace import SCRATCH

HOME = "PREFECT_HOME"
PROFILES = "PREFECT_PROFILES_PATH"


def prepare(root: Path) -> None:
    """Set what the environment leaves open, and let Prefect read nothing else; call before anything imports prefect."""
    for name, value in environment(root).items():
        os.environ.setdefault(name, value)
    read_no_file()


def environment(root: Path) -> dict[str, str]:
    """Return Prefect's settings: records under the repository, little output, no requests to the outside."""
    home = root / SCRATCH / "prefect"
    return {
        HOME: str(home),
        PROFILES: str(profiles()),
        # Prefect looks for these two under ~/.prefect, whatever PREFECT_HOME says.
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(home / "storage"),
        "PREFECT_SERVER_MEMO_STORE_PATH": str(home / "memo_store.toml"),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false",
        "PREFECT_API_REQUEST_TIMEOUT": "120",
        "PREFECT_CLIENT_MAX_RETRIES": "4",  # half a minute for a server of the user's that starts again
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    }


def profiles() -> Path:
    """The file of profiles: of a home that the user's environment names, else the one that comes with Prefect."""
    if HOME in os.environ:
        return Path(os.environ[HOME]) / "profiles.toml"
    library = importlib.util.find_spec("prefect")
    assert library is not None
    assert library.origin is not None
    return Path(library.origin).parent / "settings/profiles.toml"


@functools.cache
def read_no_file() -> None:
    """Let Prefect's classes of settings find no file; other libraries' classes read theirs as before."""
    from pydantic_settings import DotEnvSettingsSource
    from pydantic_settings.sources import ConfigFileSourceMixin

    for source, name in (
        (DotEnvSettingsSource, "_load_env_vars"),
        (ConfigFileSourceMixin, "_read_files"),
    ):
        setattr(source, name, _sparing_prefect(getattr(source, name)))


def _sparing_prefect(usual: Callable[..., object]) -> Callable[..., object]:
    def read(self: Any, *arguments: object, **options: object) -> object:
        if self.settings_cls.__module__.partition(".")[0] == "prefect":
            return {}
        return usual(self, *arguments, **options)

    return read
