"""The generator: runs episodes on an engine and streams finished groups of responses."""

from __future__ import annotations

from collections.abc import Iterator

from torch.distributed.distributed_c10d import Store

from verl_like.backends.base import EngineUsage, RolloutEngine, Sampling, StaleWeightsError
from verl_like.backends.rollout import rollout_engine
from verl_like.context import current
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import Facts, RemoteRows
from verl_like.protocol import DataProto
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger
from verl_like.workers.engine_ranks import EngineRanks, Queue
from verl_like.workers.episodes import Episodes, EpisodesFactory, single_turns
from verl_like.workers.group_blocks import OPTIONAL_COLUMNS, PROMPT_COLUMNS, GroupBlocks
from verl_like.workers.samples import PromptSamples
from verl_like.workers.setup import WorkerSetup


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
        check_version(self._engine, version, max_lag)
        timeout_s = self._setup.config.trainer.stage_timeout_s
        columns = [*PROMPT_COLUMNS, *sorted(OPTIONAL_COLUMNS & rows.columns)]
        prompts = DataProto.concat([part.fetch(columns, timeout_s=timeout_s) for part in (rows, queue)])
        self._queue.open(len(queue))
        of_engine = len(rows) + len(queue) // (self._setup.world_size // self._ranks.size)
        blocks = GroupBlocks(
            prompts, n=n, num_prompts=of_engine, writer=self._setup.rank, block_kib=self._setup.config.rollout.block_kib
        )
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
                    blocks.add(sample)
                if self._ranks.is_first:
                    yield from blocks.due()
            if self._ranks.is_first:
                yield from blocks.rest()
            if self._ranks.is_first and step >= 0:  # negative in validation
                record_usage(self._engine.usage)
        finally:
            episodes.abort()

    def _num_wanted(self, episodes: Episodes, n: int) -> int:
        """Return the number of groups for which this engine has capacity; at least one if it is idle."""
        return episodes.num_free_slots() // n or int(not episodes.has_unfinished())

    @dispatch(Dispatch.BROADCAST)
    def sleep(self) -> None:
        self._engine.sleep()


def check_version(engine: RolloutEngine, version: int, max_lag: int) -> None:
    """Raise StaleWeightsError if the engine's version is newer than ``version``, or older by more than ``max_lag``."""
    held = engine.version
    if held < 0 or not version - max_lag <= held <= version:
        within = f", or at most {max_lag} older" if max_lag else ""
        raise StaleWeightsError(
            f"the rollout needs weight version {version}{within}, but the engine holds {held}. Sync first."
        )


def record_usage(usage: EngineUsage) -> None:
    """Add an engine's usage to the metrics of this process."""
    current(Ledger).peak("rollout/running_max", usage.running)
    current(Ledger).peak("rollout/waiting_max", usage.waiting)
    current(Ledger).count("rollout/preemptions", usage.preemptions)
    current(Ledger).count("rollout/cached_prompt_tokens", usage.cached_prompt_tokens)
