"""Several teachers: frozen models, each of which scores only the rows that name it (MOPD, 2601.02780)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from verl_like.backends.base import PolicyEngine
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import RemoteRows
from verl_like.protocol import DataProto, Ragged
from verl_like.workers.setup import WorkerSetup, sampled_sequence


class TeachersRole:
    """Computes the log-probs of each row by its teacher; every method is collective.

    Models are loaded one after another. With ``ref.fsdp.offload_params`` only one is on the accelerator at a time.

    Args:
        engine_of: builds the engine of a model's path.
    """

    def __init__(self, setup: WorkerSetup, engine_of: Callable[[str], PolicyEngine]) -> None:
        self._setup = setup
        models = setup.config.ref.teacher_models
        self._model_of = np.array([models.index(path) for path in setup.config.ref.teachers.values()])
        self._engines: list[PolicyEngine] = []
        for path in models:
            self._engines.append(engine_of(path))
            self._engines[-1].offload()

    @property
    def teachers(self) -> list[PolicyEngine]:
        """The models from which a policy learns in its updates, one for each of ``ref.teachers``."""
        return [self._engines[model] for model in self._model_of]

    @dispatch(Dispatch.SPLIT)
    def ref_log_probs(
        self, rows: RemoteRows, teachers: NDArray[np.int64], *, used: Sequence[int]
    ) -> tuple[None, DataProto]:
        """Return ``ref_log_probs`` of these rows.

        Args:
            teachers: [n], position of each row's teacher in ``ref.teachers``.
            used: the teachers of all ranks' rows. A rank without rows of one takes part in its passes, because a
                sharded model gathers its weights from all ranks.
        """
        columns = sampled_sequence(self._setup.config, rows)
        table = rows.fetch(columns, timeout_s=self._setup.config.trainer.stage_timeout_s)
        temperature, models = self._setup.config.rollout.temperature, self._model_of[teachers]
        order, found = [], []
        for model in np.unique(self._model_of[list(used)]).tolist():
            own, engine = np.flatnonzero(models == model), self._engines[model]
            engine.onload()
            found.append(engine.forward_log_probs(table.select_idxs(own), temperature=temperature)["log_probs"])
            engine.offload()
            order.append(own)
        column = _in_order(np.concatenate(found), np.concatenate(order), table.ragged("response_ids"))
        return None, DataProto({"ref_log_probs": column})


def _in_order(values: NDArray[np.float32], order: NDArray[np.int64], responses: Ragged) -> Ragged:
    """Return a token column for these responses.

    Args:
        values: [K], of all tokens of the responses in ``order``, concatenated.
        order: [B], each row once.
    """
    return Ragged.from_lengths(values, responses.lengths[order]).take(np.argsort(order))
