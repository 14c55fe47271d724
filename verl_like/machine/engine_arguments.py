"""List the arguments of vLLM's engine that ``rollout.engine_kwargs`` may set, without importing vLLM."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Set
from pathlib import Path

from verl_like.config.suggestion import suggestion

# Arguments that have their own option.
OPTIONS = {
    "dtype": "rollout.dtype",
    "enforce_eager": "rollout.enforce_eager",
    "gpu_memory_utilization": "rollout.gpu_memory_utilization",
    "hf_overrides": "model.override_config",
    "kv_cache_memory_bytes": "rollout.kv_cache_memory_gib",
    "max_model_len": "data.max_prompt_length and data.max_response_length",
    "max_num_batched_tokens": "rollout.max_num_batched_tokens",
    "max_num_seqs": "rollout.max_num_seqs",
    "model": "model.path",
    "seed": "trainer.seed",
    "tensor_parallel_size": "rollout.tensor_parallel_size",
    "tokenizer": "model.tokenizer_path",
    "trust_remote_code": "model.trust_remote_code",
}
# Arguments that the backend sets on every device, and those that would break its one process per rank.
OWN = frozenset(
    {
        "data_parallel_size",
        "disable_custom_all_reduce",
        "disable_log_stats",
        "distributed_executor_backend",
        "enable_sleep_mode",
        "load_format",
        "logprobs_mode",
        "pipeline_parallel_size",
        "skip_tokenizer_init",
        "worker_cls",
    }
)


def installed() -> frozenset[str]:
    """Return the arguments that the installed vLLM takes, parsed from its source; empty if the source is not found."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        return frozenset()
    file = Path(spec.origin).parent / "engine/arg_utils.py"
    body = ast.parse(file.read_text()).body if file.is_file() else []
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == "EngineArgs"]
    fields = [node.target for each in classes for node in each.body if isinstance(node, ast.AnnAssign)]
    return frozenset(field.id for field in fields if isinstance(field, ast.Name))


def unusable(names: Iterable[str], *, known: Set[str], own: Set[str] = OWN) -> list[str]:
    """Return an error message (found, expected, remedy) for each argument that cannot be set.

    Args:
        names: the keys of ``rollout.engine_kwargs``.
        known: arguments that the engine takes; empty if they are unknown.
        own: arguments that the backend sets.
    """
    found = []
    for name in names:
        if known and name not in known:
            hint = suggestion(name, known) or ". See its EngineArgs for the list."
            found.append(f"rollout.engine_kwargs has {name!r}, which vLLM's engine does not accept{hint}")
        elif name in OPTIONS:
            found.append(f"rollout.engine_kwargs has {name!r}, which has its own option. Set {OPTIONS[name]} instead.")
        elif name in own:
            found.append(f"rollout.engine_kwargs has {name!r}, which the vLLM backend must set itself. Remove it.")
    return found
