"""Prefect's server as a separate process, adapted to SQLite and protected against requests from other web pages.

Prefect's API authentication controls access; the checks of Host and Origin here come before it.
"""

import asyncio
import fcntl
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import prefect
import uvicorn
from fastapi import FastAPI
from prefect.server.api.server import create_app as prefect_app
from prefect.server.database import provide_database_interface
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.settings import get_current_settings
from sqlalchemy import select
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.server.login import PATH, Login
from flows.server.mirror import mirror
from infuser_core.results.lineage.addresses import PAGES, UI, VIEW
from infuser_core.results.view.app import application

LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]
IN_MEMORY = "prefect-in-memory"
"""Host name that Prefect's client uses inside its server."""
_OF_PREFECT = ("/api/", f"{UI}/", "/ui-settings", PATH)
"""Beginnings of the paths that Prefect's server answers; the viewer answers all others."""
_FORMER = ("/artifacts/", "/runs/flow-run/", "/runs/task-run/", "/flows/flow/", "/deployments/deployment/")
"""Paths of Prefect's former UI, in pages of older servers and in what Prefect's commands print."""
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""Keeps the pages of Prefect's UI from other hosts: they call an analytics service before they read its setting."""


def main(listening: int, store: str, hosts: list[str]) -> None:
    """Serve on a socket, given by its file descriptor; the parent has bound it so that its port cannot be taken."""
    app = create_app(Path(store), hosts)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
    server.run(sockets=[socket.socket(fileno=listening)])


def create_app(store: Path, hosts: list[str]) -> FastAPI:
    """Create Prefect's server for SQLite, with checks of Host and Origin. `hosts` are names of a reverse proxy.

    A transaction takes the write lock at its start: one that reads first fails as soon as another one writes, and the
    client then waits for seconds. Servers that share a database start one after the other, including migrations. Runs
    of the `store` that ran without a server are added.
    """
    begin = AioSqliteConfiguration.begin_transaction

    @asynccontextmanager
    async def begin_writing(self: Any, session: Any, with_for_update: bool = False) -> AsyncIterator[Any]:
        async with begin(self, session, with_for_update=True) as transaction:
            yield transaction

    setattr(AioSqliteConfiguration, begin.__name__, begin_writing)
    # One UI: paths of the former one are the viewer's.
    prefect.__ui_static_path__ = store / "no-former-ui"
    app = prefect_app()
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def start_alone(app: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            home = get_current_settings().home
            home.mkdir(parents=True, exist_ok=True)
            with (home / "start.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                state = await stack.enter_async_context(lifespan(app))
            watching = asyncio.create_task(mirror(store))
            yield state
            watching.cancel()

    app.router.lifespan_context = start_alone
    login = Login()
    # These routes must come before the UI, which answers every path.
    app.router.routes[:0] = [Route(f"{PAGES}/{{key}}", _newest_page), *login.routes]
    names = [*LOOPBACK, *hosts]
    app.add_middleware(Rooms, viewer=application(store, login.token, hosts=names, refuse=login.refuse))
    app.add_middleware(OwnPages, hosts=hosts)
    # Against DNS rebinding: a foreign page could reach this machine under its own host name.
    app.add_middleware(OwnHosts, allowed_hosts=names, www_redirect=False)
    return app


async def _newest_page(request: Request) -> Response:
    """Redirect from an artifact's key to its newest page; Prefect's UI would list the page's versions."""
    db = provide_database_interface()
    async with db.session_context() as session:
        query = select(db.ArtifactCollection.latest_id).where(db.ArtifactCollection.key == request.path_params["key"])
        identity = (await session.execute(query)).scalar()
    return RedirectResponse(f"{UI}/artifacts/artifact/{identity}" if identity else f"{UI}/artifacts", status_code=302)


class Rooms:
    """Passes each request to Prefect's server or to the viewer, by its path; other hosts see nothing of either."""

    def __init__(self, app: ASGIApp, viewer: ASGIApp) -> None:
        self._prefect = app
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault("Content-Security-Policy", _POLICY)
            await send(message)

        if scope["type"] != "http":
            await self._prefect(scope, receive, send)
        elif path.startswith(_FORMER):
            await RedirectResponse(f"{UI}{path}", status_code=302)(scope, receive, send)
        elif path.startswith(f"{VIEW}/"):
            await RedirectResponse(f"/{path.removeprefix(VIEW).lstrip('/')}", status_code=302)(scope, receive, send)
        elif f"{path}/".startswith(_OF_PREFECT):
            await self._prefect(scope, receive, send_with_policy)
        else:
            await self._viewer(scope, receive, send)


class OwnHosts(TrustedHostMiddleware):
    """Refuses requests with other host names, except from Prefect's automations, which use no socket."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Check the socket's address, which the request does not control.
        server = scope.get("server") or ("", None)
        await (self.app if server[0] == IN_MEMORY else super().__call__)(scope, receive, send)


class OwnPages:
    """Refuses requests and websockets that a browser sends on behalf of a page of another Origin."""

    def __init__(self, app: ASGIApp, hosts: list[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not self._is_own(Headers(scope=scope)):
            await PlainTextResponse("foreign Origin", status_code=403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_own(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return True
        place = origin.partition("://")[2]
        # A proxy may pass on a Host that differs from the pages' Origin.
        return place == headers.get("host") or place.partition(":")[0] in self._hosts


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
