"""The learning-rate schedule and the optimiser's groups."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from benchmarks._allocated import allocated
from verl_like.backends.fsdp.optim import build_optimizer, build_schedule, lr_factor
from verl_like.config.schema import OptimConfig


def factors(total: int, **fields: object) -> list[float]:
    return [round(lr_factor(update, OptimConfig(**fields), total), 6) for update in range(total + 2)]


def test_constant_rate_rises_linearly_then_stays() -> None:
    assert factors(4, warmup_steps=3) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_warm_up_may_be_a_fraction_of_all_updates() -> None:
    assert factors(12, warmup_frac=0.25) == factors(12, warmup_steps=3)
    linear = factors(12, warmup_frac=0.25, schedule="linear")
    assert linear == factors(12, warmup_steps=3, schedule="linear")


def test_linear_rate_falls_to_its_floor_and_stays_there() -> None:
    assert factors(4, schedule="linear", min_lr_ratio=0.2) == [1, 0.8, 0.6, 0.4, 0.2, 0.2]


def test_cosine_rate_is_half_way_at_half_time() -> None:
    found = factors(4, schedule="cosine")
    assert found[0] == 1
    assert found[2] == 0.5
    assert found[4] == found[5] == 0


def test_a_falling_schedule_needs_its_end() -> None:
    optimizer = build_optimizer(nn.Linear(2, 2), OptimConfig())
    for config in (OptimConfig(schedule="cosine"), OptimConfig(warmup_frac=0.1)):
        reported = rf"optim\.schedule is {config.schedule}.*trainer\.total_training_steps"
        with pytest.raises(ValueError, match=reported):
            build_schedule(optimizer, config, 0)


def test_norms_and_biases_do_not_decay() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    decaying, plain = build_optimizer(module, OptimConfig(weight_decay=0.1)).param_groups
    assert decaying["weight_decay"] == 0.1
    assert [p.ndim for p in decaying["params"]] == [2]
    assert plain["weight_decay"] == 0
    assert [p.ndim for p in plain["params"]] == [1, 1, 1]


def test_a_step_moves_what_adamw_moves_and_makes_no_copy_of_the_parameters() -> None:
    torch.manual_seed(0)
    module = nn.Linear(512, 512)
    plain = copy.deepcopy(module)
    config = OptimConfig(lr=1e-3, weight_decay=0.1)
    ours = build_optimizer(module, config)
    peer = torch.optim.AdamW(
        [{"params": [plain.weight]}, {"params": [plain.bias], "weight_decay": 0.0}],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=config.weight_decay,
        foreach=False,
    )
    for _ in range(3):
        for parameter, twin in zip(module.parameters(), plain.parameters(), strict=True):
            parameter.grad = torch.randn_like(parameter)
            twin.grad = parameter.grad.clone()
        peak = allocated(ours.step)
        peer.step()
    torch.testing.assert_close(module.weight, plain.weight, rtol=0, atol=1e-7)
    torch.testing.assert_close(module.bias, plain.bias, rtol=0, atol=1e-7)
    assert peak < module.weight.nbytes / 10
