"""The colours model: a tokenizer of words, a processor of pictures and a small randomly initialised Qwen2.5-VL.

They are saved as a Hugging Face folder that transformers and vLLM load.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from verl_like.imports import importing

with importing():
    from transformers import (
        PreTrainedTokenizerFast,
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2VLImageProcessorPil,
    )

COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
SPECIAL_TOKENS = ("<pad>", "<eos>", "<unk>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
WORDS = ("Which", "colour", "is", "this", "?", ":")
TEMPLATE = """{%- for message in messages -%}
{%- if message.content is string -%}{{ message.content }}{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}{%- endif -%}
{%- endfor -%}{%- if add_generation_prompt -%}:{%- endif -%}"""
PATCH, MERGED = 14, 2


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per word."""
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *WORDS, *COLOURS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=list(SPECIAL_TOKENS[3:]),
        chat_template=TEMPLATE,
    )


def small_qwen25_vl(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2_5_VLForConditionalGeneration:
    """Return a model of 0.4M float32 parameters, initialised from ``seed``; the global random state is unchanged."""
    of_token = tokenizer.get_vocab()
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": PATCH,
            "spatial_merge_size": MERGED,
            "temporal_patch_size": 2,
            "window_size": 4 * PATCH,
            "fullatt_block_indexes": [1],
        },
        image_token_id=of_token["<|image_pad|>"],
        video_token_id=of_token["<|video_pad|>"],
        vision_start_token_id=of_token["<|vision_start|>"],
        vision_end_token_id=of_token["<|vision_end|>"],
        tie_word_embeddings=True,
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen2_5_VLForConditionalGeneration(config)


def write_model(out: Path, seed: int) -> int:
    """Write the model, its tokenizer and its processor to ``out``; return the number of parameters."""
    tokenizer = word_tokenizer()
    model = small_qwen25_vl(tokenizer, seed)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    size = {"shortest_edge": (PATCH * MERGED) ** 2, "longest_edge": (16 * PATCH * MERGED) ** 2}
    Qwen2VLImageProcessorPil(patch_size=PATCH, merge_size=MERGED, size=size).save_pretrained(out)
    return sum(parameter.numel() for parameter in model.parameters())
