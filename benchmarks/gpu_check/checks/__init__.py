"""The checks, in execution order. Each is the function ``check`` of the file with the check's name."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from benchmarks.gpu_check.scene import Scene


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """
    Args:
        limit_s: seconds after which it is ended.
        packages: required packages; the check is skipped if one is missing.
        on_gpu_only: the reason why the check is skipped on CPU; empty if it also runs there.
        num_ranks: number of processes that run it together, each on its own GPU.
        is_worker: run with the environment and process group of a worker with a model.
        folder: the package that contains its file.
    """

    name: str
    limit_s: float
    packages: tuple[str, ...] = ()
    on_gpu_only: str = ""
    num_ranks: int = 1
    is_worker: bool = True
    folder: str = __name__

    def why_not(self, scene: Scene) -> str:
        """Return the reason why the check is skipped, or "" if it runs."""
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if missing:
            return f"not installed: {', '.join(missing)}"
        if scene.device == "cpu":
            return self.on_gpu_only
        return f"needs {self.num_ranks} GPUs, found {scene.num_gpus}" if scene.num_gpus < self.num_ranks else ""


CHECKS = (
    Check(name="kernels", limit_s=90),
    Check(name="liger", limit_s=120, packages=("liger_kernel",), on_gpu_only="Liger's kernels need a GPU"),
    Check(name="packing", limit_s=90),
    Check(name="precision", limit_s=90),
    Check(name="compile", limit_s=240),  # its deadline of 120 s, plus the time before and after
    Check(name="update", limit_s=240),
    Check(name="offload", limit_s=60, on_gpu_only="nothing is moved on CPU"),
    Check(name="cpu_offload", limit_s=120, on_gpu_only="all memory is host memory on CPU"),
    Check(name="checkpoint", limit_s=90),
    Check(name="rollout", limit_s=180, packages=("vllm",)),
    Check(name="tensor_parallel", limit_s=150, packages=("vllm",), num_ranks=2),
    Check(name="train", limit_s=180, packages=("vllm", "ray", "hydra"), is_worker=False),
)
