"""What goes through the object store: exactly what was put, counted, and in the store rather than in the driver."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.ray.echo_role import EchoRole
from verl_like.backends.base import Sampling
from verl_like.context import current
from verl_like.controller.ray_calls import local_bytes, num_references
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.controller.store import StoreCounters, store_use
from verl_like.controller.worker_group import WorkerGroup
from verl_like.data.prompts import Prompt
from verl_like.protocol import PICTURES, DataProto, Ragged
from verl_like.training import store_meter
from verl_like.training.generation import generate, put_prompts
from verl_like.training.store_meter import StoreMeter
from verl_like.workers.groups import columns_of

PER_GROUP = 16


def prompts(num_groups: int, tokens: int) -> RemoteBatch:
    """One prompt token a row; responses are to have ``tokens`` tokens."""
    rows = num_groups * PER_GROUP
    ids = Ragged.from_lengths(np.arange(rows, dtype=np.int32), np.ones(rows, np.int64))
    facts = {
        "response_tokens": np.full(rows, tokens),
        "prompt_tokens": np.ones(rows, np.int64),
        "group_id": np.arange(rows) // PER_GROUP,
    }
    return RemoteBatch.put(DataProto({"prompt_ids": ids}), facts)


def add_values(group: WorkerGroup, batch: RemoteBatch, tokens: int) -> None:
    half = len(batch) // 2
    parts = [np.arange(half), np.arange(half, len(batch))]
    group.map_rows(EchoRole.values, batch, parts, tokens, adds=frozenset({"values"}))


def grown(count: Callable[[], int], act: Callable[[], None]) -> int:
    gc.collect()  # tracebacks of earlier tests hold references, which must not be let go in between
    before = settled(count)
    act()
    return count() - before


def settled(count: Callable[[], int]) -> int:
    """Return the count after it has not changed for half a second, because Ray releases objects with a delay."""
    seen = [count()]
    for _ in range(100):
        time.sleep(0.1)
        seen.append(count())
        if len(set(seen[-6:])) == 1 and len(seen) > 5:
            return seen[-1]
    raise AssertionError(f"the count never settles: {seen[-10:]}")


def test_a_round_trip_is_exact(group: WorkerGroup) -> None:
    table = DataProto(
        {
            "ids": Ragged.from_rows([[1, -1], [], [2**31 - 1]], "int32"),
            "half": np.array([[1.5], [np.nan], [-0.0]], np.float16),
            "brain": torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16),
            "text": ["a", "", "\N{SNOWMAN}"],
            "anything": [{"k": [1, None]}, 2, ()],
        }
    )
    fetched = RemoteBatch.put(table, {"row": np.arange(3)}).fetch(list(table.columns), timeout_s=20)
    assert fetched == table
    assert isinstance(fetched["brain"], torch.Tensor) and fetched["brain"].dtype == torch.bfloat16


def test_many_groups_of_a_kibibyte_share_blocks_that_stay_out_of_the_driver(group: WorkerGroup) -> None:
    batch = prompts(num_groups=2048, tokens=16)  # a group's values are 1 KiB
    assert grown(local_bytes, lambda: add_values(group, batch, 16)) < 4096, "reports only"
    assert 2 < batch.num_blocks <= 1 + 2 * 5


def test_a_batch_that_is_small_as_a_whole_is_inlined_and_counted(group: WorkerGroup) -> None:
    batches = [prompts(num_groups=4, tokens=16) for _ in range(8)]

    def add_to_all() -> None:
        for batch in batches:
            add_values(group, batch, 16)

    # Earlier tests' results, less than one of these batches, may be let go while it is counted.
    assert grown(local_bytes, add_to_all) >= 7 * 4 * 1024


def test_the_meter_reports_what_was_put_fetched_and_is_held(group: WorkerGroup) -> None:
    meter = StoreMeter()
    current(StoreCounters).take()
    batch = prompts(num_groups=64, tokens=512)
    add_values(group, batch, 512)
    payload = 4 * len(batch) * 512
    group.map_rows(EchoRole.total, batch, [np.arange(256), np.arange(256, 512)], "values")
    meter.ask()
    found = meter.take(batch)
    assert payload <= found["store/put_bytes"] < 1.05 * payload
    assert payload / 2 <= found["store/fetched_bytes"] < 0.55 * payload, "half of the rows were read"
    assert found["store/blocks"] == batch.num_blocks
    assert found["store/live_references"] >= batch.num_blocks
    assert found["store/spilled_bytes"] == 0
    # Differences only: references of earlier tests may be let go at any time.
    held, blocks = num_references(), batch.num_blocks
    batch.drop({"values"})
    assert blocks - batch.num_blocks >= 4, "the column has blocks on both ranks"
    assert num_references() <= held - (blocks - batch.num_blocks), "a dropped column's blocks are let go"


class Engines:
    """Engines of two ranks, each with half of the prompts."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group

    def columns_of(self, prompts: RemoteBatch, facts: Facts) -> frozenset[str]:
        return columns_of(prompts, facts)

    def generate(self, prompts: RemoteBatch, *, n: int, **_: object) -> Iterator[tuple[Facts, BlockRef]]:
        half = len(prompts) // 2
        parts = [np.arange(half), np.arange(half, len(prompts))]
        yield from self._group.stream(EchoRole.answer, prompts, parts, n=n)


