"""An HTTP service on the loopback interface whose behaviour a test sets."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Call:
    path: str
    headers: Mapping[str, str]
    payload: Any
    at: float  # time.monotonic when it came in


Behaviour = Callable[["Handler", Any], None]


class HttpService:
    """Answers its first call with the first behaviour, and so on; the last one stays.

    ``calls`` are those that came in, ``peak`` is how many were being answered at once, ``connections`` how many were
    opened.
    """

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = behaviours
        self._lock = threading.Lock()
        self._busy = 0
        self.calls: list[Call] = []
        self.peak = 0
        self.connections = 0
        self.closing = threading.Event()
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.service = self
        self.url = f"http://127.0.0.1:{self._server.server_port}/score"

    def opened(self) -> None:
        with self._lock:
            self.connections += 1

    def answer(self, handler: Handler, payload: Any) -> None:
        with self._lock:
            behaviour = self._behaviours[min(len(self.calls), len(self._behaviours) - 1)]
            self.calls.append(Call(handler.path, dict(handler.headers), payload, time.monotonic()))
            self._busy += 1
            self.peak = max(self.peak, self._busy)
        try:
            behaviour(handler, payload)
        finally:
            with self._lock:
                self._busy -= 1

    def __enter__(self) -> HttpService:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    service: HttpService


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.service.opened()

    def do_POST(self) -> None:
        self.server.service.answer(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, format: str, *args: Any) -> None:
        pass


def reply(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None, after_s: float = 0.0) -> Behaviour:
    """Answer; a body that is no text goes out as JSON."""
    text = (body if isinstance(body, str) else json.dumps(body)).encode()

    def behave(handler: Handler, payload: Any) -> None:
        time.sleep(after_s)
        handler.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(text))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text)

    return behave


def hang(handler: Handler, payload: Any) -> None:
    """Never answer."""
    handler.server.service.closing.wait(30)
    handler.close_connection = True


def reset(handler: Handler, payload: Any) -> None:
    """Break the connection off."""
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.shutdown(socket.SHUT_RD)
    handler.connection.close()
