"""The checks, in the order in which they run; each is the function ``check`` of the file with its name."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from benchmarks.gpu_check.scene import Scene


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """
    Args:
        limit_s: after which it is ended.
        packages: without which there is nothing to check.
        on_gpu_only: whether there is nothing to check on CPU, with the reason.
        num_ranks: processes that run it together, each on a GPU of its own.
        is_worker: whether it runs as a worker with a model does: with its environment and process group.
        folder: the package that has its file.
    """

    name: str
    limit_s: float
    packages: tuple[str, ...] = ()
    on_gpu_only: str = ""
    num_ranks: int = 1
    is_worker: bool = True
    folder: str = __name__

    def why_not(self, scene: Scene) -> str:
        """Why it is skipped; empty where it is not."""
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
    Check(name="compile", limit_s=240),  # its deadline of 120 s, and what comes before and after it
    Check(name="update", limit_s=120),
    Check(name="offload", limit_s=60, on_gpu_only="on CPU nothing is moved"),
    Check(name="cpu_offload", limit_s=120, on_gpu_only="on CPU all memory is the host's"),
    Check(name="checkpoint", limit_s=90),
    Check(name="rollout", limit_s=180, packages=("vllm",)),
    Check(name="tensor_parallel", limit_s=150, packages=("vllm",), num_ranks=2),
    Check(name="train", limit_s=180, packages=("vllm", "ray", "hydra"), is_worker=False),
)
