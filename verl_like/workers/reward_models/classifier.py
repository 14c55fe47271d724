"""The reward model: a frozen sequence classifier that scores whole responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from verl_like.backends.base import EngineSettings, ValueEngine
from verl_like.backends.train import train_backend
from verl_like.context import current
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import RemoteRows
from verl_like.controller.store import StoreCounters
from verl_like.protocol import DataProto, Ragged, samples_of
from verl_like.reward.scores import Scores
from verl_like.workers.matmul_record import OF_REWARD_MODEL, agree_on_libraries
from verl_like.workers.reward_models.inputs import COLUMNS, ScoreInputs
from verl_like.workers.setup import WorkerSetup, join_process_group, with_local_models


def build_roles(setup: WorkerSetup) -> dict[str, Any]:
    """Build the single role of a worker that hosts only the reward model."""
    setup = with_local_models(setup)
    join_process_group(setup)
    agree_on_libraries(setup, OF_REWARD_MODEL)
    return {"RewardModelRole": RewardModelRole(setup, reward_model_engine(setup))}


def reward_model_engine(setup: WorkerSetup) -> ValueEngine:
    """Return the classifier, sharded over all ranks; it shares only the run settings of models with the policy.

    Raises:
        ValueError: for a model that is no reward model, or that cannot be run as configured.
    """
    config, reward_model = setup.config, setup.config.reward.model
    settings = EngineSettings(
        model=replace(config.model, path=reward_model.path, tokenizer_path="", override_config={}),
        fsdp=reward_model.fsdp,
        device=torch.device(setup.device),
        max_tokens_per_micro_batch=reward_model.max_tokens_per_micro_batch,
        is_frozen=True,
        balance_by=config.trainer.balance_by,
        seed=config.trainer.seed,
    )
    try:
        return train_backend("fsdp").classifier(settings)
    except ValueError as error:  # its message names model.path
        raise ValueError(f"reward.model.path={reward_model.path} cannot be used: {error}") from error


class RewardModelRole:
    """Scores whole responses with the frozen classifier; every method is collective."""

    def __init__(self, setup: WorkerSetup, engine: ValueEngine) -> None:
        self._engine = engine
        self._timeout_s = setup.config.trainer.stage_timeout_s
        self._inputs = ScoreInputs(setup.config)
        engine.offload()

    @dispatch(Dispatch.SPLIT)
    def scores(self, rows: RemoteRows) -> tuple[Scores, None]:
        """Return scores of this rank's rows, in their order."""
        return self._scores(rows.fetch(COLUMNS, timeout_s=self._timeout_s)), None

    @dispatch(Dispatch.BROADCAST)
    def scores_of_block(self, block: DataProto | None) -> Scores | None:
        """Return scores of a block's samples; a rank without a block only takes part in the collectives."""
        if block is None:
            self._forward([])
            return None
        current(StoreCounters).add_fetched(block.nbytes)
        return self._scores(samples_of(block))

    def _scores(self, table: DataProto) -> Scores:
        sequences, messages = self._inputs.read(table)
        scores = np.full(len(table), np.nan, np.float32)
        scores[[not message for message in messages]] = self._forward([ids for ids in sequences if ids])
        return Scores.of_model(scores.tolist(), messages, [{} for _ in messages])

    def _forward(self, sequences: list[list[int]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the value after each sequence's last token, [B].

        It is the value before a response of one token that is never read.
        """
        rows = DataProto(
            {
                "prompt_ids": Ragged.from_rows(sequences, "int32"),
                "response_ids": Ragged.from_rows([[0]] * len(sequences), "int32"),
            }
        )
        self._engine.onload()
        values = self._engine.forward_values(rows)
        self._engine.offload()
        return values
