"""Small models of the families that read pictures, with random weights and the tokenizer of the colours recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CLIPImageProcessorPil,
    LlavaConfig,
    LlavaProcessor,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
)

from recipes.colours.model import small_qwen25_vl, word_tokenizer
from verl_like.backends.pictures import generator_class

PATCH, MERGED = 16, 2


@dataclass(frozen=True, kw_only=True)
class PictureFamily:
    """
    Args:
        config: returns the small model's config.
        models: hub names of the family's models.
        peculiar: how its architecture differs from the others.
        processor: returns the processor of its pictures, or of pictures and text.
        patch: side of a patch, in pixels.
        sizes: heights and widths of pictures that its processor does not resize, in pixels.
    """

    config: Callable[[PreTrainedTokenizerFast], PreTrainedConfig]
    processor: Callable[[int, PreTrainedTokenizerFast], Any]
    models: str
    peculiar: str
    patch: int
    sizes: tuple[tuple[int, int], ...]

    def write(self, folder: Path) -> Path:
        """Write config, random weights, tokenizer and processor into a folder."""
        tokenizer = word_tokenizer()
        config = self.config(tokenizer)
        torch.manual_seed(0)
        model = generator_class(config).from_config(config)
        with torch.no_grad():  # wide enough that predictions depend on the pictures
            for name, parameter in model.named_parameters():
                parameter.normal_().mul_(0.15).add_(1.0 if "norm" in name else 0.0)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        self.processor(self.patch, tokenizer).save_pretrained(folder)
        return folder


def _qwen_processor(patch: int, tokenizer: PreTrainedTokenizerFast) -> Any:
    side = patch * MERGED
    size = {"shortest_edge": side**2, "longest_edge": (8 * side) ** 2}
    return Qwen2VLImageProcessorPil(patch_size=patch, merge_size=MERGED, size=size)


def _qwen_sizes(patch: int) -> tuple[tuple[int, int], ...]:
    side = patch * MERGED
    return ((2 * side, 2 * side), (side, 3 * side), (4 * side, 2 * side))


def _llava_processor(patch: int, tokenizer: PreTrainedTokenizerFast) -> Any:
    side = 4 * patch
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side}),
        tokenizer=tokenizer,
        patch_size=patch,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token="<|image_pad|>",
        chat_template=tokenizer.chat_template,
    )


def _llava(tokenizer: PreTrainedTokenizerFast) -> PreTrainedConfig:
    return LlavaConfig(
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "max_position_embeddings": 256,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 56,
            "patch_size": 14,
            "projection_dim": 64,
        },
        image_token_index=tokenizer.get_vocab()["<|image_pad|>"],
        image_seq_length=16,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        dtype="float32",
    )


def _qwen3_vl(tokenizer: PreTrainedTokenizerFast) -> PreTrainedConfig:
    of_token = tokenizer.get_vocab()
    return Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "max_position_embeddings": 256,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
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
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=of_token["<|image_pad|>"],
        video_token_id=of_token["<|video_pad|>"],
        vision_start_token_id=of_token["<|vision_start|>"],
        vision_end_token_id=of_token["<|vision_end|>"],
        dtype="float32",
    )


PICTURE_FAMILIES: dict[str, PictureFamily] = {
    "Qwen2.5-VL": PictureFamily(
        config=lambda tokenizer: small_qwen25_vl(tokenizer, 0).config,
        models="Qwen/Qwen2.5-VL-3B-Instruct to 72B",
        peculiar="rotary positions of time, height and width; attention within windows of a picture",
        patch=14,
        processor=_qwen_processor,
        sizes=_qwen_sizes(14),
    ),
    "Qwen3-VL": PictureFamily(
        config=_qwen3_vl,
        models="Qwen/Qwen3-VL-2B-Instruct to 32B",
        peculiar="interleaved rotary positions; features of a picture added to the first layers",
        patch=PATCH,
        processor=_qwen_processor,
        sizes=_qwen_sizes(PATCH),
    ),
    "LLaVA": PictureFamily(
        config=_llava,
        models="llava-hf/llava-1.5-7b-hf, 13b",
        peculiar="CLIP, of which the last layer but one is read, and a projection",
        patch=14,
        processor=_llava_processor,
        sizes=((56, 56),),
    ),
}
