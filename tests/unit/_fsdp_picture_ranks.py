"""Rows with pictures, and updates on them, on any number of ranks."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from verl_like.protocol import PICTURES, PROMPT_PICTURES, DataProto, Ragged

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


def family_sizes(path: Path) -> Sequence[tuple[int, int]]:
    """Return sizes of pictures for the family of a model's folder."""
    kind = json.loads((path / "config.json").read_text())["architectures"][0]
    return next(each for name, each in PICTURE_FAMILIES.items() if kind.startswith(CLASSES[name])).sizes


def reader_of(path: Path) -> PictureReader:
    return PictureReader(str(path), model=ModelConfig(path=str(path)))


def picture_ids(reader: PictureReader, size: tuple[int, int]) -> list[int]:
    """Return the tokens of a picture of this size."""
    start, end = (word_tokenizer().convert_tokens_to_ids(each) for each in ("<|vision_start|>", "<|vision_end|>"))
    return [start, *[reader.token_id] * reader.count(*size), end]


def pictured_rows(path: Path, *, num_prompts: int = 6, per_prompt: int = 3, seed: int = 0) -> DataProto:
    """Return rows of uneven prompts, among them pairs that differ only by their pictures, one with two pictures and one
    with none, and three responses to each.
    """
    sizes_of_family, reader, numbers = family_sizes(path), reader_of(path), np.random.default_rng(seed)
    words = word_tokenizer()
    text = words.convert_tokens_to_ids("red")
    prompts, features = [], []
    for number in range(num_prompts):
        count = (1, 1, 2, 0)[number % 4]
        sizes = [sizes_of_family[(number + k) // 2 % len(sizes_of_family)] for k in range(count)]
        ids = [text] * (2 - number % 4 // 2)
        for size in sizes:
            ids += picture_ids(reader, size)
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


def episode_rows(path: Path) -> DataProto:
    """Return these rows with pictures between turns: of the three responses to a prompt one has none, one has one, and
    one has two. A column ``features`` is not to be read.
    """
    sizes, reader, numbers = family_sizes(path), reader_of(path), np.random.default_rng(1)
    rows = pictured_rows(path)
    of_prompts: Any = rows["features"]
    responses, masks, features = [], [], []
    for row, (sampled, of_prompt) in enumerate(zip(rows.ragged("response_ids"), of_prompts, strict=True)):
        shown = [sizes[(row + k) % len(sizes)] for k in range(row % 3)]
        ids, mask = list(sampled), [True] * len(sampled)
        for size in shown:
            of_picture = picture_ids(reader, size)
            turn = sampled[: numbers.integers(1, len(sampled) + 1)]
            ids += [*of_picture, *turn]
            mask += [False] * len(of_picture) + [True] * len(turn)
        responses.append(ids)
        masks.append(mask)
        pictures = {PICTURES: [picture(100 * row + k, size) for k, size in enumerate(shown)]} if shown else {}
        features.append({PROMPT_PICTURES: of_prompt[PICTURES], **pictures} if of_prompt[PICTURES] else pictures)
    ragged = Ragged.from_rows(responses, "int32")
    return DataProto(
        {
            "prompt_ids": rows["prompt_ids"],
            "response_ids": ragged,
            "response_mask": Ragged.from_rows(masks, "bool"),
            "advantages": Ragged(numbers.normal(size=len(ragged.values)).astype(np.float32), ragged.offsets),
            "features": [{}] * len(rows),
            "response_features": features,
        }
    )


def updated_on_episodes(path: Path, split: str = "even", **settings: Any) -> dict[str, Any]:
    """Return what :func:`updated` does, of rows with pictures between turns."""
    return updated(path, split, rows=episode_rows(path), **settings)


def updated(path: Path, split: str = "even", *, rows: DataProto | None = None, **settings: Any) -> dict[str, Any]:
    """Return the metrics of two updates, and the weights after them."""
    learner = build_learner(path, **settings)
    own = my_rows(pictured_rows(path) if rows is None else rows, split)
    metrics = [learner.update(own, PolicyLoss()) for _ in range(2)]
    return {"metrics": metrics, "weights": weights_of(learner.engine)}
