"""RewardPool: the reward functions in scorer processes on all nodes. They score while the rollout still runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl_like.config.schema import RewardConfig
from verl_like.context import current
from verl_like.controller import ray_calls
from verl_like.controller.errors import StageTimeout
from verl_like.controller.ray_calls import Call
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteBatch
from verl_like.controller.verdicts import Verdicts
from verl_like.controller.wait import Meanwhile, arrivals, wait
from verl_like.protocol import EPISODE_ROW, Array, num_samples, whole_episodes
from verl_like.reward.decoding import Decoder
from verl_like.reward.failure_limit import Failure, check_failures, failures_of, too_slow
from verl_like.reward.host import MAX_BLOCKS, ScorerHost
from verl_like.reward.scores import Scores
from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, NAME_VARIABLE
from verl_like.telemetry.process_log import LOGS_VARIABLE, RunLogs

_HELPS = (
    "If the kernel killed it because memory ran out, lower reward.num_workers or reward.max_memory_gib; otherwise a "
    "library that it loads crashed, and logs/ has its last output."
)
# Facts that a samples file contains in addition to the texts.
SAMPLE_FACTS = (
    "uid",
    "sample",
    "score",
    "reward_status",
    "reward_seconds",
    "details",
    "failure",
    "advantage",
    "advantage_mean",
    "advantage_min",
    "advantage_max",
    "finish_reason",
    "response_tokens",
    "weight_version_min",
    "weight_version_max",
    "environment_status",
    "environment_failure",
    "num_turns",
    "num_tool_calls",
    "num_tool_errors",
)

# Not a decorator: Ray would pickle the class by value; a plain class is pickled by reference. A host that dies is
# restarted, and its blocks are scored again, because none of their results had arrived. ``Verdicts`` limits
# the restarts.
Host = ray.remote(
    num_cpus=0,
    max_restarts=-1,
    max_task_retries=-1,
    concurrency_groups={"score": MAX_BLOCKS, "dump": 1, "control": 1},
    enable_task_events=False,  # Ray's control store would record every call
)(ScorerHost)


class PoolScoring:
    """Scoring of one step's blocks; a block goes to the host with the fewest rows.

    When this object is deleted, it does not wait for calls in progress; their results are freed as they arrive.

    Args:
        num_samples: of the step, if the scores are read in parts; failures are counted as a share of all.
    """

    def __init__(self, hosts: Sequence[Any], config: RewardConfig, *, timeout_s: float, num_samples: int = 0) -> None:
        self._hosts, self._config, self._timeout_s = hosts, config, timeout_s
        self._least_samples = num_samples
        # For each call in progress, a function that returns its reference once it is made; and the host's number.
        self._calls: list[tuple[Callable[[], list[ray.ObjectRef]], int]] = []
        self._num_rows = [0] * len(hosts)  # rows of these calls, by host

    def begin(self, facts: Facts, block: BlockRef) -> None:
        """Begin to score a block and return at once. An episode is scored once, on its last row."""
        host = int(np.argmin(self._num_rows))
        self._num_rows[host] += num_samples(facts)
        call = Call(self._hosts[host].score, (block,), options={"concurrency_group": "score"})
        self._calls.append((ray_calls.beginning([call]), host))

    def scores(self) -> Scores:
        """Return the scores of all rows begun since the last call, in the sequence of the calls of :meth:`begin`.

        Raises:
            FeedbackError: too many samples failed, or many in a row timed out; raised as soon as that is certain.
            StageTimeout: slow samples, each within its own deadline, took too long together.
        """
        calls, num_rows = self._calls, sum(self._num_rows)
        self._calls, self._num_rows = [], [0] * len(self._hosts)
        answers = {ref: f"scorer host {host}" for made, host in calls for ref in made()}
        found: dict[ray.ObjectRef, Scores] = {}
        failures: list[Failure] = []
        try:
            for answer, scores in arrivals(answers, stage="reward", timeout_s=self._timeout_s, interruptible=True):
                found[answer] = scores
                failures += failures_of(scores.failure)
                check_failures(failures, max(num_rows, self._least_samples), self._config)
        except StageTimeout as error:
            num_scored = sum(map(len, found.values()))
            raise StageTimeout(f"{error} {too_slow(self._config, num_scored=num_scored, num_rows=num_rows)}") from error
        return Scores.concat([found[answer] for answer in answers])


class RewardPool:
    """The scorer hosts of all nodes.

    Args:
        decoder: decodes responses as the policy's tokenizer does.
        failures: folder of the jsonl files that failed samples are appended to, with prompt, response and reason.
        max_failure_bytes: limit of these files; older failures are dropped.
        env: environment of the scorers.
        timeout_s: deadline of :meth:`PoolScoring.scores`, in addition to the samples' own deadlines.
        heartbeats: the run's heartbeat folder on every node, which the watchdog reads; empty for unwatched hosts.
    """

    def __init__(
        self,
        config: RewardConfig,
        decoder: Decoder,
        *,
        failures: Path,
        env: dict[str, str],
        timeout_s: float,
        heartbeats: str = "",
        max_failure_bytes: float = math.inf,
    ) -> None:
        self._config, self._timeout_s = config, timeout_s
        nodes = sorted(node["NodeID"] for node in ray_calls.nodes())[: config.num_workers]
        shares = [config.num_workers // len(nodes) + (i < config.num_workers % len(nodes)) for i in range(len(nodes))]
        self._hosts = [
            ray_calls.started(
                Host,
                {
                    **ray_calls.early_environment({**env, **_watched(number, heartbeats)} if env else {}),
                    "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
                },
                {**_watched(number, heartbeats), LOGS_VARIABLE: current(RunLogs).folder},
                config,
                share,
                decoder,
                failures=str(failures),
                max_failure_bytes=max_failure_bytes,
                stage_timeout_s=timeout_s,
            )
            for number, (node, share) in enumerate(zip(nodes, shares, strict=True))
        ]
        current(Verdicts).expect_restarts(self._names(), remedy=_HELPS)
        self._unbegun: list[Call] = []  # writes
        self._writing: list[Callable[[], list[ray.ObjectRef]]] = []  # return the calls in progress, once they are made

    def wait_ready(self, *, timeout_s: float) -> None:
        """Return when every host has loaded the functions; raise the error of a host that could not."""
        asking = ray_calls.begun([Call(host.ready) for host in self._hosts])
        names = dict(zip(asking, self._names(), strict=True))
        wait(names, stage="reward_start", timeout_s=timeout_s, interruptible=True)

    def open(self, *, num_samples: int = 0) -> PoolScoring:
        """Begin the scoring of another step; open steps are not affected."""
        return PoolScoring(self._hosts, self._config, timeout_s=self._timeout_s, num_samples=num_samples)

    def dump(self, batch: RemoteBatch, rows: Array, path: Path, *, appends: bool) -> None:
        """Begin to write these samples of the batch as text; :meth:`settle` waits for it.

        A host fetches and decodes them, not the driver.

        Args:
            rows: a row of each sample; all rows of its episode are written.
        """
        self.settle()
        chosen = batch.select(whole_episodes(batch.facts, rows))
        facts = {name: chosen.facts[name] for name in (*SAMPLE_FACTS, EPISODE_ROW) if name in chosen.facts}
        [remote_rows] = chosen.partition([np.arange(len(chosen))])
        arguments = {"appends": appends, "timeout_s": self._timeout_s}
        self._write(
            Call(self._hosts[0].dump, (remote_rows, facts, str(path)), arguments, {"concurrency_group": "dump"})
        )

    def keep(self, batch: RemoteBatch, columns: Sequence[str], folder: Path) -> None:
        """Begin to write the batch unchanged: these columns, and all facts that are numbers or short strings."""
        facts = {name: fact for name, fact in batch.facts.items() if fact.dtype != object}
        [remote_rows] = batch.partition([np.arange(len(batch))])
        arguments = {"columns": list(columns), "timeout_s": self._timeout_s}
        self._write(
            Call(self._hosts[0].keep, (remote_rows, facts, str(folder)), arguments, {"concurrency_group": "dump"})
        )

    def _write(self, call: Call) -> None:
        # The next stage's calls come first: nothing waits for this one soon.
        if not self._unbegun:
            current(Meanwhile).first.append(self._begin_writes)
        self._unbegun.append(call)

    def _begin_writes(self) -> None:
        calls, self._unbegun = self._unbegun, []
        self._writing.append(ray_calls.beginning(calls))

    def settle(self) -> None:
        """Return when all writes that were begun are complete."""
        current(Meanwhile).begin()
        writing, self._writing = self._writing, []
        calls = dict.fromkeys([ref for made in writing for ref in made()], "scorer host 0")
        wait(calls, stage="samples", timeout_s=self._timeout_s)

    def request_reports(self) -> dict[BlockRef, str]:
        """Request a report of every host; return the pending reports with the hosts' names."""
        asking = ray_calls.begun([Call(host.report, (), {}, {"concurrency_group": "control"}) for host in self._hosts])
        return dict(zip(asking, self._names(), strict=True))

    def _names(self) -> list[str]:
        return [f"scorer host {number}" for number in range(len(self._hosts))]

    def shut_down(self) -> None:
        """End every host immediately; its scorer processes end with it."""
        current(Verdicts).expect_ends(self._names())
        for host in self._hosts:
            ray_calls.end(host)


def _watched(number: int, heartbeats: str) -> dict[str, str]:
    """Return the environment variables by which the watchdog identifies a host."""
    return {FOLDER_VARIABLE: heartbeats, NAME_VARIABLE: f"scorer host {number}"}
