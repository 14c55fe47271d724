"""Streams of blocks, each of which is announced by the facts of its rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from verl_like.controller import ray_calls
from verl_like.controller.remote_batch import BlockRef, Facts
from verl_like.controller.wait import POLL_S, timed_out

PAUSE_S = 2e-5  # per stream, between looks at all of them, of which one takes Ray a tenth of that

Pair: TypeAlias = tuple[Facts, BlockRef]
Waiting: TypeAlias = AbstractContextManager[None]
Items: TypeAlias = list[tuple[Any, BlockRef]]


def items(
    streams: Mapping[Any, str], *, stage: str, timeout_s: float, waiting: Callable[[Iterable[str]], Waiting]
) -> Iterator[Items]:
    """(stream, reference of its next item) pairs, those of a moment at once, until all streams have ended.

    Args:
        streams: each with the name of whoever produces it.
        waiting: entered for each look, which takes half a second at most, with the names of those whose streams go on.

    Raises:
        StageTimeout: the deadline passed.
    """
    going_on = dict(streams)
    deadline = time.monotonic() + timeout_s
    while going_on:
        with waiting(going_on.values()):
            ready = ray_calls.next_items(list(going_on), timeout_s=POLL_S)
        if time.monotonic() >= deadline:
            raise timed_out(stage, timeout_s, going_on.values())
        for stream, ref in ready:
            if ref is None:
                del going_on[stream]
        yield [(stream, ref) for stream, ref in ready if ref is not None]
        time.sleep(PAUSE_S * len(going_on))


class Pairing:
    """Puts facts and blocks together.

    Args:
        streams: each with the name of its producer.
        opened: the values of references, each given with the name of its producer.
    """

    def __init__(self, streams: Mapping[Any, str], opened: Callable[[dict[BlockRef, str]], list[Facts]]) -> None:
        self._streams, self._opened = streams, opened
        self._facts: dict[Any, Facts] = {}

    def pairs(self, ready: Items) -> list[Pair]:
        """The pairs that these items complete."""
        complete = [(self._facts.pop(stream), ref) for stream, ref in ready if stream in self._facts]
        blocks = {ref for _, ref in complete}
        # a failure arrives as a stream's last item, where facts were due
        due = {stream: ref for stream, ref in ready if ref not in blocks}
        found = self._opened({ref: self._streams[stream] for stream, ref in due.items()})
        self._facts.update(zip(due, found, strict=True))
        return complete
