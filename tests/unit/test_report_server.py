"""The server of ``verl-like serve``: what it answers, to whom, and what it refuses."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks._made_run import write_run
from verl_like.cli import main
from verl_like.report.refreshed import RefreshedContent
from verl_like.report.serve_command import serve
from verl_like.report.server import HOST, REOPEN, ReportServer

TOKEN = "a-token"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "made"
    write_run(folder, steps=3, samples=8)
    return folder


@pytest.fixture(scope="module")
def content(run: Path) -> RefreshedContent:
    return RefreshedContent([run])


@pytest.fixture(scope="module")
def server(content: RefreshedContent) -> Iterator[ReportServer]:
    with ReportServer(content, TOKEN, port=0) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.05,))
        thread.start()
        yield served
        served.shutdown()
        thread.join(60)


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()


def ask(
    server: ReportServer, path: str, *, method: str = "GET", host: str | None = None, body: bytes | None = None
) -> Answer:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=60)
    try:
        connection.request(method, path, body=body, headers={} if host is None else {"Host": host})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def raw(server: ReportServer, request: bytes) -> bytes:
    """Send bytes as they are; return the whole answer."""
    with socket.create_connection((HOST, server.server_port), timeout=60) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(2**16), b""))


# ---- answers


def test_page_head_and_shards_are_served(server: ReportServer, content: RefreshedContent) -> None:
    page, head = ask(server, f"/{TOKEN}/"), ask(server, f"/{TOKEN}/head.json")
    assert page.status == head.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8" and page.body == content.current().page
    assert json.loads(head.body)["live"] == {"version": content.current().version, "every_s": 5.0}
    for name, shard in content.current().shards.items():
        answer = ask(server, f"/{TOKEN}/shards/{name}")
        assert (answer.status, base64.b64decode(answer.body, validate=True)) == (200, shard)
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_the_address_without_its_last_slash_leads_to_the_page(server: ReportServer) -> None:
    answer = ask(server, f"/{TOKEN}")
    assert (answer.status, answer.headers["Location"]) == (301, f"/{TOKEN}/")


def test_several_requests_share_a_connection(server: ReportServer) -> None:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=60)
    for _ in range(3):
        connection.request("GET", f"/{TOKEN}/head.json?fresh=1")
        assert json.loads(connection.getresponse().read())["title"] == "made"
    connection.close()


@pytest.mark.parametrize("path", [f"/{TOKEN}/", f"/{TOKEN}/head.json", "/", f"/{TOKEN}/nothing"])
def test_every_answer_has_the_headers_of_a_private_page(server: ReportServer, path: str) -> None:
    headers = ask(server, path).headers
    assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers and headers["Server"] == "verl-like"
    assert "sandbox" in headers["Content-Security-Policy"] or path == f"/{TOKEN}/"


# ---- refusals


@pytest.mark.parametrize(
    "path", ["/", "/head.json", "/wrong/", "/wrong/head.json", "/a-toke/", "/a-token2/", "//", "/%C3%A9/"]
)
def test_without_the_token_nothing_is_served(server: ReportServer, path: str) -> None:
    answer = ask(server, path)
    assert answer.status == 404
    assert answer.body.decode() == f"Found no report at this address. {REOPEN}\n"
    assert TOKEN not in answer.body.decode()


@pytest.mark.parametrize(
    "name",
    [
        "../config.yaml",
        "shards/../../config.yaml",
        "shards/%2e%2e/config.yaml",
        "shards//etc/passwd",
        "shards/",
        "shards/r9-curves",
        "config.yaml",
        "..",
        "shards/r0-curves/",
        "shards/r0-curves%00",
    ],
)
def test_a_request_names_parts_of_the_report_and_never_files(server: ReportServer, name: str) -> None:
    answer = ask(server, f"/{TOKEN}/{name}")
    assert answer.status == 404 and b"trainer" not in answer.body
    assert answer.body.decode() == f"Found nothing named {name!r}, expected a part of the report. Reload its page.\n"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]"]
)
def test_a_page_whose_name_points_to_this_machine_gets_nothing(server: ReportServer, host: str) -> None:
    answer = ask(server, f"/{TOKEN}/head.json", host=host)
    assert answer.status == 403
    assert answer.body.decode() == f"Found the host {host!r}, expected 127.0.0.1 or localhost. {REOPEN}\n"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:9000", "[::1]:9000"])
def test_a_tunnel_with_another_port_is_this_machine(server: ReportServer, host: str) -> None:
    assert ask(server, f"/{TOKEN}/head.json", host=host).status == 200


def test_two_hosts_or_none_are_refused(server: ReportServer) -> None:
    for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        answer = raw(server, b"GET /%b/head.json HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (TOKEN.encode(), hosts))
        assert answer.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "CONNECT", "get"])
def test_only_get_is_answered(server: ReportServer, method: str) -> None:
    answer = ask(server, f"/{TOKEN}/head.json", method=method, body=b"x" if method == "POST" else None)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    assert answer.body.decode() == ("" if method == "HEAD" else f"Found the method {method!r}, expected GET.\n")


@pytest.mark.parametrize(
    "request_line",
    [b"\x1b[2J\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /%b HTTP/1.1\r\n\r\n" % (b"a" * 70_000)],
)
def test_what_is_no_request_is_refused_in_plain_text(server: ReportServer, request_line: bytes) -> None:
    answer = raw(server, request_line)
    assert b"Found a request that is not valid HTTP: " in answer
    assert b"<html" not in answer.lower() and b"\x1b" not in answer
    assert ask(server, f"/{TOKEN}/head.json").status == 200


def test_a_token_that_is_not_ascii_is_wrong(server: ReportServer) -> None:
    answer = raw(server, b"GET /\xe9/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404 ")


def test_the_target_of_a_proxy_is_no_report(server: ReportServer) -> None:
    answer = raw(server, b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404 ")


# ---- the command


def test_only_this_machine_can_connect(server: ReportServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_a_port_in_use_is_refused(server: ReportServer, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(run), "--port", str(server.server_port)]) == 2
    assert capsys.readouterr().err == (
        f"error: --port is {server.server_port}, which cannot be used (Address already in use). Give another number, "
        "or leave out --port for a free one.\n"
    )


@pytest.mark.parametrize("port", ["-1", "65536", "http", "8000.5", "٣"])
def test_what_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "run", f"--port={port}"])
    assert ended.value.code == 2
    assert f"found '{port}', expected 0 to 65535. Give e.g. --port 8000." in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path)]) == 2
    assert "is not a run folder: it has neither config.yaml nor metrics.jsonl. Give e.g." in capsys.readouterr().err


def test_each_start_has_another_address_and_ctrl_c_ends_it_with_status_0(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: ReportServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReportServer, "serve_forever", interrupted)
    shown: list[str] = []
    assert [serve([run], port=0, show=shown.append) for _ in range(2)] == [0, 0]
    tokens = {line.split("/")[3] for line in shown if line.startswith("http://127.0.0.1:")}
    assert len(tokens) == 2 and all(len(token) == 24 for token in tokens)
