"""Imports of large libraries, which the garbage collector would go through again and again while they are made."""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# vLLM's packages ask for these; what trains on text needs none of them.
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


@contextmanager
def importing() -> Iterator[None]:
    """What is made meanwhile stays for good: the collector does not run, and never looks at it afterwards. What cannot
    be loaded beside torch is left out first.

    A worker imports torch, transformers and vLLM in 4.3 instead of 6.2 s, and each full collection later, of which vLLM
    makes five while it starts, takes nothing instead of 0.3 s (torch 2.13, vLLM 0.32, one core). What other threads
    make meanwhile is kept for good where it has become a cycle that nobody holds.

    Raises:
        ImportError: whatever a package raised while it was imported; one of another build than torch raises anything.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        leave_out_unloadable()
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {error}".removesuffix(".")
        raise ImportError(f"a package cannot be loaded: {said}. Ask `verl-like doctor`") from error
    finally:
        gc.freeze()
        if is_collecting:
            gc.enable()


def leave_out_unloadable() -> None:
    """Have libraries find no companion of torch that cannot be loaded; to be called before transformers is imported.

    pip finds torchvision and its like in another build than torch, and torchcodec without the FFmpeg that it wants.
    transformers and vLLM ask once whether they are installed, and their own imports fail then (5.19, 0.32).
    """
    for name in COMPANIONS:
        if name in sys.modules or importlib.util.find_spec(name) is None:
            continue
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 (another build raises anything; the doctor tells what)
            for part in [module for module in sys.modules if module.partition(".")[0] == name]:
                del sys.modules[part]
            sys.modules[name] = None  # type: ignore[assignment]  # importing it finds no module, and find_spec nothing


@atexit.register
def _thaw() -> None:
    """What is frozen when the interpreter ends looks leaked to triton, which then prints thirty lines about it.

    Only where triton is: the collection costs a second or two.
    """
    if "triton" in sys.modules:
        gc.unfreeze()
