"""Recognise models of images, video and audio by name, before they are downloaded, and refuse the unsupported ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from verl_like_migrate.translation import Line, Translation

WHY = (
    "it reads images, video or audio; of such models, verl_like trains dense Qwen2.5-VL, Qwen3-VL and LLaVA 1.5 as the "
    "policy of `verl-like train`. Name one of these, or a text-only language model."
)
POLICY = "model.path"
_OPTIONS = (POLICY, "ref.path", "critic.path")
# Words of a model's name, such as Qwen2.5-VL-7B, GLM-4.1V-9B, Phi-3.5-vision, InternVL3, Qwen2.5-Omni.
_WORDS = re.compile(
    r"(?i)(?:^|[-_. \d])vlm?\d?(?=[-_. ]|$)"
    r"|(?:^|[-_. ])(?:vision|omni|audio|ocr|asr|minicpm-v|minicpm-o|\d(?:\.\d)?v)(?=[-_. ]|$)"
    r"|gemma-3-(?:4|12|27)b|internvl|llava|pixtral|paligemma|molmo|idefics|smolvlm|qvq|mimo-vl|florence|cogvlm"
)

# Parts of the names of the model types in verl_like.checks.families.PICTURE_FAMILIES.
_SUPPORTED = re.compile(r"(?i)qwen(?:2[._]?5|3)[-_. ]?vl(?=[-_. ]|$)|llava[-_. ]1[._]5(?=[-_. ]|$)")
_OF_EXPERTS = re.compile(r"(?i)(?:^|[-_. ])(?:a\d+b|moe)(?=[-_. ]|$)")  # qwen3_vl_moe is another type


def supported_models(found: Translation) -> Translation:
    """Refuse models that read more than text, except supported policies: move them to the unsupported settings."""
    lines = [_refused(line) if _is_refused(line, found.job) else line for line in found.lines]
    refused = {name for line in found.lines if _is_refused(line, found.job) for name in line.settings}
    return replace(found, lines=lines, settings={name: v for name, v in found.settings.items() if name not in refused})


def refuses_model(found: Translation) -> bool:
    """Return whether :func:`supported_models` refused a model."""
    return any(line.why == WHY for line in found.lines)


def _is_refused(line: Line, job: str) -> bool:
    named = [(option, line.settings.get(option)) for option in _OPTIONS]
    may_read = {POLICY} if job == "train" else set()
    return any(_reads_more(path) and not (option in may_read and _is_supported(path)) for option, path in named)


def _reads_more(path: Any) -> bool:
    return isinstance(path, str) and _WORDS.search(_name(path)) is not None


def _is_supported(path: Any) -> bool:
    """Return whether a model is of a supported family, and nothing else in its name says otherwise."""
    name = _name(str(path))
    others = _SUPPORTED.sub("", name)
    return others != name and not _WORDS.search(others) and not _OF_EXPERTS.search(others)


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _refused(line: Line) -> Line:
    return replace(line, kind="unsupported", settings={}, why=WHY)
