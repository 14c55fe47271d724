"""Headers of safetensors files: the tensors and the expected end of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAX_HEAD_BYTES = 100_000_000  # limit of the format
LENGTH_BYTES = 8  # at the start of the file: the header's length


def tensors(file: Path) -> dict[str, dict[str, Any]]:
    """Return {name: dtype, shape and offsets} of all tensors.

    Raises:
        ValueError: the header is truncated or invalid; the message describes it.
        OSError: the file is unreadable.
    """
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(LENGTH_BYTES), "little")
        text = opened.read(size) if size <= MAX_HEAD_BYTES else b"?"
    if text and not text.startswith(b"{"):
        raise ValueError("does not begin as a safetensors file does")
    if len(text) < size or not text:
        raise ValueError(f"is cut off after {file.stat().st_size:,} bytes, within its header")
    try:
        head = json.loads(text)
    except ValueError:
        head = None
    if not isinstance(head, dict):
        raise ValueError("does not begin as a safetensors file does")
    return {name: tensor for name, tensor in head.items() if name != "__metadata__"}


def cut_off(file: Path) -> str | None:
    """Return the damage that a file's header and length show, or None."""
    try:
        ends = [int(tensor["data_offsets"][1]) for tensor in tensors(file).values()]
        with file.open("rb") as opened:
            head = LENGTH_BYTES + int.from_bytes(opened.read(LENGTH_BYTES), "little")
        expected, found = head + max(ends, default=0), file.stat().st_size
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (KeyError, TypeError, IndexError):
        return "does not begin as a safetensors file does"
    except ValueError as error:
        return str(error)
    return None if found == expected else f"has {found:,} bytes, but its tensors end at {expected:,}"
