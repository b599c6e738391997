"""Models behind an address, asked over a real loopback server: order, retries, refusals, and the key's secrecy."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from infuser_core.config.run import SamplingSettings
from infuser_core.engines.endpoint import KEY, ChatRequest, Endpoint, parse_address
from infuser_core.errors import DataWarning, EngineError, UsageError
from infuser_core.evaluation.evaluate import TOO_LONG, Ask, RespondSettings, seeds_of
from infuser_core.evaluation.remote import respond
from infuser_core.nano import world
from infuser_core.protocols import SamplingParams

SECRET = "key-that-nobody-sees"
Answer = tuple[int, dict[str, str], Any]
Script = Callable[[dict[str, Any], int], Answer]


def said(text: str, *, finish: str = "stop", prompt: int = 5) -> Answer:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": prompt, "completion_tokens": len(text)}}


def refused(status: int, message: str, **headers: str) -> Answer:
    return status, headers, {"error": {"message": message}}


class Log:
    """What the server saw."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()

    @contextmanager
    def request(self) -> Iterator[None]:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        yield
        with self._lock:
            self._now -= 1


@contextmanager
def server(script: Script) -> Iterator[tuple[str, Log]]:
    """A server whose answers `script(body, number of requests with these messages and seed so far)` gives."""
    log = Log()
    counts: dict[str, int] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with log.request():
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                name = json.dumps([body["messages"], body.get("seed")])
                counts[name] = counts.get(name, 0) + 1
                log.bodies.append(body)
                log.headers.append(dict(self.headers.items()))
                log.paths.append(self.path)
                status, headers, value = script(body, counts[name])
            text = value.encode() if isinstance(value, str) else json.dumps(value).encode()
            self.send_response(status)
            for key, item in {**headers, "content-length": str(len(text))}.items():
                self.send_header(key.replace("_", "-"), item)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: object) -> None:
            del arguments

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}/v1", log
    finally:
        running.shutdown()
        running.server_close()


def endpoint(url: str, **options: Any) -> Endpoint:
    return Endpoint(
        parse_address(f"openai:org/model:tag@{url}"),
        **{"concurrency": 16, "first_wait": 0.001, "timeout": 5.0, **options},
    )


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def echo(body: dict[str, Any], times: int) -> Answer:
    del times
    return said(f"to {body['messages'][0]['content']}")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv(KEY, SECRET)


def test_completions_come_in_the_order_of_the_prompts_whatever_arrives_first():
    def slow_first(body: dict[str, Any], times: int) -> Answer:
        time.sleep(0.1 if body["messages"][0]["content"] == "0" else 0.0)
        return echo(body, times)

    seen: list[tuple[int, int, int]] = []
    with server(slow_first) as (url, log):
        model = endpoint(url, concurrency=3)
        replies = model.complete([user(str(n)) for n in range(7)], max_tokens=9, progress=lambda *f: seen.append(f))
    assert replies == [f"to {n}" for n in range(7)]
    assert [done for done, _, _ in seen] == [*range(1, 8)] and seen[-1][2] == 7 * len("to 0")
    assert 1 < log.most_at_once <= 3
    assert set(log.paths) == {"/v1/chat/completions"}
    assert log.bodies[0]["model"] == "org/model:tag" and log.bodies[0]["max_tokens"] == 9
    assert log.bodies[0]["temperature"] == 0.0 and "top_k" not in log.bodies[0] and "seed" not in log.bodies[0]


def test_sampling_and_seed_are_sent_and_the_key_only_as_a_header():
    params = SamplingParams(temperature=0.7, top_p=0.8, top_k=20, max_tokens=3)
    with server(echo) as (url, log):
        list(endpoint(url).replies([ChatRequest(messages=user("q"), params=params, seed=(5 << 31) + 12)]))
    (body,) = log.bodies
    sent = [body[name] for name in ("temperature", "top_p", "top_k", "max_tokens", "seed")]
    assert sent == [0.7, 0.8, 20, 3, 12]
    assert log.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in json.dumps(body)


def late(body: dict[str, Any], times: int) -> Answer:
    """Longer than anybody waits, at first."""
    time.sleep(0.6 if times == 1 else 0.0)
    return echo(body, times)


def busy(status: int) -> Script:
    return lambda body, times: echo(body, times) if times > 1 else refused(status, "later")


def hidden(value: dict[str, Any]) -> Script:
    """An error under status 200, at first."""
    return lambda body, times: echo(body, times) if times > 1 else (200, {}, value)


