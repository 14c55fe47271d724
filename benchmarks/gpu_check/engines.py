"""A rollout engine beside a policy in one process, as in a hybrid worker, and what the one says of the other."""

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
    """The longest of each."""
    return (16, 16) if scene.is_small else (64, 192)


def engine(scene: Scene, *, ranks: int = 1, is_eager: bool = False) -> RolloutEngine:
    """vLLM with the first model's shape, asleep: memory is free for a policy."""
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
    """Hand the policy's weights to an engine, awake or not; it is afterwards. Returns the seconds that waking took, and
    those of the weights.
    """
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
    """Prompts of uneven lengths, whose responses go to the longest length."""
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
    """The samples, in the order of the requests."""
    engine.submit(asked)
    finished: dict[str, Finished] = {}
    while engine.has_unfinished():
        finished |= {done.request_id: done for done in engine.step()}
    return [finished[request.request_id] for request in asked]


def mean_gap(engine: RolloutEngine, policy: PolicyEngine, asked: list[Request]) -> float:
    """Nats, mean over tokens: how far the engine's log-probs of what it samples are from the policy's."""
    done = generated(engine, asked)
    responses = Ragged.from_rows([each.response_ids for each in done], "int32")
    prompts = Ragged.from_rows([request.prompt_ids for request in asked], "int32")
    theirs = np.concatenate([each.log_probs for each in done])
    ours = policy.forward_log_probs(DataProto({"prompt_ids": prompts, "response_ids": responses}), temperature=1.0)
    return float(np.abs(ours["log_probs"] - theirs).mean())


def weight_bytes(policy: FsdpPolicy) -> int:
    """Of what a sync hands over, tied weights once."""
    dtype = resolve_dtype(policy.settings.rollout_dtype, policy.device)
    return sum(parameter.numel() for parameter in policy.module.parameters()) * dtype.itemsize
