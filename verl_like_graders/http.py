"""The client for rewards over HTTP: a rate limit, retries with growing pauses, one connection pool.

The caller controls how many calls run at once (``reward.max_concurrency``) and the deadline of a sample, which cancels
the call at any point. A cancelled call releases its connection and its position in the queue.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import string
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx

from verl_like_graders.masking import MASK, masked_text

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 512
MAX_PAUSE_S = 60.0  # between attempts, unless the service requests more
EXCERPT_CHARS = 200  # of an answer's body, in messages
MAX_ANSWER_BYTES = 4 * 2**20
_TEMPORARY = (408, 429)  # in addition to 5xx: statuses that another attempt may avoid


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The part of a service's answer that was read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_too_long: bool

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A URL and how to call it.

    Args:
        headers: ``$NAME`` in a value stands for that environment variable, ``$$`` for a dollar; values from the
            environment appear in no message.
        requests_per_s: maximum number of attempts started per second in this process; 0 is no limit.
        max_retries: attempts after the first.
        retry_s: mean pause before the second attempt; it doubles with each.
        request_timeout_s: maximum time of one attempt.

    Raises:
        ValueError: an option is invalid.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    requests_per_s: float = 0.0
    max_retries: int = 3
    retry_s: float = 0.5
    request_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not self.url.startswith(("http://", "https://")):
            raise ValueError(
                f"url is {self.url!r}; expected the address of a service, e.g. http://127.0.0.1:8000/score."
            )
        limits = {
            "requests_per_s": self.requests_per_s,
            "max_retries": self.max_retries,
            "retry_s": self.retry_s,
            "request_timeout_s": self.request_timeout_s,
        }
        for name, value in limits.items():
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value!r}; expected a number of at least 0.")
        if not isinstance(self.max_retries, int) or not self.request_timeout_s:
            raise ValueError(
                f"max_retries is {self.max_retries!r} and request_timeout_s {self.request_timeout_s!r}; expected a "
                f"whole "
                "number of attempts, and more than 0 seconds."
            )


async def post_json(service: Service, payload: Mapping[str, Any]) -> Any:
    """Post ``payload`` as JSON and return the service's JSON answer, with keys that it quotes masked.

    Connection errors, attempts past ``request_timeout_s``, and the statuses 408, 429 and 5xx are retried. The pause
    before a retry has a random length or the one that the service requests (Retry-After), whichever is longer.

    Raises:
        ValueError: no attempt succeeded, the status is any other, or the answer is too long or not JSON.
    """
    headers, secrets = _filled(service.headers)
    secrets += [password] if (password := urlsplit(service.url).password) else []
    url = masked_text(service.url)
    body = _body(payload)
    shared = _of_this_loop()
    for attempt in range(service.max_retries + 1):
        await shared.pace(service.url).turn(service.requests_per_s)
        outcome = await _attempt(shared.client, service, body, headers)
        if isinstance(outcome, HttpAnswer) and 200 <= outcome.status < 300:
            return _parsed(outcome, url, secrets)
        if isinstance(outcome, HttpAnswer) and not _is_temporary(outcome.status):
            raise ValueError(f"{url} {_described(outcome, secrets)}; expected status 200. {_remedy(outcome)}")
        shared.warn_once(url, _described(outcome, secrets))
        if attempt < service.max_retries:
            await asyncio.sleep(
                _pause_s(outcome, shared.random.uniform(0.5, 1.5) * service.retry_s * 2 ** min(attempt, 30))
            )
    raise ValueError(
        f"{url} {_described(outcome, secrets)} at the last of {service.max_retries + 1} attempts; expected "
        f"status "
        "200. Check that the service runs and is not overloaded; reward.max_concurrency and requests_per_s limit its "
        "load."
    )


class _Pace:
    """Lets calls through in the order of arrival, at least one interval apart."""

    def __init__(self) -> None:
        self._queue = asyncio.Lock()
        self._last = -math.inf

    async def turn(self, requests_per_s: float) -> None:
        """Return when the next request may start."""
        if not requests_per_s:
            return
        # The time is recorded after the wait, so a call that is cancelled in the queue does not delay the others.
        async with self._queue:
            await asyncio.sleep(self._last + 1 / requests_per_s - time.monotonic())
            self._last = time.monotonic()


class _Shared:
    """The client and the state that all calls of one event loop share; it exists as long as the loop."""

    def __init__(self) -> None:
        # Each attempt has one timeout: httpx would restart its own with every chunk of an answer.
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
        self.client = httpx.AsyncClient(timeout=None, limits=limits)
        self.random = random.Random()
        self._paces: dict[str, _Pace] = {}
        self._warned: set[tuple[str, str]] = set()

    def pace(self, url: str) -> _Pace:
        return self._paces.setdefault(url, _Pace())

    def warn_once(self, url: str, failure: str) -> None:
        """Log the first failed attempt of its kind.

        A sample whose deadline passes during a retry pause cannot report the reason itself.
        """
        kind = " ".join(failure.split()[:2])  # "answered 503"
        if (url, kind) not in self._warned:
            self._warned.add((url, kind))
            log.warning("%s %s; such failures are retried, and later ones are not logged", url, failure)


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


def _of_this_loop() -> _Shared:
    loop = asyncio.get_running_loop()
    if loop not in _SHARED:
        _SHARED[loop] = _Shared()
    return _SHARED[loop]


async def _attempt(
    client: httpx.AsyncClient, service: Service, body: bytes, headers: Mapping[str, str]
) -> HttpAnswer | str:
    """Return the answer, or why there is none. The rest of a too long answer is not read."""
    try:
        async with asyncio.timeout(service.request_timeout_s):
            async with client.stream("POST", service.url, content=body, headers=headers) as response:
                read = bytearray()
                async for piece in response.aiter_bytes():
                    read += piece
                    if len(read) > MAX_ANSWER_BYTES:
                        break
                is_too_long = len(read) > MAX_ANSWER_BYTES
                return HttpAnswer(response.status_code, response.headers, bytes(read[:MAX_ANSWER_BYTES]), is_too_long)
    except TimeoutError:
        return f"did not answer within request_timeout_s={service.request_timeout_s:g}"
    except httpx.RequestError as error:
        return masked_text(f"could not be reached ({type(error).__name__}: {error})")


def _is_temporary(status: int) -> bool:
    return status in _TEMPORARY or status >= 500


def _pause_s(outcome: HttpAnswer | str, own_s: float) -> float:
    asked = retry_after_s(outcome.headers.get("Retry-After", "")) if isinstance(outcome, HttpAnswer) else 0.0
    return max(min(own_s, MAX_PAUSE_S), asked)


def retry_after_s(value: str) -> float:
    """Return the seconds to wait by a Retry-After header, or 0 if it is invalid.

    The header holds seconds or a date (RFC 9110, 10.2.3).
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return 0.0
    return seconds if 0 < seconds < math.inf else 0.0


