"""Prefect's page of a run: where it is, the key that it asks for, and which pages of a browser the server answers.

The page comes from the server of the run, on 127.0.0.1, and asks for the key once. The key lies in a file that only this
user can read, while the server lives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api"
# The page loads nothing from elsewhere, and no other page may show it in a frame. Its code is compiled in the browser.
POLICY = b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'"


def told(address: str, home: Path, run: str | None = None) -> str:
    """The sentence that says where the page of the server with this API address is, and the file of its key.

    ``run``: the number of a flow run, whose own page is then named.
    """
    base = address.rstrip("/").removesuffix(API)
    page = "/runs"
    if run is not None:
        page = f"/runs/flow-run/{run}"
    # Prefect's other pages do not find their way to the one that asks for the key.
    login = f"{base}/login?redirect={page}"
    return f"Watch it in Prefect: {login} (the page asks for the key in {key_file(home, base)})"


def key_file(home: Path, base: str) -> Path:
    """The file of the key of the server at ``base``; several servers may share one ``home``."""
    port = base.rpartition(":")[2]
    return home / f"key-{port}"


def write_key(path: Path, key: str) -> None:
    """Write the key where only this user can read it."""
    path.unlink(missing_ok=True)  # a killed server's file keeps its own rights
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(f"{key}\n")


class OwnPagesAlone:
    """Refuses requests of other web pages, which name their Origin; Lethe's own clients name none. A page whose name a
    stranger's name server turns into 127.0.0.1 names itself as Host.
    """

    def __init__(self, app: ASGIApp, origin: str):
        self.app = app
        self.origin = origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            hosts = [f"http://{host}" for host in headers.getlist("host")]
            if hosts != [self.origin] or {*headers.getlist("origin")} - {self.origin}:
                refusal = PlainTextResponse("This server answers no other page.", status_code=403)
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


class WithPages:
    """Adds Prefect's pages to a server of its interface alone.

    The pages are made when the first of them is asked for: Prefect copies 55 MB for them, and most runs are not watched.
    """

    def __init__(self, app: ASGIApp):
        self.app = app
        self.pages: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", API)  # the events of the server's own life have none
        if path == API or path.startswith(f"{API}/"):
            await self.app(scope, receive, send)
            return
        if self.pages is None:
            from prefect.server.api.server import create_ui_app
            from starlette.concurrency import run_in_threadpool

            self.pages = await run_in_threadpool(create_ui_app, ephemeral=False)

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY)]
            await send(message)

        await self.pages(scope, receive, send_with_policy)
