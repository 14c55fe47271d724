"""What is reported of processes that die and are started again, and when that ends a run."""

from __future__ import annotations

import logging

import pytest

from verl_like.controller import verdicts
from verl_like.controller.errors import StallError, WorkerError
from verl_like.controller.verdicts import MAX_DEATHS, WITHIN_S, Verdicts

HOST, SEEN = "scorer host 0", "last seen in stage 'reward'"


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(verdicts, "time", clock)
    return clock


@pytest.fixture
def of_hosts() -> Verdicts:
    found = Verdicts()
    found.expect(acts=True)
    found.expect_restarts([HOST, "scorer host 1"], remedy="Lower reward.num_workers.")
    return found


def test_each_death_of_a_restarted_host_is_reported_and_the_run_continues(
    of_hosts: Verdicts, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10 * MAX_DEATHS):
        clock.now += WITHIN_S / MAX_DEATHS + 1
        of_hosts.died(HOST, SEEN)
        of_hosts.check()
    assert caplog.messages == [f"{HOST} died, {SEEN}. Another one is started and repeats its work."] * 20


def test_a_host_that_dies_again_and_again_ends_the_run_with_the_reason_and_what_helps(
    of_hosts: Verdicts, clock: Clock
) -> None:
    of_hosts.died("scorer host 1", SEEN)  # which counts for itself
    for _ in range(MAX_DEATHS + 1):
        of_hosts.check()
        clock.now += 5.0
        of_hosts.died(HOST, SEEN)
    with pytest.raises(WorkerError) as raised:
        of_hosts.check()
    assert str(raised.value) == (
        f"{HOST} has died 3 times within 10 s, the last time {SEEN}. Lower reward.num_workers."
    )
    of_hosts.expect(acts=True)  # the restart of the run
    of_hosts.check()


def test_deaths_that_the_run_brings_about_and_those_of_other_processes_are_no_news(
    of_hosts: Verdicts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    of_hosts.expect_ends([HOST])
    for _ in range(MAX_DEATHS + 1):
        of_hosts.died(HOST, SEEN)
        of_hosts.died("worker rank 1", SEEN)
    of_hosts.check()
    assert caplog.messages == []
    assert of_hosts.death_report("worker rank 1") == SEEN


def test_a_death_that_no_watchdog_saw_is_reported_with_the_nodes_that_are_not_as_they_should_be(
    of_hosts: Verdicts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "DEATH_REPORT_S", 0.01)
    assert of_hosts.death_report("worker rank 3") == ""
    of_hosts.node("node-2", "is dead")
    of_hosts.node("node-3", "does not answer")
    of_hosts.died("worker rank 0", SEEN)
    assert of_hosts.death_report("worker rank 0") == SEEN, "its watchdog has seen it"
    unseen = "unseen by any watchdog; the node node-2 is dead"
    assert of_hosts.death_report("worker rank 3") == f"{unseen}, the node node-3 does not answer"
    of_hosts.node("node-3", "")
    assert of_hosts.death_report("worker rank 3") == unseen


def test_a_stall_names_the_nodes_that_do_not_answer(of_hosts: Verdicts) -> None:
    of_hosts.node("node-2", "does not answer")
    of_hosts.stalled("everybody waits.", is_certain=True)
    with pytest.raises(StallError, match=r"^everybody waits\. In addition, the node node-2 does not answer\.$"):
        of_hosts.check()
