"""Prefect's server for the length of one run, on 127.0.0.1; the server ends with its run.

Prefect would start a server by itself, but only after its own import, and a killed run would leave that server behind.
Here the server starts during the import. If PREFECT_API_URL names a server, that server is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, TextIO

from flows import prefect_page, prefect_settings
from lethe.errors import LetheError
from lethe.io.files import make_folder
from lethe.process import die_with_parent, no_telemetry
from lethe.tracking import without_password

CLIENT_KEY = "PREFECT_API_AUTH_STRING"
SERVER_KEY = "PREFECT_SERVER_API_AUTH_STRING"
ADDRESS = "PREFECT_API_URL"
OWN_KEY = "lethe:"  # how the key of a server begins that Lethe started
MAKING = "making-tables"
BEGUN = "begun"
RESTARTS = 3
OLD = 60  # seconds; a server that lived longer, and that a signal ended, did not die of its start
# Seconds until a server of the run must have answered once; on a busy machine its first tables take minutes.
PATIENCE = 600


def named() -> bool:
    """Whether the environment names a server, which then serves this run."""
    return ADDRESS in os.environ


def is_a_users() -> bool:
    """Whether the named server is one of the user's, which hears of every run; it is not one that Lethe started."""
    return named() and not os.environ.get(CLIENT_KEY, "").startswith(OWN_KEY)


def page(run: str | None = None) -> str:
    """The sentence that says where Prefect shows a run; the environment must name a server of Lethe's own or the user's."""
    address = os.environ[ADDRESS]
    if is_a_users():
        return ""
    return prefect_page.told(address, Path(os.environ["PREFECT_HOME"]), run)


@contextlib.contextmanager
def temporary_server(root: Path, schedules: bool = False) -> Iterator[None]:
    """Start a server that Prefect's client finds, and end it afterwards; enter before anything imports prefect."""
    no_telemetry()
    prefect_settings.prepare(root)
    if named():
        yield
        return
    home = Path(os.environ["PREFECT_HOME"])
    make_folder(home)
    # Lethe's own clients have this key from the environment, which other users of the machine cannot read.
    key = f"{OWN_KEY}{secrets.token_urlsafe(32)}"
    # The socket listens from the start, so clients wait in its queue until the server answers and need not poll.
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        server = OwnServer(listening, home / "server.log", schedules, key)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
        try:
            with _in_environment({ADDRESS: address, CLIENT_KEY: key}):
                yield
        finally:
            server.stop()


@contextlib.contextmanager
def _in_environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class OwnServer:
    """The server process of one run. A server that dies starts again on the same socket, in whose queue clients wait.

    A server that dies young, for example on a full disk, starts `RESTARTS` more times; then clients are refused.
    """

    running: ClassVar[OwnServer | None] = None
    given_up = False

    def __init__(
        self,
        listening: socket.socket,
        log: Path,
        schedules: bool,
        key: str,
    ):
        self.log = log
        self._listening = listening
        self._schedules = schedules
        self._key = key
        self._stopping = False
        self._lock = threading.Lock()
        log.unlink(missing_ok=True)
        self._process = self._start()
        OwnServer.running = self
        threading.Thread(target=self._watch, daemon=True).start()

    def _start(self) -> subprocess.Popen:
        descriptor = self._listening.fileno()
        arguments = [str(descriptor), *(["schedules"] if self._schedules else [])]
        # Python finds flows wherever the run was started.
        places = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(self.log, "a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "flows.server", *arguments],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(places), SERVER_KEY: self._key},
                start_new_session=True,
            )

    def _watch(self) -> None:
        """Start the server again each time that it dies; the kernel ends a server whose starting thread ends."""
        deaths = 0
        try:
            while deaths <= RESTARTS:
                began = time.monotonic()
                status = self._process.wait()
                # A slow start on a full disk also ends late, but by itself: uvicorn then exits with 3.
                killed = status < 0 and time.monotonic() - began > OLD
                deaths = 1 if killed else deaths + 1
                with self._lock:
                    if self._stopping:
                        return
                    if deaths <= RESTARTS:
                        self._process = self._start()
        finally:  # also where no process could start: otherwise clients would wait for ever
            self.given_up = True
            self._listening.close()

    def stop(self) -> None:
        """End the server; it has ten seconds before it is killed."""
        with self._lock:
            self._stopping = True
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if OwnServer.running is self:
            OwnServer.running = None


