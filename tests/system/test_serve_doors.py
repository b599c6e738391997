"""Who gets in at `infuser serve`: its owner, from Prefect's command line and a browser; no other user, no web page."""

import asyncio
import base64
import json
import os
import pwd
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from browser import chromium, watched
from places import ROOT
from served import Served
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from flows import deployment

EVIL = "http://evil.example"
# A stranger has nothing of this project: what Python brings along, and the address.
STRANGER = """
import json, sys, urllib.error, urllib.request
for method, path, body in json.load(sys.stdin):
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(), headers, method=method)
    try:
        print(urllib.request.urlopen(request, timeout=20).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server; what announced a former one has been damaged, and can be read by all."""
    store = tmp_path_factory.mktemp("doors") / "store"
    store.mkdir()
    (store / "server.toml").write_bytes(b"\xff{active\x00")
    (store / "server.toml").chmod(0o644)
    running = Served(store, INFUSER_SERVE_HOSTS="infuser.example")
    yield running
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(timeout=20) in (0, 130), running.log.read_text()


@pytest.fixture(scope="module")
def known(served: Served) -> str:
    """The deployment's id."""
    (found,) = served.post("deployments/filter", {})
    return str(found["id"])


def test_another_user_gets_nothing_but_a_sign_of_life(served: Served, known: str) -> None:
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/health", None),
        ("GET", "/version", None),
        ("GET", "/admin/settings", None),
        ("POST", "/deployments/filter", {}),
        ("PATCH", f"/deployments/{known}", {"paused": True}),
        ("POST", f"/deployments/{known}/create_flow_run", {}),
    ]
    nobody = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
    command = ["/usr/bin/python3", "-c", STRANGER, served.url]
    said = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, check=True, user=nobody, cwd="/"
    )
    assert said.stdout.split() == ["200", *["401"] * 5]
    assert served.announcement.stat().st_mode & 0o777 == 0o600
    assert not served.post("flow_runs/filter", {}) and not served.post("deployments/filter", {})[0]["paused"]


@pytest.mark.parametrize("secret", [True, False], ids=["with the secret", "without"])
def test_a_foreign_name_and_a_foreign_page_are_refused(served: Served, secret: bool) -> None:
    known = served.headers if secret else {}
    preflight = {"origin": EVIL, "access-control-request-method": "POST", "access-control-request-headers": "x"}
    assert ask(served, "POST", host="evil.example", **known).status == 400
    assert ask(served, "POST", host="prefect-in-memory", **known).status == 400, "a name inside the server only"
    for answer in (
        ask(served, "POST", origin=EVIL, **{"content-type": "text/plain"}, **known),
        ask(served, "POST", origin="null", **known),
        ask(served, "POST", origin="http://127.0.0.1:1", **known),
        ask(served, "OPTIONS", **preflight, **known),
    ):
        assert answer.status == 403
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    own = served.url.removesuffix("/api")
    assert ask(served, "POST", origin=own, **known).status == (200 if secret else 401)


@pytest.mark.parametrize("host", ["infuser.example", "127.0.0.1:4200"])
def test_a_reverse_proxy_comes_in_by_its_own_name_or_by_ours(served: Served, host: str) -> None:
    page = "https://infuser.example"
    assert ask(served, "POST", host=host, origin=page, **served.headers).status == 200
    assert ask(served, "POST", host=host, origin=f"{page}.evil.example", **served.headers).status == 403


@pytest.mark.parametrize("path", ["events/in", "events/out", "logs/out", "task_runs/subscriptions/scheduled"])
def test_sockets_open_to_the_secret_alone(served: Served, path: str) -> None:
    async def greeted(word: str, **options: Any) -> str:
        url = f"{served.url}/{path}".replace("http", "ws", 1)
        async with connect(url, subprotocols=["prefect"], **options) as socket:  # type: ignore[list-item]
            await socket.send(json.dumps({"type": "auth", "token": word}))
            return str(json.loads(await socket.recv())["type"])

    assert asyncio.run(greeted(served.password)) == "auth_success"
    with pytest.raises(ConnectionClosed):
        asyncio.run(greeted("guessed"))
    with pytest.raises(InvalidStatus, match="403"):
        asyncio.run(greeted(served.password, origin=EVIL))


