"""Separate engines in the driver: who gets which prompts, what happens to those of a lost engine, and how waits end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verl_like.backends.base import OnRunning, Sampling
from verl_like.config.schema import RolloutConfig
from verl_like.context import replaced
from verl_like.controller.errors import StageTimeout, WorkerError
from verl_like.controller.remote_batch import Facts
from verl_like.controller.wait import Meanwhile
from verl_like.workers import engine_pool
from verl_like.workers.engine_members import PooledEngine
from verl_like.workers.engine_pool import Admission, EnginePool
from verl_like.workers.messages import Event
from verl_like.workers.repeated_schedule import RepeatedSchedule


class Group:
    """The workers of an engine: they record the calls they get."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.admitted: list[tuple[list[int], int]] = []  # (rows, version)

    def start_in_background(self, method: Any, *args: Any) -> dict[Any, str]:
        _, rows, _, _, _, version, _ = args
        self.admitted.append((rows, version))
        return {}


class Streams:
    """What an engine sends: the rows that a test lets arrive, or its failure."""

    def __init__(self) -> None:
        self.arriving: list[tuple[Facts, Any]] = []
        self.error: Exception | None = None

    def pairs(self, ready: Sequence[Any]) -> list[tuple[Facts, Any]]:
        if self.error is not None:
            raise self.error
        found, self.arriving = self.arriving, []
        return found


class Members:
    """Engines without processes; a lost one is not replaced."""

    have_met = True

    def __init__(self, count: int) -> None:
        groups: list[Any] = [Group(f"engine {number}") for number in range(count)]
        streams: list[Any] = [Streams() for _ in groups]
        self.present = [
            PooledEngine(group, stream, 0, has_weights=True) for group, stream in zip(groups, streams, strict=True)
        ]
        self.lost: list[str] = []

    def lose(self, engine: PooledEngine, error: Exception) -> None:
        self.present.remove(engine)
        self.lost.append(f"{engine.name}: {error}")


class Prompts:
    """Prompts whose rows are sent as plain lists."""

    def __init__(self, count: int, first_group: int = 0) -> None:
        self.facts = {
            "uid": np.array([f"prompt-{row}" for row in range(count)]),
            "group_id": np.arange(count) + first_group,
        }

    def __len__(self) -> int:
        return len(self.facts["uid"])

    def partition(self, parts: Sequence[Any]) -> list[list[int]]:
        return [rows.tolist() for rows in parts]


@pytest.fixture
def pool_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[EnginePool, Members]]]:

    def polled(streams: Sequence[Streams], *, timeout_s: float) -> dict[Streams, list[str]]:
        return {each: ["an item"] for each in streams if each.arriving or each.error is not None}

    monkeypatch.setattr(engine_pool, "polled", polled)

    def made(count: int, *, timeout_s: float = 60.0, by_queue: bool = False, **rollout: Any) -> Any:
        members: Any = Members(count)
        trainer: Any = SimpleNamespace(timeout_s=timeout_s)
        config = RolloutConfig(**rollout)
        pool = EnginePool(members, trainer, config, on_running=OnRunning.KEEP, assigns_by_queue=by_queue)
        return pool, members

    with replaced(Meanwhile, Meanwhile()):
        yield made


def admitted(pool: EnginePool, count: int, *, n: int = 2, first_group: int = 0) -> tuple[Admission, list[list[int]]]:
    """Admit prompts; return the admission, and a list that receives the groups of each block that arrives."""
    arrived: list[list[int]] = []
    prompts: Any = Prompts(count, first_group)
    admission = pool.admit(
        prompts,
        n=n,
        sampling=Sampling(max_tokens=4),
        step=1,
        version=3,
        first_sample=0,
        arrived=lambda facts, block: arrived.append(np.unique(facts["group_id"]).tolist()),
    )
    return admission, arrived


def finish(engine: PooledEngine, number: int, groups: list[int], *, is_under_pressure: bool = False) -> None:
    """Let an engine send these groups of two samples."""
    ids = np.repeat(groups, 2)
    streams: Any = engine.streams
    facts = {"admission": number, "writer": 0, "is_under_pressure": is_under_pressure}
    streams.arriving.append(
        ({"group_id": ids, **{name: np.full(len(ids), value) for name, value in facts.items()}}, object())
    )


def rows_of(members: Members) -> list[list[list[int]]]:
    groups: list[Any] = [engine.group for engine in members.present]
    return [[rows for rows, _ in group.admitted] for group in groups]


def test_prompts_are_assigned_in_turn_so_that_a_run_repeats(pool_of: Any) -> None:
    pool, members = pool_of(2)
    admitted(pool, 5)
    assert rows_of(members) == [[[0, 2, 4]], [[1, 3]]]


def test_a_queue_gives_prompts_to_engines_that_have_capacity(pool_of: Any) -> None:
    pool, members = pool_of(2, by_queue=True, max_num_seqs=4)
    admission, arrived = admitted(pool, 6)
    assert rows_of(members) == [[[0, 2]], [[1, 3]]] and list(admission.waiting) == [4, 5]
    finish(members.present[1], admission.number, [1, 3])
    pool.pump()
    assert rows_of(members) == [[[0, 2]], [[1, 3], [4, 5]]] and arrived == [[1, 3]]


