"""An HTTP server through which agent programs talk to the policy, in a thread of the process that generates.

Each episode has its own base URL and key. The server reads requests and sends answers; the thread that runs the
episodes decides what the answers are. The two exchange requests by queue and never wait for each other.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from aiohttp import web

from verl_like.environments import model_responses
from verl_like.environments.agent_episode import Address
from verl_like.environments.model_requests import (
    ChatRequest,
    ModelAnswer,
    ModelRequest,
    RequestRefused,
    Sampling,
    TokensRequest,
    episode_ended,
    read_chat,
    read_tokens,
)
from verl_like.environments.model_responses import ServedModel

log = logging.getLogger(__name__)

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
MAX_BODY_MIB = 32.0
DELAY_EVERY_S = 0.02  # between two measurements of the loop's delay; a shorter delay may be missed
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 2.0  # for connections that are open when the server stops


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """A request of a program; ``asked`` is None if its client has gone.

    Args:
        episode: number of the episode at the gateway.
        request: number of the request, by which it is answered.
    """

    episode: int
    request: int
    asked: ModelRequest | None


@dataclass(kw_only=True, slots=True)
class GatewayUsage:
    """Counts since the start; ``max_loop_delay_ms`` is the longest time for which the server did nothing else."""

    num_requests: int = 0
    num_refused: int = 0
    max_loop_delay_ms: float = 0.0


class Gateway:
    """The server. :meth:`open`, :meth:`end`, :meth:`answer` and :meth:`arrived` may be called from any thread.

    Args:
        host: address to listen on. Any but the loopback lets other machines talk to the policy, if they have a key.
        max_body_mib: largest body of a request.
    """

    def __init__(self, model: ServedModel, *, host: str = LOOPBACK, max_body_mib: float = MAX_BODY_MIB) -> None:
        if host in ("", "0.0.0.0", "::"):
            raise ValueError(
                f"the gateway's address is {host!r}, which programs cannot connect to; expected the address of one "
                f"interface. Use {LOOPBACK}, or the address by which the programs' machine reaches this one."
            )
        self.model, self.usage = model, GatewayUsage()
        self._host, self._max_body = host, int(max_body_mib * 2**20)
        self._secret = secrets.token_bytes(32)
        self._num_opened = self._num_requests = self._port = 0
        self._open: dict[int, Address] = {}
        self._waiting: dict[
            int, tuple[int, asyncio.Future[ModelAnswer | RequestRefused]]
        ] = {}  # by request: episode, answer
        self._arrivals: deque[Arrival] = deque()
        self._wake: Callable[[], object] | None = None
        self._reported: set[str] = set()  # settings whose being ignored has been logged
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._workers = ThreadPoolExecutor(1, "gateway")  # reads and writes bodies

    def start(self) -> None:
        """Listen on a free port.

        Raises:
            OSError: the address is not one of this machine.
        """
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(START_TIMEOUT_S)

    async def _start(self) -> None:
        app = web.Application(client_max_size=self._max_body, middlewares=[self._errors])
        path = "/{episode}{version:(?:/v1)?}"
        app.router.add_get(f"{path}/models", self._models)
        app.router.add_post(f"{path}/chat/completions", self._chat)
        app.router.add_post("/{episode}/inference/v1/generate", self._generate)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_TIMEOUT_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, 0, backlog=1024).start()
        self._port = self._runner.addresses[0][1]
        self._measuring = asyncio.create_task(self._measure_delay())

    def close(self) -> None:
        """Stop; requests in progress get an error."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(STOP_TIMEOUT_S + START_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()
        self._workers.shutdown()

    async def _close(self) -> None:
        self._measuring.cancel()
        for episode in list(self._open):
            self._end(episode)
        await self._runner.cleanup()

    def open(self, sampling: Sampling) -> Address:
        """Return the address of a new episode.

        Args:
            sampling: the run's settings, by their names in requests; requests with others are counted.
        """
        self._num_opened += 1
        number = self._num_opened
        url = f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self._port}/{number}"
        self._open[number] = Address(number=number, base_url=url, api_key=self._key(number), sampling=sampling)
        return self._open[number]

    def _key(self, number: int) -> str:
        return hmac.new(self._secret, str(number).encode(), hashlib.sha256).hexdigest()

    def end(self, number: int) -> None:
        """End an episode: its requests in progress and all later ones get status 410."""
        self._loop.call_soon_threadsafe(self._end, number)

    def _end(self, number: int) -> None:
        self._open.pop(number, None)
        for episode, answer in self._waiting.values():
            if episode == number and not answer.done():
                answer.set_result(episode_ended())

    def attach(self, wake: Callable[[], object] | None) -> None:
        """Let ``wake`` be called, by another thread, when something has arrived; None disconnects."""
        self._wake = wake

    def arrived(self) -> list[Arrival]:
        """Return what has arrived since the last call, in this order."""
        return [self._arrivals.popleft() for _ in range(len(self._arrivals))]

    def answer(self, request: int, answer: ModelAnswer | RequestRefused) -> None:
        """ModelAnswer a request; nothing happens if its client has gone."""
        self._loop.call_soon_threadsafe(self._answer, request, answer)

    def _answer(self, request: int, answer: ModelAnswer | RequestRefused) -> None:
        if (waiting := self._waiting.get(request)) is not None and not waiting[1].done():
            waiting[1].set_result(answer)

    async def _models(self, request: web.Request) -> web.Response:
        self._address(request)
        return _json(model_responses.models(self.model))

    async def _chat(self, request: web.Request) -> web.Response:
        address = self._address(request)
        asked = await self._read(request, address, read_chat)
        answer = await self._answered(address, asked)
        respond = model_responses.chunks if asked.is_streamed else model_responses.completion
        body = await self._off_loop(partial(respond, asked, answer, model=self.model, episode=address.number))
        return _json(body, "text/event-stream" if asked.is_streamed else "application/json")

    async def _generate(self, request: web.Request) -> web.Response:
        address = self._address(request)
        asked = await self._read(request, address, read_tokens)
        answer = await self._answered(address, asked)
        respond = partial(model_responses.generated, asked, answer, model=self.model, episode=address.number)
        return _json(await self._off_loop(respond))

    def _address(self, request: web.Request) -> Address:
        """Return the episode of a request that has its key."""
        self.usage.num_requests += 1
        name = request.match_info["episode"]
        number = int(name) if name.isascii() and name.isdigit() and len(name) < 20 else 0
        if not 0 < number <= self._num_opened:
            raise RequestRefused(
                f"there is no episode {name!r}. Use the base URL that the program was given.",
                status=404,
                code="unknown_episode",
            )
        kind, _, key = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), self._key(number).encode()):
            raise RequestRefused(
                f"the request's key is not that of episode {number}. Send the key that the program was given, as "
                f"Authorization: Bearer KEY.",
                status=401,
                code="invalid_api_key",
            )
        if (address := self._open.get(number)) is None:
            raise episode_ended()
        return address

    async def _read(self, request: web.Request, address: Address, read: Callable[[bytes, Sampling], T]) -> T:
        content = await request.read()
        return await self._off_loop(partial(read, content, address.sampling))

    async def _answered(self, address: Address, asked: ChatRequest | TokensRequest) -> ModelAnswer:
        """Hand over a request and return its answer."""
        if address.number not in self._open:
            raise episode_ended()
        self._report(asked.ignored, address)
        self._num_requests += 1
        number, answer = self._num_requests, self._loop.create_future()
        self._waiting[number] = address.number, answer
        self._arrive(Arrival(episode=address.number, request=number, asked=asked))
        try:
            found: ModelAnswer | RequestRefused = await answer
        except asyncio.CancelledError:  # the client has closed its connection
            self._arrive(Arrival(episode=address.number, request=number, asked=None))
            raise
        finally:
            del self._waiting[number]
        if isinstance(found, RequestRefused):
            raise found
        return found

    def _arrive(self, arrival: Arrival) -> None:
        self._arrivals.append(arrival)
        if (wake := self._wake) is not None:
            wake()

    def _report(self, ignored: list[str], address: Address) -> None:
        if new := set(ignored) - self._reported:
            self._reported |= new
            log.warning(
                "an agent program sets %s in its requests to other values than the run's (%s); these have no effect, "
                "because training assumes the run's. Further such requests are only counted.",
                ", ".join(sorted(new)),
                ", ".join(f"{name}={value}" for name, value in address.sampling.items()),
            )

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._workers, work)

    async def _measure_delay(self) -> None:
        while True:
            due = self._loop.time() + DELAY_EVERY_S
            await asyncio.sleep(DELAY_EVERY_S)
            self.usage.max_loop_delay_ms = max(self.usage.max_loop_delay_ms, 1000 * (self._loop.time() - due))

    @web.middleware
    async def _errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except RequestRefused as error:
            refused = error
        except web.HTTPRequestEntityTooLarge:
            refused = RequestRefused(
                f"the body is larger than {self._max_body} bytes. Send less.", status=413, code="body_too_large"
            )
        except web.HTTPClientError as error:
            refused = RequestRefused(
                f"{request.method} {request.path} is not served; expected POST .../v1/chat/completions, "
                f"POST .../inference/v1/generate or GET .../v1/models. Correct the base URL.",
                status=error.status,
                code="not_found",
            )
        self.usage.num_refused += 1
        return _json(model_responses.error(refused), status=refused.status)


def _json(body: bytes, content_type: str = "application/json", *, status: int = 200) -> web.Response:
    return web.Response(body=body, content_type=content_type, status=status)
