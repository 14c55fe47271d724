"""Row type of the table of metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Regular expressions of the placeholders in patterns. Sources may contain slashes (openai/gsm8k).
PLACEHOLDERS = {
    "stage": r"[a-z][a-z0-9_]*",
    "source": r".+",
    "teacher": r".+",
    "role": r".+",
    "detail": r"[^/]+",
    "n": r"\d+",
}
_PLACEHOLDER = re.compile(r"<(\w+)>")


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: a name or a pattern with ``<placeholders>``, its unit, one sentence, and the stage that reports it."""

    pattern: str
    unit: str
    sentence: str
    producer: str

    def matches(self, name: str) -> bool:
        pieces = _PLACEHOLDER.split(self.pattern)  # literal, placeholder, literal, ...
        regex = "".join(PLACEHOLDERS[piece] if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))
        return re.fullmatch(regex, name) is not None
