"""The section ``ref``."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import micro_batch_tokens, non_negative, option, ranks_per_sequence
from verl_like.config.schema.fsdp import FsdpConfig
from verl_like.config.section import Section


@dataclass(kw_only=True)
class RefConfig(Section):
    path: str = option("", "Reference model; empty means model.path.")
    reset_every: int = non_negative(
        0, "Steps after which the reference takes the actor's weights (ProRL); 0 keeps the initial ones.", unit="steps"
    )
    max_tokens_per_micro_batch: str = micro_batch_tokens("forward")
    sequence_parallel_size: int = ranks_per_sequence()
    fsdp: FsdpConfig = option(FsdpConfig, "Sharding of the reference.")
