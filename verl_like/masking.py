"""Mask secrets in settings, records and logs.

A setting whose key names a secret (``api_key``, ``Authorization``) is masked whole; other text is masked by
:mod:`verl_like_graders.masking`, which recognises secrets by form and by the values of environment variables. Masking
misses other secrets, so files that may hold such text are readable by their owner alone (``OWNER_ONLY``).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Any

from verl_like_graders.masking import MASK, is_secret_name, masked_text, masking

__all__ = ["MASK", "OWNER_ONLY", "MaskingFormatter", "is_secret_name", "masked", "masked_text", "masking", "owners"]

OWNER_ONLY = 0o600
_REFERENCE = re.compile(r"\$\{?[A-Za-z_][\w.:-]*\}?|(?:Bearer |Basic |token )\$\{?\w+\}?")


def masked(value: Any, name: str = "") -> Any:
    """Return a tree of mappings and lists with its secrets masked; a reference to a variable (``$NAME``) stays."""
    if isinstance(value, Mapping):
        return {key: masked(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked(each, name) for each in value]
    if isinstance(value, str):
        if value and is_secret_name(name) and not _REFERENCE.fullmatch(value):
            return MASK
        return masked_text(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return MASK if is_number and is_secret_name(name) else value


class MaskingFormatter(logging.Formatter):
    """Formats records, tracebacks included, with secrets masked."""

    def format(self, record: logging.LogRecord) -> str:
        return masked_text(super().format(record))


def owners(name: str, flags: int) -> int:
    """Open a file that only its owner may read if it is new; an ``opener`` for ``open``."""
    return os.open(name, flags, OWNER_ONLY)
