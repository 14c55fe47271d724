"""Sizes of pictures that a plan assumes, and what a model gets of them on the meta device."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

PROCESSOR_FILE = "preprocessor_config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureSizes:
    """Sizes of the pictures that a model reads.

    Args:
        fixed_tokens: tokens of each picture, if all have one size; else 0.
        pixels_per_token: otherwise.
        most_pixels: to which the model's processor reduces larger pictures; None if that is not known.
    """

    fixed_tokens: int = 0
    pixels_per_token: int = 1
    most_pixels: int | None = None

    def most_tokens(self, *, max_tokens: int, max_pixels: int) -> int:
        """Return the tokens of the largest picture that a prompt may have; 0 if none fits.

        Args:
            max_tokens: of a prompt.
            max_pixels: ``data.max_image_pixels``.
        """
        if self.fixed_tokens:
            return self.fixed_tokens if self.fixed_tokens <= max_tokens else 0
        pixels = min(max_pixels, self.most_pixels or max_pixels)
        return min(pixels // self.pixels_per_token, max_tokens)


def picture_sizes(config: Any, path: str) -> PictureSizes:
    """Return those of a model of pictures.

    Args:
        path: its folder, from which the limit of its processor is read, or its hub name.
    """
    vision = config.vision_config
    if not hasattr(vision, "spatial_merge_size"):
        return PictureSizes(fixed_tokens=int(vision.image_size // vision.patch_size) ** 2)
    side = vision.patch_size * vision.spatial_merge_size
    return PictureSizes(pixels_per_token=int(side**2), most_pixels=_most_pixels(Path(path)))


def _most_pixels(folder: Path) -> int | None:
    """Return the pixels to which the processor in a folder reduces larger pictures; None if that is not known."""
    if not (folder / PROCESSOR_FILE).is_file():
        return None
    known = json.loads((folder / PROCESSOR_FILE).read_text())
    found: int | None = (known.get("size") or {}).get("longest_edge") or known.get("max_pixels")
    return found


def picture_inputs(config: Any, count: int, tokens: int) -> tuple[dict[str, Tensor], int]:
    """Return the arguments for ``count`` pictures of about this many tokens each, and the tokens that each takes.

    Pictures of several sizes are one above the other, because their patches take the same bytes in one attention as in
    several. Lengths have values; pixels do not.
    """
    import torch

    vision = config.vision_config
    if not hasattr(vision, "spatial_merge_size"):
        shape = (count, vision.num_channels, vision.image_size, vision.image_size)
        found = int(vision.image_size // vision.patch_size) ** 2
        return {"pixel_values": torch.empty(shape, device="meta")}, found
    merged = vision.spatial_merge_size
    height = isqrt(tokens)
    width = tokens // height
    channels = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    grid = torch.tensor([[1, count * height * merged, width * merged]])
    pixels = torch.empty(int(grid.prod()), channels, device="meta")
    return {"pixel_values": pixels, "image_grid_thw": grid}, height * width


def without_windows(model: Any, inputs: dict[str, Tensor]) -> None:
    """Make attention within windows of a picture one over the whole picture, of which there are fewer calls.

    Each patch keeps as many bytes in both.
    """
    if "image_grid_thw" not in inputs:
        return
    for part in model.modules():
        if "window_size" in vars(part):
            part.window_size = int(inputs["image_grid_thw"].max()) * part.patch_size
