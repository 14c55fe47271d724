"""The reference: the policy with which KL terms compare, or from which the actor is distilled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verl_like.backends.base import PolicyEngine
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import RemoteRows
from verl_like.protocol import DataProto, Ragged
from verl_like.workers.response_log_probs import response_log_probs
from verl_like.workers.setup import SEQUENCE, WorkerSetup, sampled_sequence

TEACHER_PROMPTS = "teacher_prompt_ids"


def as_teacher_sees(table: DataProto) -> DataProto:
    """Return rows with the teacher's prompts as ``prompt_ids``."""
    prompt_ids = table.ragged(TEACHER_PROMPTS)
    others = {name: column for name, column in table.columns.items() if name != TEACHER_PROMPTS}
    return DataProto({**others, "prompt_ids": prompt_ids})


class RefRole:
    """Computes log-probs of a model that does not learn; every method is collective.

    A teacher of ``algorithm.distill_teacher`` other than ``ref`` sees its own prompts before the responses.

    Args:
        is_actor: whether the engine is the actor's, whose passes leave out the adapters unless the policy is its own
            teacher.
        policy: the actor's engine in this process, whose weights :meth:`reset` takes.
    """

    def __init__(
        self, setup: WorkerSetup, engine: PolicyEngine, *, is_actor: bool, policy: PolicyEngine | None = None
    ) -> None:
        self._setup, self.engine, self._is_actor, self._policy = setup, engine, is_actor, policy
        self.without_adapters = is_actor and setup.config.algorithm.self_distillation != "self"
        self._unwritten: Callable[[], None] | None = None
        if not is_actor:
            engine.offload()

    @property
    def teachers(self) -> list[PolicyEngine]:
        """The models from which a policy learns in its updates."""
        return [self.engine]

    @dispatch(Dispatch.SPLIT)
    def response_log_probs(self, rows: RemoteRows) -> tuple[NDArray[np.float64], None]:
        """Return the sum of the log-probs of each row's learnt tokens, [n] nats, at temperature 1."""
        table = rows.fetch(SEQUENCE, timeout_s=self._setup.config.trainer.stage_timeout_s)
        return response_log_probs(self.engine, table, without_adapters=self.without_adapters), None

    @dispatch(Dispatch.SPLIT)
    def ref_log_probs(self, rows: RemoteRows) -> tuple[None, DataProto]:
        config = self._setup.config
        is_privileged = bool(config.algorithm.self_distillation)
        columns = sampled_sequence(config, rows)
        if is_privileged:
            columns = tuple(TEACHER_PROMPTS if name == "prompt_ids" else name for name in columns)
        table = rows.fetch(columns, timeout_s=config.trainer.stage_timeout_s)
        self.engine.onload()
        out = self.engine.forward_log_probs(
            as_teacher_sees(table) if is_privileged else table,
            temperature=config.rollout.temperature,
            without_adapters=self.without_adapters,
        )
        self.engine.offload()
        return None, DataProto({"ref_log_probs": Ragged(out["log_probs"], table.ragged("response_ids").offsets)})

    @dispatch(Dispatch.BROADCAST)
    def reset(self, weight: float) -> None:
        """Average the weights with the actor's, which have this weight; 1 takes them."""
        assert self._policy is not None and not self._is_actor, (
            "ref.reset_every and algorithm.distill_teacher=ema are refused for this run (checks/)"
        )
        self._policy.onload()
        self.engine.onload()
        self.engine.copy_weights(self._policy, weight=weight)
        self.engine.offload()
        self._policy.offload()

    @dispatch(Dispatch.BROADCAST)
    def save(self, path: str) -> None:
        self.begin_save(path)
        self.write()

    @dispatch(Dispatch.BROADCAST)
    def begin_save(self, path: str) -> None:
        """Copy what :meth:`save` writes; :meth:`write` writes the copy."""
        self.engine.onload()
        self._unwritten = self.engine.begin_save_weights(Path(path))
        self.engine.offload()

    @dispatch(Dispatch.BROADCAST)
    def write(self) -> None:
        """Write what :meth:`begin_save` has copied, in parallel with other calls."""
        assert self._unwritten is not None, "write was called without begin_save"
        write, self._unwritten = self._unwritten, None
        write()

    @dispatch(Dispatch.BROADCAST)
    def load(self, path: str) -> None:
        self.engine.onload()
        self.engine.load_saved_weights(Path(path))
        self.engine.offload()
