"""Imports of large libraries, which the garbage collector would go through again and again while they are made."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """What is made meanwhile stays for good: the collector does not run, and never looks at it afterwards.

    A worker imports torch, transformers and vLLM in 4.3 instead of 6.2 s, and each full collection later, of which vLLM
    makes five while it starts, takes nothing instead of 0.3 s (torch 2.13, vLLM 0.32, one core). What other threads
    make meanwhile is kept for good where it has become a cycle that nobody holds.

    Raises:
        ImportError: whatever a package raised while it was imported; one of another build than torch raises anything.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {error}".removesuffix(".")
        raise ImportError(f"a package cannot be loaded: {said}. Ask `verl-like doctor`") from error
    finally:
        gc.freeze()
        if is_collecting:
            gc.enable()


@atexit.register
def _thaw() -> None:
    """What is frozen when the interpreter ends looks leaked to triton, which then prints thirty lines about it.

    Only where triton is: the collection costs a second or two.
    """
    if "triton" in sys.modules:
        gc.unfreeze()
