"""The engines of a pool: lost ones are replaced, and each cause counts once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from verl_like.controller.errors import StageTimeout, WorkerError, WorkerRefusal
from verl_like.workers import engine_members
from verl_like.workers.engine_members import EngineMembers


class Group:
    """The workers of an engine."""

    def __init__(self, name: str) -> None:
        self.name, self.has_been_built = name, True
        self.error: Exception | None = None

    def is_built(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.has_been_built

    def wait_built(self, *, timeout_s: float) -> None: ...

    def open_streams(self, method: Any) -> Any:
        return object()


class Hosts:
    """Starts engines that are not built yet."""

    num_free = 2

    def __init__(self) -> None:
        self.started: list[Group] = []
        self.ended: list[str] = []

    def start(self) -> Group:
        self.started.append(Group(f"engine {10 + len(self.started)}"))
        self.started[-1].has_been_built = False
        return self.started[-1]

    def end(self, group: Group) -> None:
        self.ended.append(group.name)


def members_of(count: int, hosts: Hosts, *, max_lost: int = 3, start_timeout_s: float = 5.0) -> EngineMembers:
    groups: list[Any] = [Group(f"engine {number}") for number in range(count)]
    trainer: Any = SimpleNamespace(timeout_s=5.0)
    starts: Any = hosts
    members = EngineMembers(
        starts, groups, node=0, trainer=trainer, ranks_per_engine=1, max_lost=max_lost, start_timeout_s=start_timeout_s
    )
    members.wait_for_one()
    return members


def names(members: EngineMembers) -> list[str]:
    return [engine.name for engine in members.present]


def test_a_lost_engine_is_ended_and_another_takes_part_once_it_is_built() -> None:
    hosts = Hosts()
    members = members_of(2, hosts)
    members.lose(members.present[0], WorkerError("engine 0 died"))
    assert (names(members), hosts.ended, members.have_met) == (["engine 1"], ["engine 0"], False)
    assert len(hosts.started) == 1, "it starts at once, not at the next sync"
    members.wait_for_one()
    assert names(members) == ["engine 1"]
    hosts.started[0].has_been_built = True
    members.wait_for_one()
    assert names(members) == ["engine 1", "engine 10"]


def test_an_engine_whose_end_is_reported_twice_counts_once() -> None:
    hosts = Hosts()
    members = members_of(2, hosts)
    lost = members.present[0]
    for _ in range(2):
        members.lose(lost, WorkerError("engine 0 died"))
    assert members.num_lost == 1 and len(hosts.started) == 1


@pytest.mark.parametrize(
    ("error", "max_lost"), [(WorkerError("engine 0 died"), 0), (WorkerRefusal("its environment fails"), 3)]
)
def test_one_engine_too_many_or_an_error_that_would_repeat_ends_the_run(error: Exception, max_lost: int) -> None:
    members = members_of(1, Hosts(), max_lost=max_lost)
    with pytest.raises(type(error), match=str(error)):
        members.lose(members.present[0], error)


def test_an_engine_that_fails_while_it_is_built_is_replaced_too() -> None:
    hosts = Hosts()
    members = members_of(2, hosts)
    members.lose(members.present[0], WorkerError("engine 0 died"))
    hosts.started[0].error = WorkerError("engine 10 died")
    members.wait_for_one()
    assert members.num_lost == 2 and hosts.ended == ["engine 0", "engine 10"] and len(hosts.started) == 2


def test_without_free_resources_training_continues_and_the_engine_is_started_later() -> None:
    hosts = Hosts()
    members = members_of(2, hosts)
    hosts.num_free = 0  # the node of the engine is gone, too
    members.lose(members.present[0], WorkerError("engine 0 died"))
    members.wait_for_one()
    assert names(members) == ["engine 1"] and not hosts.started
    hosts.num_free = 1
    members.wait_for_one()
    assert len(hosts.started) == 1


def test_a_wait_without_free_resources_says_so_at_its_deadline() -> None:
    hosts = Hosts()
    members = members_of(1, hosts, start_timeout_s=0.1)
    hosts.num_free = 0
    members.lose(members.present[0], WorkerError("engine 0 died"))
    with pytest.raises(StageTimeout, match="still waiting for free resources for an engine"):
        members.wait_for_one()


def test_the_wait_for_an_engine_has_a_deadline_and_names_those_that_start() -> None:
    members = members_of(1, Hosts(), start_timeout_s=0.1)
    members.lose(members.present[0], WorkerError("engine 0 died"))
    with pytest.raises(StageTimeout, match=r"stage 'build' took longer .* still waiting for engine 10"):
        members.wait_for_one()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls be lists of their answers or errors."""

    def wait(refs: Any, *, stage: str, timeout_s: float) -> list[Any]:
        if isinstance(refs, Exception):
            raise refs
        return list(refs)

    monkeypatch.setattr(engine_members, "wait", wait)


def failing(error: Exception) -> Callable[[], list[Any]]:
    def result() -> list[Any]:
        raise error

    return result


@pytest.mark.usefixtures("waits")
def test_engines_that_fail_because_one_died_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    hosts = Hosts()
    hosts.num_free = 6
    members = members_of(6, hosts, max_lost=1)
    calls: Any = dict.fromkeys(members.present, WorkerError("the connection was closed by a peer"))
    calls[members.present[4]] = WorkerError("engine 4 died")
    found = members.all_answer(calls, stage="sync", result=failing(WorkerError("the trainer failed, too")))
    assert found is None and not members.present and members.num_lost == 1
    assert len(hosts.started) == 6 and "engine 4 died" in caplog.text


@pytest.mark.usefixtures("waits")
def test_an_engine_that_fails_is_ended_before_the_wait_for_the_trainer_which_waits_for_it() -> None:
    hosts = Hosts()
    members = members_of(2, hosts)
    calls: Any = {engine: ["held"] for engine in members.present}
    calls[members.present[0]] = WorkerError("engine 0 cannot load a weight")
    assert members.all_answer(calls, stage="sync", result=lambda: list(hosts.ended)) is None
    assert hosts.ended == ["engine 0"] and names(members) == ["engine 1"] and members.num_lost == 1


@pytest.mark.usefixtures("waits")
def test_a_refusal_ends_the_run_without_a_wait_for_the_trainer() -> None:
    members = members_of(1, Hosts())
    calls: Any = {members.present[0]: WorkerRefusal("the schedule to repeat names another prompt")}
    with pytest.raises(WorkerRefusal, match="names another prompt"):
        members.all_answer(calls, stage="sync", result=failing(AssertionError("it waited for the trainer")))


@pytest.mark.usefixtures("waits")
def test_answers_of_the_trainer_and_of_all_engines_are_returned() -> None:
    members = members_of(2, Hosts())
    calls: Any = {engine: [number] for number, engine in enumerate(members.present)}
    assert members.all_answer(calls, stage="sync", result=lambda: ["sent"]) == (["sent"], [0, 1])
    with pytest.raises(WorkerError, match="the trainer died"):
        members.all_answer(calls, stage="sync", result=failing(WorkerError("the trainer died")))


def test_another_number_of_engines_is_reached_as_far_as_the_cluster_has_capacity() -> None:
    hosts = Hosts()
    members = members_of(3, hosts)
    members.resize(1)
    assert names(members) == ["engine 0"] and hosts.ended == ["engine 1", "engine 2"]
    members.resize(9)
    members.wait_for_one()
    assert len(hosts.started) == 2
    members.resize(2)
    assert hosts.ended == ["engine 1", "engine 2", "engine 11"], "the newest of those that start is ended first"
