"""The real driver code (PPOTrainer.step, facades, worker groups, batches, store) over workers without arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import ray

from benchmarks import _workload as workload
from verl_like.backends.base import Sampling
from verl_like.config.schema import Config
from verl_like.controller.blocks import MAX_STREAM_BLOCKS
from verl_like.controller.placement import Devices
from verl_like.controller.remote_batch import BlockRef, Facts, RemoteRows
from verl_like.controller.store import Reply
from verl_like.controller.wait import wait
from verl_like.controller.worker_group import WorkerGroup
from verl_like.data.prompts import Prompt
from verl_like.protocol import Array, DataProto, Ragged
from verl_like.reward.scores import Scores
from verl_like.runs.folder import RunFolder
from verl_like.training.build import Stack
from verl_like.training.parts import parts_of
from verl_like.training.rewards import Rewards
from verl_like.training.rollout_trainer import RolloutTrainer
from verl_like.workers.engine_pool import EnginePool
from verl_like.workers.groups import ActorGroup, AdvantageGroup, CriticGroup, RefGroup, RolloutGroup
from verl_like.workers.messages import AdvantageReport, RowRewards, SyncReport, UpdateTerms

TIMEOUT_S = 300.0
AnyTrainer = TypeVar("AnyTrainer", bound=RolloutTrainer)


def build_roles(response_lengths: Array, block_bytes: int, ranks: int) -> dict[str, Any]:
    """Return the roles of a hybrid worker and of the advantages process, by the names that the facades call."""
    idle = IdleLearner()
    return {
        "GeneratorRole": IdleRollout(response_lengths, block_bytes, ranks),
        "ActorRole": idle,
        "RefRole": idle,
        "CriticRole": idle,
        "AdvantageRole": IdleAdvantages(),
        "SenderRole": IdleSender(),
    }


class IdleRollout:
    """Yields groups in blocks, like the real rollout; the response lengths are known in advance.

    Args:
        response_lengths: [B] of all rows of the step.
        ranks: number of ranks that prompts are dealt to in turn.
    """

    def __init__(self, response_lengths: Array, block_bytes: int, ranks: int) -> None:
        self._ranks = ranks
        self._lengths, self._block_bytes = response_lengths.reshape(-1, workload.SAMPLES_PER_PROMPT), block_bytes

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
        max_lag: int,
    ) -> Iterator[Facts | DataProto]:
        assert not len(queue), "idle engines are dealt their rows in advance"
        prompts = rows.fetch(["prompt_ids", "group_id", "uid", "reward_inputs", "prompt_text"], timeout_s=TIMEOUT_S)
        groups = np.asarray(prompts["group_id"])
        per_group = 9 * self._lengths[groups].sum(axis=1) + 4 * n * prompts.ragged("prompt_ids").lengths
        first, size, min_groups = 0, 0, max(1, len(groups) // MAX_STREAM_BLOCKS)
        for i in range(len(groups)):
            size += int(per_group[i])
            if (size >= self._block_bytes and i + 1 - first >= min_groups) or i + 1 == len(groups):
                facts, table = self.block(prompts, np.arange(first, i + 1), n, version)
                yield facts
                yield table
                first, size = i + 1, 0

    def block(self, prompts: DataProto, chosen: Array, n: int, version: int) -> tuple[Facts, DataProto]:
        """Return the facts and the block of finished prompts."""
        source = prompts.select_idxs(np.repeat(chosen, n))
        group_id = np.asarray(source["group_id"])
        lengths = self._lengths[group_id[::n]].ravel()
        total, rows = int(lengths.sum()), len(group_id)
        facts = {
            "group_id": group_id,
            "sample": np.tile(np.arange(n, dtype=np.int32), len(chosen)),
            "uid": np.array(source["uid"]),
            "prompt_tokens": source.ragged("prompt_ids").lengths,
            "response_tokens": lengths,
            "finish_reason": np.full(rows, "stop"),
            "log_prob_sum": np.zeros(rows, np.float32),
            "weight_version_min": np.full(rows, version),
            "weight_version_max": np.full(rows, version),
            "writer": group_id % self._ranks,
        }
        made = {
            name: Ragged.from_lengths(workload.token_column(name, total), lengths)
            for name in ("response_ids", "response_mask", "rollout_log_probs")
        }
        return facts, DataProto(
            {
                "prompt_ids": source["prompt_ids"],
                **made,
                "reward_inputs": source["reward_inputs"],
                "prompt_text": source["prompt_text"],
            }
        )

    def sleep(self) -> None:
        pass


def _column(name: str, table: DataProto, like: str = "response_ids") -> DataProto:
    offsets = table.ragged(like).offsets
    return DataProto({name: Ragged(workload.token_column(name, int(offsets[-1])), offsets)})


class IdleLearner:
    """Actor, reference and critic: fetch the columns that the real roles fetch, return columns of the right size."""

    def sync(self) -> SyncReport:
        return SyncReport(version=0, num_bytes=0, seconds=1.0, pause_s=1.0)

    def log_probs(self, rows: RemoteRows, *, sum_pi_squared: bool, entropy: bool) -> tuple[dict[str, float], DataProto]:
        table = rows.fetch([*workload.SEQUENCE, "rollout_log_probs"], timeout_s=TIMEOUT_S)
        return {"gap_sum": 0.0, "gap_max": 0.0, "gap_count": 1.0}, _column("old_log_probs", table)

    def ref_log_probs(self, rows: RemoteRows) -> tuple[None, DataProto]:
        return None, _column("ref_log_probs", rows.fetch(workload.SEQUENCE, timeout_s=TIMEOUT_S))

    def values(self, rows: RemoteRows) -> tuple[None, DataProto]:
        return None, _column("values", rows.fetch(workload.SEQUENCE, timeout_s=TIMEOUT_S))

    def update(
        self, rows: RemoteRows, share: object, terms: UpdateTerms | None = None
    ) -> tuple[dict[str, float], None]:
        rows.fetch(
            [*workload.SEQUENCE, *(terms.columns if terms is not None else ("values", "returns"))], timeout_s=TIMEOUT_S
        )
        return {"actor/loss" if terms is not None else "critic/value_loss": 0.0}, None


class IdleSender:
    """The trainer's side of the meeting with separate engines, which do not come."""

    def address(self) -> tuple[str, int]:
        return "nowhere", 0

    def join(self, meeting: object) -> None:
        pass


