"""The sections ``model`` and ``model.lora``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import non_negative, option, positive
from verl_like.config.section import Section


@dataclass(kw_only=True)
class LoraConfig(Section):
    """Adapters without dropout, like everything here: rollout and update are the same function."""

    rank: int = non_negative(
        0, "Rank of adapters beside the model's linear layers, which then alone learn; 0 has all weights learn."
    )
    alpha: int = positive(16, "What an adapter adds is scaled by alpha / rank.")
    targets: list[str] = option(
        ["all-linear"], "Layers that have adapters: all-linear (all but the output layer), or names such as q_proj."
    )


@dataclass(kw_only=True)
class ModelConfig(Section):
    path: str = option("", "Folder, hub name or URL (s3://...) of the Hugging Face model.")
    tokenizer_path: str = option("", "Folder or hub name of the tokenizer; empty means model.path.")
    trust_remote_code: bool = option(False, "Allow code that comes with the model to run.")
    override_config: dict[str, Any] = option(
        {}, "Fields of the Hugging Face config to replace, e.g. {attention_dropout: 0.0}."
    )
    remove_padding: bool = option(True, "Pack rows to one sequence without padding; results do not change, speed does.")
    share_prompts: bool = option(
        True,
        "Compute a prompt once for all packed responses to it in a forward pass; results do not change, speed does.",
    )
    gradient_checkpointing: str = option(
        "auto",
        "Recompute layer activations in the backward pass: a third more compute for a small part of the memory; auto "
        "does so on GPUs.",
        choices=("auto", "true", "false"),
    )
    attention: str = option(
        "auto",
        "Kernel of packed attention; auto takes the best that is installed: on Hopper flash3 (FlashAttention 3), else "
        "flash (2), else PyTorch's.",
        choices=("auto", "flash3", "flash", "varlen", "sdpa"),
    )
    kernels: str = option(
        "torch",
        "Who computes norms and gated feed-forward parts of models that run forward here: liger takes Liger's fused "
        "kernels (GPU only).",
        choices=("torch", "liger"),
    )
    float32_logits: bool = option(
        False,
        "Leave the logits of actor and reference in the float32 of their sums where the model computes in bfloat16, "
        "instead of rounding them to it.",
    )
    lora: LoraConfig = option(LoraConfig, "Adapters that learn instead of the weights of actor and critic.")

    @property
    def tokenizer(self) -> str:
        """Where the tokenizer lies: ``tokenizer_path``, or beside the model."""
        return self.tokenizer_path or self.path
