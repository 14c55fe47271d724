"""The rollout: generation that streams finished groups, and the weights it generates from."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.distributed.distributed_c10d import Store

from verl_like.backends.base import EngineUsage, Finished, Request, RolloutEngine, Sampling, StaleWeightsError
from verl_like.backends.rollout import rollout_engine
from verl_like.controller.blocks import MAX_STREAM_BLOCKS
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import Facts, RemoteRows
from verl_like.protocol import DataProto, Ragged
from verl_like.telemetry.heartbeat import HEARTBEAT
from verl_like.telemetry.ledger import LEDGER
from verl_like.workers.actor import ActorRole
from verl_like.workers.engine_ranks import EngineRanks, Queue
from verl_like.workers.messages import SyncReport
from verl_like.workers.setup import WorkerSetup

PROMPT_COLUMNS = ("prompt_ids", "group_id", "uid", "reward_inputs", "prompt_text")
ROLLOUT_COLUMNS = frozenset(
    {"prompt_ids", "response_ids", "response_mask", "rollout_log_probs", "reward_inputs", "prompt_text"}
)


MAX_WAIT_S = 0.5  # of a small block: where responses are long and few, their scores would come after the last of them


def build_rollout_engine(setup: WorkerSetup) -> RolloutEngine:
    """The engine that the configuration names."""
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
    """63 bits hashed from everything that names a sample: engines map neighbouring seeds to overlapping samples."""
    digest = hashlib.blake2b(f"{run_seed}/{step}/{uid}/{sample}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _checksum(name: str, tensor: torch.Tensor, before: int) -> int:
    """CRC-32 of the name and the bits, behind what came before."""
    bits = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return zlib.crc32(bits.data, zlib.crc32(name.encode(), before))


def _num_bytes(group: _Group, prompt_tokens: int) -> int:
    """Bytes of the group's token columns: ids, mask and log-probs of each response token, ids of each prompt token."""
    return sum(9 * len(finished.response_ids) + 4 * prompt_tokens for finished in group.samples.values())


@dataclass
class _Group:
    """The samples of one prompt, collected as they finish."""

    row: int
    samples: dict[int, Finished] = field(default_factory=dict)


@dataclass(kw_only=True)
class _Waiting:
    """Groups that are finished and have not been handed on: as many as make a block, or for as long as one may wait."""

    min_groups: int
    min_bytes: float
    groups: list[_Group] = field(default_factory=list)
    num_bytes: int = 0
    since: float = 0.0  # of the first

    def add(self, group: _Group, *, prompt_tokens: int) -> None:
        if not self.groups:
            self.since = time.monotonic()
        self.groups.append(group)
        self.num_bytes += _num_bytes(group, prompt_tokens)

    def are_due(self) -> bool:
        if not self.groups or len(self.groups) < self.min_groups:
            return False
        return self.num_bytes >= self.min_bytes or time.monotonic() - self.since >= MAX_WAIT_S

    def taken(self) -> list[_Group]:
        groups, self.groups, self.num_bytes = self.groups, [], 0
        return groups


