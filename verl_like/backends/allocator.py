"""Which C allocator a worker on CPU has: tensors of ever other sizes leave holes in the C library's own."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

# Freed pages go back after a second, by a thread of its own; large blocks are kept as long as small ones. By default
# they go back at once, and an update that gets them anew takes 5.8 s instead of 5.0 (22M parameters, two cores).
CONF = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,oversize_threshold:0"


def allocator_environment() -> dict[str, str]:
    """Variables that give a process jemalloc, which Ray brings with it on Linux, before it starts.

    Empty where Ray has none, where a library is preloaded already, which is somebody's choice, and where the path has a
    blank or a colon, at which the loader would cut it.
    """
    ray = importlib.util.find_spec("ray")
    if ray is None or ray.origin is None or os.environ.get("LD_PRELOAD"):
        return {}
    library = Path(ray.origin).with_name("core") / "libjemalloc.so"
    if not library.is_file() or re.search(r"[\s:]", str(library)):
        return {}
    return {"LD_PRELOAD": str(library), "MALLOC_CONF": CONF}
