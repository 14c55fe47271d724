"""Rows with the experts of an engine, and updates on them, on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from tests.unit._fsdp_ranks import _SHAPE, PolicyLoss, build_learner, make_rows, my_rows, weights_of
from verl_like.config.schema import FsdpConfig
from verl_like.protocol import EXPERTS, DataProto, Ragged

NUM_EXPERTS, TOP_K, NUM_LAYERS = 6, 2, 2
SETTINGS: dict[str, dict[str, Any]] = {
    "sharded": {"max_tokens": 25},
    "replicas": {"max_tokens": 25, "fsdp": FsdpConfig(shard_size="1")},
    "recomputed": {"max_tokens": 25, "model": {"gradient_checkpointing": "true"}},
}
OF_TWO = {**SETTINGS, "ulysses": {"max_tokens": 25, "sequence_parallel_size": 2}}


def write_mixture(folder: Path, *, num_experts: int = NUM_EXPERTS) -> Path:
    """Write a small mixture of experts with random weights."""
    import torch

    torch.manual_seed(11)
    config = Qwen3MoeConfig(
        **_SHAPE,
        head_dim=8,
        num_experts=num_experts,
        num_experts_per_tok=TOP_K,
        moe_intermediate_size=16,
        norm_topk_prob=True,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    return folder


def routed_rows(num_rows: int = 12, *, seed: int = 0) -> DataProto:
    """Return rows with random experts, which are the same for the same prompt."""
    rows, numbers = make_rows(num_rows, seed=seed), np.random.default_rng(seed)
    of_prompts: dict[bytes, Any] = {}
    found = []
    for prompt, response in zip(rows.ragged("prompt_ids"), rows.ragged("response_ids"), strict=True):
        of_prompt = of_prompts.setdefault(prompt.tobytes(), _drawn(len(prompt), numbers))
        found.append(np.concatenate([of_prompt, _drawn(len(response) - 1, numbers)]).reshape(-1))
    return DataProto({**rows.columns, EXPERTS: Ragged.from_rows(found, "uint8")})


def _drawn(num_tokens: int, numbers: np.random.Generator) -> Any:
    first = numbers.integers(0, NUM_EXPERTS, (num_tokens, NUM_LAYERS, 1))
    return (first + np.arange(TOP_K)) % NUM_EXPERTS


def updated(path: Path, **settings: Any) -> dict[str, Any]:
    """Return the metrics of two updates, and the weights after them."""
    learner = build_learner(path, router_replay=True, **settings)
    rows = my_rows(routed_rows(), "even")
    metrics = [learner.update(rows, PolicyLoss()) for _ in range(2)]
    return {"metrics": metrics, "weights": weights_of(learner.engine)}


def balanced(path: Path, coefficient: float, **settings: Any) -> dict[str, Any]:
    """Return the metrics of two updates with the loss that balances experts, and the weights after them."""
    learner = build_learner(path, router_aux_loss_coef=coefficient, **settings)
    metrics = [learner.update(my_rows(make_rows(), "even"), PolicyLoss()) for _ in range(2)]
    return {"metrics": metrics, "weights": weights_of(learner.engine)}


def rebalanced(path: Path, rate: float, rows: DataProto | None = None) -> dict[str, Any]:
    """Return the biases of a router that chooses with one, after an update, and the metrics of its loads."""
    learner = build_learner(path, router_bias_rate=rate, max_tokens=25)
    metrics = learner.update(my_rows(make_rows() if rows is None else rows, "even"), PolicyLoss())
    weights = weights_of(learner.engine)
    [name] = [name for name in weights if name.endswith("e_score_correction_bias")]
    return {"bias": weights[name], "loads": {name: value for name, value in metrics.items() if name.startswith("moe/")}}


def write_biased(folder: Path) -> Path:
    """Write a small mixture whose routers choose with a bias."""
    import torch

    torch.manual_seed(12)
    config = DeepseekV3Config(
        **{**_SHAPE, "num_key_value_heads": 4},
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=16,
        kv_lora_rank=16,
        q_lora_rank=None,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
        n_shared_experts=1,
    )
    DeepseekV3ForCausalLM(config).save_pretrained(folder)
    return folder


def two_rank_updates(path: Path) -> dict[str, Any]:
    return {name: updated(path, **settings) for name, settings in OF_TWO.items()}