def test_the_owner_starts_runs_whose_parameters_name_no_foreign_code(served: Served) -> None:
    named = {"cotrain.question.labeller": "this:s", "name": "doors"}
    started = served.prefect(
        "deployment", "run", "infuser/full-pipeline", "--param", f"overrides={json.dumps(named)}", "--watch"
    )  # fmt: skip
    assert started.returncode == 1, started.stdout + started.stderr
    (run,) = served.roots()
    assert run["state_name"] == "Failed" and "'this:s' is code from outside INFUSER" in run["state"]["message"]
    assert "Zen of Python" not in served.log.read_text()


def test_the_secret_is_nowhere_but_in_its_file(served: Served) -> None:
    secret = served.password.encode()
    files = [path for path in served.store.parent.rglob("*") if path.is_file()]
    assert [path for path in files if secret in path.read_bytes()] == [served.announcement]
    assert secret not in subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout
    assert "`infuser serve --login` prints a link" in served.log.read_text(), "a file may have other readers"


def test_a_second_server_of_the_store_is_told_where_the_first_is(served: Served) -> None:
    second = served.command("flows.cli.main", "serve", "--port", str(deployment.free_port()))
    assert second.returncode == 2 and served.url in second.stderr


@pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_one_link_opens_prefect_and_the_viewer_and_neither_asks_another_host(
    served: Served, host: str, tmp_path: Path
) -> None:
    (run,) = served.roots()
    ui = served.url.removesuffix("/api").replace("127.0.0.1", host)
    with watched(tmp_path / "profile", deployment.free_port()) as page:
        served.show(page, host)
        page.open(f"{ui}/runs/flow-run/{run['id']}")
        page.until("document.body.innerText.includes('is code from outside INFUSER')")
        assert page.value("location.pathname") == f"/v2/runs/flow-run/{run['id']}"
        page.open(f"{ui}/sql")
        page.until("document.title === 'SQL'")
        # The pages ask; the policy of the server stops it before it leaves the browser.
        refused = {event["params"]["requestId"] for event in page.events if event["method"] == "Network.loadingFailed"
                   and event["params"].get("blockedReason") == "csp"}  # fmt: skip
        sent = [event["params"] for event in page.events if event["method"] == "Network.requestWillBeSent"]
        hosts = {urlsplit(each["request"]["url"]).hostname for each in sent if each["requestId"] not in refused}
    assert hosts <= {host, None}, hosts


def test_a_login_link_works_once_and_a_guess_gives_nothing(served: Served) -> None:
    link = served.command("flows.cli.main", "serve", "--login").stdout.strip()
    secret = base64.b64encode(served.password.encode()).decode()
    first, second, guess = (httpx.get(url).text for url in (link, link, f"{link[:-1]}_"))
    assert (secret in first, secret in second, secret in guess) == (True, False, False)
    assert "This link has been used" in second
    ui = served.url.removesuffix("/api")
    assert httpx.post(f"{ui}/login").status_code == httpx.post(f"{ui}/login/link").status_code == 401
    assert httpx.post(f"{ui}/login", headers=served.headers).cookies
    away = httpx.get(f"{ui}/login", params={"next": "//evil.example/x"}).text
    assert '"/evil.example/x"' in away and '"//' not in away


def test_the_viewer_shows_nothing_without_its_cookie(served: Served) -> None:
    ui = served.url.removesuffix("/api")
    asked = httpx.get(f"{ui}/runs/x?page=2")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2Fruns%2Fx%3Fpage%3D2")
    with httpx.Client() as owner:
        owner.post(f"{ui}/login", headers=served.headers)
        assert owner.get(f"{ui}/sql").status_code == 200
        assert owner.get(f"{ui}/view/sql").headers["location"] == "/sql", "of pages of an earlier server"


def test_the_printed_lines_lead_prefect_from_any_folder_to_the_server(served: Served, tmp_path: Path) -> None:
    infuser, prefect = (f"{sys.executable} -P -m {name}" for name in ("flows.cli.main", "prefect"))
    script = f'eval "$({infuser} serve --env)" && cd {tmp_path} && {prefect} deployment inspect infuser/full-pipeline'
    lost = {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT_PROFILE": "none"}
    shown = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env={**served.environment, **lost}, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "flows.full_pipeline" in shown.stdout


def ask(served: Served, method: str, **headers: str) -> Any:
    """An answer, also where it is a refusal."""
    request = urllib.request.Request(f"{served.url}/deployments/filter", b"{}", headers, method=method)
    try:
        return urllib.request.urlopen(request, timeout=20)
    except urllib.error.HTTPError as error:
        return error