def _filled(headers: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the headers to send, and the values in them that came from the environment."""
    filled = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    secrets: list[str] = []
    for name, value in headers.items():
        template = string.Template(value)
        if not template.is_valid():
            raise ValueError(
                f"the header {name} has a dollar sign without the name of an environment variable; expected $NAME, or "
                "$$ for a dollar sign."
            )
        for variable in template.get_identifiers():
            if not os.environ.get(variable):
                raise ValueError(
                    f"the header {name} asks for the environment variable {variable}, which is not set in the scorer's "
                    "process. Export it before the run starts (on every node), or correct the name."
                )
            secrets.append(os.environ[variable])
        filled[name] = template.substitute(os.environ)
        if not (
            filled[name].isascii() and filled[name].isprintable()
        ):  # otherwise the HTTP library would print the value in its error
            raise ValueError(
                f"the header {name} holds a line break or another character that no header may have; expected "
                f"printable "
                "ASCII. Check the end of the text that it is read from."
            )
    return filled, secrets


def _body(payload: Mapping[str, Any]) -> bytes:
    try:
        # Dates, decimals and similar types, which Parquet may hold, are sent as text.
        return json.dumps(payload, allow_nan=False, default=str).encode()
    except ValueError as error:
        raise ValueError(
            f"the sample cannot be sent as JSON: {error}. Remove NaN and infinity from its ground_truth and extra_info."
        ) from error


def _parsed(answer: HttpAnswer, url: str, secrets: list[str]) -> Any:
    if answer.is_too_long:
        raise ValueError(
            f"{url} {_described(answer, secrets)} and more than {MAX_ANSWER_BYTES:,} bytes in all; expected a score. "
            "Check the path in url."
        )
    try:
        return _without(secrets, json.loads(answer.body))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{url} {_described(answer, secrets)}; expected JSON. Check the path in url.") from error


def _without(secrets: list[str], answer: Any) -> Any:
    """Mask the keys that an answer quotes, because it is copied into messages and samples."""
    if isinstance(answer, str):
        for secret in secrets:
            answer = answer.replace(secret, MASK)
        return masked_text(answer)
    if isinstance(answer, list):
        return [_without(secrets, each) for each in answer]
    if isinstance(answer, dict):
        return {_without(secrets, name): _without(secrets, value) for name, value in answer.items()}
    return answer


def _described(outcome: HttpAnswer | str, secrets: list[str]) -> str:
    if isinstance(outcome, str):
        return outcome
    return f"answered {outcome.status} with {_without(secrets, outcome.text)[:EXCERPT_CHARS]!r}"


def _remedy(answer: HttpAnswer) -> str:
    if 300 <= answer.status < 400:
        return f"Set url to the target: {masked_text(answer.headers.get('Location', ''))}."
    if answer.status in (401, 403):
        return "Check the key and the headers."
    return "Correct url or the options. The service's log has the details."
