"""The machine of a benchmark: its processor, named in every result, and its libraries of matrix products."""

from __future__ import annotations

import json
from collections.abc import Mapping

from verl_like.machine.processor import processor


def print_result(found: Mapping[str, object]) -> None:
    """Print a benchmark's last line: what it has found, and the processor on which."""
    print(json.dumps({**found, "processor": str(processor())}), flush=True)


def use_machine_libraries() -> None:
    """Compute matrix products in this process as the workers of a run on this machine would."""
    from verl_like.context import current
    from verl_like.ops.matmul_libraries import MatmulLibraries, machine_libraries

    current(MatmulLibraries).onednn = machine_libraries().onednn
