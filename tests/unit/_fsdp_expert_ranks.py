"""Updates of mixtures whose experts stay on their ranks, on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import MixtralConfig, MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM

from tests.unit._fsdp_ranks import (
    _SHAPE,
    BFLOAT16,
    PolicyLoss,
    ValueLoss,
    build_engine,
    build_learner,
    every_layer_a_group,
    make_rows,
    my_rows,
    weights_of,
)
from tests.unit._fsdp_router_ranks import routed_rows, write_biased
from verl_like.backends.fsdp.expert_parallel import experts_of
from verl_like.config.schema import FsdpConfig, LoraConfig
from verl_like.protocol import DataProto

GATHERED = FsdpConfig(shard_size="all")
PARALLEL = FsdpConfig(expert_parallel=True)
LORA = {"lora": LoraConfig(rank=4, alpha=8, targets=["q_proj", "v_proj", "o_proj"])}
RECOMPUTED = {"gradient_checkpointing": "true"}

# What must not change an update, and what changes it for one rank and several alike.
EQUAL: dict[str, dict[str, Any]] = {
    "plain": {},
    "one_pass": {"max_tokens": 10_000},
    "uneven": {"split": "uneven"},
    "no_rows_on_one_rank": {"split": "all_on_first"},
    "no_columns_on_one_rank": {"split": "nothing"},
    "padded": {"max_tokens": 40, "model": {"remove_padding": False}},
    "recomputed": {"model": RECOMPUTED},
    "recomputed_without_rows": {"split": "all_on_first", "model": RECOMPUTED},
    "sequence_parallel": {"sequence_parallel_size": 2},
    "sequence_parallel_recomputed": {"sequence_parallel_size": 2, "model": RECOMPUTED},
}
DIFFERENT: dict[str, dict[str, Any]] = {
    "lora": {"model": LORA},
    "lora_recomputed": {"model": {**LORA, **RECOMPUTED}},
    "replayed": {"router_replay": True},
    "balanced": {"router_aux_loss_coef": 0.1},
    "frozen_routers": {"freeze_router": True},
    "value": {"kind": "value"},
}


def updated(path: Path, *, split: str = "even", kind: str = "policy", **settings: Any) -> dict[str, Any]:
    """Return the metrics of two updates and the weights after them."""
    learner = build_learner(path, kind=kind, **{"fsdp": PARALLEL, "max_tokens": 25, **settings})
    make: Callable[..., DataProto] = routed_rows if settings.get("router_replay") else make_rows
    loss = PolicyLoss() if kind == "policy" else ValueLoss()
    metrics = [learner.update(my_rows(make(seed=seed), split), loss) for seed in (1, 2)]
    return {"metrics": metrics, "weights": weights_of(learner.engine)}


def updates(path: Path) -> dict[str, Any]:
    """Return two updates in each setting."""
    with every_layer_a_group():
        results = {
            "layer_groups": updated(path),
            "layer_groups_recomputed": updated(path, split="all_on_first", model=RECOMPUTED),
        }
    return {**results, **{name: updated(path, **settings) for name, settings in (EQUAL | DIFFERENT).items()}}


def updates_of_copies(path: Path) -> dict[str, Any]:
    """Return two updates of four ranks that share the experts, and of two pairs with a copy each."""
    copies = FsdpConfig(shard_size="2", expert_parallel=True)
    return {
        "four": updated(path),
        "four_recomputed": updated(path, split="all_on_first", model=RECOMPUTED),
        "four_sequence_parallel": updated(path, sequence_parallel_size=2),
        "copies": updated(path, fsdp=copies),
        "copies_uneven": updated(path, fsdp=copies, split="uneven"),
        "copies_without_rows": updated(path, fsdp=copies, split="nothing", model=RECOMPUTED),
    }


def kept(path: Path) -> dict[str, Any]:
    """Return the experts that this rank holds in memory, and the gradients of a pass."""
    learner = build_learner(path, fsdp=PARALLEL)
    module = learner.engine.module
    sizes = []

    def seen(experts: Any, arguments: Any) -> None:
        sizes.append([parameter.to_local().shape[0] for parameter in experts.parameters()])

    for experts in experts_of(module.backbone):
        experts.register_forward_pre_hook(seen)
    learner.engine.forward_log_probs(my_rows(make_rows(), "even"), temperature=1.0)
    return {"sizes": sizes}


def checkpoints(path: Path, work: Path) -> dict[str, Any]:
    """Save with experts on their ranks and with gathered ones, and continue each in both ways."""
    results: dict[str, Any] = {}
    for name, fsdp in (("parallel", PARALLEL), ("gathered", GATHERED)):
        learner = build_learner(path, fsdp=fsdp, max_tokens=25)
        learner.update(my_rows(make_rows(seed=1), "even"), PolicyLoss())
        learner.save(work / name)
        results[f"{name}_uninterrupted"] = continued(learner)
    for name in ("parallel", "gathered"):
        for reader, fsdp in (("parallel", PARALLEL), ("gathered", GATHERED)):
            other = build_learner(path, fsdp=fsdp, max_tokens=25)
            other.load(work / name)
            results[f"{name}_read_by_{reader}"] = continued(other)
    return results


def continued(learner: Any) -> dict[str, Any]:
    return {
        "metrics": [learner.update(my_rows(make_rows(seed=2), "even"), PolicyLoss())],
        "weights": weights_of(learner.engine),
    }


def loaded(path: Path, folder: Path) -> dict[str, Any]:
    """Return an update by any number of ranks after a checkpoint."""
    learner = build_learner(path, fsdp=PARALLEL, max_tokens=25)
    learner.load(folder)
    return continued(learner)


def exported(path: Path, out: Path) -> dict[str, Tensor]:
    """Export after an update, and return the weights that the rollout gets."""
    learner = build_learner(path, fsdp=PARALLEL, max_tokens=25)
    learner.update(my_rows(make_rows(seed=1), "even"), PolicyLoss())
    learner.engine.export(out)
    return weights_of(learner.engine)


def write_mixtral(folder: Path) -> Path:
    """Write a small Mixtral with random weights."""
    torch.manual_seed(13)
    config = MixtralConfig(**_SHAPE, head_dim=8, num_local_experts=4, num_experts_per_tok=2)
    MixtralForCausalLM(config).save_pretrained(folder)
    return folder


def write_olmoe(folder: Path) -> Path:
    """Write a small OLMoE with random weights."""
    torch.manual_seed(14)
    OlmoeForCausalLM(OlmoeConfig(**_SHAPE, num_experts=4, num_experts_per_tok=2)).save_pretrained(folder)
    return folder


FAMILIES: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "Mixtral": (write_mixtral, {}),
    "OLMoE": (write_olmoe, {}),
    "DeepSeek-V3": (write_biased, {"router_bias_rate": 0.01}),
}


def families(work: Path) -> dict[str, Any]:
    """Return two updates of a model of each family in the folder."""
    return {name: updated(work / name, **settings) for name, (_, settings) in FAMILIES.items()}


def in_bfloat16(path: Path) -> dict[str, Any]:
    """Return two updates whose forward passes are in bfloat16, with experts on their ranks and with gathered ones."""
    parallel = FsdpConfig(expert_parallel=True, param_dtype="bfloat16")
    return {"parallel": updated(path, fsdp=parallel), "gathered": updated(path, fsdp=BFLOAT16)}


def copied(path: Path) -> list[dict[str, Tensor]]:
    """Return the weights after an update, and those of references that have copied them."""
    learner = build_learner(path, fsdp=PARALLEL, max_tokens=25)
    references = [build_engine(path, is_frozen=True, fsdp=fsdp) for fsdp in (PARALLEL, GATHERED)]
    learner.update(my_rows(make_rows(seed=1), "even"), PolicyLoss())
    for reference in references:
        reference.copy_weights(learner.engine)
    return [weights_of(engine) for engine in (learner.engine, *references)]
