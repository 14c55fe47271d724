"""Imports of large libraries, which the garbage collector would go through again and again while they are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """What is made meanwhile stays for good: the collector does not run, and never looks at it afterwards.

    A worker imports torch, transformers and vLLM in 4.3 instead of 6.2 s, and each full collection later, of which vLLM
    makes five while it starts, takes nothing instead of 0.3 s (torch 2.13, vLLM 0.32, one core). What other threads
    make meanwhile is kept for good where it has become a cycle that nobody holds.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if is_collecting:
            gc.enable()
