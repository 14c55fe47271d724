"""The sections ``rollout`` and ``rollout.val``: generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import auto_or_number, is_fraction, non_negative, option, positive
from verl_like.config.section import Section


@dataclass(kw_only=True)
class ValSamplingConfig(Section):
    n: int = positive(1, "Responses per validation prompt.")
    temperature: float = non_negative(1.0, "Sampling temperature of validation; 0 is greedy.")
    top_p: float = option(
        1.0, "Top-p of validation sampling.", check=lambda v: 0 < v <= 1, expected="a number above 0, at most 1"
    )
    top_k: int = option(
        -1,
        "Candidates kept in validation; -1 keeps all.",
        check=lambda v: v == -1 or v > 0,
        expected="-1 or a positive number",
    )


@dataclass(kw_only=True)
class RolloutConfig(Section):
    backend: str = option("vllm", "Generation engine; hf is slow and for debugging.", choices=("vllm", "hf"))
    n: int = positive(8, "Responses per prompt.")
    temperature: float = positive(1.0, "Sampling temperature in training; log-probs use the same temperature.")
    top_p: float = option(
        1.0, "Top-p of training sampling.", check=lambda v: 0 < v <= 1, expected="a number above 0, at most 1"
    )
    top_k: int = option(
        -1,
        "Candidates kept in training; -1 keeps all.",
        check=lambda v: v == -1 or v > 0,
        expected="-1 or a positive number",
    )
    keep_sampling_mask: bool = option(
        False,
        "With top_p or top_k, compute the trainer's log-probs and entropy over the tokens that the engine kept at each "
        "position (DeepSeek-V3.2).",
    )
    router_replay: bool = option(
        False,
        "Of a mixture of experts, use in the trainer's passes the experts that the engine chose (R3, 2510.11370).",
    )
    ignore_eos: bool = option(False, "Ignore end tokens and generate to max_response_length (benchmarks).")
    tensor_parallel_size: int = positive(1, "Ranks that share one engine.", unit="ranks")
    dtype: str = option(
        "auto",
        "Dtype of the engine's weights; auto is float32 on CPU and bfloat16 on GPU.",
        choices=("auto", "float32", "bfloat16"),
    )
    gpu_memory_utilization: str = option(
        "auto",
        "Share of each GPU the engine may use (GPU only); auto is what the plan of a training run leaves free, else "
        "0.5.",
        check=lambda v: v == "auto" or is_fraction(v),
        expected="auto, or a number from 0 to 1",
    )
    kv_cache_memory_gib: float = positive(0.25, "Key-value cache of the engine on CPU.", unit="GiB")
    max_num_seqs: str = auto_or_number(
        "Sequences the engine decodes at once; auto is 256, and on GPUs up to 1,024 if its cache holds them.",
        unit="sequences",
    )
    max_num_batched_tokens: int = positive(
        8192, "Tokens per engine step; on CPU at least the longest prompt plus response.", unit="tokens"
    )
    enforce_eager: bool = option(False, "Disable CUDA graphs (always so on CPU).")
    lora: str = option(
        "merged",
        "How model.lora reaches the engine: merged into its weights, or (vllm) as an adapter on the folder's "
        "weights, which avoids rounding merged weights to bfloat16 and makes syncs small.",
        choices=("merged", "adapter"),
    )
    sync_bucket_mib: float = positive(64, "Largest piece in which weights are gathered and synced.", unit="MiB")
    sync_checksum: bool = option(
        False,
        "Compare all ranks' synced weights bit by bit and report sync/checksum; on GPU this copies every weight to "
        "the host.",
    )
    on_sync: str = option(
        "keep",
        "How requests that run at a sync continue, if engines have separate workers: keep retains their keys and "
        "values, recompute computes them from the new weights, wait lets the requests finish first.",
        choices=("keep", "recompute", "wait"),
    )
    max_replacements: int = non_negative(
        3, "Lost engines that are replaced while training continues; engines need separate workers.", unit="engines"
    )
    block_kib: float = non_negative(
        256,
        "Finished groups are sent in blocks of this size or after 0.5 s, at least a sixteenth of a rank's groups at "
        "once.",
        unit="KiB",
    )
    dealing: str = option(
        "auto",
        "queue gives engines prompts when they have capacity, longest responses first; ahead assigns them in "
        "advance, so that a run repeats bit for bit. auto is ahead on CPU and with trainer.deterministic.",
        choices=("auto", "queue", "ahead"),
    )
    engine_kwargs: dict[str, Any] = option({}, "Extra arguments of the engine's constructor.")
    val: ValSamplingConfig = option(ValSamplingConfig, "Sampling of validation.")

    @property
    def cuts_candidates(self) -> bool:
        """Whether training samples are drawn under top-p or top-k."""
        return self.top_p < 1 or self.top_k > 0

    @property
    def num_seqs(self) -> int:
        """``max_num_seqs`` as a number, which without a plan's choice is 256."""
        return 256 if self.max_num_seqs == "auto" else int(self.max_num_seqs)

    @property
    def memory_share(self) -> float:
        """``gpu_memory_utilization`` as a number, which without a plan's choice is 0.5."""
        return 0.5 if self.gpu_memory_utilization == "auto" else float(self.gpu_memory_utilization)