PASSING = [
    {"error": {"message": "overloaded"}},
    {"error": {"code": 429, "message": "slow down"}, "choices": None},
    {"error": "upstream closed"},
    {"choices": [{"error": {"code": 502}, "finish_reason": "error", "message": {"content": "half a re"}}]},
]


@pytest.mark.parametrize(
    ("script", "timeout"),
    [(busy(429), 5.0), (busy(500), 5.0), (busy(503), 5.0), (late, 0.2), *((hidden(each), 5.0) for each in PASSING)],
)
def test_trouble_that_passes_is_tried_again(script: Script, timeout: float):
    with server(script) as (url, log):
        assert endpoint(url, timeout=timeout).complete([user("a"), user("b")], max_tokens=1) == ["to a", "to b"]
    assert len(log.bodies) == 4


def test_a_server_that_names_a_time_is_given_it():
    first: list[float] = []

    def later(body: dict[str, Any], times: int) -> Answer:
        first.append(time.monotonic())
        # The wait is spread by half of it: whoever comes after the other half has heard.
        if times == 1 or first[-1] - first[0] < 0.2:
            return refused(429, "slow down", retry_after="0.6")
        return echo(body, times)

    with server(later) as (url, log):
        assert endpoint(url, attempts=2).complete([user("a")], max_tokens=1) == ["to a"]
    assert len(log.bodies) == 2


def test_trouble_that_stays_is_an_error_with_what_the_server_said():
    with server(lambda body, times: refused(503, "no  memory\nleft")) as (url, log):
        with pytest.raises(EngineError, match="no answer in 3 attempts; last: HTTP 503: no memory left"):
            endpoint(url, attempts=3).complete([user("a")], max_tokens=1)
    assert len(log.bodies) == 3
    with pytest.raises(EngineError, match=r"org/model:tag@http://127.0.0.1:\d+/v1: no answer in 2 attempts"):
        endpoint(url, attempts=2).complete([user("a")], max_tokens=1)


REFUSALS = {
    401: ("bad key " + SECRET, f"set {KEY}"),
    404: ("no such model", "check the model's name"),
    400: ("unknown field top_k", "top_k: -1"),
    422: ("temperature too high", "refuses this request"),
}


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_is_not_tried_again_says_what_to_do_and_nothing_more_is_asked(status: int):
    message, hint = REFUSALS[status]
    with server(lambda body, times: refused(status, message)) as (url, log):
        with pytest.raises(EngineError) as caught:
            endpoint(url, concurrency=1).complete([user(str(number)) for number in range(50)], max_tokens=1)
    assert len(log.bodies) == 1
    assert f"HTTP {status}: {message.replace(SECRET, '***')}" in caught.value.message
    assert hint in caught.value.hint
    assert SECRET not in str(caught.value)


def test_a_refusal_under_status_200_is_one_and_a_prompt_that_does_not_fit_too():
    value: dict[str, Any] = {"error": {"code": 401, "message": "bad key"}}
    with server(lambda body, times: (200, {}, value)) as (url, log):
        with pytest.raises(EngineError, match="HTTP 200: bad key 401"):
            endpoint(url).complete([user("a")], max_tokens=1)
    assert len(log.bodies) == 1
    value["error"] = {"code": 400, "message": "maximum context length is 9"}
    with server(lambda body, times: (200, {}, value)) as (url, log):
        assert endpoint(url).complete([user("a")], max_tokens=1) == [""]


def test_half_a_surrogate_pair_is_replaced_and_counted():
    asked = [user("a"), user("b")]
    with server(lambda body, times: said("so \ud83d")) as (url, _), pytest.warns(DataWarning, match="in 2 texts"):
        assert endpoint(url).complete(asked, max_tokens=1) == ["so \ufffd"] * 2


@pytest.mark.parametrize(
    "value",
    [
        "<html>hello",
        {"choices": []},
        [1],
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": [1]}}]},
    ],
)
def test_an_answer_of_another_form_is_an_error(value: Any):
    with server(lambda body, times: (200, {}, value)) as (url, _), pytest.raises(EngineError, match="has another form"):
        endpoint(url).complete([user("a")], max_tokens=1)


def test_a_redirect_is_not_followed():
    with server(echo) as (other, log):
        away = {"location": f"{other}/chat/completions"}
        with server(lambda body, times: (307, away, {})) as (url, _), pytest.raises(EngineError, match="HTTP 307"):
            endpoint(url).complete([user("a")], max_tokens=1)
    assert log.bodies == []


