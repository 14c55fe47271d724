"""GPUs are counted as torch counts them, without torch."""

from __future__ import annotations

import pytest
import torch

from verl_like.checks.gpus import Gpus, gpus_here, num_gpus, num_visible, torch_is_cpu_build
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


def test_a_gpu_that_torch_cannot_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_like.checks.rules.gpus_here", lambda: Gpus(2, torch_is_cpu_build=True))
    told = [problem for problem in contradictions(Config()) if "CPU build" in problem]
    assert told == [
        "the workers would run on 2 GPUs (cluster.device=auto), but the installed torch is a CPU build. Run `make "
        "setup ACCELERATOR=cuda`, or set cluster.device=cpu."
    ]
    config = Config()
    config.cluster.device = "cpu"
    assert not any("CPU build" in problem for problem in contradictions(config))
