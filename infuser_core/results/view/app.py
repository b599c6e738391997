"""Web application of `infuser view`: local pages read from the store at every request, protected by a token."""

import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.trustedhost import TrustedHostMiddleware

from infuser_core.errors import InfuserError, UsageError
from infuser_core.results.view.books import add_books
from infuser_core.results.view.evaluations import add_evaluations
from infuser_core.results.view.questions import add_questions
from infuser_core.results.view.runs import add_runs
from infuser_core.results.view.site import ViewSite
from infuser_core.results.view.statements import add_statements

HOSTS = ["127.0.0.1", "localhost"]
"""Host names that are served; any other name that resolves to loopback is refused."""
HEADERS = {
    # The chart library and htmx set styles by script, so 'unsafe-inline' is not needed.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of every response, so that a model's text cannot load or run anything."""


def _refuse(_: Request) -> Response:
    return PlainTextResponse("open the address that `infuser view` printed\n", status_code=403)


def application(
    root: Path, token: str, *, hosts: Sequence[str] = HOSTS, refuse: Callable[[Request], Response] = _refuse
) -> FastAPI:
    """The web application over the store at `root`; requests without the token get the answer of `refuse`."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    site = ViewSite(root=root)
    _guard(app, token, hosts, refuse)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))

    @app.exception_handler(InfuserError)
    def refused(_: Request, error: InfuserError) -> HTMLResponse:
        page = site.page("refused.html", title="Not found", error=error)
        page.status_code = 404
        return page

    @app.exception_handler(404)
    def unknown(request: Request, _: Exception) -> HTMLResponse:
        return refused(request, UsageError(f"There is no page {request.url.path}.", hint=""))

    for add in (add_runs, add_questions, add_books, add_evaluations, add_statements):
        add(app, site)
    return app


def remember(answer: Response, request: Request, token: str) -> None:
    """Set the cookie that opens the pages to this browser."""
    answer.set_cookie(_cookie(request), token, httponly=True, samesite="strict")


def _cookie(request: Request) -> str:
    # Cookies ignore ports: the name keeps two viewers apart.
    return f"infuser-view-{request.url.port}"


def _guard(app: FastAPI, token: str, hosts: Sequence[str], refuse: Callable[[Request], Response]) -> None:
    """Refuse requests without the token, which comes from the printed address and later from a cookie."""

    @app.middleware("http")
    async def check(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        query_token = request.query_params.get("token", "")
        if secrets.compare_digest(query_token.encode(), token.encode()):
            answer: Response = RedirectResponse(request.url.remove_query_params("token"), status_code=303)
            remember(answer, request, token)
        elif secrets.compare_digest(request.cookies.get(_cookie(request), "").encode(), token.encode()):
            answer = await call_next(request)
        else:
            answer = refuse(request)
        answer.headers.update(HEADERS)
        return answer

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))


def serve(root: Path, *, port: int, announce: Callable[[str], object]) -> None:
    """Serve the pages on loopback until interrupted; port 0 takes a free one, and `announce` gets the address.

    Raises UsageError if there is no store or the port is taken.
    """
    if not root.is_dir():
        raise UsageError(f"no store at {root}", hint="`infuser quickstart` makes one; INFUSER_STORE sets another")
    token = secrets.token_urlsafe(24)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOSTS[0], port))
        except OSError as error:
            raise UsageError(f"port {port}: {error.strerror}", hint="another --port, or none for a free one") from error
        announce(f"http://{HOSTS[0]}:{listening.getsockname()[1]}/?token={token}")
        # The access log would repeat the token.
        options = uvicorn.Config(application(root, token), log_level="warning", access_log=False)
        uvicorn.Server(options).run(sockets=[listening])
