"""Which C allocator a worker on CPU has: tensors of ever other sizes leave holes in the C library's own."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

# Freed pages go back after a second, by a thread of its own; large blocks are kept as long as small ones. By default
# they go back at once, and an update that gets them anew takes 5.8 s instead of 5.0 (22M parameters, two cores).
CONF = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,oversize_threshold:0"


def allocator_environment() -> dict[str, str]:
    """Variables that give a process jemalloc, which Ray brings with it on Linux, before it starts.

    None where Ray has none, or where a library is preloaded already: that is somebody's choice.
    """
    found = importlib.util.find_spec("ray")
    folders = (found.submodule_search_locations or []) if found is not None else []
    for library in (Path(folder) / "core/libjemalloc.so" for folder in folders):
        if library.is_file() and not os.environ.get("LD_PRELOAD"):
            return {"LD_PRELOAD": str(library), "MALLOC_CONF": CONF}
    return {}
