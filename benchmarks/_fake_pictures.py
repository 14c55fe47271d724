"""Pictures of the real engine on fake tensors, for ``benchmarks/plan_fake.py``: a Qwen2.5-VL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import unset_fake_temporarily
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl

from verl_like.backends.fsdp import policy
from verl_like.ops.packing import ModelInputs
from verl_like.protocol import FEATURES, DataProto, Ragged

SIDE, MERGED, CHANNELS = 16, 2, 1176  # tokens of a picture's side; patches of a token's side; values of a patch
TOKENS = SIDE**2
# Qwen2.5-VL-7B.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
    "image_token_id": 151_655,
    "video_token_id": 151_656,
    "vision_start_token_id": 151_652,
    "vision_end_token_id": 151_653,
    "tie_word_embeddings": False,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {
        "depth": 32,
        "hidden_act": "silu",
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "in_chans": 3,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": MERGED,
        "spatial_patch_size": 14,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "temporal_patch_size": 2,
    },
}


class _Reader:
    """Stands in for a processor; its pixels have no values here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.token_id = CONFIG["image_token_id"]


class _RowPictures:
    """One picture for each prompt."""

    def __init__(self, rows: DataProto, *_: Any) -> None:
        features: Any = rows[FEATURES]
        self.numbers = np.array([each["picture"] for each in features], np.int64)

    def added(
        self, inputs: ModelInputs, rows: NDArray[np.int64], prompts: Ragged, responses: Ragged, at: NDArray[np.int64]
    ) -> ModelInputs:
        count = len(np.unique(self.numbers[rows]))
        grid = np.array([[1, SIDE * MERGED, SIDE * MERGED]] * count)
        pixels = torch.empty(int(grid.prod(1).sum()), CHANNELS, device=inputs.input_ids.device)
        positions = torch.zeros(3, *inputs.input_ids.shape, dtype=torch.int64, device=inputs.input_ids.device)
        pictures: dict[str, Any] = {"pixel_values": pixels, "image_grid_thw": grid}
        return replace(inputs, pictures=pictures, position_ids=positions)


def _with_values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function on arrays: lengths decide what runs."""

    def call(grid: NDArray[np.int64], *arguments: Any, **options: Any) -> Any:
        with unset_fake_temporarily():
            found = function(torch.from_numpy(grid), *arguments, **options)
            # Lengths are int32, and indices int64.
            parts = found if isinstance(found, tuple) else (found,)
            is_length = [isinstance(each, torch.Tensor) and each.dtype == torch.int32 for each in parts]
            parts = tuple(each.numpy() if of else each for each, of in zip(parts, is_length, strict=True))
            return parts if isinstance(found, tuple) else parts[0]

    return call


@contextmanager
def fake_pictures() -> Iterator[None]:
    """Replace what needs values of pictures."""
    model = modeling_qwen2_5_vl
    with ExitStack() as stack:
        for target, name, value in (
            (policy, "PictureReader", _Reader),
            (policy, "RowPictures", _RowPictures),
            (policy, "unused_picture", lambda *_: None),
            (model, "torch_compilable_check", lambda *_: None),
            (model, "get_max_seqlen", lambda *_, **__: None),
            (model, "get_vision_position_ids", _with_values(model.get_vision_position_ids)),
            (model, "get_vision_attention_seqlens", _with_values(model.get_vision_attention_seqlens)),
            (model, "get_vision_window_index", _with_values(model.get_vision_window_index)),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield
