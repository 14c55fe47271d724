"""The plan's seconds of updates, held against a count on the real modules."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import Qwen3MoeConfig

from benchmarks import gpu_count, plan_table
from verl_like.config.schema import ModelConfig
from verl_like.plan.counter import Work, WorkCounter
from verl_like.plan.devices import named
from verl_like.plan.passes import (
    LAUNCH_S,
    Rows,
    link_bytes_per_s,
    memory_bytes_per_s,
    passes_seconds,
    product_flops,
    work_seconds,
)
from verl_like.plan.run_plan import shapes_of
from verl_like.plan.shape import model_shape
from verl_like.plan.stages import Location, Role, roles_of
from verl_like.plan.work import OutputPass, layer_work, output_work

MOST_ERROR = 0.15


@pytest.mark.parametrize("name", gpu_count.MODELS)
@pytest.mark.parametrize("change", [gpu_count.as_is, gpu_count.before], ids=["defaults", "unfused-and-recomputed"])
def test_the_plan_is_near_a_count_on_the_real_modules(name: str, change: gpu_count.Change, tmp_path: Path) -> None:
    plan_table.write(tmp_path, name)
    config = gpu_count.configuration(tmp_path)
    change(config)
    counted_s, planned_s, utilisation = gpu_count.update(config)
    assert planned_s == pytest.approx(counted_s, rel=MOST_ERROR)
    assert 0.1 < utilisation < 0.62


def test_operations_count_with_their_bytes_and_products_with_their_flops() -> None:
    a, b = torch.empty(6, 4, device="meta"), torch.empty(4, 5, device="meta")
    with WorkCounter() as counter:
        c = a @ b
    assert counter.work == Work(launches=1, flops=2 * 6 * 4 * 5, product_bytes=4 * (24 + 20 + 30))
    with WorkCounter() as counter:
        c.t().reshape(5, 6)[1:]  # views
        torch.empty_like(c)
    assert counter.work.launches == 0
    with WorkCounter() as counter:
        c.add_(1)
        c + c.new_empty(1, 5).expand(6, 5)
    assert counter.work == Work(launches=2, other_bytes=4 * (2 * 30 + 30 + 5 + 30))
    with WorkCounter() as counter:
        torch.mm(a, b, out=c)
    assert counter.work == Work(launches=1, flops=240, product_bytes=4 * (24 + 20 + 30))
    with WorkCounter() as counter:
        nn.functional.embedding(torch.empty(3, dtype=torch.int64, device="meta"), torch.empty(1000, 8, device="meta"))
    assert counter.work == Work(launches=1, other_bytes=2 * 4 * 24), "three rows, not the table"


def test_work_takes_the_longer_of_the_gpus_time_and_the_hosts() -> None:
    device = named("H100")
    large = Work(launches=1, flops=product_flops(device), product_bytes=memory_bytes_per_s(device))
    assert work_seconds(large, device) == pytest.approx(2)
    assert work_seconds(Work(launches=1e6, other_bytes=1), device) == pytest.approx(1e6 * LAUNCH_S)


def test_the_work_of_a_layer_is_what_is_expected_of_it(tmp_path: Path) -> None:
    plan_table.write(tmp_path, "0.5B")
    shape = model_shape(str(tmp_path), ModelConfig(path=str(tmp_path)))
    eager, fused = (layer_work(shape, 4096, dtype=torch.bfloat16, is_fused=is_fused) for is_fused in (False, True))
    weights = shape.hidden_size * (2 * 14 * 64 + 2 * 2 * 64 + 3 * shape.intermediate_size)
    assert eager.forward.flops == pytest.approx(2 * 4096 * weights)
    assert eager.backward.flops == pytest.approx(2 * eager.forward.flops)
    assert fused.forward.flops == pytest.approx(eager.forward.flops)
    assert fused.forward.other_bytes < 0.6 * eager.forward.other_bytes
    # Recomputation ends at the last tensor that backward needs, which is before the last product.
    down = 2 * 4096 * shape.hidden_size * shape.intermediate_size
    assert eager.recomputed.flops == pytest.approx(eager.forward.flops - down)
    frozen = layer_work(shape, 4096, dtype=torch.bfloat16, is_fused=True, has_frozen_weights=True)
    assert frozen.backward.flops == pytest.approx(fused.forward.flops)


def test_the_output_layer_computes_dropped_logits_again(tmp_path: Path) -> None:
    plan_table.write(tmp_path, "0.5B")
    shape = model_shape(str(tmp_path), ModelConfig(path=str(tmp_path)))
    how = OutputPass(dtype=torch.bfloat16, budget_mib=512, is_compiled=True, entropy=False, learns=True)
    found = output_work(shape, 8192, how)
    once = 2 * 8192 * shape.hidden_size * shape.vocab_size
    assert found.forward.flops == pytest.approx(once)
    assert 2.8 * once < found.backward.flops < 3 * once
    much = OutputPass(dtype=torch.bfloat16, budget_mib=16_384, is_compiled=True, entropy=False, learns=True)
    assert output_work(shape, 8192, much).backward.flops == pytest.approx(2 * once), "everything is kept"


def test_experts_on_their_ranks_are_not_gathered_but_states_of_tokens_travel(tmp_path: Path) -> None:
    sizes = {"hidden_size": 1024, "num_hidden_layers": 4, "moe_intermediate_size": 512, "num_experts": 64}
    Qwen3MoeConfig(**sizes, num_experts_per_tok=8, vocab_size=1024).save_pretrained(tmp_path)
    config = gpu_count.configuration(tmp_path)
    device = replace(named("H100"), peer_gb_s=1.0)  # so that everything else is short
    location = Location(device=device, ranks=8, ranks_per_node=8)
    rows = Rows(count=64, prompt_tokens=64, response_tokens=64, context=64, num_passes=8, num_updates=1)

    def role(*, is_parallel: bool, shard_size: str = "all") -> Role:
        changed = deepcopy(config)
        changed.actor.fsdp.expert_parallel, changed.actor.fsdp.shard_size = is_parallel, shard_size
        return roles_of(changed, shapes_of(changed), location)[0]

    gathered, parallel = role(is_parallel=False), role(is_parallel=True)
    own = parallel.sharded.own_experts
    assert own is not None and own.num_parameters == 4 * 64 * 3 * 1024 * 512 and gathered.sharded.own_experts is None
    bytes_per_s = link_bytes_per_s(location, 8)
    # Two gathers in bfloat16 and one reduction in float32 for each pass, without the experts.
    expected = 8 * (2 * 2 + 4) * parallel.sharded.num_gathered / bytes_per_s
    # There and back, forward and backward, and again for layers that are recomputed, to seven of eight ranks.
    times = 2 * (2 + parallel.run.recomputed / 4)
    exchanged = times * 4 * 8 * rows.tokens * 2 * 1024 * 7 / 8 / bytes_per_s
    seconds = passes_seconds(config, parallel, rows)
    assert exchanged < seconds < 1.1 * (expected + exchanged)
    assert passes_seconds(config, gathered, rows) > 8 * 8 * own.num_parameters / bytes_per_s > 3 * seconds
    # Three of four ranks are others, and the experts' gradients are summed over two copies.
    copies = role(is_parallel=True, shard_size="4")
    summed = 4 * own.num_parameters / 4 / bytes_per_s
    assert passes_seconds(config, copies, rows) > exchanged * (3 / 4) / (7 / 8) + summed
