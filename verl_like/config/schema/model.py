"""The sections ``model`` and ``model.lora``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verl_like.config.schema.fields import non_negative, option, positive
from verl_like.config.section import Section


@dataclass(kw_only=True)
class LoraConfig(Section):
    """Adapters without dropout: rollout and update must compute the same function."""

    rank: int = non_negative(
        0, "Rank of adapters on the model's linear layers; only they are trained. 0 trains all weights."
    )
    alpha: int = positive(16, "Adapter outputs are scaled by alpha / rank.")
    targets: list[str] = option(
        ["all-linear"],
        "Layers with adapters: all-linear (all except the output layer; attention in mixtures of experts), or names "
        "such as q_proj.",
    )


@dataclass(kw_only=True)
class ModelConfig(Section):
    path: str = option("", "Folder, hub name or URL (s3://...) of the Hugging Face model.")
    tokenizer_path: str = option("", "Folder or hub name of the tokenizer; empty means model.path.")
    trust_remote_code: bool = option(False, "Allow the model's own code to run.")
    override_config: dict[str, Any] = option(
        {}, "Fields of the Hugging Face config to replace, e.g. {attention_dropout: 0.0}."
    )
    remove_padding: bool = option(True, "Pack rows into one sequence without padding; faster, with equal results.")
    share_prompts: bool = option(
        True, "Compute a prompt once for all its responses in a packed forward pass; faster, with equal results."
    )
    freeze_vision: bool = option(False, "Whether the weights that read pictures stay unchanged.")
    gradient_checkpointing: str = option(
        "auto",
        "Recompute layer activations in the backward pass: a third more compute for much less memory. A number is that "
        "of the first layers; auto is as few layers as the plan needs on a GPU whose memory is known, else all.",
        check=lambda v: v in ("auto", "true", "false") or v.isdecimal(),
        expected="auto, true, false or a number of layers",
    )
    attention: str = option(
        "auto",
        "Kernel of packed attention; auto takes the best that is installed: on Hopper flash3 (FlashAttention 3), else "
        "flash (2), else PyTorch's.",
        choices=("auto", "flash3", "flash", "varlen", "sdpa"),
    )
    kernels: str = option(
        "auto",
        "Implementation of norms and gated feed-forward layers outside the engine; liger uses Liger's fused kernels "
        "(GPU only), auto where they are installed and layers are not compiled.",
        choices=("auto", "torch", "liger"),
    )
    float32_logits: bool = option(
        False,
        "Keep the logits of actor and reference in float32, their accumulation dtype, if the model computes in "
        "bfloat16; on GPUs they always are.",
    )
    lora: LoraConfig = option(LoraConfig, "Adapters trained instead of the weights of actor and critic.")

    @property
    def tokenizer(self) -> str:
        """Location of the tokenizer: ``tokenizer_path``, or else ``path``."""
        return self.tokenizer_path or self.path
