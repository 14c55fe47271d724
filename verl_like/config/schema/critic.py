"""The section ``critic``."""

from __future__ import annotations

from dataclasses import dataclass, field

from verl_like.config.schema.fields import micro_batch_tokens, non_negative, option, positive, ranks_per_sequence
from verl_like.config.schema.fsdp import FsdpConfig
from verl_like.config.schema.optim import OptimConfig
from verl_like.config.section import Section


@dataclass(kw_only=True)
class CriticConfig(Section):
    path: str = option("", "Initial model of the critic; empty means model.path with a fresh value head.")
    mini_batch_size: int = positive(32, "Prompts per optimiser update.", unit="prompts")
    epochs: int = positive(1, "Passes over each batch.")
    max_tokens_per_micro_batch: str = micro_batch_tokens("forward/backward")
    sequence_parallel_size: int = ranks_per_sequence()
    value_clip: float = non_negative(0.2, "Clip range of values around the old ones; 0 turns clipping off.")
    warmup_steps: int = non_negative(0, "Initial steps that update only the critic.", unit="steps")
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(lr=1e-5), metadata={"doc": "Optimiser of the critic."}
    )
    fsdp: FsdpConfig = option(FsdpConfig, "Sharding of the critic.")
