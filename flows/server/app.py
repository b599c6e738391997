"""Prefect's server as a process: the habits that SQLite needs, and a door that no foreign web page gets through.

Who may speak with it is decided by Prefect's own API authentication; these are the checks of Host and Origin before it.
"""

import asyncio
import fcntl
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI
from prefect.server.api.server import create_app as prefect_app
from prefect.server.database import provide_database_interface
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.settings import get_current_settings
from sqlalchemy import select
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from flows.deployment import viewer_at
from flows.server.mirror import mirror
from infuser_core.results.lineage.markdown import VIEW

LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]
IN_MEMORY = "prefect-in-memory"
"""Host of Prefect's client inside its server."""


def main(listening: int, store: str, hosts: list[str]) -> None:
    """Serve on the socket of this number, which the parent has bound: nobody else can have taken the port."""
    app = create_app(Path(store), hosts)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
    server.run(sockets=[socket.socket(fileno=listening)])


def create_app(store: Path, hosts: list[str]) -> FastAPI:
    """Prefect's server, with two habits that SQLite needs, behind the checks of Host and Origin.

    `hosts` are names of a reverse proxy. A transaction takes the write lock when it begins: one that reads first fails
    as soon as another writes, and the client then waits for seconds. And servers that share a database start one after
    the other, migrations included. Runs of the `store` that no server has seen are shown as they are found.
    """
    begin = AioSqliteConfiguration.begin_transaction

    @asynccontextmanager
    async def begin_writing(self: Any, session: Any, with_for_update: bool = False) -> AsyncIterator[Any]:
        async with begin(self, session, with_for_update=True) as transaction:
            yield transaction

    setattr(AioSqliteConfiguration, begin.__name__, begin_writing)
    app = prefect_app()
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def start_alone(app: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            with _start_lock():
                state = await stack.enter_async_context(lifespan(app))
            watching = asyncio.create_task(mirror(store))
            yield state
            watching.cancel()

    app.router.lifespan_context = start_alone
    # Before the UI, which answers every path.
    app.router.routes.insert(0, Route("/artifacts/key/{key}", _newest_page))
    app.router.routes.insert(0, Route(f"{VIEW}/{{path:path}}", _to_viewer(store)))
    app.add_middleware(OwnPages, hosts=hosts)
    # A name that somebody else's DNS turned into this machine's address is a foreign page's way around its origin.
    app.add_middleware(OwnHosts, allowed_hosts=[*LOOPBACK, *hosts], www_redirect=False)
    return app


async def _newest_page(request: Request) -> Response:
    """Opens an artifact's page where a link names its key; Prefect's UI would list the versions of the page instead."""
    db = provide_database_interface()
    async with db.session_context() as session:
        wanted = select(db.ArtifactCollection.latest_id).where(db.ArtifactCollection.key == request.path_params["key"])
        found = (await session.execute(wanted)).scalar()
    return RedirectResponse(f"/artifacts/artifact/{found}" if found else "/artifacts", status_code=302)


def _to_viewer(store: Path) -> Callable[[Request], Response]:
    """Leads on to a page of the `infuser view` that is running over the store; its token stays with its owner."""

    def lead(request: Request) -> Response:
        found = viewer_at(store)
        if found:
            return RedirectResponse(f"{found}/{quote(request.path_params['path'])}", status_code=302)
        said = "no `infuser view` runs over this store: start one, open the address that it prints, and come back\n"
        return PlainTextResponse(said, status_code=404)

    return lead


class OwnHosts(TrustedHostMiddleware):
    """Refuses names of other hosts. Prefect's automations call the application without a socket, under their own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The socket's address, not what a request says; it has no name.
        server = scope.get("server") or ("", None)
        await (self.app if server[0] == IN_MEMORY else super().__call__)(scope, receive, send)


class OwnPages:
    """Refuses what a browser sends on behalf of a page from elsewhere: such requests, and sockets, name its Origin."""

    def __init__(self, app: ASGIApp, hosts: list[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not self._own(Headers(scope=scope)):
            await PlainTextResponse("foreign Origin", status_code=403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _own(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return True
        place = origin.partition("://")[2]
        # A proxy may ask by another name than the one that people, and so the pages, know the server by.
        return place == headers.get("host") or place.partition(":")[0] in self._hosts


@contextmanager
def _start_lock() -> Iterator[None]:
    home = get_current_settings().home
    home.mkdir(parents=True, exist_ok=True)
    with (home / "start.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
