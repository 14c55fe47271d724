"""Optimiser options, a section of each trained model."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import fraction, non_negative, option, positive
from verl_like.config.section import Section


@dataclass(kw_only=True)
class OptimConfig(Section):
    lr: float = positive(1e-6, "Peak learning rate of AdamW.")
    weight_decay: float = non_negative(0.0, "Decoupled weight decay.")
    beta1: float = fraction(0.9, "AdamW's first-moment decay.")
    beta2: float = fraction(0.999, "AdamW's second-moment decay.")
    eps: float = positive(1e-8, "AdamW's denominator term.")
    max_grad_norm: float = positive(1.0, "Global gradient norm above which gradients are scaled down.")
    schedule: str = option(
        "constant", "Learning rate schedule after warm-up.", choices=("constant", "linear", "cosine")
    )
    warmup_steps: int = non_negative(0, "Optimiser updates over which the rate rises linearly from 0.", unit="updates")
    warmup_frac: float = fraction(0.0, "The same as a fraction of all updates; if warmup_steps is 0.")
    min_lr_ratio: float = fraction(0.0, "End of linear and cosine, as a fraction of lr.")
    offload: bool = option(False, "Keep optimiser state in host memory between optimiser steps (GPU only).")
