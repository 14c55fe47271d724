"""How a model is sharded, a section of each model that workers hold."""

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
        "Ranks that a model is cut over: all, or so many that each such group has a copy (HSDP), or "
        "1, which gives each rank a replica; auto is 1 for small models on CPU, else all.",
        unit="ranks",
        check=lambda v: v in ("auto", "all") or (str(v).isdecimal() and int(v) > 0),
        expected="auto, all, or a number above 0",
    )
    num_kept_layers: str = option(
        "0",
        "Last decoder layers whose gathered parameters stay from forward to backward, which begins with them: memory "
        "for a gather each; all keeps those of every layer.",
        unit="layers",
        check=lambda v: v == "all" or str(v).isdecimal(),
        expected="all, or a number of at least 0",
    )
    num_prefetched_layers: int = non_negative(
        0,
        "Decoder layers whose parameters are gathered ahead of the one that runs, forward and backward: more memory, "
        "for links that cannot keep up; 0 leaves it to FSDP2, which is about one layer ahead.",
        unit="layers",
    )
    offload_params: bool = option(False, "Keep parameters in host memory between stages (GPU only).")
    cpu_offload: bool = option(
        False,
        "Keep parameters, gradients and optimiser state in host memory within stages too: each layer's parameters come "
        "for its passes, and the optimiser's step runs on the CPU (GPU only).",
    )
