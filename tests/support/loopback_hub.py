"""A Hugging Face hub on loopback: what `huggingface_hub`'s client asks to create, fill, list and read repositories.

Large files go by the LFS protocol, and reading one is a redirect to another address, as on the hub. The Xet protocol is
not spoken: clients set HF_HUB_DISABLE_XET.
"""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

TOKEN = "hf_loopback"
LARGE = (".safetensors", ".parquet", ".bin", ".gguf")
"""Endings that go by LFS whatever their size, as the hub's `.gitattributes` says."""


@dataclass(slots=True)
class Repository:
    """Commits of one repository: name to content by file, the newest last."""

    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=lambda: [("0" * 40, {})])
    messages: list[str] = field(default_factory=list)
    private: bool = False

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Identity and files of a commit, or of the branch `main`."""
        if revision == "main":
            return self.commits[-1]
        return next((commit for commit in self.commits if commit[0] == revision), None)


@dataclass(slots=True)
class Hub:
    """The hub: its repositories by `models/owner/name` and `datasets/owner/name`, and the requests it had."""

    base: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def environment(self, home: Path, *, token: str = TOKEN) -> dict[str, str]:
        """Variables of a process that takes this one for the hub, with an empty cache below `home`."""
        return {
            "HF_ENDPOINT": self.base,
            "HF_HOME": str(home),
            "HF_TOKEN": token,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    def put(self, name: str, path: str, content: bytes) -> None:
        """A new repository with one file."""
        self.repositories[name] = Repository(commits=[(hashlib.sha1(content).hexdigest(), {path: content})])

    def files(self, name: str) -> dict[str, bytes]:
        """The newest files of a repository."""
        return self.repositories[name].commits[-1][1]


def _error(status: int, code: str) -> JSONResponse:
    return JSONResponse({"error": code}, status, headers={"X-Error-Code": code, "X-Error-Message": code})


def _large(name: str, size: int) -> bool:
    return name.endswith(LARGE) or size > 10_000_000


def _etag(name: str, content: bytes) -> str:
    if _large(name, len(content)):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(name: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": _etag(name, content)}
    if _large(name, len(content)):
        entry["lfs"] = {"oid": _etag(name, content), "size": len(content), "pointerSize": 134}
    return entry


def application(hub: Hub) -> FastAPI:
    """The routes. Writing takes the token, reading does not."""
    app = FastAPI(openapi_url=None)

    @app.middleware("http")
    async def _watched(request: Request, go: Any) -> Response:
        hub.seen.append(f"{request.method} {request.url.path}")
        writes = request.method == "POST" and "paths-info" not in request.url.path
        if writes and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"error": "Invalid username or password."}, 401)
        answer: Response = await go(request)
        return answer

    _add_uploads(app, hub)
    _add_large(app, hub)
    _add_facts(app, hub)
    _add_files(app, hub)
    return app


def _add_uploads(app: FastAPI, hub: Hub) -> None:
    """Repositories, and commits to them."""

    @app.post("/api/repos/create")
    async def _create(request: Request) -> Response:
        asked = await request.json()
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        key = f"{asked.get('type') or 'model'}s/{name}"
        url = f"{hub.base}/{name}" if key.startswith("models/") else f"{hub.base}/{key}"
        if key in hub.repositories:
            return JSONResponse({"error": "You already created this repo", "url": url}, 409)
        hub.repositories[key] = Repository(private=asked.get("visibility") == "private" or bool(asked.get("private")))
        return JSONResponse({"url": url, "name": name, "id": name})

    @app.post("/api/{kind}/{owner}/{name}/preupload/{revision}")
    async def _preupload(kind: str, owner: str, name: str, revision: str, request: Request) -> Response:
        if f"{kind}/{owner}/{name}" not in hub.repositories:
            return _error(404, "RepoNotFound")
        files = [
            {
                "path": each["path"],
                "uploadMode": "lfs" if _large(each["path"], each["size"]) else "regular",
                "shouldIgnore": False,
            }
            for each in (await request.json())["files"]
        ]
        return JSONResponse({"files": files})

    @app.post("/api/validate-yaml")
    async def _card(request: Request) -> Response:
        head = yaml.safe_load((await request.json())["content"].split("---\n")[1])
        wrong = [] if isinstance(head, dict) and isinstance(head.get("license"), str) else ["no license"]
        return JSONResponse({"errors": [{"message": each} for each in wrong], "warnings": []})

    @app.post("/api/{kind}/{owner}/{name}/commit/{revision}")
    async def _commit(kind: str, owner: str, name: str, revision: str, request: Request) -> Response:
        repository = hub.repositories.get(f"{kind}/{owner}/{name}")
        if repository is None or revision != "main":
            return _error(404, "RepoNotFound" if repository is None else "RevisionNotFound")
        files = dict(repository.commits[-1][1])
        for line in (await request.body()).splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "header":
                repository.messages.append(value["summary"])
            elif operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = hub.objects[value["oid"]]
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
        digest = hashlib.sha1(repr((repository.commits[-1][0], sorted(files))).encode() + repr(files).encode())
        repository.commits.append((digest.hexdigest(), files))
        url = f"{hub.base}/{owner}/{name}/commit/{digest.hexdigest()}"
        return JSONResponse({"success": True, "commitOid": digest.hexdigest(), "commitUrl": url})


def _add_large(app: FastAPI, hub: Hub) -> None:
    """Large files by the LFS protocol."""

    async def _batch(request: Request) -> Response:
        found = []
        for each in (await request.json())["objects"]:
            actions = {"upload": {"href": f"{hub.base}/objects/{each['oid']}"}}
            found.append({**each, **({} if each["oid"] in hub.objects else {"actions": actions})})
        return JSONResponse({"transfer": "basic", "objects": found}, media_type="application/vnd.git-lfs+json")

    app.post("/{owner}/{name}.git/info/lfs/objects/batch")(_batch)
    app.post("/datasets/{owner}/{name}.git/info/lfs/objects/batch")(_batch)

    @app.put("/objects/{oid}")
    async def _put(oid: str, request: Request) -> Response:
        content = await request.body()
        if hashlib.sha256(content).hexdigest() != oid:
            return Response(status_code=400)
        hub.objects[oid] = content
        return Response()

    @app.api_route("/objects/{oid}", methods=["GET", "HEAD"])
    async def _get(oid: str, request: Request) -> Response:
        return _bytes(request, hub.objects[oid], {"ETag": f'"{oid}"'})


def _found(hub: Hub, key: str, revision: str) -> tuple[str, dict[str, bytes]] | Response:
    repository = hub.repositories.get(key)
    if repository is None:
        return _error(404, "RepoNotFound")
    return repository.at(revision) or _error(404, "RevisionNotFound")


def _add_facts(app: FastAPI, hub: Hub) -> None:
    """What a repository holds."""

    @app.get("/api/{kind}/{owner}/{name}")
    @app.get("/api/{kind}/{owner}/{name}/revision/{revision}")
    async def _info(kind: str, owner: str, name: str, revision: str = "main") -> Response:
        found = _found(hub, f"{kind}/{owner}/{name}", revision)
        if isinstance(found, Response):
            return found
        oid, files = found
        siblings = [{"rfilename": path} for path in sorted(files)]
        facts = {"id": f"{owner}/{name}", "sha": oid, "private": False, "siblings": siblings, "tags": []}
        return JSONResponse(facts)

    @app.get("/api/{kind}/{owner}/{name}/tree/{revision}")
    @app.get("/api/{kind}/{owner}/{name}/tree/{revision}/{path:path}")
    async def _tree(kind: str, owner: str, name: str, revision: str, path: str = "") -> Response:
        found = _found(hub, f"{kind}/{owner}/{name}", revision)
        if isinstance(found, Response):
            return found
        inside = {each: content for each, content in found[1].items() if not path or each.startswith(f"{path}/")}
        if path and not inside:
            return _error(404, "EntryNotFound")
        return JSONResponse([_entry(each, content) for each, content in sorted(inside.items())])

    @app.post("/api/{kind}/{owner}/{name}/paths-info/{revision}")
    async def _paths(kind: str, owner: str, name: str, revision: str, request: Request) -> Response:
        found = _found(hub, f"{kind}/{owner}/{name}", revision)
        if isinstance(found, Response):
            return found
        asked = (await request.json())["paths"]
        return JSONResponse([_entry(each, found[1][each]) for each in asked if each in found[1]])


def _add_files(app: FastAPI, hub: Hub) -> None:
    """Content of files."""

    def _resolved(key: str, revision: str, path: str, request: Request) -> Response:
        found = _found(hub, key, revision)
        if isinstance(found, Response):
            return found
        oid, files = found
        if path not in files:
            return _error(404, "EntryNotFound")
        content = files[path]
        etag = _etag(path, content)
        headers = {"X-Repo-Commit": oid, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if _large(path, len(content)):
            linked = {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
            # To another host, as on the hub: the client takes the facts from here and not from there.
            elsewhere = hub.base.replace("127.0.0.1", "localhost")
            return RedirectResponse(f"{elsewhere}/objects/{etag}", 302, headers={**headers, **linked})
        return _bytes(request, content, headers)

    @app.api_route("/{owner}/{name}/resolve/{revision}/{path:path}", methods=["GET", "HEAD"])
    async def _model_file(owner: str, name: str, revision: str, path: str, request: Request) -> Response:
        return _resolved(f"models/{owner}/{name}", revision, path, request)

    @app.api_route("/datasets/{owner}/{name}/resolve/{revision}/{path:path}", methods=["GET", "HEAD"])
    async def _dataset_file(owner: str, name: str, revision: str, path: str, request: Request) -> Response:
        return _resolved(f"datasets/{owner}/{name}", revision, path, request)


def _bytes(request: Request, content: bytes, headers: dict[str, str]) -> Response:
    """The content, or the asked range of it."""
    asked = request.headers.get("range", "")
    if not asked.startswith("bytes="):
        return Response(content, headers=headers, media_type="application/octet-stream")
    first, _, last = asked.removeprefix("bytes=").partition("-")
    start, end = int(first), min(int(last or len(content) - 1), len(content) - 1)
    told = {**headers, "Content-Range": f"bytes {start}-{end}/{len(content)}"}
    return Response(content[start : end + 1], 206, headers=told, media_type="application/octet-stream")


@contextmanager
def hub() -> Iterator[Hub]:
    """A hub for the length of a test."""
    own = Hub()
    server = uvicorn.Server(uvicorn.Config(application(own), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    own.base = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield own
    finally:
        server.should_exit = True
        thread.join(5)
