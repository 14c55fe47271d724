"""What ``make gpu-check`` checks, as tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.gpu_check.checks import CHECKS, Check
from benchmarks.gpu_check.play import play
from benchmarks.gpu_check.scene import Scene, temporary
from benchmarks.gpu_check.verdict import SKIPPED
from verl_like.checks.gpus import num_gpus

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with temporary(device="cuda", num_gpus=num_gpus(), is_small=False) as scene:
        yield scene


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_holds_on_this_gpu(check: Check, scene: Scene) -> None:
    outcome = play(check, scene, limit_s=check.limit_s)
    if outcome.verdict == SKIPPED:
        pytest.skip(outcome.why)
    assert outcome.is_well, outcome.why