class IdleAdvantages:
    """Reads the columns of GAE with a KL penalty, a few groups at a time, and returns columns of the right size."""

    def advantages(self, rows: RemoteRows, earned: RowRewards, *, kl_coef: float) -> tuple[AdvantageReport, DataProto]:
        lengths = []
        for first in range(0, len(rows), 256):
            part = rows.select(np.arange(first, min(first + 256, len(rows))))
            table = part.fetch(["response_mask", "old_log_probs", "ref_log_probs", "values"], timeout_s=TIMEOUT_S)
            lengths.append(table.ragged("response_mask").lengths)
        of_rows = np.concatenate(lengths)
        total = int(of_rows.sum())
        columns = {
            name: Ragged.from_lengths(workload.token_column(name, total), of_rows) for name in ("advantages", "returns")
        }
        zeros = np.zeros(len(rows), np.float32)
        report = AdvantageReport(
            metrics={},
            has_advantage=np.ones(len(rows), bool),
            advantage_mean=zeros,
            advantage_min=zeros,
            advantage_max=zeros,
        )
        return report, DataProto({**columns})


class _IdleScorer:
    def score(self, block: DataProto) -> Reply:
        rows = len(block)
        return Reply(Scores.of_model([0.0] * rows, [""] * rows, [{}] * rows), block.nbytes)


