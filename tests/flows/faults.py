"""Servers that are no use, and what the tests of faults ask of processes and ports."""

import contextlib
import http.server
import socket
import threading
import urllib.request
from collections.abc import Iterator

from tests.flows.miniature import Repository, command_of, processes_of


@contextlib.contextmanager
def answering_server(status: int) -> Iterator[int]:
    """A server that answers every request with this status; yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=10).close()
    except OSError:
        return False
    return True


def pid_of_module(repository: Repository, module: str) -> int:
    return next(pid for pid in processes_of(repository) if module in command_of(pid).split()[:4])
