"""Settings and environment of a worker, before and during its build."""

from __future__ import annotations

import subprocess
import sys

import pytest

from verl_like.config.schema import ClusterConfig, Config, TrainerConfig
from verl_like.workers.environment import judge_environment, reward_model_environment, worker_environment
from verl_like.workers.setup import WorkerSetup, check_one_gpu, with_local_models

ENVIRONMENTS = (worker_environment, reward_model_environment, judge_environment)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_deterministic_run_configures_libraries_before_they_load(environment, device: str) -> None:  # type: ignore[no-untyped-def]
    plain = environment(Config(), device)
    reported = environment(Config(trainer=TrainerConfig(deterministic=True)), device)
    expected = {"TORCHINDUCTOR_DETERMINISTIC": "1"}
    if device == "cuda":
        expected["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    assert reported == {**plain, **expected} and not plain.keys() & expected.keys()
    own = ClusterConfig(env={"CUBLAS_WORKSPACE_CONFIG": ":16:8"})
    config = Config(trainer=TrainerConfig(deterministic=True), cluster=own)
    assert environment(config, "cuda")["CUBLAS_WORKSPACE_CONFIG"] == ":16:8", "cluster.env has the last word"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_segments_of_gpu_memory_grow_by_default(environment) -> None:  # type: ignore[no-untyped-def]
    assert environment(Config(), "cuda")["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in environment(Config(), "cpu")
    own = Config(cluster=ClusterConfig(env={"PYTORCH_CUDA_ALLOC_CONF": ""}))
    assert environment(own, "cuda")["PYTORCH_CUDA_ALLOC_CONF"] == ""


def test_a_worker_that_sees_the_gpus_of_others_is_refused() -> None:
    check_one_gpu(1)
    with pytest.raises(RuntimeError, match=r"sees 8 GPUs, expected exactly the one.*RAY_EXPERIMENTAL_NOSET"):
        check_one_gpu(8)


PUTS_TWICE = """
import logging, sys, warnings, torch
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from verl_like.workers.setup import use_deterministic_operations
use_deterministic_operations()
for _ in range(2):
    torch.zeros(4).put_(torch.tensor([1, 1]), torch.tensor([1.0, 2.0]))
warnings.warn("of something else")
assert torch.are_deterministic_algorithms_enabled() and not torch.utils.deterministic.fill_uninitialized_memory
"""


@pytest.mark.processes
def test_an_operation_that_cannot_repeat_is_reported_once() -> None:
    done = subprocess.run([sys.executable, "-c", PUTS_TWICE], capture_output=True, text=True, check=True)
    assert done.stdout == "trainer.deterministic: put_ does not have a deterministic implementation\n"
    assert "of something else" in done.stderr and "put_" not in done.stderr


def test_every_model_at_a_url_becomes_a_local_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_like.workers.setup.local_path", lambda path: path.replace("s3://", "/copies/"))
    config = Config()
    config.model.path, config.ref.teachers = "s3://policy", {"math": "s3://math", "code": "/here/code"}
    setup = WorkerSetup(config=config, rank=0, world_size=1, device="cpu", run_id="", roles=frozenset())
    found = with_local_models(setup).config
    assert found.model.path == "/copies/policy"
    assert found.ref.teachers == {"math": "/copies/math", "code": "/here/code"}
    assert config.ref.teachers["math"] == "s3://math"
