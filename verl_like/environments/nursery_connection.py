"""A nursery and its socket, over which the process that generates asks for processes of environments."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from verl_like.environments.nursery_start import (
    MAX_PACKET,
    Loaded,
    NurseryLost,
    ProcessSettings,
    loaded,
    started_nursery,
)
from verl_like.environments.process_calls import printable

SEND_TIMEOUT_S = 10.0  # the nursery takes a packet within milliseconds, unless it is stopped or gone


class NurseryConnection:
    """A started nursery.

    Raises:
        ValueError: the interpreter cannot be started.
        RuntimeError: no more processes or files are available.
    """

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings, self._loss = settings, ""
        self._nursery = started_nursery(settings)
        self.socket = self._nursery.connection

    @property
    def subreaper_pid(self) -> int:
        """The parent of the nursery."""
        return self._nursery.subreaper.pid

    def load(self) -> Loaded:
        """Load the user's code and return what it is.

        Raises:
            ValueError: it cannot be loaded, or follows no contract.
            TimeoutError: it was not loaded in time.
        """
        found = loaded(self._nursery, self._settings)
        self.socket.settimeout(SEND_TIMEOUT_S)
        return found

    def close(self) -> None:
        """End the nursery, its processes, and all that they have started."""
        self._nursery.end()
        self._nursery.wait()
        self._nursery.close()

    def check(self) -> None:
        """Raise NurseryLost if it is known to be lost."""
        if self._loss:
            raise NurseryLost(self._loss)

    def request(self, packet: Mapping[str, Any], *fds: int) -> None:
        """Send a packet, with file descriptors.

        Raises:
            NurseryLost: the nursery has ended or is stopped.
        """
        self.check()
        try:
            socket.send_fds(self.socket, [json.dumps(packet).encode()], fds)
        except TimeoutError as error:
            raise self.lost(f"does not answer within {SEND_TIMEOUT_S:g} s") from error
        except OSError as error:
            while self.receive() is not None:  # the last packet may say how the nursery ended
                pass
            raise self.lost("has ended") from error

    def receive(self) -> dict[str, Any] | None:
        """Return a packet of the nursery; None if there is none now.

        Raises:
            NurseryLost: the nursery has ended.
        """
        if not select.select([self.socket], [], [], 0)[0]:
            return None  # recv would wait, because the socket has a timeout, whatever its flags
        content = b""
        with suppress(OSError):
            try:
                content = self.socket.recv(MAX_PACKET)
            except ConnectionResetError:  # reported once, before the packets, if the nursery has left some unread
                content = self.socket.recv(MAX_PACKET)
        if not content:
            raise self.lost("has ended")
        packet: dict[str, Any] = json.loads(content)
        if "nursery_ended" in packet:
            raise self.lost(f"ended with code {packet['nursery_ended']}", packet["last_output"])
        return packet

    def lost(self, how: str, last_output: str = "") -> NurseryLost:
        """Record why the nursery is lost and return the error; the first reason counts."""
        end = f" It printed last:\n{printable(last_output)}" if last_output else ""
        self._loss = self._loss or f"the process that has loaded {self._settings.name} {how}.{end}"
        return NurseryLost(self._loss)
