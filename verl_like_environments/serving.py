"""A forked process: serves the episodes that it is sent, one request after the other.

Functions that are not async are called directly, outside of any event loop, whose threads cost about as much as a short
call. The first async function starts a loop (:mod:`verl_like_environments.calls`), which from then
on also runs while the process waits for requests, so that tasks of the environment continue.

The answer to the last request of an episode says whether the episode has left nothing: no thread, no task and
no process. The process may then serve another.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 (asyncio imports it late: once, before the fork)
import dataclasses
import random
import socket
import sys
import threading
import traceback
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from os import _exit, getpid, write  # before users' code could replace them
from typing import Any

from verl_like_environments.agent_programs import AgentProgram
from verl_like_environments.calls import OnLoop
from verl_like_environments.confined import lose_in_forks
from verl_like_environments.frames import FrameReader, encoded
from verl_like_environments.pictures import sendable
from verl_like_environments.session import EpisodeRow, Kind, Observation, Session, Turn
from verl_like_environments.subreaper import own_children

LAST = ("finish", "run")  # requests that end an episode
MAX_TRACEBACK = 8000  # characters, from the end
_CHUNK = 1 << 16
_OF_ASYNCIO = "asyncio_"  # name of the threads in which tools run in parallel
_NOTE = b"A process that the environment forked returned from it and was ended. End such a process with os._exit.\n"


def serve(kind: Kind | AgentProgram, connection: socket.socket) -> None:
    """Serve until the other end closes the connection."""
    with suppress(ConnectionError):  # it was closed before an answer was read
        _Server(kind, connection).run()


class _Server:
    def __init__(self, kind: Kind | AgentProgram, connection: socket.socket) -> None:
        self._kind, self._connection = kind, connection
        self._sessions: dict[int, Session] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = getpid()
        lose_in_forks(connection.fileno())

    def run(self) -> None:
        reader = FrameReader()
        while content := self._received():
            for request in reader.feed(content):
                self._answer(request)

    def _received(self) -> bytes:
        if self._loop is None:
            return self._connection.recv(_CHUNK)
        self._connection.setblocking(False)
        try:
            return self._loop.run_until_complete(self._loop.sock_recv(self._connection, _CHUNK))
        finally:
            self._connection.setblocking(True)

    def _answer(self, request: Mapping[str, Any]) -> None:
        try:
            result = self._driven(self._result(request))
            is_clean = {"is_clean": True} if request["do"] in LAST and self._has_left_nothing() else {}
            frame = encoded({"id": request["id"], "result": result, **is_clean})
        except (SystemExit, KeyboardInterrupt):  # ends the process, as the user's code wants
            raise
        except BaseException as error:  # noqa: BLE001 (the user's code may raise anything; it ends this episode alone)
            frame = encoded({"id": request["id"], **_described(error)})
        if getpid() != self._pid:
            write(2, _NOTE)
            _exit(1)
        self._connection.sendall(frame)

    def _driven(self, work: Coroutine[OnLoop, Any, Any]) -> Any:
        """Return the result of a coroutine, whose async parts run on the loop."""
        step = partial(work.send, None)
        while True:
            try:
                asked = step()
            except StopIteration as done:
                return done.value
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self._loop)
            try:
                step = partial(work.send, self._loop.run_until_complete(asked.awaitable()))
            except BaseException as error:  # noqa: BLE001 (raised where the coroutine awaits it)
                step = partial(work.throw, error)

    def _has_left_nothing(self) -> bool:
        tasks = set() if self._loop is None else asyncio.all_tasks(self._loop)
        others = [thread for thread in threading.enumerate() if not thread.name.startswith(_OF_ASYNCIO)]
        return not self._sessions and not tasks and len(others) == 1 and not own_children()

    async def _result(self, request: Mapping[str, Any]) -> Any:
        episode: int = request["episode"]
        if request["do"] in ("run", "reset"):
            _seed(request["row"]["seed"])
        if request["do"] == "run":
            assert isinstance(self._kind, AgentProgram), f"{self._kind.name} is no agent program"
            return await self._kind.run(
                EpisodeRow(**request["row"]),
                base_url=request["base_url"],
                api_key=request["api_key"],
                request_kwargs=request["request_kwargs"],
            )
        if request["do"] == "reset":
            assert not isinstance(self._kind, AgentProgram), "an agent program has no steps"
            row, session = EpisodeRow(**request["row"]), self._kind.session()
            self._sessions[episode] = session
            return {**_sent(await session.reset(row)), "tools": self._kind.tools(row)}
        session = self._sessions[episode]
        if request["do"] == "step":
            return _sent(await session.step(Turn(**request["turn"])))
        assert request["do"] == "finish", f"there is no request {request['do']!r}"
        del self._sessions[episode]
        try:
            reward = await session.reward()
            return {"reward": reward, "attributes": session.attributes()}
        finally:
            await session.close()


def _sent(found: Observation) -> dict[str, Any]:
    """Return an observation as JSON has it, pictures included."""
    return dataclasses.asdict(dataclasses.replace(found, messages=sendable(found.messages)))


def _seed(seed: int) -> None:
    """Seed the global generators, so that an episode does not depend on those that its process has served before."""
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        with suppress(Exception):  # a module of that name may be anything
            numpy.random.seed(seed % 2**32)


def _described(error: BaseException) -> dict[str, str]:
    name = type.__dict__["__name__"].__get__(type(error))  # a metaclass may have another attribute of this name
    try:
        text = "".join(traceback.format_exception(error))
        return {"error": f"{name}: {error}"[:MAX_TRACEBACK], "traceback": text[-MAX_TRACEBACK:]}
    except Exception:  # noqa: BLE001 (the error's own methods are the user's code, too)
        return {"error": f"{name}, whose text cannot be printed", "traceback": ""}
