"""The section ``ref``."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import micro_batch_tokens, option, ranks_per_sequence
from verl_like.config.schema.fsdp import FsdpConfig
from verl_like.config.section import Section


@dataclass(kw_only=True)
class RefConfig(Section):
    path: str = option("", "Reference model; empty means model.path.")
    max_tokens_per_micro_batch: str = micro_batch_tokens("forward")
    sequence_parallel_size: int = ranks_per_sequence()
    fsdp: FsdpConfig = option(FsdpConfig, "Sharding of the reference.")
