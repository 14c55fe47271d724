"""What a worker is told before and as it is built."""

from __future__ import annotations

import subprocess
import sys

import pytest

from verl_like.config.schema import ClusterConfig, Config, TrainerConfig
from verl_like.workers.setup import judge_environment, reward_model_environment, worker_environment

ENVIRONMENTS = (worker_environment, reward_model_environment, judge_environment)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_deterministic_run_tells_the_libraries_before_they_load(environment, device: str) -> None:  # type: ignore[no-untyped-def]
    plain = environment(Config(), device)
    told = environment(Config(trainer=TrainerConfig(deterministic=True)), device)
    expected = {"TORCHINDUCTOR_DETERMINISTIC": "1"}
    if device == "cuda":
        expected["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    assert told == {**plain, **expected} and not plain.keys() & expected.keys()
    mine = ClusterConfig(env={"CUBLAS_WORKSPACE_CONFIG": ":16:8"})
    config = Config(trainer=TrainerConfig(deterministic=True), cluster=mine)
    assert environment(config, "cuda")["CUBLAS_WORKSPACE_CONFIG"] == ":16:8", "cluster.env has the last word"


PUTS_TWICE = """
import logging, sys, warnings, torch
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from verl_like.workers.setup import choose_what_repeats
choose_what_repeats()
for _ in range(2):
    torch.zeros(4).put_(torch.tensor([1, 1]), torch.tensor([1.0, 2.0]))
warnings.warn("of something else")
assert torch.are_deterministic_algorithms_enabled() and not torch.utils.deterministic.fill_uninitialized_memory
"""


def test_an_operation_that_cannot_repeat_is_told_once() -> None:
    done = subprocess.run([sys.executable, "-c", PUTS_TWICE], capture_output=True, text=True, check=True)
    assert done.stdout == "trainer.deterministic: put_ does not have a deterministic implementation\n"
    assert "of something else" in done.stderr and "put_" not in done.stderr
