"""Streams of blocks: a pair is complete only once its facts have been read, so no failure is taken for a block."""

from __future__ import annotations

from typing import Any

import pytest

from verl_like.controller.errors import WorkerError
from verl_like.controller.streams import OpenStreams


def opened(refs: dict[Any, str]) -> list[Any]:
    """Return the values of references that are themselves the values, or raise those that are errors."""
    for ref in refs:
        if isinstance(ref, Exception):
            raise ref
    return list(refs)


def streams() -> OpenStreams:
    return OpenStreams({"a": "rank 0", "b": "rank 1"}, opened)


def test_a_block_is_paired_with_the_facts_that_follow_on_its_stream() -> None:
    found = streams()
    assert found.pairs([("a", "block a"), ("b", "block b")]) == []
    assert found.pairs([("b", "facts b")]) == [("facts b", "block b")]
    assert found.pairs([("a", "facts a"), ("b", "block c")]) == [("facts a", "block a")]
    assert found.pairs([("a", None), ("b", "facts c")]) == [("facts c", "block c")]
    assert set(found.streams) == {"b"}


@pytest.mark.parametrize("items", [["dead"], ["block", "dead"], ["dead", "end"]])
def test_a_producer_that_dies_is_reported_wherever_its_failure_arrives(items: list[str]) -> None:
    with pytest.raises(WorkerError, match="rank 0 died"):
        deliver(streams(), [*items, "end"])


def deliver(found: OpenStreams, items: list[str]) -> None:
    values = {"dead": WorkerError("rank 0 died"), "end": None, "block": "block"}
    for item in items:
        found.pairs([("a", values[item])])
