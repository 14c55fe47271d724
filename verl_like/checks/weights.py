"""What the heads of safetensors files say: which tensors there are, and where the file must end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAX_HEAD_BYTES = 100_000_000  # by the format
LENGTH_BYTES = 8  # before the head, which they are the length of


def tensors(file: Path) -> dict[str, dict[str, Any]]:
    """Name -> dtype, shape and place of every tensor.

    Raises:
        ValueError: the head is not whole, or of another form; the message says what was found.
        OSError: the file cannot be read.
    """
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(LENGTH_BYTES), "little")
        text = opened.read(size) if size <= MAX_HEAD_BYTES else b"?"
    if text and not text.startswith(b"{"):
        raise ValueError("does not begin as a safetensors file does")
    if len(text) < size or not text:
        raise ValueError(f"is cut off after {file.stat().st_size:,} bytes, within its head")
    try:
        head = json.loads(text)
    except ValueError:
        head = None
    if not isinstance(head, dict):
        raise ValueError("does not begin as a safetensors file does")
    return {name: tensor for name, tensor in head.items() if name != "__metadata__"}


def cut_off(file: Path) -> str | None:
    """What is wrong with a file as far as its head and its length show it; None where nothing is."""
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
