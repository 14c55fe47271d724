"""What goes into a scorer process for each response, and what comes out."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response with everything a reward function may ask for."""

    response: str  # without special tokens
    prompt: str  # as the chat template rendered it
    messages: Any  # the prompt as the row has it: a chat list or a string
    data_source: str
    ground_truth: Any
    extra_info: Mapping[str, Any]
    columns: Mapping[str, Any]  # the row's other columns
    response_ids: array[int]  # int32


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one sample. ``score`` is None unless ``status`` is ok."""

    status: str  # "ok", or one of FAILURES
    score: float | None
    details: dict[str, float | str]  # what the function reported beside the score
    message: str  # why there is no score, or why it was scored alone; else empty
    seconds: float


# Past its deadline; the process died; over its memory limit; the function raised or returned no score.
FAILURES = ("timeout", "crash", "memory", "error")