class Unreachable(LetheError):
    """No Prefect server answers: the user's, or the one that Lethe started."""

    def __init__(self, address: str, reason: str):
        if OwnServer.running is not None:
            super().__init__(
                f"Prefect's server, which lethe starts for a run, does not live or answer ({reason}). "
                f"{OwnServer.running.log} says why."
            )
            return
        super().__init__(
            f"PREFECT_API_URL names {address}, and no Prefect server answers there ({reason}). Start that server, or "
            "unset PREFECT_API_URL: lethe then starts one of its own."
        )


def require() -> None:
    """Raise `Unreachable` if the server that PREFECT_API_URL names does not answer; the environment must name one."""
    import httpx

    address = os.environ[ADDRESS].rstrip("/")
    until = time.monotonic() + PATIENCE
    while True:
        started = OwnServer.running
        try:
            httpx.get(f"{address}/health", timeout=max(1.0, min(120.0, until - time.monotonic())))
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):  # its text may quote a password
            raise Unreachable(without_password(address), "no valid address") from None
        except httpx.HTTPError as error:
            if started is None or started.given_up or time.monotonic() > until:
                raise Unreachable(
                    without_password(address), str(error) or type(error).__name__
                ) from None
            time.sleep(0.2)  # the server died with this connection and starts again
        else:
            return  # an error that the server answers with is for the flow to report


def first_tables(home: Path) -> TextIO | None:
    """Return a locked file until `tables_made`, or None where they are made; half a database of a killed server goes."""
    making = open(home / MAKING, "a+")  # noqa: SIM115  # open until the tables are made
    fcntl.flock(making, fcntl.LOCK_EX)
    making.seek(0)
    begun = making.read() == BEGUN
    if not begun and (home / "prefect.db").exists():
        making.close()
        return None
    for rest in home.glob("prefect.db*") if begun else ():
        rest.unlink(missing_ok=True)
    making.truncate(0)
    making.write(BEGUN)
    making.flush()
    return making


def tables_made(making: TextIO | None) -> None:
    """Say that the server's tables are made, so that another process may start on them."""
    if making is not None:
        making.truncate(0)
        making.close()


def serve(descriptor: int, schedules: bool) -> None:
    """Be the server of one run, on the socket with this number, until the run ends it."""
    die_with_parent()
    prefect_settings.read_no_file()
    version = importlib.metadata.version("prefect")
    home = Path(os.environ["PREFECT_HOME"])
    migrated = home / f"migrated-{version}"
    # The tables are made once per version of Prefect, because each check for them takes a second.
    making = first_tables(home)
    ready = migrated.exists() and (home / "prefect.db").exists()
    os.environ["PREFECT_API_DATABASE_MIGRATE_ON_START"] = str(not ready).lower()
    host, port = socket.socket(fileno=os.dup(descriptor)).getsockname()
    base = f"http://{host}:{port}"
    os.environ |= {
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": base,
        "PREFECT_SERVER_UI_API_URL": f"{base}{prefect_page.API}",
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(home / "pages"),
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }
    key_file = prefect_page.key_file(home, base)
    prefect_page.write_key(key_file, os.environ[SERVER_KEY])
    import uvicorn
    from prefect.server.api.server import create_app

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            migrated.touch()
            tables_made(making)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            key_file.unlink(
                missing_ok=True
            )  # the signal that ends the server skips what follows `run`
            await super().shutdown(sockets=sockets)

    app = create_app(ephemeral=not schedules, final=True)
    app.add_middleware(prefect_page.WithPages)
    app.add_middleware(prefect_page.OwnPagesAlone, origin=base)
    Server(uvicorn.Config(app, log_level="error", lifespan="on")).run(
        sockets=[socket.socket(fileno=descriptor)]
    )


if __name__ == "__main__":
    serve(int(sys.argv[1]), schedules="schedules" in sys.argv[2:])