def test_thoughts_that_the_server_keeps_apart_belong_to_the_output():
    message = {"content": "\\boxed{A}", "reasoning_content": "hm"}
    value = {"choices": [{"message": message, "finish_reason": "length"}]}
    with server(lambda body, times: (200, {}, value)) as (url, _):
        ((_, reply),) = endpoint(url).replies(
            [ChatRequest(messages=user("q"), params=SamplingParams(temperature=0.7, max_tokens=1))]
        )
    assert reply.text == "<think>\nhm\n</think>\n\n\\boxed{A}"
    assert (reply.finish_reason, reply.response_tokens) == ("length", 0)


def test_a_server_that_renamed_the_limit_gets_the_new_name():
    def newer(body: dict[str, Any], times: int) -> Answer:
        if "max_tokens" in body:
            return refused(400, "use max_completion_tokens instead of max_tokens")
        return echo(body, times)

    with server(newer) as (url, log):
        assert endpoint(url, concurrency=1).complete([user("a"), user("b")], max_tokens=4) == ["to a", "to b"]
    assert [body.get("max_completion_tokens") for body in log.bodies] == [None, 4, 4]


@pytest.mark.parametrize("text", ["openai:m", "openai:@http://h/v1", "openai:m@ftp://h", "openai:m@http://u:p@h/v1"])
def test_an_address_is_a_model_and_a_url_and_a_password_is_not_repeated(text: str):
    address = parse_address("openai:org/model@v2@https://host:1/v1/")
    assert (address.model, address.url) == ("org/model@v2", "https://host:1/v1")
    with pytest.raises(UsageError, match="no endpoint") as caught:
        parse_address(text)
    assert "u:p" not in str(caught.value)


# Evaluations of a model behind an address

ASKS = [
    Ask(benchmark="b", question=question, samples=3, max_tokens=11)
    for question in world.draw_questions("test", world.TARGET, 9, 0)
]
SETTINGS = RespondSettings(
    prompts="nano", sampling=SamplingSettings(temperature=0.7), prompt_tokens=100, seed=3, batch_tokens=1_000
)


def test_an_evaluation_saves_complete_questions_with_their_seeds():
    with server(lambda body, times: said(f"seed {body['seed']}", finish="length")) as (url, _):
        batches = list(respond(ASKS, {ASKS[4].key}, endpoint(url), SETTINGS))
    rows = {(row.question_id, row.sample_index): row for batch in batches for row in batch}
    assert {key for key, _ in rows} == {ask.key[1] for ask in ASKS} - {ASKS[4].key[1]}
    assert len(rows) == 24
    for ask in (ASKS[0], ASKS[8]):
        for index, seed in enumerate(seeds_of(ask, 3)):
            row = rows[ask.key[1], index]
            assert row.response == f"seed {seed & (2**31 - 1)}" and row.finish_reason == "length"
            assert (row.prompt_tokens, row.response_tokens) == (5, len(row.response))


def test_a_prompt_that_does_not_fit_is_a_row_and_no_error():
    text = ASKS[2].question.text

    def short_memory(body: dict[str, Any], times: int) -> Answer:
        turns = body["messages"][-1]["content"]
        if text in turns:
            return refused(400, "This model's maximum context length is 9 tokens")
        return said("x", prompt=101 if ASKS[3].question.text in turns else 7)

    with server(short_memory) as (url, _):
        rows = [row for batch in respond(ASKS, set(), endpoint(url), SETTINGS) for row in batch]
    unasked = {row.question_id for row in rows if row.finish_reason == TOO_LONG}
    assert unasked == {ASKS[2].key[1], ASKS[3].key[1]}
    assert len(rows) == 27 and all(row.response == "" for row in rows if row.question_id in unasked)


def test_when_the_endpoint_gives_up_what_is_complete_is_kept():
    def fails_at_the_end(body: dict[str, Any], times: int) -> Answer:
        return refused(403, "enough") if ASKS[8].question.text in body["messages"][-1]["content"] else said("x")

    saved = []
    with server(fails_at_the_end) as (url, _), pytest.raises(EngineError, match="enough"):
        for batch in respond(ASKS, set(), endpoint(url, concurrency=1), SETTINGS):
            saved += batch
    assert {row.question_id for row in saved} == {ask.key[1] for ask in ASKS[:8]} and len(saved) == 24
