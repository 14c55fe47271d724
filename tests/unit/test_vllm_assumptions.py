"""What is asked of an engine on a GPU, with engines that only say what they are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

assumptions = pytest.importorskip("verl_like.backends.vllm.assumptions", reason="vLLM is not installed")


class Runner:
    __module__ = "vllm.v1.worker.gpu.model_runner"

    def __init__(self) -> None:
        seeds = SimpleNamespace(np=SimpleNamespace(dtype=SimpleNamespace(itemsize=8)))
        states = SimpleNamespace(seeds=seeds)
        self.sampler = SimpleNamespace(logprobs_mode="processed_logprobs", sampling_states=states)

    def reload_weights(self, weights_iterator: object = None) -> None: ...


def engine() -> Any:
    """One that holds all that is asked."""
    worker = SimpleNamespace(model_runner=Runner(), device="cuda:0")
    scheduler = SimpleNamespace(defer_block_free=False, needs_kv_cache_zeroing=False)
    core = SimpleNamespace(batch_queue=[], batch_queue_size=2, scheduler=scheduler)
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_size=1),
        speculative_config=None,
        model_config=SimpleNamespace(enable_sleep_mode=True),
    )
    return SimpleNamespace(
        vllm_config=config,
        dp_group=None,
        engine_core=SimpleNamespace(engine_core=core),
        model_executor=SimpleNamespace(driver_worker=SimpleNamespace(worker=worker)),
    )


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Of one rank; what sums over ranks is returned, to be changed."""
    communicator = SimpleNamespace(ca_comm=None, fi_ar_comm=None, symm_mem_comm=None)
    group = SimpleNamespace(ranks=[0], device_communicator=communicator)
    monkeypatch.setattr(assumptions.parallel_state, "get_tp_group", lambda: group)
    monkeypatch.setattr(assumptions.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(assumptions, "_tags", lambda parts: True)
    return communicator


def test_an_engine_that_holds_everything_is_taken() -> None:
    assumptions.check_engine(engine(), device="cuda", tensor_parallel_size=1)


def broken_runner(engine: Any) -> None:
    engine.model_executor.driver_worker.worker.model_runner.__class__ = type(
        "Runner", (Runner,), {"__module__": "vllm.v1.worker.gpu_model_runner"}
    )


def broken_log_probs(engine: Any) -> None:
    engine.model_executor.driver_worker.worker.model_runner.sampler.logprobs_mode = "raw_logprobs"


def broken_queue(engine: Any) -> None:
    engine.engine_core.engine_core.batch_queue_size = 3


def broken_zeroing(engine: Any) -> None:
    engine.engine_core.engine_core.scheduler.needs_kv_cache_zeroing = True


def broken_device(engine: Any) -> None:
    engine.model_executor.driver_worker.worker.device = "cuda:1"


@pytest.mark.parametrize(
    ("breaks", "told"),
    [
        (broken_runner, "the model runner is vllm.v1.worker.gpu.model_runner"),
        (broken_log_probs, "log-probs are those after temperature"),
        (broken_queue, "one is planned ahead"),
        (broken_zeroing, "the cache need not be zeroed"),
        (broken_device, "on this process's one GPU"),
    ],
)
def test_what_does_not_hold_is_told(breaks: Any, told: str) -> None:
    found = engine()
    breaks(found)
    with pytest.raises(RuntimeError, match="that the adapter cannot use") as raised:
        assumptions.check_engine(found, device="cuda", tensor_parallel_size=1)
    assert told in str(raised.value)
    assert "lock file" in str(raised.value)


def test_another_way_of_summing_is_told(one_rank: SimpleNamespace) -> None:
    one_rank.fi_ar_comm = object()
    with pytest.raises(RuntimeError, match="NCCL alone sums over ranks"):
        assumptions.check_engine(engine(), device="cuda", tensor_parallel_size=1)