@pytest.mark.parametrize("size", [2**18, 2**12], ids=["in the store", "with the calls"])
def test_a_picture_crosses_the_store_once(group: WorkerGroup, size: int) -> None:
    pictures = [bytes([number]) * size for number in range(8)]
    meter = StoreMeter()
    asked = put_prompts([pictured_prompt(number, picture) for number, picture in enumerate(pictures)])

    def responses(n: int) -> RemoteBatch:
        sampling = Sampling(max_tokens=1)
        return generate(asked, rollout=Engines(group), begin=None, n=n, sampling=sampling, step=1, version=0)  # type: ignore[arg-type]

    batch = responses(4)
    responses(1)  # as for a greedy baseline
    meter.ask()
    found = meter.take(batch)["store/put_bytes"]
    assert found < 8 * size + 2**16 and (found > 8 * size or size < 2**16)
    table = batch.fetch(["features", "response_ids"], timeout_s=20)
    features: Any = table["features"]
    assert features == [{PICTURES: [picture]} for picture in pictures for _ in range(4)]
    assert len({id(each[PICTURES][0]) for each in features}) == len(pictures), "the samples of a prompt share its bytes"
    some = batch.select([31, 0, 1]).partition([[0, 1, 2]])[0].fetch(["features"], timeout_s=20)["features"]
    assert some == [features[31], features[0], features[1]]


def pictured_prompt(number: int, picture: bytes) -> Prompt:
    return Prompt(
        prompt_ids=[1, 2, 3],
        uid=str(number),
        text="1 2 3",
        data_source="pictures",
        ground_truth="",
        extra_info={},
        messages="",
        columns={},
        features={PICTURES: [picture]},
    )


def test_unavailable_figures_are_missing_and_requested_again_a_minute_later(
    group: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked, answers = [0.0], [], [None, None, store_use(), store_use()]

    def ask() -> Callable[[], object]:
        asked.append(now[0])
        return lambda: answers[len(asked) - 1]

    monkeypatch.setattr(store_meter, "asking_store_use", ask)
    meter, batch = StoreMeter(lambda: now[0]), prompts(num_groups=4, tokens=16)
    of_cluster = {"store/put_bytes", "store/used_bytes", "store/spilled_bytes"}
    missing = []
    for seconds in (1.0, 61.0, 62.0, 122.0, 123.0):
        now[0] = seconds
        meter.ask()
        missing.append(of_cluster - set(meter.take(batch)))
    assert asked == [0.0, 61.0, 122.0, 123.0]
    assert missing == [of_cluster] * 3 + [{"store/put_bytes", "store/spilled_bytes"}, set()]


def test_a_batch_too_large_for_the_store_is_warned_about_once_with_the_size_to_set(
    group: WorkerGroup, caplog: pytest.LogCaptureFixture
) -> None:
    meter = StoreMeter()
    tokens = store_use().capacity // (2 * 4 * 16) + 1  # of 16 rows and two columns: a little more than the store
    batch = prompts(num_groups=1, tokens=tokens)
    meter.check(batch, ["prompt_ids", "values"])
    assert not caplog.records, "half of the store is fine"
    for _ in range(2):
        meter.check(batch, ["prompt_ids", "values", "returns"])
    [record] = caplog.records
    assert "need 256 MiB of the object store's 256 MiB" in record.getMessage()
    assert "Raise cluster.object_store_memory_gib to 0.4" in record.getMessage()
