"""Check that vLLM has loaded its own kernels; imports vllm and little else."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch
import vllm
import vllm._custom_ops  # asks the platform for its kernels

NAMESPACE = "_C::"  # of the kernels' operators, on CPU and on CUDA alike
# vLLM loads two of the three CPU builds under a name that is not their own; that is no failure.
HARMLESS = "dynamic module does not define module export function"


def check_kernels() -> None:
    """Raise ValueError if vLLM's kernels were not loaded.

    vLLM logs the error of their import and continues (0.24 to 0.32), until an operator is missing in the middle of a
    run.

    Raises:
        ValueError: names the extension and why it cannot be loaded.
    """
    if any(name.startswith(NAMESPACE) for name in torch._C._dispatch_get_all_op_names()):
        return
    # Import each again for the reason, which vLLM has dropped.
    names = sorted(file.name.partition(".")[0] for file in Path(vllm.__file__).parent.glob("_C*.so"))
    reasons = {}
    for name in names:
        try:
            importlib.import_module(f"vllm.{name}")
        except ImportError as error:
            if HARMLESS not in str(error):
                reasons[f"vllm.{name}"] = str(error)
    found = "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or f"vLLM {vllm.__version__} has none"
    raise ValueError(
        f"vLLM's kernels cannot be loaded ({found}), and it cannot generate without them. `verl-like doctor` reports "
        "what is missing on this machine; rollout.backend=hf generates without vLLM, slowly."
    )
