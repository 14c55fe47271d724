"""Sharding options, a section of each model that workers hold."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import non_negative, option
from verl_like.config.section import Section


@dataclass(kw_only=True)
class FsdpConfig(Section):
    param_dtype: str = option(
        "auto",
        "Dtype of parameters in forward and backward; auto is float32 on CPU and bfloat16 on GPU "
        "(master weights are float32).",
        choices=("auto", "float32", "bfloat16"),
    )
    shard_size: str = option(
        "auto",
        "Ranks that a model is sharded over: all, a smaller number with one copy per group (HSDP), or 1, a replica "
        "on each rank; auto is 1 for small models on CPU, else all.",
        unit="ranks",
        check=lambda v: v in ("auto", "all") or (str(v).isdecimal() and int(v) > 0),
        expected="auto, all, or a number above 0",
    )
    num_kept_layers: str = option(
        "0",
        "Last decoder layers whose gathered parameters are kept from forward to backward: more memory, one gather "
        "less per layer; all keeps every layer.",
        unit="layers",
        check=lambda v: v == "all" or str(v).isdecimal(),
        expected="all, or a number of at least 0",
    )
    num_prefetched_layers: int = non_negative(
        0,
        "Decoder layers whose parameters are gathered in advance, forward and backward: more memory, hides slow "
        "links; 0 leaves it to FSDP2, about one layer.",
        unit="layers",
    )
    offload_params: bool = option(False, "Keep parameters in host memory between stages (GPU only).")
    cpu_offload: bool = option(
        False,
        "Keep parameters, gradients and optimiser state in host memory within stages too: each layer's parameters "
        "move to the GPU for its passes; the optimiser runs on CPU (GPU only).",
    )
    expert_parallel: bool = option(
        False,
        "Keep each expert whole on one rank of its shard group, and send tokens to the ranks of their experts, instead "
        "of gathering all experts of a layer on every rank (mixtures of experts).",
    )
