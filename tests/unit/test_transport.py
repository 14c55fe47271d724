"""Calls of ranks have the same results directly, through aggregators, and through aggregators of aggregators."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import ray

from tests.ray.echo_role import EchoRole
from verl_like.context import current, replaced
from verl_like.controller import aggregator, failures, ray_calls
from verl_like.controller.aggregator import Aggregator, AggregatorProcess
from verl_like.controller.blocks import Block, blocks_of
from verl_like.controller.dispatch import MethodCall
from verl_like.controller.errors import WorkerError, WorkerFailure
from verl_like.controller.failures import RanksFailed
from verl_like.controller.remote_batch import RemoteBatch, RemoteRows
from verl_like.controller.store import Reply
from verl_like.controller.streams import blocks_first
from verl_like.controller.transport import RankCall
from verl_like.controller.tree import Branch, Tree
from verl_like.controller.wait import Meanwhile
from verl_like.controller.worker import WorkerHost
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import DataProto, Ragged

ROWS = [[1], [2, 3], [], [4, 5, 6], [7]]
PARTS = [np.array([3, 0]), np.array([4]), np.array([2, 1])]
NODES = [range(2), range(2, 3)]


class Ref:
    """A reference that holds its value, or the error that replaces it."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Method:
    """A method of an actor in this process, called at once."""

    def __init__(self, call: Any, num_returns: int | str = 1) -> None:
        self._call, self._num_returns = call, num_returns

    def options(self, *, num_returns: int | str) -> Method:
        return Method(self._call, num_returns)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        try:
            value = self._call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 (it arrives as a value)
            value = error
        if self._num_returns == "streaming":
            return map(Ref, value)
        if isinstance(self._num_returns, int) and self._num_returns > 1:
            return [Ref(each) for each in value]
        return Ref(value)


class Handle:
    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self._actor, name))


