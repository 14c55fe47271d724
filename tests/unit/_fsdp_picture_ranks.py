"""Rows with pictures, and updates on them, on any number of ranks."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from recipes.colours.model import word_tokenizer
from tests.families.pictures import PICTURE_FAMILIES
from tests.unit._fsdp_ranks import PolicyLoss, build_learner, my_rows, weights_of
from verl_like.backends.pictures import PictureReader
from verl_like.config.schema import FsdpConfig, ModelConfig
from verl_like.protocol import PICTURES, DataProto, Ragged

SETTINGS: dict[str, dict[str, Any]] = {
    "sharded": {"max_tokens": 60},
    "replicas": {"max_tokens": 60, "fsdp": FsdpConfig(shard_size="1")},
    "recomputed": {"max_tokens": 60, "model": {"gradient_checkpointing": "true"}},
}
CLASSES = {"Qwen2.5-VL": "Qwen2_5_VL", "Qwen3-VL": "Qwen3VL", "LLaVA": "Llava"}


def picture(seed: int, size: tuple[int, int]) -> bytes:
    """Return a PNG of noise."""
    values = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    content = BytesIO()
    Image.fromarray(values).save(content, "PNG")
    return content.getvalue()


def pictured_rows(path: Path, *, num_prompts: int = 6, per_prompt: int = 3, seed: int = 0) -> DataProto:
    """Return rows of uneven prompts, among them pairs that differ only by their pictures, one with two pictures and one
    with none, and three responses to each.
    """
    kind = json.loads((path / "config.json").read_text())["architectures"][0]
    family = next(each for name, each in PICTURE_FAMILIES.items() if kind.startswith(CLASSES[name]))
    reader, numbers = PictureReader(str(path), model=ModelConfig(path=str(path))), np.random.default_rng(seed)
    words = word_tokenizer()
    start, end, text = (words.convert_tokens_to_ids(each) for each in ("<|vision_start|>", "<|vision_end|>", "red"))
    prompts, features = [], []
    for number in range(num_prompts):
        count = (1, 1, 2, 0)[number % 4]
        sizes = [family.sizes[(number + k) // 2 % len(family.sizes)] for k in range(count)]
        ids = [text] * (2 - number % 4 // 2)
        for size in sizes:
            ids += [start, *[reader.token_id] * reader.count(*size), end]
        prompts += [[*ids, text]] * per_prompt
        features += [{PICTURES: [picture(10 * number + k, size) for k, size in enumerate(sizes)]}] * per_prompt
    lengths = numbers.integers(1, 9, len(prompts))
    drawn = [numbers.integers(words.convert_tokens_to_ids("Which"), len(words), length) for length in lengths]
    responses = Ragged.from_rows(drawn, "int32")
    size = len(responses.values)
    return DataProto(
        {
            "prompt_ids": Ragged.from_rows(prompts, "int32"),
            "response_ids": responses,
            "response_mask": Ragged(numbers.random(size) < 0.8, responses.offsets),
            "advantages": Ragged(numbers.normal(size=size).astype(np.float32), responses.offsets),
            "features": features,
        }
    )


def updated(path: Path, split: str = "even", **settings: Any) -> dict[str, Any]:
    """Return the metrics of two updates, and the weights after them."""
    learner = build_learner(path, **settings)
    rows = my_rows(pictured_rows(path), split)
    metrics = [learner.update(rows, PolicyLoss()) for _ in range(2)]
    return {"metrics": metrics, "weights": weights_of(learner.engine)}
