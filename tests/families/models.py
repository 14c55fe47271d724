"""Small models of all families, with random weights and the recipe's tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OlmoeConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from recipes.arithmetic.model import character_tokenizer

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "initializer_range": 0.2,  # a smaller range makes all tokens almost equally likely, which hides errors
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """
    Args:
        config: makes the small model's config from the arguments that all families share.
        models: hub names of the family's models.
        peculiar: how its architecture differs from the others.
        overrides: options that it needs.
    """

    config: Callable[..., PreTrainedConfig]
    models: str
    peculiar: str
    overrides: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write config, random weights and tokenizer into a folder."""
        tokenizer = character_tokenizer()
        config = self.config(
            **SHAPE,
            vocab_size=len(tokenizer),
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            dtype="float32",
        )
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _made(config: type[PreTrainedConfig], **own: Any) -> Callable[..., PreTrainedConfig]:
    return lambda **shape: config(**{**shape, **own})


FAMILIES: dict[str, Family] = {
    "Qwen2.5": Family(
        config=_made(Qwen2Config, tie_word_embeddings=True),
        models="Qwen/Qwen2.5-0.5B to 72B, and Qwen2.5-Math",
        peculiar="biases in the query, key and value projections",
    ),
    "Qwen3": Family(
        config=_made(Qwen3Config, head_dim=32, tie_word_embeddings=True),
        models="Qwen/Qwen3-0.6B to 32B",
        peculiar="normalised queries and keys",
    ),
    "Qwen3-MoE": Family(
        config=_made(Qwen3MoeConfig, head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64),
        models="Qwen/Qwen3-30B-A3B, Qwen3-235B-A22B",
        peculiar="mixture of experts",
    ),
    "Mixtral": Family(
        config=_made(MixtralConfig, head_dim=32, num_local_experts=4, num_experts_per_tok=2),
        models="mistralai/Mixtral-8x7B, Mixtral-8x22B",
        peculiar="mixture of experts",
    ),
    "DeepSeek-V3": Family(
        config=_made(
            DeepseekV3Config,
            num_key_value_heads=2,
            n_routed_experts=8,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            moe_intermediate_size=64,
            kv_lora_rank=16,
            q_lora_rank=None,
            qk_rope_head_dim=16,
            qk_nope_head_dim=16,
            v_head_dim=32,
            first_k_dense_replace=1,
            topk_method="noaux_tc",  # in the config.json of published models
            scoring_func="sigmoid",
            n_shared_experts=1,
        ),
        models="deepseek-ai/DeepSeek-V3, moonshotai/Moonlight-16B-A3B",
        peculiar="mixture of experts with shared ones and groups; latent attention; on CPU with rollout=hf",
        overrides=("rollout=hf",),  # vLLM on CPU differs from transformers by 0.6 nats, from its own loading (0.32)
    ),
    "OLMoE": Family(
        config=_made(OlmoeConfig, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2),
        models="allenai/OLMoE-1B-7B",
        peculiar="mixture of experts whose weights do not sum to 1",
    ),
    "Llama 3": Family(
        config=_made(LlamaConfig, rope_parameters=LLAMA3_ROPE),
        models="meta-llama/Llama-3.1-8B to 70B, Llama-3.2-1B and 3B",
        peculiar="scaled rotary embeddings",
    ),
    "Mistral": Family(
        config=_made(MistralConfig, sliding_window=4, head_dim=32),
        models="mistralai/Mistral-7B, Ministral-8B",
        peculiar="sliding-window attention",
    ),
    "Gemma 2": Family(
        config=_made(Gemma2Config, head_dim=32, query_pre_attn_scalar=32, sliding_window=4),
        models="google/gemma-2-2b to 27b",
        peculiar="soft-capped attention scores and logits; sliding windows in every other layer",
        overrides=("model.remove_padding=false",),
    ),
    "Gemma 3": Family(
        config=_made(Gemma3TextConfig, head_dim=32, query_pre_attn_scalar=32, sliding_window=4),
        models="google/gemma-3-1b (text)",
        peculiar="sliding windows in five of six layers, two rotary embeddings, normalised queries and keys",
    ),
    "Phi 3": Family(
        config=_made(Phi3Config),
        models="microsoft/Phi-3-mini to medium, Phi-3.5-mini",
        peculiar="a fused projection for queries, keys and values",
    ),
    "Phi 4": Family(
        config=_made(Phi3Config, partial_rotary_factor=0.75, tie_word_embeddings=True),
        models="microsoft/phi-4, Phi-4-mini",
        peculiar="as Phi 3, with partial rotary embeddings",
    ),
}