def test_an_engine_whose_cache_is_too_small_gets_fewer_samples_until_it_idles(pool_of: Any) -> None:
    pool, members = pool_of(1, by_queue=True, max_num_seqs=10)
    [engine] = members.present
    admission, _ = admitted(pool, 40)
    rows = iter(range(40))

    def arrive(count: int, *, is_under_pressure: bool) -> int:
        """Finish groups; return the samples that run afterwards."""
        finish(engine, admission.number, [next(rows) for _ in range(count)], is_under_pressure=is_under_pressure)
        pool.pump()
        return 2 * len(admission.at)

    assert [arrive(1, is_under_pressure=True) for _ in range(3)] == [8, 8, 8]  # one loss, one decrease
    assert [arrive(1, is_under_pressure=True) for _ in range(2)] == [8, 6]
    assert [arrive(1, is_under_pressure=False) for _ in range(3)] == [6, 6, 8]
    assert [arrive(2, is_under_pressure=False) for _ in range(4)] == [8, 10, 10, 10]  # max_num_seqs


def test_prompts_that_are_drawn_again_have_the_groups_of_their_draw(pool_of: Any) -> None:
    """After a resume, only some prompts of a draw are left, so a group's number is not its row."""
    pool, members = pool_of(1)
    admission, arrived = admitted(pool, 2, first_group=3)
    finish(members.present[0], admission.number, [4])
    finish(members.present[0], admission.number, [3])
    pool.pump()
    assert admission.is_complete and arrived == [[4], [3]]


def test_an_admission_is_complete_once_all_groups_have_arrived(pool_of: Any) -> None:
    pool, members = pool_of(1)
    admission, arrived = admitted(pool, 3)
    finish(members.present[0], admission.number, [2])
    pool.pump()
    assert not admission.is_complete
    finish(members.present[0], admission.number, [0, 1])
    pool.wait_until(lambda: admission.is_complete, [admission])
    assert arrived == [[2], [0, 1]]


def test_the_prompts_of_a_lost_engine_go_to_another_one_and_what_has_arrived_does_not(pool_of: Any) -> None:
    pool, members = pool_of(2)
    lost, left = members.present
    admission, arrived = admitted(pool, 4)
    finish(lost, admission.number, [0])
    pool.pump()
    lost.streams.error = WorkerError("engine 0 died")
    pool.pump()
    assert members.lost == ["engine 0: engine 0 died"]
    group: Any = left.group
    assert [rows for rows, _ in group.admitted] == [[1, 3], [2]] and arrived == [[0]]
    finish(left, admission.number, [1, 2, 3])
    pool.pump()
    assert admission.is_complete


def test_a_repeated_schedule_gives_each_engine_what_it_had_after_the_same_syncs(pool_of: Any) -> None:
    pool, members = pool_of(2, by_queue=True, max_num_seqs=2)
    sync = Event(0, "sync", 0)
    events = {
        "engine 0": [sync, Event(0, "admit", 1, (2, 3)), sync, Event(9, "admit", 1, (0,))],
        "engine 1": [sync, Event(1, "admit", 1, (1,))],
    }
    pool._repeated = RepeatedSchedule(events)
    pool._num_syncs = 1
    admission, _ = admitted(pool, 4)
    assert rows_of(members) == [[[2, 3]], [[1]]] and list(admission.waiting) == [0]
    pool._num_syncs = 2
    pool.pump()
    assert rows_of(members) == [[[2, 3], [0]], [[1]]]


def test_prompts_that_a_recorded_run_gave_after_its_last_sync_wait_for_it_in_a_repetition(pool_of: Any) -> None:
    pool, members = pool_of(1, by_queue=True, max_num_seqs=2)
    [engine] = members.present
    sync = Event(0, "sync", 0)
    pool._repeated = RepeatedSchedule({engine.name: [sync, Event(0, "admit", 1, (0, 1)), sync]})
    pool._num_syncs = 1
    admission, _ = admitted(pool, 3)
    finish(engine, admission.number, [0, 1])
    pool.pump()
    assert rows_of(members) == [[[0, 1]]], "the engine expects the weights next"
    pool._num_syncs = 2
    pool.pump()
    assert rows_of(members) == [[[0, 1], [2]]]


def test_a_schedule_of_other_prompts_is_refused(pool_of: Any) -> None:
    pool, _ = pool_of(1)
    pool._repeated = RepeatedSchedule({"engine 0": [Event(0, "admit", 1, (7,))]})
    with pytest.raises(ValueError, match=r"gives engine 0 prompts \[7\] of admission 1, of which only \[0, 1\] wait"):
        admitted(pool, 2)


def test_no_prompt_is_sent_while_weights_are_and_afterwards_with_the_new_version(pool_of: Any) -> None:
    """An engine would take it after the weights, and refuse the version before them."""
    pool, members = pool_of(1, by_queue=True, max_num_seqs=2)
    [engine] = members.present
    admission, _ = admitted(pool, 2)
    finish(engine, admission.number, [0])

    def synced() -> Any:
        pool.pump()  # as the waits of a sync do
        assert rows_of(members) == [[[0]]]
        pool._version = 4
        return "report"

    pool._synced = synced
    assert pool.sync() == "report"
    group: Any = engine.group
    assert group.admitted[1] == ([1], 4)


def test_groups_that_never_arrive_end_the_wait_with_their_prompts_and_their_engine(pool_of: Any) -> None:
    """SkyRL issue 1173: a run waited at 125 of 128 rows for 29 hours."""
    pool, members = pool_of(1, timeout_s=0.2)
    admission, _ = admitted(pool, 128)
    finish(members.present[0], admission.number, list(range(125)))
    with pytest.raises(StageTimeout, match=r"prompts prompt-125, prompt-126, prompt-127 \(admitted .* 3; engine 0\)"):
        pool.wait_until(lambda: admission.is_complete, [admission])


def test_what_arrives_while_the_driver_waits_for_something_else_is_taken(pool_of: Any) -> None:
    from verl_like.context import current

    pool, members = pool_of(1)
    admission, arrived = admitted(pool, 1)
    finish(members.present[0], admission.number, [0])
    current(Meanwhile).run()
    assert arrived == [[0]]
    pool.close()
    assert not current(Meanwhile).work
