"""Worker groups on a real Ray cluster: calls, streams, failures, deadlines."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.ray.conftest import ROOT, echo_group
from tests.ray.echo_role import EchoRole
from verl_like.context import current
from verl_like.controller import node_watchdogs, ray_calls
from verl_like.controller.errors import Interrupt, Interrupted, OutOfGrace, StageTimeout, WorkerError
from verl_like.controller.fork_server.setup_worker import REFUSED_VARIABLE
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.controller.wait import wait
from verl_like.controller.worker_group import WorkerGroup
from verl_like.protocol import DataProto, Ragged
from verl_like.telemetry.ledger import stage
from verl_like.telemetry.startup import Startup

ROWS = [[1], [2, 3], [], [4, 5, 6], [7]]
REACHED = ["each by itself", "by an aggregator", pytest.param("by aggregators of aggregators", marks=pytest.mark.slow)]


def reached(how: str, *, timeout_s: float = 20) -> WorkerGroup:
    """Return a group whose two ranks the driver calls, or aggregators as on several nodes or on many."""
    group = echo_group(timeout_s)
    if how == "by an aggregator":
        group.use_tree([range(2)], timeout_s=60)
    elif how == "by aggregators of aggregators":
        group.use_tree([range(1), range(1, 2)], timeout_s=60, most=1)
    return group


@pytest.fixture(scope="module", params=REACHED)
def group(request: pytest.FixtureRequest, ray_cluster: None) -> Iterator[WorkerGroup]:
    made = reached(request.param)
    yield made
    made.shut_down()


def prompts() -> RemoteBatch:
    table = DataProto({"prompt_ids": Ragged.from_rows(ROWS, "int32"), "group_id": np.arange(5)})
    return RemoteBatch.put(table, {"group_id": np.arange(5)})


def test_a_deferred_call_is_made_once_before_the_next_call_to_all_ranks(group: WorkerGroup) -> None:
    def num_notes() -> list[int]:
        return [each.count("note") for each in group.call(EchoRole.prepared)]

    assert num_notes() == [0, 0]
    group.call_before_next(EchoRole.note)
    assert group.call(EchoRole.first) == [0], "a call to one rank does not take the deferred call of all"
    assert num_notes() == [1, 1] and num_notes() == [1, 1]
    group.call_before_next(EchoRole.note)
    group.map_rows(EchoRole.double, prompts(), [np.arange(3), np.arange(3, 5)], adds=frozenset({"doubled"}))
    assert num_notes() == [2, 2]
    group.call_before_next(EchoRole.note)
    list(group.stream(EchoRole.stream, prompts(), [np.arange(3), np.arange(3, 5)], delay_s=0.0))
    assert num_notes() == [3, 3]
    group.call_before_next(EchoRole.refuse)
    with pytest.raises(WorkerError, match=r"failed in EchoRole\.refuse(.*\n)*.*the deferred call fails"):
        group.call(EchoRole.who)


def doubled(group: WorkerGroup, method: Callable[..., object] = EchoRole.double) -> None:
    group.map_rows(method, prompts(), [np.arange(3), np.arange(3, 5)], adds=frozenset({"doubled"}))


def test_a_call_that_follows_rows_is_made_once_and_not_where_they_failed(group: WorkerGroup) -> None:
    def num_notes() -> list[int]:
        return [each.count("note") for each in group.call(EchoRole.prepared)]

    before = num_notes()
    if not group.call_after_next(EchoRole.note):
        assert group._aggregators, "only aggregators lose the order of calls"
        doubled(group)
        assert num_notes() == before
        return
    doubled(group)
    assert num_notes() == [each + 1 for each in before]
    assert group.call(EchoRole.note) == [None, None], "the results of the call that followed"
    assert num_notes() == [each + 1 for each in before]
    assert group.call_after_next(EchoRole.note)
    group.call(EchoRole.note)
    doubled(group)
    assert num_notes() == [each + 2 for each in before], "no rows were mapped, so call() made the calls"
    assert group.call_after_next(EchoRole.note)
    with pytest.raises(WorkerError, match="rank 1 does not double"):
        doubled(group, EchoRole.double_on_first)
    assert num_notes() == [before[0] + 3, before[1] + 2]
    group.call(EchoRole.note)


def test_a_report_during_a_call_that_follows_rows_has_its_time(group: WorkerGroup) -> None:
    wait(group.request_reports(), stage="report", timeout_s=20)
    if not group.call_after_next(EchoRole.nap):
        return
    doubled(group)
    reports = [each for found in wait(group.request_reports(), stage="report", timeout_s=20) for each in found]
    assert [report.seconds["nap"] >= 0.3 for report in reports] == [True, True]
    assert group.call(EchoRole.nap) == [0, 1]


def test_broadcast_reaches_every_rank_and_rank_zero_only_the_first(group: WorkerGroup) -> None:
    answers = group.call(EchoRole.who)
    assert [rank for rank, _ in answers] == [0, 1]
    assert answers[0][1] == answers[1][1], "both ranks must rendezvous at one port"
    assert group.call(EchoRole.first) == [0]


def test_workers_have_the_priority_of_the_driver(group: WorkerGroup) -> None:
    assert group.call(EchoRole.niceness) == [os.getpriority(os.PRIO_PROCESS, 0)] * 2


def test_preparation_comes_before_the_build_and_only_the_build_reports_failures(ray_cluster: None) -> None:
    prepared = WorkerGroup("prepared", world_size=2, placement=None, env={"PYTHONPATH": str(ROOT)}, timeout_s=20)
    try:
        for what in ("library", "broken"):
            prepared.prepare("tests.ray.echo_role:prepare", what)
        prepared.build("tests.ray.echo_role:build", lambda rank: (rank,), timeout_s=60)
        prepared.wait_built(timeout_s=60)
        assert prepared.call(EchoRole.prepared) == [["library", "broken"]] * 2
    finally:
        prepared.shut_down()


@pytest.mark.slow
def test_a_long_build_says_how_far_it_is(ray_cluster: None) -> None:
    out = io.StringIO()
    parts = WorkerGroup("parts", world_size=2, placement=None, env={"PYTHONPATH": str(ROOT)}, timeout_s=20)
    try:
        with current(Startup).shown(Console(file=out, force_terminal=True, width=100, color_system=None), is_live=True):
            current(Startup).now("loading models")
            parts.build("tests.ray.echo_role:build_in_parts", lambda rank: (rank, 6.0), timeout_s=60)
            parts.wait_built(timeout_s=60)
    finally:
        parts.shut_down()
    assert "loading models: parts rank 1 is at engine, 1 of 2 are ready" in out.getvalue()


def test_split_gives_each_rank_its_rows_and_attaches_what_it_adds(group: WorkerGroup) -> None:
    batch = prompts()
    reports = group.map_rows(
        EchoRole.double, batch, [np.array([3, 0]), np.array([1, 2, 4])], adds=frozenset({"doubled"})
    )
    assert reports == [2, 3]
    # Another partition, in another order: every row still finds its own numbers.
    sums = group.map_rows(
        EchoRole.total, batch.select(np.array([4, 3, 1])), [np.array([0]), np.array([1, 2])], "doubled"
    )
    assert sums == [14, 2 * (4 + 5 + 6 + 2 + 3)]
    fetched = batch.select(np.array([3, 2, 0])).fetch(["prompt_ids", "doubled"], timeout_s=20)
    assert [row.tolist() for row in fetched.ragged("doubled")] == [[8, 10, 12], [], [2]]


def test_a_column_has_one_producer(group: WorkerGroup) -> None:
    batch = prompts()
    parts = [np.arange(5), np.arange(0)]
    group.map_rows(EchoRole.double, batch, parts, adds=frozenset({"doubled"}))
    with pytest.raises(ValueError, match=r"'doubled'.*one producer"):
        group.map_rows(EchoRole.double, batch, parts, adds=frozenset({"doubled"}))


def test_a_missing_column_is_named(group: WorkerGroup) -> None:
    with pytest.raises(ValueError, match=r"\['values'\] are not in this batch"):
        prompts().fetch(["values"], timeout_s=5)


def test_stream_delivers_blocks_while_the_ranks_still_work(group: WorkerGroup) -> None:
    start = time.monotonic()
    arrivals, groups = [], []
    for facts, _ in group.stream(EchoRole.stream, prompts(), [np.array([0, 1, 2]), np.array([3, 4])], delay_s=0.3):
        arrivals.append(time.monotonic() - start)
        groups += facts["group_id"].tolist()
    assert sorted(groups) == [0, 1, 2, 3, 4]
    assert arrivals[-1] - arrivals[0] > 0.4, "the first block came no earlier than the last"


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_failure_in_mid_stream_is_reported(group: WorkerGroup, fails: str) -> None:
    """One between the facts and their block was taken for the block, and its rows were missing later."""
    with pytest.raises(WorkerError, match=r"rank 1(.|\n)*broken in mid-stream"):
        list(group.stream(EchoRole.stream, prompts(), [np.array([0]), np.array([1, 2])], delay_s=0.0, fails=fails))


def test_the_earliest_failure_is_the_one_reported(group: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match=r"rank 1 on .*(.|\n)*the real reason") as caught:
        group.call(EchoRole.fail_on, 1)
    assert "a peer went away" not in str(caught.value)


@pytest.mark.parametrize("how", REACHED)
def test_a_deadline_names_who_was_waited_for(ray_cluster: None, how: str) -> None:
    group = reached(how, timeout_s=1.0)
    with pytest.raises(StageTimeout, match=r"'sleep_on'.*1 s; still waiting for echo rank 1"):
        group.call(EchoRole.sleep_on, 1, 30.0)
    assert group.status(timeout_s=5)[1]["stage"] == "sleep_on", "control calls answer while a stage runs"
    group.shut_down()


@pytest.mark.parametrize("how", [pytest.param(REACHED[0], marks=pytest.mark.slow), *REACHED[1:]])
def test_a_dead_worker_is_named_at_once(ray_cluster: None, how: str) -> None:
    group = reached(how)
    start = time.monotonic()
    with pytest.raises(WorkerError, match="echo rank 0 died"):
        group.call(EchoRole.die_on, 0)
    assert time.monotonic() - start < 10, "the other rank's sleep must not be waited for"
    group.shut_down()


@pytest.mark.slow
def test_a_dead_aggregator_is_named(ray_cluster: None) -> None:
    group = reached("by an aggregator")
    for branch in group._aggregators:
        ray_calls.end(branch.handle)
    with pytest.raises(WorkerError, match="the aggregator of echo ranks 0 to 1 died"):
        group.call(EchoRole.who)
    group.shut_down()


@pytest.mark.parametrize(("most", "aggregators"), [(16, 2), pytest.param(1, 4, marks=pytest.mark.slow)])
def test_nodes_answer_in_the_order_of_ranks_and_join_the_blocks_of_their_ranks(
    ray_cluster: None, most: int, aggregators: int
) -> None:
    group = WorkerGroup("echo", world_size=3, placement=None, env={"PYTHONPATH": str(ROOT)}, timeout_s=20)
    group.build("tests.ray.echo_role:build", lambda rank: (rank,), timeout_s=60)
    group.wait_built(timeout_s=60)
    group.use_tree([range(2), range(2, 3)], timeout_s=60, most=most)
    try:
        assert [rank for rank, _ in group.call(EchoRole.who)] == [0, 1, 2]
        parts = [np.array([3, 0]), np.array([4]), np.array([2, 1])]
        batch = prompts()
        assert group.map_rows(EchoRole.double, batch, parts, adds=frozenset({"doubled"})) == [2, 1, 2]
        assert batch.num_blocks == 2, "one of each node; the driver keeps the few prompts"
        doubled = batch.fetch(["doubled"], timeout_s=20).ragged("doubled")
        assert [row.tolist() for row in doubled] == [[2 * token for token in row] for row in ROWS]
        sums = [sum(map(sum, ([2 * token for token in ROWS[row]] for row in part))) for part in parts]
        assert group.map_rows(EchoRole.total, batch, parts, "doubled") == sums
        streamed = list(group.stream(EchoRole.stream, batch, parts, delay_s=0.05))
        made = RemoteBatch.from_blocks(streamed, frozenset({"prompt_ids"}), producer="stream")
        rows = made.select(np.argsort(made.facts["group_id"])).fetch(["prompt_ids"], timeout_s=20).ragged("prompt_ids")
        assert [row.tolist() for row in rows] == ROWS
        reports = [report for found in wait(group.request_reports(), stage="report", timeout_s=20) for report in found]
        assert len(reports) == 3 + aggregators
    finally:
        group.shut_down()


def test_ctrl_c_ends_a_wait_that_may_be_abandoned_and_no_other(group: WorkerGroup) -> None:
    current(Interrupt).set()
    try:
        with pytest.raises(Interrupted):
            group.call(EchoRole.sleep_on, 1, 1.0, interruptible=True)
        group.call(EchoRole.sleep_on, 1, 0.1)
    finally:
        current(Interrupt).clear()


def test_a_background_call_runs_in_parallel_and_counts_for_no_stage(group: WorkerGroup) -> None:
    with ThreadPoolExecutor() as threads:

        def call(work: Any) -> Future[Any]:
            return threads.submit(group.call_in_background, work, stage="checkpoint", check=lambda: None)

        waiting = call(EchoRole.wait_for_let_go)
        assert group.call(EchoRole.first) == [0] and not waiting.done()
        with stage("update_actor"):
            assert group.call(EchoRole.let_go) == ["update_actor"] * 2
        waiting.result(timeout=20)
        failing = call(EchoRole.fail_on_first)
        reported = r"stage 'checkpoint' failed: rank 0 on .* failed in EchoRole\.fail_on_first:[\s\S]*the real reason"
        with pytest.raises(WorkerError, match=reported):
            failing.result(timeout=20)


@pytest.mark.slow
def test_the_wait_for_a_background_call_has_a_deadline_can_be_given_up_and_sees_deaths(ray_cluster: None) -> None:
    def give_up() -> None:
        raise InterruptedError

    group = echo_group(timeout_s=1)
    try:
        with pytest.raises(InterruptedError):
            group.call_in_background(EchoRole.wait_for_let_go, stage="checkpoint", check=give_up)
        with pytest.raises(
            StageTimeout, match=r"stage 'checkpoint' took longer than 1 s; still waiting for echo rank 0"
        ):
            group.call_in_background(EchoRole.wait_for_let_go, stage="checkpoint", check=lambda: None)
    finally:
        group.shut_down()
    group = echo_group()
    try:
        with pytest.raises(WorkerError, match=r"stage 'checkpoint' failed: echo rank 0 died"):
            group.call_in_background(EchoRole.die_first, stage="checkpoint", check=lambda: None)
    finally:
        group.shut_down()


def test_what_may_not_be_abandoned_is_given_up_when_its_share_of_the_grace_is_over(group: WorkerGroup) -> None:
    current(Interrupt).set(work_s=0.3)
    try:
        with pytest.raises(OutOfGrace, match="'sleep_on' took longer than"):
            group.call(EchoRole.sleep_on, 1, 2.0)
    finally:
        current(Interrupt).clear()


def test_warnings_of_workers_reach_the_drivers_log_once_with_their_names(
    group: WorkerGroup, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        caplog.clear()
        group.map_rows(EchoRole.warn, prompts(), [np.arange(2), np.arange(2, 5)])
        assert [record.getMessage() for record in caplog.records] == [
            "echo rank 0, echo rank 1: verl_like.echo: the disk is nearly full",
            "echo rank 1: verl_like.echo: rank 1 is warm",
        ]


def test_a_worker_that_could_not_be_forked_says_why(ray_cluster: None, caplog: pytest.LogCaptureFixture) -> None:
    environment = {"PYTHONPATH": str(ROOT), REFUSED_VARIABLE: "the fork server has ended"}
    plain = WorkerGroup("plain", world_size=1, placement=None, env=environment, timeout_s=20)
    try:
        plain.build("tests.ray.echo_role:build", lambda rank: (rank,), timeout_s=60)
        plain.wait_built(timeout_s=60)
        assert "plain rank 0" in caplog.text and "it was not forked: the fork server has ended" in caplog.text
    finally:
        plain.shut_down()


def test_workers_that_are_asked_for_their_stacks_again_and_again_continue(group: WorkerGroup) -> None:
    statuses = group.status(timeout_s=20)
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.002):
            for status in statuses:
                os.kill(status["pid"], signal.SIGUSR1)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(20):
            group.call(EchoRole.spin, 0.1)
    finally:
        ended.set()
        asking.join()
    assert [status["pid"] for status in group.status(timeout_s=20)] == [status["pid"] for status in statuses]


def test_what_a_worker_starts_can_be_ended_by_sigterm(group: WorkerGroup) -> None:
    """Ray's servers block it, and masks are inherited."""
    assert group.call(EchoRole.terminated) == [-signal.SIGTERM] * 2


def test_a_node_whose_watchdog_does_not_start_is_reported_and_left_out(
    ray_cluster: None, caplog: pytest.LogCaptureFixture
) -> None:
    broken = node_watchdogs.NodeWatchdogProcess.remote("nobody", 5, 60.0)  # 5 is no folder
    watchdogs = {"id": node_watchdogs._WatchdogHandle("node-7", broken)}
    node_watchdogs._wait_for(watchdogs, timeout_s=30)
    assert watchdogs == {}
    assert "the watchdog of node-7 did not start, and processes there are not watched: " in caplog.text
