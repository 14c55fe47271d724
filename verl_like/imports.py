"""Import large libraries with the garbage collector off: it would traverse their objects repeatedly."""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# vLLM depends on these; training on text needs none of them.
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


@contextmanager
def importing() -> Iterator[None]:
    """Turn the garbage collector off inside the block and exclude the objects made there from later collections.

    Packages that cannot be loaded together with torch are hidden first.

    A worker imports torch, transformers and vLLM in 4.3 instead of 6.2 s. Each later full collection, of which vLLM
    makes five while it starts, takes no time instead of 0.3 s (torch 2.13, vLLM 0.32, one core). Unreachable cycles
    that other threads make meanwhile are never freed.

    Raises:
        ImportError: an import failed; a package that was built for another torch may raise any exception.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        leave_out_unloadable()
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".removesuffix(".")
        raise ImportError(f"a package cannot be loaded: {reason}. Run `verl-like doctor`") from error
    finally:
        gc.freeze()
        if is_collecting:
            gc.enable()


def leave_out_unloadable() -> None:
    """Hide companions of torch that cannot be loaded from other libraries; call this before transformers is imported.

    pip may install torchvision or torchaudio in another build than torch's, and torchcodec without FFmpeg.
    transformers and vLLM check only whether they are installed, and then fail to import (5.19, 0.32).
    """
    for name in COMPANIONS:
        if name in sys.modules or importlib.util.find_spec(name) is None:
            continue
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 (another build may raise anything; the doctor reports it)
            for part in [module for module in sys.modules if module.partition(".")[0] == name]:
                del sys.modules[part]
            sys.modules[name] = None  # type: ignore[assignment]  # an import and find_spec find no module


@atexit.register
def _thaw() -> None:
    """Unfreeze the objects at exit: triton reports frozen objects as leaked, in thirty lines.

    Only if triton is loaded, because the collection takes a second or two.
    """
    if "triton" in sys.modules:
        gc.unfreeze()
