"""PDF converter that posts the file to an HTTP service at `corpus.convert.url` and gets Markdown as the answer.

The answer is `text/markdown` or `text/plain`, or JSON with the text in `markdown` or `md_content`, at the top level or
below `document`.
"""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from corpus.read.page import ConversionJob, page_of
from infuser_core.errors import DocumentError
from infuser_core.schemas import Page

MAX_BYTES = 1 << 28


def trouble(job: ConversionJob) -> str:
    """Return why the service cannot be used; empty if its address is set."""
    return "" if job.settings.url else "corpus.convert.url is empty"


def convert(path: Path, source_id: str, job: ConversionJob) -> Page:
    """Convert one PDF by the service. Returns a rejected page row for an answer that is not Markdown.

    Raises DocumentError if the service does not answer.
    """
    if fault := trouble(job):
        raise DocumentError(f"http: {fault}", hint="set corpus.convert.url to the service's address")
    headers = {"Content-Type": "application/pdf", "Accept": "text/markdown, application/json"}
    request = urllib.request.Request(job.settings.url, data=path.read_bytes(), headers=headers, method="POST")
    text, reason = "", ""
    try:
        with urllib.request.urlopen(request, timeout=job.settings.seconds) as answer:
            raw = answer.read(MAX_BYTES + 1)
            text = _answer_text(raw, answer.headers.get_content_type())
    except urllib.error.HTTPError as error:
        reason = f"http: status {error.code} from {job.settings.url}"
    except TimeoutError:
        reason = f"http: no answer within {job.settings.seconds:g} s"
    except OSError as error:
        raise DocumentError(f"http: {job.settings.url}: {error}", hint="start the service") from error
    if not reason and (len(raw) > MAX_BYTES or not text.strip()):
        reason = f"http: the answer of {len(raw)} bytes is no Markdown"
    chosen = f"the service at {job.settings.url}"
    return page_of(source_id, "" if reason else text, converter="http", reason=reason, chosen=chosen)


def _answer_text(raw: bytes, content_type: str) -> str:
    """Markdown in the service's answer; empty if there is none."""
    if not content_type.endswith("json"):
        return raw.decode("utf-8", "replace") if content_type in ("text/markdown", "text/plain") else ""
    try:
        value: Any = json.loads(raw)
    except ValueError:
        return ""
    document = value.get("document", value) if isinstance(value, dict) else None
    fields = [document.get(key) for key in ("markdown", "md_content")] if isinstance(document, dict) else []
    return next((text for text in fields if isinstance(text, str)), "")
