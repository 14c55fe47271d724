"""Streams of blocks, each followed by the facts of its rows.

The driver opens facts but no blocks. A failure may arrive instead of any item, so a block counts only once its facts
have been read, and one without facts at the end of a stream is the failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from verl_like.controller import ray_calls
from verl_like.controller.remote_batch import BlockRef, Facts
from verl_like.controller.wait import POLL_S, Waits, timed_out

PAUSE_S = 2e-5  # per stream, between polls of all streams; Ray needs a tenth of that for a poll

Pair: TypeAlias = tuple[Facts, BlockRef]
Items: TypeAlias = Sequence[tuple[Any, BlockRef | None]]  # None ends a stream


def blocks_first(found: Iterator[Any]) -> Iterator[Any]:
    """Yield each block that a role's method yields after its facts, and then the facts."""
    for facts in found:
        yield next(found)
        yield facts


def items(streams: Mapping[Any, str], waits: Waits) -> Iterator[Items]:
    """Yield (stream, reference of its next item, or None at its end), grouped by poll, until all streams have ended.

    Args:
        streams: mapped to the names of their producers.

    Raises:
        StageTimeout: the deadline passed.
    """
    open_streams = dict(streams)
    deadline = time.monotonic() + waits.timeout_s
    while open_streams:
        with waits.watching(open_streams.values()):
            ready = ray_calls.next_items(list(open_streams), timeout_s=POLL_S)
        if time.monotonic() >= deadline:
            raise timed_out(waits.stage, waits.timeout_s, open_streams.values())
        for stream, ref in ready:
            if ref is None:
                del open_streams[stream]
        yield ready
        time.sleep(PAUSE_S * len(open_streams))


class OpenStreams:
    """The streams of a group, which are polled while other calls run.

    Args:
        streams: mapped to the names of their producers.
        opened: as in :class:`Pairing`.
    """

    def __init__(self, streams: Mapping[Any, str], opened: Callable[[dict[BlockRef, str]], list[Facts]]) -> None:
        self.streams = dict(streams)
        self._pairing = Pairing(streams, opened)

    def pairs(self, ready: Items) -> list[Pair]:
        """Return the pairs that these items complete, which are those of a poll.

        Raises:
            WorkerError: a producer failed.
        """
        for stream, ref in ready:
            if ref is None:
                del self.streams[stream]
        return self._pairing.pairs(ready)


def polled(groups: Sequence[OpenStreams], *, timeout_s: float) -> Mapping[OpenStreams, Items]:
    """Return the items that have arrived from each group; wait at most ``timeout_s`` for the first."""
    of_stream = {stream: group for group in groups for stream in group.streams}
    ready: dict[OpenStreams, list[tuple[Any, BlockRef | None]]] = {}
    for stream, ref in ray_calls.next_items(list(of_stream), timeout_s=timeout_s) if of_stream else ():
        ready.setdefault(of_stream[stream], []).append((stream, ref))
    return ready


class Pairing:
    """Pairs the facts of rows with their block.

    Args:
        streams: mapped to the names of their producers.
        opened: returns the values of references, which are mapped to the names of their producers.
    """

    def __init__(self, streams: Mapping[Any, str], opened: Callable[[dict[BlockRef, str]], list[Facts]]) -> None:
        self._streams, self._opened = streams, opened
        self._blocks: dict[Any, BlockRef] = {}  # whose facts have not arrived

    def pairs(self, ready: Items) -> list[Pair]:
        """Return the pairs that these items complete.

        Raises:
            WorkerError: a producer failed.
        """
        complete = [(stream, ref, self._blocks.pop(stream)) for stream, ref in ready if stream in self._blocks]
        completed = {stream for stream, *_ in complete}
        self._blocks.update((stream, ref) for stream, ref in ready if stream not in completed and ref is not None)
        to_open = {block if ref is None else ref: self._streams[stream] for stream, ref, block in complete}
        found = self._opened(to_open)
        assert all(ref is not None for _, ref, _ in complete), "a stream ended after a block without its facts"
        return [(facts, block) for facts, (_, _, block) in zip(found, complete, strict=True)]
