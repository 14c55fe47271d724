"""What a Hugging Face model folder says, without loading its weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PretrainedConfig

from verl_like.config.schema import ModelConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFolder:
    """Facts about a causal language model.

    ``weight_shapes``: name -> shape of every tensor of its ``state_dict`` (tied weights under both names).
    ``end_token_ids``: ids that end a response: the tokenizer's and those of the generation config.
    """

    config: PretrainedConfig
    weight_shapes: dict[str, tuple[int, ...]]
    end_token_ids: list[int]
    vocab_size: int


def model_folder(*, model_path: str, tokenizer_path: str, model: ModelConfig) -> ModelFolder:
    """Read the facts; ``model.override_config`` is applied to the config."""
    config = AutoConfig.from_pretrained(model_path, trust_remote_code=model.trust_remote_code, **model.override_config)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config, trust_remote_code=model.trust_remote_code)
    return ModelFolder(
        config=config,
        weight_shapes={name: tuple(tensor.shape) for name, tensor in skeleton.state_dict().items()},
        end_token_ids=_end_token_ids(model_path, tokenizer_path or model_path, config, model.trust_remote_code),
        vocab_size=config.vocab_size,
    )


def _end_token_ids(model_path: str, tokenizer_path: str, config: PretrainedConfig, trust_remote_code: bool) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path, trust_remote_code=trust_remote_code)
    try:
        generation = GenerationConfig.from_pretrained(model_path)
    except OSError:  # the file is optional
        generation = GenerationConfig.from_model_config(config)
    ids = generation.eos_token_id if isinstance(generation.eos_token_id, list) else [generation.eos_token_id]
    return sorted({int(token_id) for token_id in [*ids, tokenizer.eos_token_id] if token_id is not None})
