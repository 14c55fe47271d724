"""The generator: runs episodes on an engine and streams finished groups of responses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.distributed.distributed_c10d import Store

from verl_like.backends.base import EngineUsage, RolloutEngine, Sampling, StaleWeightsError
from verl_like.backends.rollout import rollout_engine
from verl_like.context import current
from verl_like.controller.blocks import MAX_STREAM_BLOCKS
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import Facts, RemoteRows
from verl_like.protocol import EPISODE_ROW, Column, DataProto, Ragged
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger
from verl_like.workers.engine_ranks import EngineRanks, Queue
from verl_like.workers.episodes import Episodes, EpisodesFactory, FinishedSample, Response, single_turns
from verl_like.workers.samples import PromptSamples
from verl_like.workers.setup import WorkerSetup

PROMPT_COLUMNS = ("prompt_ids", "group_id", "uid", "reward_inputs", "prompt_text")
ROLLOUT_COLUMNS = frozenset(
    {"prompt_ids", "response_ids", "response_mask", "rollout_log_probs", "reward_inputs", "prompt_text"}
)
TURN_COLUMNS = frozenset({EPISODE_ROW, "turn_index", "turn_tokens", "turn_rewards", "state_keys"})  # of episodes
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


@dataclass
class _Group:
    """The samples of one prompt, collected as they finish."""

    samples: dict[int, FinishedSample] = field(default_factory=dict)

    def in_order(self) -> list[FinishedSample]:
        return [self.samples[number] for number in sorted(self.samples)]

    def num_bytes(self, prompt_tokens: int) -> int:
        """Return the bytes of the token columns: ids, mask and log-probs of responses, and the ids of the prompt."""
        responses = [response for each in self.samples.values() for response in each.responses]
        return sum(9 * len(response.token_ids) + 4 * prompt_tokens for response in responses)


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
        engine: may be asleep; a sync of its weights wakes it.
        store: store of the process group of the generator's ranks.
        episodes: creates the runner of one call's episodes; by default each sample is one request.
    """

    def __init__(
        self, setup: WorkerSetup, engine: RolloutEngine, store: Store, episodes: EpisodesFactory = single_turns
    ) -> None:
        self._setup, self._engine, self._episodes = setup, engine, episodes
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
        samples = PromptSamples(
            prompts=prompts,
            n=n,
            sampling=sampling,
            seed=self._setup.config.trainer.seed,
            step=step,
            first_sample=first_sample,
        )
        episodes = self._episodes(self._engine, self._ranks, samples)
        self._engine.usage = EngineUsage()
        try:
            episodes.begin(range(len(rows)))
            while not self._ranks.are_interrupted():
                episodes.begin(len(rows) + number for number in self._queue.take(self._num_wanted(episodes, n)))
                if not episodes.has_unfinished():
                    break
                current(Heartbeat).tick()
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
                f"the rollout needs weight version {version}{within}, but the engine holds {held}. Sync first."
            )

    def _num_wanted(self, episodes: Episodes, n: int) -> int:
        """Return the number of groups for which this engine has capacity; at least one if it is idle."""
        return episodes.num_free_slots() // n or int(not episodes.has_unfinished())

    def _record_usage(self) -> None:
        usage = self._engine.usage
        current(Ledger).peak("rollout/running_max", usage.running)
        current(Ledger).peak("rollout/waiting_max", usage.waiting)
        current(Ledger).count("rollout/preemptions", usage.preemptions)
        current(Ledger).count("rollout/cached_prompt_tokens", usage.cached_prompt_tokens)

    def _block(self, prompts: DataProto, samples: list[FinishedSample]) -> Iterator[Facts | DataProto]:
        """Yield the facts of these samples, then the block with their columns."""
        of_row = [sample for sample in samples for _ in sample.responses]
        found = [response for sample in samples for response in sample.responses]
        source = prompts.select_idxs([sample.row for sample in of_row])
        responses = Ragged.from_rows([response.token_ids for response in found], "int32")
        prompt_ids = source.ragged("prompt_ids")
        if any(response.prompt_ids is not None for response in found):
            own = [response.prompt_ids for response in found]
            prompt_ids = Ragged.from_rows([prompt_ids[i] if ids is None else ids for i, ids in enumerate(own)], "int32")
        yield {
            "group_id": np.asarray(source["group_id"]),
            "sample": np.array([sample.number for sample in of_row], np.int32),
            "uid": np.array(source["uid"]),
            "prompt_tokens": prompt_ids.lengths,
            "response_tokens": responses.lengths,
            "finish_reason": np.array([response.finish_reason for response in found]),
            "log_prob_sum": np.array([_log_prob_sum(response) for response in found], np.float32),
            "weight_version": np.array([sample.version for sample in of_row], np.int64),
            "writer": np.full(len(of_row), self._setup.rank),
            **{name: np.array([sample.facts[name] for sample in of_row]) for name in of_row[0].facts},
            **_episode_counts(samples),
        }
        yield DataProto(
            {
                "prompt_ids": prompt_ids,
                "response_ids": responses,
                "response_mask": Ragged.from_rows([response.is_sampled for response in found], "bool"),
                "rollout_log_probs": Ragged.from_rows([response.log_probs for response in found], "float32"),
                "reward_inputs": _with_chats(source["reward_inputs"], found),
                "prompt_text": source["prompt_text"],
                **{name: source[name] for name in sorted(OPTIONAL_COLUMNS & source.columns.keys())},
                **_turn_columns(samples),
            }
        )

    @dispatch(Dispatch.BROADCAST)
    def sleep(self) -> None:
        self._engine.sleep()


