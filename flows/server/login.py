"""Login by a link: one page that logs a browser in to Prefect's UI and to the viewer.

Prefect's UI keeps the password in the browser's local storage, and the viewer needs its cookie. A link works once. A
browser that has the password already gets the cookie; one without it reads how to log in.
"""

import base64
import json
import secrets
from urllib.parse import quote

from prefect.settings import get_current_settings
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from infuser_core.results.lineage.addresses import UI
from infuser_core.results.view.app import remember

PATH = "/login"
SLASHES = "/\\"
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Log in</title></head><body>
<p id="refused" hidden>{refusal} <code>infuser serve --login</code> prints a link that logs in.</p>
<script nonce="{nonce}">
const password = {password} || localStorage.getItem("prefect-password")
const refuse = () => {{ document.getElementById("refused").hidden = false }}
const enter = () => {{
  localStorage.setItem("prefect-password", password)
  location.replace({target})
}}
const ask = () => fetch({path}, {{ method: "POST", headers: {{ Authorization: `Basic ${{password}}` }} }})
if (password) ask().then(answer => answer.ok ? enter() : refuse(), refuse)
else refuse()
</script></body></html>
"""


class Login:
    """The links of a server that are not used yet, and the token of its viewer."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(24)
        """Content of the viewer's cookie."""
        secret = get_current_settings().server.api.auth_string
        assert secret is not None, "the server has a password"
        self._password = base64.b64encode(secret.get_secret_value().encode()).decode()
        self._unused: set[str] = set()

    @property
    def routes(self) -> list[Route]:
        """The page of the link, the viewer's cookie for the password, and a new link for the password."""
        return [
            Route(PATH, self._page),
            Route(PATH, self._give_cookie, methods=["POST"]),
            Route(f"{PATH}/link", self._give_link, methods=["POST"]),
        ]

    def refuse(self, request: Request) -> Response:
        """The viewer's answer to a browser without its cookie: the login page, which returns to this page."""
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{PATH}?next={quote(f'{request.url.path}{query}', safe='')}", status_code=303)

    def _page(self, request: Request) -> Response:
        link, target = request.query_params.get("token", ""), request.query_params.get("next", f"{UI}/dashboard")
        is_valid = link in self._unused
        self._unused.discard(link)
        nonce = secrets.token_urlsafe(16)
        content = _PAGE.format(
            nonce=nonce,
            refusal="This link has been used." if link else "This browser is not logged in.",
            password=_script(self._password if is_valid else ""),
            # A path of this server only: no other site.
            target=_script(f"/{target.lstrip(SLASHES)}"),
            path=_script(PATH),
        )
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; connect-src 'self'; frame-ancestors 'none'"
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        return HTMLResponse(content, headers=headers)

    def _give_cookie(self, request: Request) -> Response:
        if not self._knows(request):
            return PlainTextResponse("wrong password\n", status_code=401)
        answer = Response(status_code=204)
        remember(answer, request, self.token)
        return answer

    def _give_link(self, request: Request) -> Response:
        if not self._knows(request):
            return PlainTextResponse("wrong password\n", status_code=401)
        link = secrets.token_urlsafe(24)
        self._unused.add(link)
        return PlainTextResponse(f"{PATH}?token={link}")

    def _knows(self, request: Request) -> bool:
        expected = f"Basic {self._password}"
        return secrets.compare_digest(request.headers.get("authorization", "").encode(), expected.encode())


def _script(value: str) -> str:
    """A string as JavaScript inside a page."""
    return json.dumps(value).replace("<", "\\u003c")