class RolloutRole:
    """Generation on this rank's engine; ranks that share an engine are given the same rows."""

    def __init__(self, setup: WorkerSetup, engine: RolloutEngine, actor: ActorRole, store: Store) -> None:
        self._setup, self._engine, self._actor = setup, engine, actor
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
    ) -> Iterator[Facts | DataProto]:
        """Yield the facts of some finished groups, then their block, until every prompt has its ``n`` responses, or
        Ctrl-C.

        Args:
            rows: prompts of this engine.
            first_sample: number of a prompt's first sample in this step's seeds; above 0 where a prompt may come again.
            queue: prompts of which each engine takes the next ones when it has room; the same for all.

        Raises:
            StaleWeightsError: the engine does not hold weight ``version``.
        """
        if self._engine.version != version:
            held = self._engine.version
            raise StaleWeightsError(
                f"asked to generate from weight version {version}, but the engine holds {held}; sync first."
            )
        timeout_s = self._setup.config.trainer.stage_timeout_s
        prompts = DataProto.concat([part.fetch(PROMPT_COLUMNS, timeout_s=timeout_s) for part in (rows, queue)])
        self._queue.open(len(queue))
        of_engine = len(rows) + len(queue) // (self._setup.world_size // self._ranks.size)
        waiting = _Waiting(
            min_groups=max(1, of_engine // MAX_STREAM_BLOCKS), min_bytes=self._setup.config.rollout.block_kib * 1024
        )
        groups: dict[int, _Group] = {}

        def begin(taken: Iterable[int]) -> None:
            for row in taken:
                groups[row] = _Group(row)
                self._engine.submit(self._requests(prompts, row, n, sampling, step, first_sample))

        self._engine.usage = EngineUsage()
        try:
            begin(range(len(rows)))
            while not self._ranks.are_interrupted():
                begin(len(rows) + number for number in self._queue.take(self._num_wanted(n)))
                if not self._engine.has_unfinished():
                    break
                HEARTBEAT.tick()
                for finished in self._engine.step():
                    row, sample = map(int, finished.request_id.split(":"))
                    groups[row].samples[sample] = finished
                    if len(groups[row].samples) == n:
                        waiting.add(groups.pop(row), prompt_tokens=len(prompts.ragged("prompt_ids")[row]))
                if self._ranks.is_first and waiting.are_due():
                    yield from self._block(prompts, waiting.taken())
            if self._ranks.is_first and waiting.groups:
                yield from self._block(prompts, waiting.taken())
            if self._ranks.is_first and step >= 0:  # no validation
                self._book_usage()
        finally:
            if self._engine.has_unfinished():
                self._engine.abort([f"{row}:{sample}" for row in groups for sample in range(n)])

    def _num_wanted(self, n: int) -> int:
        """Groups that this engine has room for; one that is idle takes one, however many samples it has."""
        return self._engine.room() // n or int(not self._engine.has_unfinished())

    def _book_usage(self) -> None:
        usage = self._engine.usage
        LEDGER.peak("rollout/running_max", usage.running)
        LEDGER.peak("rollout/waiting_max", usage.waiting)
        LEDGER.count("rollout/preemptions", usage.preemptions)
        LEDGER.count("rollout/cached_prompt_tokens", usage.cached_prompt_tokens)

    def _requests(
        self, prompts: DataProto, row: int, n: int, sampling: Sampling, step: int, first_sample: int
    ) -> list[Request]:
        """Those of one prompt."""
        seed, uid = self._setup.config.trainer.seed, str(prompts["uid"][row])
        prompt_ids = prompts.ragged("prompt_ids")[row].tolist()
        return [
            Request(
                request_id=f"{row}:{sample}",
                prompt_ids=prompt_ids,
                sampling=sampling,
                seed=sample_seed(seed, step, uid, first_sample + sample),
            )
            for sample in range(n)
        ]

    def _block(self, prompts: DataProto, groups: list[_Group]) -> Iterator[Facts | DataProto]:
        """The facts of these groups and then the block with their columns, rows by (group, sample)."""
        keys = [(g.row, s) for g in groups for s in sorted(g.samples)]
        done = [g.samples[s] for g in groups for s in sorted(g.samples)]
        source = prompts.select_idxs([row for row, _ in keys])
        responses = Ragged.from_rows([f.response_ids for f in done], "int32")
        yield {
            "group_id": np.asarray(source["group_id"]),
            "sample": np.array([s for _, s in keys], np.int32),
            "uid": np.array(source["uid"]),
            "prompt_tokens": source.ragged("prompt_ids").lengths,
            "response_tokens": responses.lengths,
            "finish_reason": np.array([f.finish_reason for f in done]),
            "log_prob_sum": np.array([sum(f.log_probs) for f in done], np.float32),
            "weight_version": np.full(len(done), self._engine.version),
            "writer": np.full(len(done), self._setup.rank),
        }
        yield DataProto(
            {
                "prompt_ids": source["prompt_ids"],
                "response_ids": responses,
                "response_mask": Ragged(np.ones(len(responses.values), bool), responses.offsets),
                "rollout_log_probs": Ragged.from_rows([f.log_probs for f in done], "float32"),
                "reward_inputs": source["reward_inputs"],
                "prompt_text": source["prompt_text"],
            }
        )

    @dispatch(Dispatch.BROADCAST)
    def sync(self) -> SyncReport:
        """Load the actor's weights into the engine and wake it."""
        policy = self._actor.engine
        started, gathers, num_bytes = time.perf_counter(), policy.num_gathers, 0
        checksum = 0 if self._setup.config.rollout.sync_checksum else None

        def counted() -> Iterator[tuple[str, torch.Tensor]]:
            nonlocal num_bytes, checksum
            adapter = self._setup.config.syncs_adapter
            for name, tensor in policy.named_adapter() if adapter else policy.named_weights():
                num_bytes += tensor.nbytes
                if checksum is not None:
                    checksum = _checksum(name, tensor, checksum)
                yield name, tensor

        self._engine.begin_sync(self._actor.version)
        self._engine.load(counted())
        self._engine.finish_sync()
        self._engine.wake()
        return SyncReport(
            version=self._engine.version,
            num_bytes=num_bytes,
            seconds=time.perf_counter() - started,
            collectives=policy.num_gathers - gathers,
            checksum=checksum,
        )

    @dispatch(Dispatch.BROADCAST)
    def sleep(self) -> None:
        self._engine.sleep()
