"""Routers of each family: they record what they choose, choose what is given, and learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    DeepseekV2Config,
    DeepseekV3Config,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    OlmoeConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
)

from verl_like.ops.routers import OWN, Routers, Sequences

SHAPE: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
LATENT = {
    "moe_intermediate_size": 16,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
}
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "qwen3-moe": lambda: Qwen3MoeConfig(
        **SHAPE, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True
    ),
    "olmoe": lambda: OlmoeConfig(**SHAPE, num_experts=6, num_experts_per_tok=3),  # weights that do not sum to 1
    "mixtral": lambda: MixtralConfig(**SHAPE, num_local_experts=6, num_experts_per_tok=2),
    "gpt-oss": lambda: GptOssConfig(**SHAPE, head_dim=16, num_local_experts=6, num_experts_per_tok=2),
    "deepseek-v3": lambda: DeepseekV3Config(**SHAPE, **LATENT, n_group=2, topk_group=1),  # first a choice of groups
    "deepseek-v2": lambda: DeepseekV2Config(**SHAPE, **LATENT, topk_method="greedy"),
}
IDS = torch.arange(18).view(2, 9) * 7 % 50


def made(config: PreTrainedConfig, **experts: str) -> PreTrainedModel:
    torch.manual_seed(3)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, **experts).eval()
    return model


def logits(model: PreTrainedModel) -> Tensor:
    found: Tensor = model(IDS, use_cache=False).logits
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_experts_are_recorded_replayed_and_replaced(name: str) -> None:
    model = made(CONFIGS[name]())
    with torch.no_grad():
        plain = logits(model)
        routers = Routers(model)
        routers.begin_recording()
        assert torch.equal(logits(model), plain), "recording changes nothing"
        chosen = routers.recorded()
        assert chosen.shape == (IDS.numel(), routers.num_layers, routers.top_k)
        routers.replay(chosen)
        assert torch.equal(logits(model), plain), "its own experts change nothing"
        assert routers.take_difference() == (0, chosen.shape[0] * chosen.shape[1])
        others = (chosen + 1) % routers.num_experts
        routers.replay(others)
        assert (logits(model) - plain).abs().max() > 0.1
        assert torch.equal(routers.recorded(), others)
        num_other, num_given = routers.take_difference()
        assert 0 < num_other <= num_given == chosen.shape[0] * chosen.shape[1]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_token_without_given_experts_chooses_itself(name: str) -> None:
    model = made(CONFIGS[name]())
    routers = Routers(model)
    routers.begin_recording()
    with torch.no_grad():
        logits(model)
        first = routers.recorded()[:, :1]  # later layers see what the first one did
        given = torch.full_like(routers.recorded(), OWN)
        given[::2] = (routers.recorded()[::2] + 1) % routers.num_experts
        routers.replay(given)
        logits(model)
    assert torch.equal(routers.recorded()[::2], given[::2])
    assert torch.equal(routers.recorded()[1::2, :1], first[1::2])
    assert routers.take_difference()[1] == len(given[::2]) * routers.num_layers


@pytest.mark.parametrize("name", CONFIGS)
def test_the_router_learns_through_the_weights_of_given_experts(name: str) -> None:
    """The gradient of a router's weight is the finite difference of a loss with the same experts."""
    model = made(CONFIGS[name](), experts_implementation="eager").double()
    routers = Routers(model)
    first = torch.randint(routers.num_experts, (IDS.numel(), routers.num_layers, 1))
    routers.replay((first + torch.arange(routers.top_k)) % routers.num_experts)
    weight = next(
        parameter for key, parameter in model.named_parameters() if key.endswith((".gate.weight", ".router.weight"))
    )
    logits(model).log_softmax(-1)[..., 3].mean().backward()
    assert weight.grad is not None and weight.grad.abs().max() > 1e-4
    direction, step = torch.randn_like(weight), 1e-3  # some routers compute in float32
    losses = []
    with torch.no_grad():
        for sign in (1, -1):
            weight += sign * step * direction
            losses.append(logits(model).log_softmax(-1)[..., 3].mean())
            weight -= sign * step * direction
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(float((weight.grad * direction).sum()), rel=2e-3)


def test_a_dense_model_is_refused() -> None:
    with pytest.raises(ValueError, match=r"LlamaForCausalLM has no router .* rollout.router_replay=false"):
        Routers(made(LlamaConfig(**SHAPE)))


def test_a_router_that_masks_the_weights_of_other_groups_is_refused() -> None:
    config = DeepseekV2Config(**SHAPE, **LATENT, topk_method="group_limited_greedy", n_group=2, topk_group=1)
    with pytest.raises(ValueError, match="group_limited_greedy"):
        Routers(made(config))


def test_a_router_without_affinities_of_all_experts_is_not_balanced() -> None:
    model = made(CONFIGS["gpt-oss"]())
    positions = torch.arange(IDS.numel())
    Routers(model).balance(Sequences(positions, positions // IDS.shape[1], len(IDS)))
    with pytest.raises(ValueError, match=r"GptOssTopKRouter takes neither .* Set actor\.router_aux_loss_coef=0\."):
        logits(model)