class IdleFunctions:
    """Has the interface of RewardPool: sends blocks to scorer processes as they appear; every score is zero."""

    def __init__(self, num_workers: int) -> None:
        start = ray.remote(num_cpus=0)(_IdleScorer)
        self._scorers = [start.remote() for _ in range(num_workers)]

    def open(self, *, num_samples: int = 0) -> IdleScoring:
        return IdleScoring(self._scorers)


class IdleScoring:
    """Has the interface of PoolScoring."""

    def __init__(self, scorers: list[Any]) -> None:
        self._scorers = scorers
        self._answers: dict[ray.ObjectRef, str] = {}

    def begin(self, facts: Facts, block: BlockRef) -> None:
        self._answers[self._scorers[len(self._answers) % len(self._scorers)].score.remote(block)] = "scorer"

    def scores(self) -> Scores:
        return Scores.concat(wait(self._answers, stage="reward", timeout_s=TIMEOUT_S))


class IdlePrompts:
    """Loads the same prompts in each step; a step is an epoch."""

    batches_per_epoch = 1

    def __init__(self, num_prompts: int) -> None:
        self.num_drawn = 0
        self.prompts = [
            Prompt(
                prompt_ids=np.zeros(workload.PROMPT_LENGTH, np.int32),
                uid=f"rows:{i}",
                text="",
                data_source="idle",
                ground_truth="0",
                extra_info={},
                messages="",
                columns={},
            )
            for i in range(num_prompts)
        ]

    def next_batch(self) -> list[Prompt]:
        self.num_drawn += len(self.prompts)
        return self.prompts

    def feedback(self, uids: Iterable[str], scores: Iterable[float]) -> None:
        """Ignore scores: the order of prompts does not depend on them."""

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}


def step_config(rows: int) -> Config:
    """Configure PPO with every column: a critic, a reference in reward and loss, and two mini-batches."""
    config = Config()
    prompts = rows // workload.SAMPLES_PER_PROMPT
    config.data.train_batch_size, config.rollout.n = prompts, workload.SAMPLES_PER_PROMPT
    config.algorithm.adv_estimator, config.algorithm.kl_coef, config.actor.kl_loss_coef = "gae", 0.01, 0.01
    config.actor.mini_batch_size = config.critic.mini_batch_size = prompts // 2
    config.trainer.num_samples_to_save = config.trainer.num_capsules = 0
    config.trainer.stage_timeout_s = TIMEOUT_S
    return config


def idle_stack(
    config: Config,
    *,
    workers: WorkerGroup,
    advantages: WorkerGroup,
    num_scorers: int,
    num_nodes: int = 1,
    rollout: EnginePool | None = None,
) -> Stack:
    """Return the parts of a trainer over idle workers.

    Args:
        rollout: separate engines; by default the workers generate.
    """
    devices = Devices("cpu", num_nodes, workers.world_size // num_nodes)
    node_of_rank = [node for node, ranks in enumerate(devices.nodes) for _ in ranks]
    engines = rollout or RolloutGroup(workers, config.rollout, node_of_rank=node_of_rank)
    return Stack(
        devices=devices,
        separate={},
        actor=ActorGroup(workers),
        rollout=engines,
        critic=CriticGroup(workers),
        ref=RefGroup(workers),
        advantages=AdvantageGroup(advantages),
        rewards=Rewards(IdleFunctions(num_scorers), [], config.reward),  # type: ignore[arg-type]
        processes=(workers, advantages, *([rollout] if rollout is not None else [])),
    )


def idle_trainer(kind: type[AnyTrainer], config: Config, folder: Path, stack: Stack) -> AnyTrainer:
    """Return the real trainer over idle workers; call its ``step``."""
    config.trainer.output_dir = str(folder)
    loader: Any = IdlePrompts(config.data.train_batch_size)
    trackers: Any = None  # steps are not logged
    run = RunFolder(config)
    run.path.mkdir(parents=True, exist_ok=True)
    return kind(parts_of(config, stack, run, loader=loader, trackers=trackers))
