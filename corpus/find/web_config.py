"""Settings of HTTP requests: who may be reached, how fast, how long to wait, and how often to retry."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

AGENT = "infuser-corpus/0.1"
SLOW_SECONDS, LEAST_RATE = 30.0, 4096.0
"""Seconds of waiting after which the rate of an answer is checked, and the least rate, bytes per second."""
MAX_WAIT_SECONDS = 120.0
"""Longest wait before a retry, seconds; if Retry-After asks for more, there is no retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time and waiting, in seconds; tests replace it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """Limits of HTTP requests: allowed hosts, rate, timeouts, and the number of retries with their pauses."""

    allowed_hosts: frozenset[str] = frozenset()
    """Trusted hosts, such as a local catalogue: reached without the address check, on any port, without pause."""
    user_agent: str = AGENT
    """User-Agent header; add a contact address before a large run."""
    connect_seconds: float = 10.0
    """Limit for opening a connection, seconds."""
    stall_seconds: float = 30.0
    """Limit for a pause between two reads, seconds."""
    slow_seconds: float = SLOW_SECONDS
    """Time of waiting for an answer's bytes after which a slow answer is aborted, seconds."""
    delay_seconds: float = 1.0
    """Least time between the end of a request and the next one to the same host, seconds."""
    robots_exempt: tuple[str, ...] = ()
    """Address prefixes for which robots.txt is ignored, because their owner allowed it elsewhere."""
    attempts: int = 3
    """Requests to a busy or broken server, at most."""
    backoff_seconds: float = 2.0
    """Upper end of the first random wait; doubles with every attempt, seconds."""
    max_bytes: int = 500 << 20
    """Largest file that is downloaded, bytes."""
    clock: Clock = field(default_factory=Clock)
