"""The reference: the frozen policy with which KL terms compare."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_like.backends.base import PolicyEngine
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import RemoteRows
from verl_like.protocol import DataProto, Ragged
from verl_like.workers.response_log_probs import response_log_probs
from verl_like.workers.setup import SEQUENCE, WorkerSetup


class RefRole:
    """Computes log-probs of the frozen model; every method is collective.

    Args:
        is_actor: whether the engine is the actor's, whose passes then leave out the adapters.
    """

    def __init__(self, setup: WorkerSetup, engine: PolicyEngine, *, is_actor: bool) -> None:
        self._setup, self._engine, self._is_actor = setup, engine, is_actor
        if not is_actor:
            engine.offload()

    @dispatch(Dispatch.SPLIT)
    def response_log_probs(self, rows: RemoteRows) -> tuple[NDArray[np.float64], None]:
        """Return the sum of the log-probs of each row's learnt tokens, [n] nats, at temperature 1."""
        table = rows.fetch(SEQUENCE, timeout_s=self._setup.config.trainer.stage_timeout_s)
        return response_log_probs(self._engine, table, without_adapters=self._is_actor), None

    @dispatch(Dispatch.SPLIT)
    def ref_log_probs(self, rows: RemoteRows) -> tuple[None, DataProto]:
        table = rows.fetch(SEQUENCE, timeout_s=self._setup.config.trainer.stage_timeout_s)
        self._engine.onload()
        out = self._engine.forward_log_probs(
            table, temperature=self._setup.config.rollout.temperature, without_adapters=self._is_actor
        )
        self._engine.offload()
        return None, DataProto({"ref_log_probs": Ragged(out["log_probs"], table.ragged("response_ids").offsets)})