class Host:
    """Answers calls as a worker's process does, without a process."""

    def __init__(self, rank: int) -> None:
        self._role, self._rank = EchoRole(rank), rank

    def call(self, given: MethodCall) -> Reply:
        if given.method == "fail_on_first":
            raise WorkerFailure(f"rank {self._rank}", given.method, "ValueError: the real reason", float(self._rank))
        return Reply((self._rank, given.method), 0)

    def map(self, rows: RemoteRows, blocks: Sequence[Block], given: MethodCall) -> Any:
        report, table = getattr(self._role, given.method)(rows, *given.args)
        answer = Reply((report, []), 3)
        return (answer, *blocks_of(table, blocks)) if blocks else answer

    def stream(self, rows: RemoteRows, given: MethodCall) -> Iterator[Any]:
        return blocks_first(self._role.stream(rows, **given.kwargs))

    def report(self) -> list[str]:
        return [f"rank {self._rank}"]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's side, in this process."""

    def fetched(refs: Sequence[Ref], timeout_s: float) -> list[Any]:
        for ref in refs:
            if isinstance(ref.value, Exception):
                raise ray.exceptions.RayTaskError("f", "", ref.value)
        return [ref.value for ref in refs]

    def arrived(refs: Sequence[Ref], *, timeout_s: float, at_least: int | None = None) -> Any:
        ready = list(refs) if at_least is None else list(refs)[:at_least]
        return list(zip(ready, fetched(ready, timeout_s), strict=True)), [ref for ref in refs if ref not in ready]

    def started(kind: Any, options: Mapping[str, Any], *args: Any, **kwargs: Any) -> Handle:
        return Handle(Aggregator(*args, **kwargs) if kind is AggregatorProcess else Host(*args))

    fakes = {
        "started": started,
        "arrived": arrived,
        "fetched": fetched,
        "put": Ref,
        "split": lambda refs, timeout_s: (list(refs), []),
        "next_items": lambda streams, timeout_s: [(stream, next(stream, None)) for stream in streams],
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(ray_calls, name, fake)
    for name in ("stacks", "signals", "current"):
        monkeypatch.setattr(aggregator, name, MagicMock())
    monkeypatch.setattr(aggregator, "Reporter", lambda: SimpleNamespace(take=lambda: "aggregator"))


@pytest.fixture(params=["direct", "aggregators", "aggregators of aggregators"])
def group(request: pytest.FixtureRequest, store: None) -> WorkerGroup:
    made = WorkerGroup("echo", world_size=3, placement=None, env={}, timeout_s=5.0)
    if request.param != "direct":
        made.use_tree(NODES, timeout_s=5.0, most=16 if request.param == "aggregators" else 1)
    return made


def prompts() -> RemoteBatch:
    table = DataProto({"prompt_ids": Ragged.from_rows(ROWS, "int32"), "group_id": np.arange(5)})
    return RemoteBatch.put(table, {"group_id": np.arange(5)})


def test_answers_are_in_the_order_of_ranks(group: WorkerGroup) -> None:
    assert group.call(EchoRole.who) == [(rank, "who") for rank in range(3)]
    assert group.call(EchoRole.first) == [(0, "first")], "rank zero alone is called directly"


def test_what_nothing_waits_for_is_done_once_when_the_next_wait_begins(group: WorkerGroup) -> None:
    done: list[str] = []
    with replaced(Meanwhile, Meanwhile()):
        current(Meanwhile).first.append(lambda: done.append("first"))
        assert not done
        group.call(EchoRole.who)
        group.call(EchoRole.who)
    assert done == ["first"]


def test_rows_reach_their_rank_and_its_columns_their_rows(group: WorkerGroup) -> None:
    batch = prompts()
    assert group.map_rows(EchoRole.double, batch, PARTS, adds=frozenset({"doubled"})) == [2, 1, 2]
    doubled = batch.fetch(["doubled"], timeout_s=5).ragged("doubled")
    assert [row.tolist() for row in doubled] == [[2 * token for token in row] for row in ROWS]
    assert batch.num_blocks == len(group._transport.leaves), "one of each rank or node; the prompts were in the call"
    sums = [2 * sum(sum(ROWS[row]) for row in part) for part in PARTS]
    assert group.map_rows(EchoRole.total, batch, PARTS, "doubled") == sums


def test_every_row_is_streamed_once(group: WorkerGroup) -> None:
    streamed = list(group.stream(EchoRole.stream, prompts(), PARTS, delay_s=0.0))
    made = RemoteBatch.from_blocks(streamed, frozenset({"prompt_ids"}), producer="stream")
    rows = made.select(np.argsort(made.facts["group_id"])).fetch(["prompt_ids"], timeout_s=5).ragged("prompt_ids")
    assert [row.tolist() for row in rows] == ROWS


def test_ranks_and_aggregators_report(group: WorkerGroup) -> None:
    found = [report for ref in group.request_reports() for report in ref.value]
    expected = ["aggregator"] * len(group._aggregators) + [f"rank {rank}" for rank in range(3)]
    assert sorted(found) == expected


def test_the_earliest_failure_of_a_rank_is_raised(group: WorkerGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "GRACE_S", 0.0)
    with pytest.raises(WorkerError, match=r"rank 0 failed in fail_on_first:\n.*the real reason"):
        group.call(EchoRole.fail_on_first)


def test_an_aggregator_names_the_ranks_that_failed(store: None) -> None:
    group = WorkerGroup("echo", world_size=3, placement=None, env={}, timeout_s=5.0)
    group.use_tree([range(3)], timeout_s=5.0)
    [branch] = group._aggregators
    assert branch.name == "the aggregator of echo ranks 0 to 2"
    given = MethodCall("stage", "EchoRole", "fail_on_first")
    calls = [RankCall(rank, WorkerHost.call, (given,)) for rank in range(3)]
    answer = branch.handle.answers.remote(calls, None, None, "stage", 5.0)
    assert isinstance(answer.value, RanksFailed)
    arrived = pickle.loads(pickle.dumps(answer.value))
    assert [failed.who for failed in arrived.failed] == ["echo rank 0", "echo rank 1", "echo rank 2"]


def test_a_tree_refuses_calls_that_are_not_of_all_its_ranks() -> None:
    tree = Tree([Branch("node", MagicMock(), [range(2)])])
    with pytest.raises(AssertionError, match="3 calls for 2 ranks of the tree"):
        tree.calls([MagicMock(num_rows=0)] * 3, stage="s", timeout_s=1.0)


def test_a_call_that_fails_when_a_wait_begins_leaves_the_others_for_the_next_wait() -> None:
    done = []

    def refused() -> None:
        raise OSError("full")

    meanwhile = Meanwhile(first=[refused, lambda: done.append("second")])
    with pytest.raises(OSError, match="full"):
        meanwhile.begin()
    meanwhile.begin()
    assert done == ["second"] and not meanwhile.first
