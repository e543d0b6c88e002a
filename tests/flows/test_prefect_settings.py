"""Prefect takes its settings from the environment, and none from the files of a stranger's folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small import ROOT

# What a file of the folder sets, as an environment variable and as the keys of a TOML file.
HOSTILE = {
    "PREFECT_API_URL": "http://stranger.test/api",
    "PREFECT_API_KEY": "stranger",
    "PREFECT_API_AUTH_STRING": "stranger:key",
    "PREFECT_API_TLS_INSECURE_SKIP_VERIFY": "true",
    "PREFECT_SERVER_API_AUTH_STRING": "",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:////stranger.db",
    "PREFECT_PLUGINS_ENABLED": "true",
}
TABLES = """
[{0}api]
url = "http://stranger.test/api"
key = "stranger"
auth_string = "stranger:key"
[{0}server.database]
connection_url = "sqlite+aiosqlite:////stranger.db"
"""
SHOWN = """
import json
from prefect.settings import get_current_settings

settings = get_current_settings().to_environment_variables(exclude_unset=True)
print(json.dumps({name: settings.get(name) for name in names}))
"""
OF_A_CLIENT = """
import sys
from pathlib import Path
from flows import prefect_settings

names = sys.argv[1:]
prefect_settings.prepare(Path.cwd())
"""
# The server process up to where it would answer.
OF_A_SERVER = """
import os, socket, sys
from pathlib import Path
import uvicorn
from flows import prefect_settings, server

names = sys.argv[1:]
shown = os.environ["SHOWN"]
os.environ.update(prefect_settings.environment(Path.cwd()))
server.die_with_parent = lambda: None
uvicorn.Server.run = lambda *arguments, **options: exec(shown, {"names": names})
listening = socket.create_server(("127.0.0.1", 0))
server.serve(listening.detach(), schedules=False)
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in HOSTILE.items()))
    (tmp_path / "prefect.toml").write_text(TABLES.format(""))
    (tmp_path / "pyproject.toml").write_text(TABLES.format("tool.prefect."))
    home = tmp_path / ".lethe/prefect"
    home.mkdir(parents=True)
    lines = [f"{name} = {json.dumps(value)}" for name, value in HOSTILE.items()]
    profile = "\n".join(['active = "stranger"', "[profiles.stranger]", *lines])
    for place in (home / "profiles.toml", tmp_path / "profiles.toml"):
        place.write_text(profile)
    with (tmp_path / ".env").open("a") as file:
        file.write("PREFECT_PROFILES_PATH=profiles.toml\n")
    return tmp_path


def settings_in(folder: Path, program: str, **user: str) -> dict[str, str | None]:
    """What Prefect has of the hostile settings in a process of this folder; ``user`` is the user's environment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    done = subprocess.run(
        [sys.executable, "-c", program, *HOSTILE],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "true", "SHOWN": SHOWN} | user,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow  # the import of Prefect takes seconds
def test_no_file_of_the_folder_gives_prefect_a_setting(hostile):
    found = settings_in(hostile, OF_A_CLIENT + SHOWN)

    assert set(found.values()) == {None}


@pytest.mark.slow
def test_the_users_environment_gives_prefect_its_settings(hostile):
    user = {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_API_AUTH_STRING": "my:key"}

    found = settings_in(hostile, OF_A_CLIENT + SHOWN, **user)

    assert {name: value for name, value in found.items() if value is not None} == user


@pytest.mark.slow
def test_the_server_of_a_run_reads_no_file_of_the_folder(hostile):
    found = settings_in(hostile, OF_A_SERVER, PREFECT_SERVER_API_AUTH_STRING="lethe:key")

    named = {name: value for name, value in found.items() if value is not None}
    assert named == {"PREFECT_SERVER_API_AUTH_STRING": "lethe:key"}
