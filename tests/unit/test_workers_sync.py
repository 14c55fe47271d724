"""A sync: the policy's weights go through a sink, and the report says what was sent."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from verl_like.backends.base import OnRunning
from verl_like.backends.sinks import EngineSink
from verl_like.config.schema import Config
from verl_like.workers.actor import ActorRole
from verl_like.workers.weight_source import WeightSource

WEIGHTS = {"a": torch.arange(6.0), "b": torch.ones(2, 2, dtype=torch.bfloat16)}


class Policy:
    """A policy whose every weight takes a gather."""

    num_gathers = 3

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        for pair in WEIGHTS.items():
            self.num_gathers += 1
            yield pair

    def named_adapter(self) -> Iterator[tuple[str, Tensor]]:
        yield "a.lora_A", torch.zeros(5)

    def offload(self) -> None: ...


class Elsewhere:
    """A sink that is no engine: it remembers what it was given, and holds an older version."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def begin(self, version: int) -> None:
        self.calls.append(("begin", version))

    def take(self, weights: Iterable[tuple[str, Any]]) -> None:
        self.calls += [("take", name) for name, _ in weights]

    def finish(self) -> int:
        self.calls.append("finish")
        return 6


class Engine:
    """The part of a rollout engine that a sync calls."""

    def __init__(self) -> None:
        self.version, self.calls = -1, list[Any]()

    def begin_sync(self, version: int, *, on_running: OnRunning = OnRunning.REFUSE) -> None:
        self.calls.append(("begin_sync", version, on_running))

    def load(self, bucket: Iterable[tuple[str, Any]]) -> None:
        self.calls.append(("load", [name for name, _ in bucket]))

    def finish_sync(self) -> None:
        self.version = 7
        self.calls.append("finish_sync")

    def wake(self) -> None:
        self.calls.append("wake")


def source(sink: Any, *, sends_adapter: bool = False, has_checksum: bool = False) -> WeightSource:
    policy: Any = Policy()
    return WeightSource(policy, sink, sends_adapter=sends_adapter, has_checksum=has_checksum)


def test_all_weights_go_to_whatever_the_sink_is_and_are_counted() -> None:
    sink = Elsewhere()
    report = source(sink).send(7)
    assert sink.calls == [("begin", 7), ("take", "a"), ("take", "b"), "finish"]
    assert (report.version, report.num_bytes, report.collectives) == (6, 6 * 4 + 4 * 2, 2)
    assert report.seconds > 0 and report.checksum is None


def test_the_checksum_covers_names_and_bits_in_their_order() -> None:
    expected = 0
    for name, tensor in WEIGHTS.items():
        expected = zlib.crc32(tensor.view(-1).view(torch.uint8).numpy().tobytes(), zlib.crc32(name.encode(), expected))
    assert source(Elsewhere(), has_checksum=True).send(0).checksum == expected


def test_an_adapter_is_sent_alone() -> None:
    sink = Elsewhere()
    assert source(sink, sends_adapter=True).send(1).num_bytes == 5 * 4
    assert sink.calls[1:-1] == [("take", "a.lora_A")]


def test_an_engine_in_this_process_adopts_the_version_and_wakes_last() -> None:
    engine: Any = Engine()
    assert source(EngineSink(engine)).send(7).version == 7
    assert engine.calls == [("begin_sync", 7, OnRunning.REFUSE), ("load", ["a", "b"]), "finish_sync", "wake"]


def test_requests_are_kept_only_where_the_caller_says_so() -> None:
    engine: Any = Engine()
    source(EngineSink(engine, OnRunning.KEEP)).send(7)
    assert engine.calls[0] == ("begin_sync", 7, OnRunning.KEEP)


def test_an_actor_sends_its_own_version_and_without_a_sink_nothing() -> None:
    setup: Any = SimpleNamespace(config=Config(), actor_updates=0)
    policy: Any = Policy()
    sink = Elsewhere()
    actor = ActorRole(setup, policy, sink)
    actor.version = 4
    actor.sync()
    assert sink.calls[0] == ("begin", 4)
    with pytest.raises(AssertionError, match="without a sink"):
        ActorRole(setup, policy).sync()
