"""A role without arithmetic, for tests of the controller."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import ray

from verl_like.context import current
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import Facts, RemoteRows
from verl_like.protocol import DataProto, Ragged
from verl_like.telemetry.ledger import Ledger, stage
from verl_like.workers.episodes import FinishedSample, Response
from verl_like.workers.group_blocks import OPTIONAL_COLUMNS, PROMPT_COLUMNS, GroupBlocks


def build(rank: int) -> dict[str, Any]:
    return {"EchoRole": EchoRole(rank)}


def build_in_parts(rank: int, seconds: float) -> dict[str, Any]:
    """Rank 1 takes its time."""
    with stage("build/engine"):
        time.sleep(seconds * rank)
    return build(rank)


PREPARED: list[str] = []


def prepare(what: str) -> None:
    PREPARED.append(what)
    if what == "broken":
        raise ImportError("a library that does not load")


class EchoRole:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._is_let_go = threading.Event()

    @dispatch(Dispatch.BROADCAST)
    def who(self) -> tuple[int, str]:
        return self.rank, os.environ["MASTER_PORT"]

    @dispatch(Dispatch.BROADCAST)
    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()

    @dispatch(Dispatch.BROADCAST)
    def prepared(self) -> list[str]:
        return PREPARED

    @dispatch(Dispatch.BROADCAST)
    def note(self) -> None:
        PREPARED.append("note")

    @dispatch(Dispatch.BROADCAST)
    def nap(self) -> int:
        time.sleep(0.3)
        return self.rank

    @dispatch(Dispatch.BROADCAST)
    def refuse(self) -> None:
        raise RuntimeError("the deferred call fails")

    @dispatch(Dispatch.BROADCAST)
    def niceness(self) -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    @dispatch(Dispatch.RANK_ZERO)
    def first(self) -> int:
        return self.rank

    @dispatch(Dispatch.BROADCAST)
    def fail_on(self, rank: int) -> None:
        if rank == self.rank:
            raise ValueError("the real reason")
        time.sleep(0.3)
        raise ConnectionError("a peer went away")

    @dispatch(Dispatch.BROADCAST)
    def sleep_on(self, rank: int, seconds: float) -> None:
        time.sleep(seconds if rank == self.rank else 0)

    @dispatch(Dispatch.BROADCAST)
    def wait_for_let_go(self) -> None:
        """Return when :meth:`let_go` is called meanwhile."""
        assert self._is_let_go.wait(30), "no other call ran in parallel with this one"
        self._is_let_go.clear()

    @dispatch(Dispatch.BROADCAST)
    def let_go(self) -> str:
        self._is_let_go.set()
        return current(Ledger).stage

    @dispatch(Dispatch.BROADCAST)
    def fail_on_first(self) -> None:
        if self.rank == 0:
            raise ValueError("the real reason")

    @dispatch(Dispatch.BROADCAST)
    def die_first(self) -> None:
        self.die_on(0)

    @dispatch(Dispatch.BROADCAST)
    def spin(self, seconds: float) -> None:
        """Run Python all the time, in calls that go deep."""

        def deep(calls: int) -> int:
            return deep(calls - 1) + 1 if calls else 0

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            deep(50)

    @dispatch(Dispatch.BROADCAST)
    def die_on(self, rank: int) -> None:
        if rank == self.rank:
            os._exit(3)
        time.sleep(60)

    @dispatch(Dispatch.BROADCAST)
    def terminated(self) -> int:
        """Return the exit status of a child process that was terminated."""
        with subprocess.Popen(["sleep", "60"]) as started:
            started.terminate()
            return started.wait(timeout=10)

    @dispatch(Dispatch.SPLIT)
    def double(self, rows: RemoteRows) -> tuple[int, DataProto]:
        ids = rows.fetch(["prompt_ids"], timeout_s=30).ragged("prompt_ids")
        return len(rows), DataProto({"doubled": Ragged(ids.values * 2, ids.offsets)})

    @dispatch(Dispatch.SPLIT)
    def double_on_first(self, rows: RemoteRows) -> tuple[int, DataProto]:
        if self.rank:
            raise ValueError("rank 1 does not double")
        return self.double(rows)

    @dispatch(Dispatch.SPLIT)
    def values(self, rows: RemoteRows, tokens: int) -> tuple[None, DataProto]:
        """``tokens`` zeros for each row."""
        return None, DataProto(
            {"values": Ragged.from_lengths(np.zeros(tokens * len(rows), np.float32), np.full(len(rows), tokens))}
        )

    @dispatch(Dispatch.SPLIT)
    def warn(self, rows: RemoteRows) -> tuple[None, None]:
        """Log the same warning on every rank, and another one on rank 1 only."""
        log = logging.getLogger("verl_like.echo")
        log.info("not worth telling")
        log.warning("the disk is nearly full")
        if self.rank == 1:
            log.warning("rank 1 is %s", "warm")
        return None, None

    @dispatch(Dispatch.SPLIT)
    def total(self, rows: RemoteRows, column: str) -> tuple[int, None]:
        return int(rows.fetch([column], timeout_s=30).ragged(column).values.sum()), None

    @dispatch(Dispatch.STREAM)
    def stream(self, rows: RemoteRows, *, delay_s: float, fails: str = "") -> Iterator[Facts | DataProto]:
        """Yield each row as a block; on rank 1, fail "before" a block, that is after its facts, or "after" it."""
        table = rows.fetch(["prompt_ids", "group_id"], timeout_s=30)
        for i in range(len(table)):
            time.sleep(delay_s)
            yield {"group_id": np.asarray(table["group_id"])[i : i + 1]}
            if fails == "before" and self.rank == 1:
                raise ValueError("broken in mid-stream")
            yield table.select_idxs([i])
            if fails == "after" and self.rank == 1:
                raise ValueError("broken in mid-stream")

    @dispatch(Dispatch.STREAM)
    def answer(self, rows: RemoteRows, *, n: int) -> Iterator[Facts | DataProto]:
        """Yield ``n`` responses of one token to each prompt, in blocks as engines make them."""
        prompts = rows.fetch([*PROMPT_COLUMNS, *sorted(OPTIONAL_COLUMNS & rows.columns)], timeout_s=30)
        blocks = GroupBlocks(prompts, n=n, num_prompts=len(prompts), writer=self.rank, block_kib=256)
        response = Response(token_ids=[7], log_probs=[-1.0], is_sampled=np.ones(1, bool), finish_reason="stop")
        for row in range(len(prompts)):
            for number in range(n):
                sample = FinishedSample(row=row, number=number, version=0, newest_version=0, responses=(response,))
                blocks.add(sample)
        yield from blocks.rest()
