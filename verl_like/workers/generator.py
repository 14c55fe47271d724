"""The generator: runs episodes on an engine and streams finished groups of responses."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from torch.distributed.distributed_c10d import Store

from verl_like.backends.base import EngineUsage, Request, RolloutEngine, Sampling, StaleWeightsError
from verl_like.backends.rollout import rollout_engine
from verl_like.controller.blocks import MAX_STREAM_BLOCKS
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import Facts, RemoteRows
from verl_like.protocol import DataProto, Ragged
from verl_like.telemetry.heartbeat import HEARTBEAT
from verl_like.telemetry.ledger import LEDGER
from verl_like.workers.engine_ranks import EngineRanks, Queue
from verl_like.workers.episodes import EpisodeFactory, FinishedSample, RunningEpisodes, SingleTurn
from verl_like.workers.setup import WorkerSetup

PROMPT_COLUMNS = ("prompt_ids", "group_id", "uid", "reward_inputs", "prompt_text")
ROLLOUT_COLUMNS = frozenset(
    {"prompt_ids", "response_ids", "response_mask", "rollout_log_probs", "reward_inputs", "prompt_text"}
)
OPTIONAL_COLUMNS = frozenset({"features"})  # of prompts; a block has those of its prompts

MAX_WAIT_S = 0.5  # of a small block; otherwise scores of few, long responses would arrive only after the last of them


def build_rollout_engine(setup: WorkerSetup) -> RolloutEngine:
    """Build the engine that the configuration names."""
    config = setup.config
    return rollout_engine(
        config.rollout.backend,
        model_path=config.model.path,
        tokenizer_path=config.model.tokenizer,
        model=config.model,
        rollout=config.rollout,
        max_model_len=config.data.max_prompt_length + config.data.max_response_length,
        device=setup.device,
        seed=config.trainer.seed,
        run_id=setup.run_id,
    )


def sample_seed(run_seed: int, step: int, uid: str, sample: int) -> int:
    """Hash everything that identifies a sample to 63 bits: engines map neighbouring seeds to overlapping samples."""
    digest = hashlib.blake2b(f"{run_seed}/{step}/{uid}/{sample}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass
class _Group:
    """The samples of one prompt, collected as they finish."""

    samples: dict[int, FinishedSample] = field(default_factory=dict)

    def in_order(self) -> list[FinishedSample]:
        return [self.samples[number] for number in sorted(self.samples)]

    def num_bytes(self, prompt_tokens: int) -> int:
        """Return the bytes of the token columns: ids, mask and log-probs of responses, and the ids of the prompt."""
        return sum(9 * len(each.response.token_ids) + 4 * prompt_tokens for each in self.samples.values())


@dataclass(kw_only=True)
class _Block:
    """Finished groups that wait until they form a block, or for the longest allowed time."""

    min_groups: int
    min_bytes: float
    groups: list[_Group] = field(default_factory=list)
    num_bytes: int = 0
    since: float = 0.0  # arrival of the first group

    def add(self, group: _Group, *, prompt_tokens: int) -> None:
        if not self.groups:
            self.since = time.monotonic()
        self.groups.append(group)
        self.num_bytes += group.num_bytes(prompt_tokens)

    def is_due(self) -> bool:
        if not self.groups or len(self.groups) < self.min_groups:
            return False
        return self.num_bytes >= self.min_bytes or time.monotonic() - self.since >= MAX_WAIT_S

    def take(self) -> list[FinishedSample]:
        """Return the samples by (group, number), and start the next block."""
        groups, self.groups, self.num_bytes = self.groups, [], 0
        return [sample for group in groups for sample in group.in_order()]


class GeneratorRole:
    """Generation on this rank's engine; ranks that share an engine get the same rows.

    It does not depend on the source of the engine's weights.

    Args:
        engine: may be asleep; the caller that syncs its weights wakes it.
        store: store of the process group of the generator's ranks.
        episode: creates the episode of each sample.
    """

    def __init__(
        self, setup: WorkerSetup, engine: RolloutEngine, store: Store, episode: EpisodeFactory = SingleTurn
    ) -> None:
        self._setup, self._engine, self._episode = setup, engine, episode
        self._ranks = EngineRanks(setup)
        self._queue = Queue(store, self._ranks)

    @dispatch(Dispatch.STREAM)
    def generate(
        self,
        rows: RemoteRows,
        *,
        n: int,
        sampling: Sampling,
        step: int,
        version: int,
        first_sample: int,
        queue: RemoteRows,
        max_lag: int = 0,
    ) -> Iterator[Facts | DataProto]:
        """Yield the facts of some finished groups, then their block, until every prompt has its ``n`` responses, or
        Ctrl-C.

        Args:
            rows: prompts of this engine.
            first_sample: number of a prompt's first sample in this step's seeds; above 0 if a step draws further
                samples.
            queue: prompts of which each engine takes the next ones when it has capacity; the same for all engines.
            max_lag: largest allowed difference between ``version`` and the engine's version.

        Raises:
            StaleWeightsError: if the engine's version is newer than ``version``, or older than ``max_lag`` allows.
        """
        self._check_version(version, max_lag)
        timeout_s = self._setup.config.trainer.stage_timeout_s
        columns = [*PROMPT_COLUMNS, *sorted(OPTIONAL_COLUMNS & rows.columns)]
        prompts = DataProto.concat([part.fetch(columns, timeout_s=timeout_s) for part in (rows, queue)])
        prompt_tokens = prompts.ragged("prompt_ids").lengths
        self._queue.open(len(queue))
        of_engine = len(rows) + len(queue) // (self._setup.world_size // self._ranks.size)
        block = _Block(
            min_groups=max(1, of_engine // MAX_STREAM_BLOCKS), min_bytes=self._setup.config.rollout.block_kib * 1024
        )
        groups: dict[int, _Group] = {}  # groups with some, but not all, samples finished
        requests = partial(self._requests, prompts, n=n, sampling=sampling, step=step, first_sample=first_sample)
        episodes = RunningEpisodes(self._engine, self._episode, requests)
        self._engine.usage = EngineUsage()
        try:
            episodes.begin(range(len(rows)))
            while not self._ranks.are_interrupted():
                episodes.begin(len(rows) + number for number in self._queue.take(self._num_wanted(n)))
                if not self._engine.has_unfinished():
                    break
                HEARTBEAT.tick()
                for sample in episodes.step():
                    group = groups.setdefault(sample.row, _Group())
                    group.samples[sample.number] = sample
                    if len(group.samples) == n:
                        block.add(groups.pop(sample.row), prompt_tokens=int(prompt_tokens[sample.row]))
                if self._ranks.is_first and block.is_due():
                    yield from self._block(prompts, block.take())
            if self._ranks.is_first and block.groups:
                yield from self._block(prompts, block.take())
            if self._ranks.is_first and step >= 0:  # negative in validation
                self._record_usage()
        finally:
            episodes.abort()

    def _check_version(self, version: int, max_lag: int) -> None:
        held = self._engine.version
        if held < 0 or not version - max_lag <= held <= version:
            within = f", or at most {max_lag} older" if max_lag else ""
            raise StaleWeightsError(
                f"asked to generate from weight version {version}{within}, but the engine holds {held}; sync first."
            )

    def _num_wanted(self, n: int) -> int:
        """Return the number of groups for which this engine has capacity; at least one if it is idle."""
        return self._engine.room() // n or int(not self._engine.has_unfinished())

    def _record_usage(self) -> None:
        usage = self._engine.usage
        LEDGER.peak("rollout/running_max", usage.running)
        LEDGER.peak("rollout/waiting_max", usage.waiting)
        LEDGER.count("rollout/preemptions", usage.preemptions)
        LEDGER.count("rollout/cached_prompt_tokens", usage.cached_prompt_tokens)

    def _requests(
        self, prompts: DataProto, row: int, *, n: int, sampling: Sampling, step: int, first_sample: int
    ) -> list[Request]:
        """Return the first request of each sample of a prompt."""
        seed, uid = self._setup.config.trainer.seed, str(prompts["uid"][row])
        prompt_ids = prompts.ragged("prompt_ids")[row].tolist()
        features: Any = prompts.columns.get("features")
        return [
            Request(
                request_id=f"{row}:{sample}",
                prompt_ids=prompt_ids,
                sampling=sampling,
                seed=sample_seed(seed, step, uid, first_sample + sample),
                features=features[row] if features is not None else None,
            )
            for sample in range(n)
        ]

    def _block(self, prompts: DataProto, samples: list[FinishedSample]) -> Iterator[Facts | DataProto]:
        """Yield the facts of these samples, then the block with their columns."""
        source = prompts.select_idxs([sample.row for sample in samples])
        found = [sample.response for sample in samples]
        responses = Ragged.from_rows([response.token_ids for response in found], "int32")
        yield {
            "group_id": np.asarray(source["group_id"]),
            "sample": np.array([sample.number for sample in samples], np.int32),
            "uid": np.array(source["uid"]),
            "prompt_tokens": source.ragged("prompt_ids").lengths,
            "response_tokens": responses.lengths,
            "finish_reason": np.array([response.finish_reason for response in found]),
            "log_prob_sum": np.array([sum(response.log_probs) for response in found], np.float32),
            "weight_version": np.array([sample.version for sample in samples], np.int64),
            "writer": np.full(len(samples), self._setup.rank),
        }
        yield DataProto(
            {
                "prompt_ids": source["prompt_ids"],
                "response_ids": responses,
                "response_mask": Ragged.from_rows([response.is_sampled for response in found], "bool"),
                "rollout_log_probs": Ragged.from_rows([response.log_probs for response in found], "float32"),
                "reward_inputs": source["reward_inputs"],
                "prompt_text": source["prompt_text"],
                **{name: source[name] for name in sorted(OPTIONAL_COLUMNS & source.columns.keys())},
            }
        )

    @dispatch(Dispatch.BROADCAST)
    def sleep(self) -> None:
        self._engine.sleep()
