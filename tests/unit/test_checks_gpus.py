"""GPUs are counted as torch counts them, without torch."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from verl_like.checks.gpus import Gpus, gpus_here, num_gpus, num_visible, smallest_gpu, torch_is_cpu_build
from verl_like.checks.rules import contradictions
from verl_like.config.schema import Config


def test_the_count_is_torchs() -> None:
    if torch.version.cuda is None:
        pytest.skip("a CPU build of torch sees no GPU, whatever the driver says")
    assert num_gpus() == torch.cuda.device_count()


def test_the_build_is_read_from_torchs_own_file() -> None:
    assert torch_is_cpu_build() == (torch.version.cuda is None)
    assert gpus_here() == Gpus(num_gpus(), torch_is_cpu_build())


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, 4),
        ("", 0),
        ("-1", 0),
        ("0", 1),
        ("0,2", 2),
        ("1, 3", 2),
        ("0,7,1", 1),
        ("GPU-8932f937,MIG-3", 2),
        ("NoDevFiles", 0),
    ],
)
def test_cuda_visible_devices_is_read_up_to_the_first_that_is_none(visible: str | None, expected: int) -> None:
    assert num_visible(4, visible) == expected


def test_a_gpu_that_torch_cannot_use_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_like.checks.rules.gpus_here", lambda: Gpus(2, torch_is_cpu_build=True))
    reported = [problem for problem in contradictions(Config()) if "CPU build" in problem]
    assert reported == [
        "the workers would run on 2 GPUs (cluster.device=auto), but the installed torch is a CPU build. Run `make "
        "setup ACCELERATOR=cuda`, or set cluster.device=cpu."
    ]
    config = Config()
    config.cluster.device = "cpu"
    assert not any("CPU build" in problem for problem in contradictions(config))


class Nvml:
    """The driver's library of a machine with two GPUs."""

    GPUS = ((b"NVIDIA H100 80GB HBM3", 85_520_809_984), (b"NVIDIA L40S", 48_305_799_168))

    def nvmlInit_v2(self) -> int:  # noqa: N802 (the library's own name)
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802 (the library's own name)
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802 (the library's own name)
        count._obj.value = len(self.GPUS)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:  # noqa: N802 (the library's own name)
        device._obj.value = index + 1
        return 0

    def nvmlDeviceGetName(self, device: Any, name: Any, size: int) -> int:  # noqa: N802 (the library's own name)
        name.value = self.GPUS[device.value - 1][0]
        return 0

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:  # noqa: N802 (the library's own name)
        memory[0] = self.GPUS[device.value - 1][1]
        return 0


def test_the_driver_reports_the_smallest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert smallest_gpu() == ("NVIDIA L40S", 48_305_799_168)
    assert num_gpus() == 2


def test_a_machine_without_the_drivers_library_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert smallest_gpu() is None
    assert num_gpus() == 0
