"""Run a rollout engine and a policy in one process, as a hybrid worker does, and compare their log-probs."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.gpu_check.policies import model_path, synchronize
from benchmarks.gpu_check.scene import Scene
from verl_like.backends.base import Finished, PolicyEngine, Request, RolloutEngine, Sampling
from verl_like.backends.fsdp.engine import resolve_dtype
from verl_like.backends.fsdp.policy import FsdpPolicy
from verl_like.backends.rollout import rollout_engine
from verl_like.config.schema import ModelConfig, RolloutConfig
from verl_like.protocol import DataProto, Ragged

GIB = 2**30


def prompt_and_response_tokens(scene: Scene) -> tuple[int, int]:
    """Return the maximum length of a prompt and of a response."""
    return (16, 16) if scene.is_small else (64, 192)


def engine(scene: Scene, *, ranks: int = 1, is_eager: bool = False) -> RolloutEngine:
    """Return a vLLM engine with the first model's shape, asleep, so that memory is free for a policy."""
    built = rollout_engine(
        "vllm",
        model_path=str(model_path(scene)),
        tokenizer_path="",
        model=ModelConfig(),
        rollout=RolloutConfig(tensor_parallel_size=ranks, kv_cache_memory_gib=0.05, enforce_eager=is_eager),
        max_model_len=sum(prompt_and_response_tokens(scene)),
        device=scene.device,
        seed=1,
        run_id=scene.run_id,
    )
    built.sleep()
    return built


def sync(scene: Scene, engine: RolloutEngine, policy: PolicyEngine, version: int) -> tuple[float, float]:
    """Copy the policy's weights to an engine and leave it awake; return the seconds of waking and of copying."""
    marks = [time.perf_counter()]
    for call in (
        lambda: engine.begin_sync(version),
        lambda: engine.load(policy.named_weights()),
        engine.finish_sync,
        engine.wake,
    ):
        call()
        synchronize(scene)
        marks.append(time.perf_counter())
    begin, load, finish, wake = np.diff(marks).tolist()
    return begin + wake, load + finish


def requests(scene: Scene, number: int, *, temperature: float) -> list[Request]:
    """Return requests with prompts of uneven lengths and responses of the maximum length."""
    most, response = prompt_and_response_tokens(scene)
    rng = np.random.default_rng(2)
    sampling = Sampling(max_tokens=response, temperature=temperature, ignore_eos=True)
    return [
        Request(
            request_id=f"{temperature}-{index}",
            prompt_ids=rng.integers(3, 17, rng.integers(1, most + 1)).tolist(),
            seed=1_000_003 * (index + 1),
            sampling=sampling,
        )
        for index in range(number)
    ]


def generated(engine: RolloutEngine, asked: list[Request]) -> list[Finished]:
    """Return the responses, sorted like the requests."""
    engine.submit(asked)
    finished: dict[str, Finished] = {}
    while engine.has_unfinished():
        finished |= {done.request_id: done for done in engine.step()}
    return [finished[request.request_id] for request in asked]


def mean_gap(engine: RolloutEngine, policy: PolicyEngine, asked: list[Request]) -> float:
    """Return the mean absolute gap between the engine's and the policy's log-probs of sampled tokens, in nats."""
    done = generated(engine, asked)
    responses = Ragged.from_rows([each.response_ids for each in done], "int32")
    prompts = Ragged.from_rows([request.prompt_ids for request in asked], "int32")
    of_engine = np.concatenate([each.log_probs for each in done])
    of_policy = policy.forward_log_probs(DataProto({"prompt_ids": prompts, "response_ids": responses}), temperature=1.0)
    return float(np.abs(of_policy["log_probs"] - of_engine).mean())


def weight_bytes(policy: FsdpPolicy) -> int:
    """Return the bytes that a sync copies, tied weights counted once."""
    dtype = resolve_dtype(policy.settings.rollout_dtype, policy.device)
    return sum(parameter.numel() for parameter in policy.module.parameters()) * dtype.itemsize
