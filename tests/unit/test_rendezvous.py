"""The port where ranks meet is nobody else's from the moment it is known."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from verl_like.controller import rendezvous


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    held = rendezvous.listen()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(held))
    return held


def test_a_port_that_is_held_cannot_be_taken(port: int) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("", port))
    rendezvous.close()
    with socket.socket() as other:
        other.bind(("", port))


def test_ranks_meet_at_the_socket_that_was_held_even_if_they_come_before_rank_zero(port: int) -> None:
    with ThreadPoolExecutor(2) as ranks:
        second = ranks.submit(rendezvous.store, rank=1, world_size=2, timeout_s=20)
        first = ranks.submit(rendezvous.store, rank=0, world_size=2, timeout_s=20)
        first.result(30).set("from", "rank 0")
        assert second.result(30).get("from") == b"rank 0"
    assert first.result(0).port == port