def _log_prob_sum(response: Response) -> float:
    """Return the sum over the tokens that are learned from, in nats; 0 for copies of an earlier row's tokens."""
    if response.turns is None:
        return sum(response.log_probs)
    return float(np.asarray(response.log_probs, np.float64)[response.is_sampled].sum())


def _has_turns(samples: Sequence[FinishedSample]) -> bool:
    with_turns = [response.turns is not None for sample in samples for response in sample.responses]
    assert all(with_turns) or not any(with_turns), "either all rows of a block have turns, or none"
    return all(with_turns)


def _episode_counts(samples: Sequence[FinishedSample]) -> Facts:
    """Return the facts by which the rows of an episode count as one sample; none if each sample is one row."""
    if not _has_turns(samples):
        return {}
    return {
        EPISODE_ROW: np.array([row for sample in samples for row in range(len(sample.responses))], np.int32),
        "sampled_tokens": np.array([each.is_sampled.sum() for sample in samples for each in sample.responses]),
    }


def _turn_columns(samples: Sequence[FinishedSample]) -> dict[str, Column]:
    """Return the columns that describe each row's turns, one entry per turn, and ``episode_row``."""
    if not _has_turns(samples):
        return {}
    turns = [each.turns for sample in samples for each in sample.responses if each.turns is not None]
    return {
        EPISODE_ROW: _episode_counts(samples)[EPISODE_ROW],
        "turn_index": Ragged.from_rows([each.index for each in turns], "int32"),
        "turn_tokens": Ragged.from_rows([each.num_tokens for each in turns], "int32"),
        "turn_rewards": Ragged.from_rows([each.rewards for each in turns], "float32"),
        "state_keys": Ragged.from_rows([each.state_keys for each in turns], "int64"),
    }


def _with_chats(inputs: Any, found: Sequence[Response]) -> Any:
    """Return what scorers get of each row; an episode adds its chat, its environment's attributes and traceback."""
    if not any(response.messages or response.traceback for response in found):
        return inputs
    return [
        {
            **row,
            "episode": {
                "prompt": [dict(message) for message in response.messages[: response.num_prompt_messages]],
                "completion": [dict(message) for message in response.messages[response.num_prompt_messages :]],
                "environment": dict(response.environment),
                **({"traceback": response.traceback} if response.traceback else {}),
            },
        }
        for row, response in zip(inputs, found, strict=True)
    ]
