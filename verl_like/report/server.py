"""The HTTP server of ``verl-like serve``: the page, the head and the shards of a report, to this machine alone."""

from __future__ import annotations

import base64
import hmac
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from socketserver import TCPServer
from typing import Any

from verl_like.report.refreshed import RefreshedContent

HOST = "127.0.0.1"
HOST_NAMES = {HOST, "localhost", "[::1]"}  # of a Host header; a tunnel may have another port
REQUEST_TIMEOUT_S = 30.0
MAX_SHOWN = 200  # characters of a request in an answer
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # the address contains the token
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# The page has its own policy, which names its scripts; this one is added to it.
PAGE_POLICY = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
OTHER_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
REOPEN = "Open the address that verl-like serve printed; each start has another one."


class ReportServer(ThreadingHTTPServer):
    """Serves a report below ``/TOKEN/`` on a loopback port.

    Every user of the machine can connect to a loopback port, and so can a web page in a browser of the machine. The
    address therefore contains a random token, without which nothing is served. The header ``Host`` must name this
    machine: a page of another site whose name was pointed at 127.0.0.1 (DNS rebinding) has its own name there.
    Requests name parts of the content, never files.

    Args:
        port: 0 for a free one.

    Raises:
        ValueError: the port cannot be used.
    """

    daemon_threads = True  # an open connection does not delay the end

    def __init__(self, content: RefreshedContent, token: str, *, port: int) -> None:
        try:
            super().__init__((HOST, port), partial(_Handler, content, token))
        except OSError as error:
            raise ValueError(
                f"--port is {port}, which cannot be used ({error.strerror}). Give another number, or leave out --port "
                "for a free one."
            ) from None
        self.url = f"http://{HOST}:{self.server_address[1]}/{token}/"

    def server_bind(self) -> None:
        """Bind the port without asking for the name of the address, which takes seconds where no service knows it."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a browser that closes a connection early is no error."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    timeout = REQUEST_TIMEOUT_S

    def __init__(self, content: RefreshedContent, token: str, request: socket, address: Any, server: Any) -> None:
        self._content, self._token = content, token
        super().__init__(request, address, server)

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host") or ["no host"]
        if len(hosts) > 1 or _name_of(hosts[0]) not in HOST_NAMES:
            found = ", ".join(hosts)[:MAX_SHOWN]
            self._refuse(HTTPStatus.FORBIDDEN, f"Found the host {found!a}, expected {HOST} or localhost. {REOPEN}")
            return
        token, slash, name = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode("latin-1", "replace"), self._token.encode()):
            self._refuse(HTTPStatus.NOT_FOUND, f"Found no report at this address. {REOPEN}")
        elif not slash:
            self._send(HTTPStatus.MOVED_PERMANENTLY, "text/plain", b"", Location=f"/{self._token}/")
        else:
            self._answer(name)

    def _answer(self, name: str) -> None:
        content = self._content.current()
        if name == "":
            self._send(HTTPStatus.OK, "text/html", content.page, policy=PAGE_POLICY)
        elif name == "head.json":
            self._send(HTTPStatus.OK, "application/json", content.head)
        elif name.startswith("shards/") and (shard := content.shards.get(name.removeprefix("shards/"))) is not None:
            self._send(HTTPStatus.OK, "text/plain", base64.b64encode(shard))
        else:
            found = f"Found nothing named {name[:MAX_SHOWN]!a}, expected a part of the report. Reload its page."
            self._refuse(HTTPStatus.NOT_FOUND, found)

    def _refuse(self, status: HTTPStatus, sentence: str, **headers: str) -> None:
        self.close_connection = True  # the request may have a body, which is not read
        self._send(status, "text/plain", f"{sentence}\n".encode(), Connection="close", **headers)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, *, policy: str = OTHER_POLICY, **headers: str) -> None:
        self.send_response(status)
        fields = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **HEADERS, **headers}
        for name, value in {**fields, "Content-Security-Policy": policy}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that ``http.server`` refuses, in plain text; a method other than GET is one of them."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            found = f"Found the method {str(self.command)[:MAX_SHOWN]!a}, expected GET."
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, found, Allow="GET")
        else:
            self._refuse(HTTPStatus(code), f"Found a request that is not valid HTTP: {(message or '')[:MAX_SHOWN]!a}.")

    def version_string(self) -> str:
        return "verl-like"

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: the text of a request must not reach the terminal."""


def _name_of(host: str) -> str:
    """Return the name in a ``Host`` header, without its port."""
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isascii() and port.isdigit() else host.lower()
