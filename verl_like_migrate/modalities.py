"""Recognise image, video and audio models by name, before they are downloaded."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from verl_like_migrate.translation import Line, Translation

WHY = "it reads images, video or audio, and verl_like trains on text only. Name a text-only language model."
_OPTIONS = ("model.path", "ref.path", "critic.path")
# Words of a model's name, such as Qwen2.5-VL-7B, GLM-4.1V-9B, Phi-3.5-vision, InternVL3, Qwen2.5-Omni.
_WORDS = re.compile(
    r"(?i)(?:^|[-_. \d])vlm?\d?(?=[-_. ]|$)"
    r"|(?:^|[-_. ])(?:vision|omni|audio|ocr|asr|minicpm-v|minicpm-o|\d(?:\.\d)?v)(?=[-_. ]|$)"
    r"|gemma-3-(?:4|12|27)b|internvl|llava|pixtral|paligemma|molmo|idefics|smolvlm|qvq|mimo-vl|florence|cogvlm"
)


def text_alone(found: Translation) -> Translation:
    """Refuse models that read more than text: move them to the unsupported settings."""
    lines = [_refused(line) if _reads_more(line) else line for line in found.lines]
    refused = {name for line in found.lines if _reads_more(line) for name in line.settings}
    return replace(found, lines=lines, settings={name: v for name, v in found.settings.items() if name not in refused})


def reads_more(found: Translation) -> bool:
    """Return whether :func:`text_alone` refused a model."""
    return any(line.why == WHY for line in found.lines)


def _reads_more(line: Line) -> bool:
    return any(_is_named_so(line.settings.get(option)) for option in _OPTIONS)


def _is_named_so(path: Any) -> bool:
    return isinstance(path, str) and _WORDS.search(path.rstrip("/").rpartition("/")[2]) is not None


def _refused(line: Line) -> Line:
    return replace(line, kind="unsupported", settings={}, why=WHY)
