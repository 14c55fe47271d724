"""Measure optimiser updates with the plan's choices: tokens per second, model FLOPs utilisation (MFU), and peak memory
and seconds compared with the plan's.

Recomputation in the backward pass does not count as work of the model (Chowdhery et al., 2204.02311, appendix B). The
output layer computes logits of response tokens only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from benchmarks._allocated import allocated
from benchmarks.gpu_check.checks.compile import DEADLINE_S
from benchmarks.gpu_check.kernel_time import shares_of_time
from benchmarks.gpu_check.policies import model_path, policy_of, rows, synchronize
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings, Skip
from verl_like.algorithms.actor_loss import SftLoss
from verl_like.backends.fsdp.learner import FsdpLearner
from verl_like.backends.fsdp.optim import local_shard
from verl_like.config.schema import Config, OptimConfig
from verl_like.plan.devices import GIB, PRODUCT_SHARE
from verl_like.plan.location import location_of
from verl_like.plan.passes import passes_seconds, rows_of
from verl_like.plan.run_plan import USABLE_FRAC, plan_of, shapes_of
from verl_like.plan.seconds import BACKWARD
from verl_like.plan.shape import ModelShape
from verl_like.plan.stages import Role, roles_of
from verl_like.workers.engine_settings import engine_settings

NUM_TIMES = 3
# A plan reserves this share for memory that it cannot predict. A plan of twice the need would refuse possible runs.
MAX_OVER_PLAN, MIN_OVER_PLAN = 1 / USABLE_FRAC, 0.5


def check(scene: Scene) -> Findings:
    found = Findings()
    for size in scene.sizes:
        config = _config(scene, model_path(scene, size))
        place = location_of(config, is_timed=True)
        if place is None:
            raise Skip("the driver does not report the GPU's memory")
        shapes = shapes_of(config)
        config = plan_of(config, shapes, place).config
        [actor] = [role for role in roles_of(config, shapes, place) if role.name == "actor"]
        planned = sum(actor.update.values())
        if planned > USABLE_FRAC * place.device.memory_gib * GIB:
            found.notes.append(f"without {size}: needs {planned / GIB:.0f} of {place.device.memory_gib:.0f} GiB")
            continue
        _measure(found, scene, size, config, actor)
    return found


def _measure(found: Findings, scene: Scene, size: str, config: Config, actor: Role) -> None:
    """Add the figures of one model; the last model's replace those without a size in their names."""
    prompt, response = config.data.max_prompt_length, config.data.max_response_length
    num_rows = config.actor.mini_batch_size * config.rollout.n
    table = rows(Path(config.model.path), [prompt] * num_rows, [response] * num_rows)
    started = time.perf_counter()
    engine = policy_of(engine_settings(config, config.actor, device=scene.device))
    built = time.perf_counter()
    found.must(
        engine.warm_up(DEADLINE_S) or not engine.settings.use_torch_compile, f"{size}: the log-probs did not compile"
    )
    engine.compile_layers(DEADLINE_S)
    # Shown if the check reaches its limit.
    print(f"{size}: built in {built - started:.1f} s, compiled in {time.perf_counter() - built:.1f} s", flush=True)
    learner = engine.learner(OptimConfig(), total_updates=0, max_response_tokens=response)

    def update() -> None:
        learner.update(table, SftLoss())

    update()  # creates the optimiser's state
    planned = sum(actor.update.values())
    peak = _peak_bytes(scene, learner, update)
    seconds = median(_seconds(scene, update) for _ in range(NUM_TIMES))
    print(f"{size}: {seconds:.3f} s an update, peak {peak / GIB:.1f} GiB of {planned / GIB:.1f} planned", flush=True)
    found.add(f"{size}_tokens_per_s", num_rows * (prompt + response) / seconds)
    found.add("peak_vs_plan", peak / planned, at_most=MAX_OVER_PLAN, at_least=MIN_OVER_PLAN)
    found.figures |= {f"{size}_peak_gib": peak / GIB, f"{size}_peak_vs_plan": peak / planned, f"{size}_s": seconds}
    device = actor.location.device
    if math.isnan(device.tflops):
        found.notes.append(f"no mfu: {device.name} is not in the table of devices")
        return
    planned_rows = rows_of(config, actor, response, epochs=1, mini_batch_size=config.actor.mini_batch_size)
    found.figures[f"{size}_planned_s"] = passes_seconds(config, actor, planned_rows)
    # A CPU's tflops are the measured ones divided by the share that training reaches; undo that.
    most = device.tflops * 1e12 * (PRODUCT_SHARE if scene.device == "cpu" else 1)
    work = num_rows * (1 + BACKWARD) * _row_flops(actor.sharded.shape, prompt, response)
    found.add("mfu", work / seconds / most)
    found.figures[f"{size}_mfu"] = found.figures["mfu"]
    if scene.device == "cuda":
        found.figures |= {f"{size}_{kind}_frac": share for kind, share in shares_of_time(update).items()}


def _row_flops(shape: ModelShape, prompt: int, response: int) -> float:
    """Return the FLOPs of a forward pass over a row."""
    tokens = prompt + response - 1
    body = replace(shape, vocab_size=0).flops_per_token(tokens / 2)
    return tokens * body + 2.0 * response * shape.vocab_size * shape.hidden_size


def _config(scene: Scene, path: Path) -> Config:
    """Return the config of one mini-batch of equally long rows, in several micro-batches."""
    config = Config()
    config.model.path = str(path)
    config.cluster.device, config.cluster.workers_per_node = scene.device, 1
    config.data.max_prompt_length, config.data.max_response_length = (32, 96) if scene.is_small else (128, 896)
    config.actor.mini_batch_size, config.rollout.n = 8, 8
    config.data.train_batch_size = config.actor.mini_batch_size
    return config


def _peak_bytes(scene: Scene, learner: FsdpLearner, update: Callable[[], None]) -> float:
    """Return the peak bytes that torch allocates during an update, including weights and moments."""
    if scene.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        update()
        return float(torch.cuda.max_memory_allocated())
    states = [value for state in learner.optimizer.state.values() for value in state.values()]
    held = [*learner.engine.module.parameters(), *states]
    return sum(local_shard(tensor).nbytes for tensor in held) + allocated(update)


def _seconds(scene: Scene, update: Callable[[], None]) -> float:
    synchronize(scene)
    started = time.perf_counter()
    update()
    synchronize(scene)
    return time.perf_counter() - started
