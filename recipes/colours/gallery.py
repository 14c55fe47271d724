"""Pictures of a rectangle of one of six colours, and an environment that shows a second one after the first turn."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

SHADES = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (40, 70, 220),
    "yellow": (230, 220, 40),
    "purple": (150, 40, 190),
    "orange": (240, 140, 30),
}
SIDE = 56  # pixels
SMALLEST, LARGEST = 20, 44  # sides of the rectangle
VARIATION = 20  # of each channel
QUESTION = "Which colour is this ?"


def picture(colour: str, numbers: np.random.Generator) -> bytes:
    """Return a PNG with a rectangle of this colour."""
    pixels = np.repeat(numbers.integers(90, 170, (SIDE, SIDE, 1)), 3, axis=2)
    height, width = numbers.integers(SMALLEST, LARGEST + 1, 2)
    top, left = numbers.integers(0, SIDE - height + 1), numbers.integers(0, SIDE - width + 1)
    shade = np.array(SHADES[colour]) + numbers.integers(-VARIATION, VARIATION + 1, 3)
    pixels[top : top + height, left : left + width] = shade
    content = BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(content, "PNG")
    return content.getvalue()


class Gallery:
    """Asks for the colour of the prompt's picture, and then for that of another; each right name gives one half."""

    def reset(self, ground_truth: str, seed: int) -> None:
        self._numbers = np.random.default_rng(seed)
        self._colours = [ground_truth, str(self._numbers.choice(list(SHADES)))]

    def step(self, text: str) -> tuple[list[dict[str, Any]], float, bool]:
        """Return the next picture with its question, the reward of the turn, and whether it was the last one."""
        reward = 0.5 * (text.strip() == self._colours.pop(0))
        if not self._colours:
            return [], reward, True
        shown = {"type": "image", "image": picture(self._colours[0], self._numbers)}
        return [{"role": "user", "content": [shown, {"type": "text", "text": QUESTION}]}], reward, False
