"""Environment variables of a worker that hosts vLLM; imports nothing heavy, so that they can be set first."""

from __future__ import annotations

import os

DEFAULT_LOGGING_LEVEL = "WARNING"
SLOWEST_IMPORTS = ("verl_like.backends.vllm.cpu_start:import_worker",)


def environment(device: str) -> dict[str, str]:
    """Return the variables that the process needs before it imports torch or vllm.

    Logging levels that are already set in this process's environment take precedence.

    Args:
        device: "cpu" or "cuda".
    """
    variables = {
        # The engine shares the process with the trainer; weights are passed between them without a copy.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", DEFAULT_LOGGING_LEVEL),
    }
    if device == "cpu":
        variables |= {
            # vLLM would pin threads to cores, and those of every engine on the machine to the same cores.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # Silence notes of torch's C++ side on the memory policy that vLLM sets.
            "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        }
    else:
        variables |= {
            # These all-reduce implementations number an engine's GPUs in each process, but a worker sees only its own.
            # The ranks would take each other for ranks of other nodes, raise an error, or hang. NCCL remains.
            "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
            "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
            # FlashInfer's sampler serves no request that has a seed or returns log-probs, as all requests here do; vLLM
            # would import FlashInfer and compile a module of it for nothing.
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "TRITON_PRINT_AUTOTUNING": "0",  # vLLM turns it on for the whole process
        }
    return variables
