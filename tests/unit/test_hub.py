"""Whether the hub answers is known in seconds, before its own library has tried for half a minute."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from verl_like import hub
from verl_like.checks.hub_models import hub_problems
from verl_like.config.schema import Config


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    hub._out_of_reach.cache_clear()
    yield
    os.environ.pop("HF_HUB_OFFLINE", None)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("HF_ENDPOINT", url)
    return url


def of(path: str) -> Config:
    config = Config()
    config.model.path = path
    return config


def test_a_model_that_only_a_silent_hub_has_is_refused_at_once(no_hub: str) -> None:
    began = time.monotonic()
    assert list(hub_problems(of("someone/model"))) == [
        f"model.path is someone/model, which is no folder here, but the hub at {no_hub} is out of reach (Connection "
        "refused) and its cache has no such model. Name a folder, or a mirror in HF_ENDPOINT."
    ]
    assert time.monotonic() - began < hub.TIMEOUT_S


def test_an_answer_that_never_comes_is_waited_for_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections, and says nothing
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{mute.getsockname()[1]}")
        assert hub.out_of_reach() in ("no answer within 0.2 s", "timed out")


def test_a_hub_that_answers_anything_is_within_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert hub.out_of_reach() is None and list(hub_problems(of("someone/model"))) == []
        server.shutdown()
        thread.join()


def test_what_the_cache_holds_is_used_without_asking_again(
    no_hub: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cached = tmp_path / "hub/models--someone--model"
    (cached / "snapshots/abc").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text("abc")
    assert list(hub_problems(of("someone/model"))) == []
    assert hub.is_offline() and "only its cache is read (HF_HUB_OFFLINE=1)" in caplog.text


def test_folders_and_an_offline_user_send_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "out_of_reach", lambda: pytest.fail("asked"))
    assert list(hub_problems(of(str(tmp_path)))) == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert list(hub_problems(of("someone/model"))) == []
