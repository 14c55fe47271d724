"""Environment variables of a worker that hosts vLLM; imports nothing heavy, so that they can be set first."""

from __future__ import annotations

import os

DEFAULT_LOGGING_LEVEL = "WARNING"


def environment(device: str) -> dict[str, str]:
    """Variables the process must have before it imports torch or vllm.

    Logging levels that are already set in this process's environment win.

    Args:
        device: "cpu" or "cuda".
    """
    variables = {
        # The engine shares the process with the trainer; weights go from one to the other without a copy.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", DEFAULT_LOGGING_LEVEL),
    }
    if device == "cpu":
        variables |= {
            # vLLM would pin threads to cores, and every engine on the machine to the same ones.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # Notes of torch's C++ side on the memory policy that vLLM sets.
            "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        }
    else:
        variables |= {
            # Ways of summing over an engine's ranks that number their GPUs in each process, where a worker sees its
            # own alone: those ranks would take each other for ranks of other nodes, or refuse, or wait. NCCL is left.
            "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
            "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
            "TRITON_PRINT_AUTOTUNING": "0",  # vLLM turns it on for the whole process
        }
    return variables
