"""Tiny models, rows and losses for the FSDP tests, and scenarios that run on one rank or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tests.unit._rank_processes import on_ranks
from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.algorithms.types import BatchTotals, LossOutput
from verl_like.backends.base import EngineSettings
from verl_like.backends.fsdp import loading, sharding
from verl_like.backends.fsdp.gathering import CollectiveGather, SharedGather, gather_on
from verl_like.backends.fsdp.learner import FsdpLearner
from verl_like.backends.fsdp.optim import local_shard
from verl_like.backends.fsdp.policy import FsdpPolicy
from verl_like.backends.fsdp.value import FsdpClassifier, FsdpValue
from verl_like.config.schema import ActorConfig, FsdpConfig, LoraConfig, ModelConfig, OptimConfig
from verl_like.protocol import DataProto, Ragged

VOCAB = 64
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}


def tiny_model(family: str, *, tied: bool = False, **changes: Any) -> PreTrainedModel:
    """Return a randomly initialised model whose numbers are large enough to distinguish."""
    torch.manual_seed(7)
    shape = {**_SHAPE, "tie_word_embeddings": tied, **changes}
    if family == "qwen2":
        model: PreTrainedModel = Qwen2ForCausalLM(Qwen2Config(**shape))
    elif family == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=8))
    else:
        model = LlamaForCausalLM(LlamaConfig(**shape))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:  # norms start at one and biases at zero, which would hide a mistake
                parameter.add_(torch.randn_like(parameter) * 0.1)
            assert parameter.isfinite().all(), name
    return model.eval()


def make_rows(num_rows: int = 12, *, seed: int = 0, longest: int = 9) -> DataProto:
    """Rows of uneven prompts, three with each, and responses, with some response tokens masked and all columns a loss
    may want.
    """
    rng = np.random.default_rng(seed)
    prompts = Ragged.from_rows([rng.integers(0, VOCAB, rng.integers(1, longest)) for _ in range(num_rows)], "int32")
    prompts = prompts.take(np.arange(num_rows) // 3 * 3)
    responses = Ragged.from_rows([rng.integers(0, VOCAB, rng.integers(1, longest)) for _ in range(num_rows)], "int32")
    size = len(responses.values)

    def aligned(values: Any) -> Ragged:
        return Ragged(values, responses.offsets)

    return DataProto(
        {
            "prompt_ids": prompts,
            "response_ids": responses,
            "response_mask": aligned(rng.random(size) < 0.8),
            "advantages": aligned(rng.normal(size=size).astype(np.float32)),
            "returns": aligned(rng.normal(size=size).astype(np.float32)),
            "uid": [f"row-{i}" for i in range(num_rows)],
        }
    )


def with_candidates(rows: DataProto) -> DataProto:
    """Return the rows with candidates of each response token: none (the whole vocabulary), one, a few or most."""
    numbers = np.random.default_rng(4)
    responses = rows.ragged("response_ids")
    sets = [
        np.array([*{token, *numbers.integers(0, VOCAB, (0, 0, 5, 90)[index % 4]).tolist()}][: VOCAB * (index % 4)])
        for index, token in enumerate(responses.values.tolist())
    ]
    counts = Ragged(np.array([len(ids) for ids in sets], np.int32), responses.offsets)
    bounds = np.concatenate([[0], np.cumsum(counts.values)])
    ids = Ragged(np.concatenate(sets).astype(np.int32), bounds[responses.offsets])
    return DataProto({**rows.columns, "candidate_ids": ids, "num_candidates": counts})


class EveryRow:
    """The part of a loss that leaves no row out."""

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)


class PolicyLoss(EveryRow):
    """A token mean of advantage-weighted log-probs with an entropy bonus."""

    needs_entropy = True

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        mask = columns["response_mask"]
        assert mask.dtype == torch.bool
        assert columns["advantages"].dtype == torch.float32
        loss = (
            -((outputs["log_probs"] * columns["advantages"] + 0.1 * outputs["entropy"]) * mask).sum()
            / totals.num_tokens
        )
        entropy = (outputs["entropy"].detach() * mask).sum() / totals.num_tokens
        return LossOutput(loss=loss, metrics={"loss": loss.detach(), "entropy": entropy})


class ValueLoss(EveryRow):
    """Half the mean squared error against the returns."""

    needs_entropy = False

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        error = (outputs["values"] - columns["returns"]).square() * columns["response_mask"]
        loss = 0.5 * error.sum() / totals.num_tokens
        return LossOutput(loss=loss, metrics={"loss": loss.detach()})


ENGINES: dict[str, type[FsdpPolicy] | type[FsdpValue]] = {
    "policy": FsdpPolicy,
    "value": FsdpValue,
    "classifier": FsdpClassifier,
}


def build_engine(
    path: Path,
    *,
    kind: str = "policy",
    max_tokens: int = 10_000,
    model: dict[str, Any] | None = None,
    fsdp: FsdpConfig | None = None,
    **changes: Any,
) -> Any:
    """An engine that only runs forward; ``changes`` are fields of its settings."""
    settings: dict[str, Any] = {
        "model": ModelConfig(path=str(path), **(model or {})),
        "fsdp": fsdp or FsdpConfig(shard_size="all"),
        "max_tokens_per_micro_batch": str(max_tokens),
        "device": torch.device("cpu"),
        "temperature": 0.8,
        "seed": 3,
    }
    return ENGINES[kind](EngineSettings(**{**settings, **changes}))


def build_learner(path: Path, **settings: Any) -> FsdpLearner:
    """Return the learner of such an engine."""
    # A large eps, because some gradients are zero but for rounding, which Adam would blow up to whole steps.
    optim = OptimConfig(lr=1e-2, eps=1e-3, weight_decay=0.1, max_grad_norm=0.5, schedule="cosine", warmup_steps=1)
    learner: FsdpLearner = build_engine(path, **settings).learner(optim, total_updates=10, max_response_tokens=16)
    return learner


def weights_of(engine: FsdpPolicy | FsdpValue) -> dict[str, Tensor]:
    """Return every weight, unsharded; a policy's as the rollout gets them."""
    if isinstance(engine, FsdpPolicy):
        return {name: tensor.clone() for name, tensor in engine.named_weights()}
    engine.layout.reshard()
    return dict(engine.full_tensors(engine.module, torch.float32, is_kept=True))


def my_rows(rows: DataProto, split: str) -> DataProto:
    """This rank's share: ``even``, or ``uneven`` (the first has two thirds), or ``all_on_first``, or ``nothing`` (no
    columns at all).
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size == 1:
        return rows
    if split == "even":
        return rows.select_idxs(slice(rank, None, world_size))
    cut = {"uneven": 2 * len(rows) // 3, "all_on_first": len(rows), "nothing": len(rows)}[split]
    if split == "nothing" and rank > 0:
        return DataProto()
    return rows.select_idxs(slice(0, cut) if rank == 0 else slice(cut + rank - 1, None, world_size - 1))


def two_updates(path: Path, *, split: str = "even", kind: str = "policy", **settings: Any) -> dict[str, Any]:
    """Metrics of two updates and the weights after them."""
    learner = build_learner(path, kind=kind, **settings)
    assert not settings.get("compile_layers") or learner.engine.compile_layers(400.0)
    loss = PolicyLoss() if kind == "policy" else ValueLoss()
    metrics = [learner.update(my_rows(make_rows(seed=seed), split), loss) for seed in (1, 2)]
    forward = (
        learner.engine.forward_log_probs(my_rows(make_rows(), split), temperature=1.0)["log_probs"]
        if kind == "policy"
        else None
    )
    return {"metrics": metrics, "weights": weights_of(learner.engine), "forward": forward}


class CountedActorLoss(ActorLoss):
    """The actor's loss, and how many rows it was called with."""

    rows_run = 0

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        self.rows_run += len(columns["response_mask"])
        return super().__call__(outputs, columns, totals)


# Which rows of a mini-batch have an advantage: the even ones (on two ranks: those of the first), none, all but one,
# all.
ADVANTAGES_OF = (lambda row: row % 2 == 0, lambda row: False, lambda row: row != 5, lambda row: True)


def updates_by_advantage(path: Path, *, skip_zero_advantages: bool) -> list[dict[str, Any]]:
    """Return the metrics of an update on each of the mini-batches ``ADVANTAGES_OF``, its number of rows and the weights
    after it.
    """
    learner = build_learner(path, max_tokens=20)
    # Counts of tokens and of sequences both divide this loss.
    loss = CountedActorLoss(
        ActorConfig(skip_zero_advantages=skip_zero_advantages, loss_aggregation="seq-mean-token-mean")
    )
    reports = []
    for seed, has_advantage in enumerate(ADVANTAGES_OF):
        whole = make_rows(seed=seed)
        kept = [row * has_advantage(number) for number, row in enumerate(whole.ragged("advantages"))]
        whole.columns["advantages"] = Ragged.from_rows(kept, "float32")
        rows = my_rows(whole, "even")
        old_log_probs = learner.engine.forward_log_probs(rows, temperature=0.8)["log_probs"]
        rows.columns["old_log_probs"] = Ragged(old_log_probs, rows.ragged("response_ids").offsets)
        loss.rows_run = 0
        reports.append(
            {"metrics": learner.update(rows, loss), "rows_run": loss.rows_run, "weights": weights_of(learner.engine)}
        )
    return reports


# Scenarios: what a group of ranks does. Each takes the folder of models and returns what the test compares.


def updates(work: Path) -> dict[str, Any]:
    """Two updates in every setting that must not change them."""
    policy = work / "qwen2"
    results = {
        "plain": two_updates(policy),
        "uneven": two_updates(policy, split="uneven", max_tokens=20),
        "no_rows_on_one_rank": two_updates(policy, split="all_on_first", max_tokens=20),
        "no_columns_on_one_rank": two_updates(policy, split="nothing", max_tokens=20),
        "padded": two_updates(policy, max_tokens=40, model={"remove_padding": False}),
        "gradient_checkpointing": two_updates(policy, model={"gradient_checkpointing": "true"}),
        "value": two_updates(work / "llama", kind="value"),
        "value_uneven": two_updates(work / "llama", kind="value", split="uneven", max_tokens=20),
    }
    with every_layer_a_group():
        results["layer_groups"] = two_updates(policy, max_tokens=20)
        checkpointed = {"gradient_checkpointing": "true"}
        results["layer_groups_checkpointed"] = two_updates(
            policy, split="all_on_first", max_tokens=20, model=checkpointed
        )
    return results


WHOLE = FsdpConfig(shard_size="1")
BFLOAT16 = FsdpConfig(shard_size="all", param_dtype="bfloat16")
LORA = {"lora": LoraConfig(rank=4, alpha=8)}


def plain_updates(work: Path) -> dict[str, Any]:
    """Two updates of each kind of model, with nothing set."""
    return {
        "policy": two_updates(work / "qwen2"),
        "value": two_updates(work / "llama", kind="value"),
        "lora": two_updates(work / "qwen2", model=LORA),
        "one_key_head": two_updates(work / "one-key-head"),
        "bfloat16": two_updates(work / "qwen2", fsdp=BFLOAT16),
        "lora_bfloat16": two_updates(work / "qwen2", model=LORA, fsdp=BFLOAT16),
    }


def replicas(work: Path) -> dict[str, Any]:
    """Run updates of replicated models, and load a checkpoint of shards and one of replicas."""
    policy = work / "qwen2"
    results: dict[str, Any] = {
        "plain": two_updates(policy, fsdp=WHOLE),
        "uneven": two_updates(policy, split="uneven", max_tokens=20, fsdp=WHOLE),
        "no_rows_on_one_rank": two_updates(policy, split="all_on_first", max_tokens=20, fsdp=WHOLE),
        "no_columns_on_one_rank": two_updates(policy, split="nothing", max_tokens=20, fsdp=WHOLE),
        "gradient_checkpointing": two_updates(policy, model={"gradient_checkpointing": "true"}, fsdp=WHOLE),
        "value": two_updates(work / "llama", kind="value", split="uneven", max_tokens=20, fsdp=WHOLE),
        "tied": two_updates(work / "qwen3-tied", fsdp=WHOLE),
        "tied_shards": two_updates(work / "qwen3-tied"),
    }
    learner = build_learner(policy, fsdp=WHOLE)
    learner.load(work / f"checkpoint-{dist.get_world_size()}")
    results["loaded"] = {"metrics": learner.update(my_rows(make_rows(seed=2), "even"), PolicyLoss())}
    results["loaded"]["weights"] = weights_of(learner.engine)
    folder = work / f"checkpoint-replicas-{dist.get_world_size()}"
    learner.save(folder)
    for name, fsdp in (("loaded_again", WHOLE), ("loaded_by_shards", FsdpConfig(shard_size="all"))):
        other = build_learner(policy, fsdp=fsdp)
        other.load(folder)
        metrics = other.update(my_rows(make_rows(seed=3), "even"), PolicyLoss())
        results[name] = {"metrics": metrics, "weights": weights_of(other.engine)}
    results["small_buckets"] = two_updates(policy, fsdp=WHOLE, sync_bucket_mib=0.001)
    results["gradients"] = gradients_of_some_ranks(policy)
    results["sums"] = sums()
    return results


def sequences(work: Path) -> dict[str, Any]:
    """Two updates of models whose ranks share the tokens of their rows."""
    policy, shared = work / "qwen2", {"sequence_parallel_size": 2}
    results: dict[str, Any] = {
        "plain": two_updates(policy, **shared),
        "small_passes": two_updates(policy, max_tokens=10, **shared),
        "uneven": two_updates(policy, split="uneven", max_tokens=20, **shared),
        "no_rows_on_one_rank": two_updates(policy, split="all_on_first", max_tokens=20, **shared),
        "no_columns_on_one_rank": two_updates(policy, split="nothing", max_tokens=20, **shared),
        "a_prompt_for_each_row": two_updates(policy, model={"share_prompts": False}, **shared),
        "gradient_checkpointing": two_updates(policy, model={"gradient_checkpointing": "true"}, **shared),
        "replicas": two_updates(policy, fsdp=WHOLE, **shared),
        "value": two_updates(work / "llama", kind="value", **shared),
        "one_key_head": two_updates(work / "one-key-head", **shared),
        "lora": two_updates(policy, model=LORA, **shared),
    }
    with every_layer_a_group():
        results["layer_groups"] = two_updates(policy, max_tokens=20, **shared)
    engine = build_engine(policy, is_frozen=True, **shared)
    rows = my_rows(make_rows(), "even")
    results["frozen"] = engine.forward_log_probs(rows, temperature=0.7, entropy=True, sum_pi_squared=True)
    rows = my_rows(with_candidates(make_rows()), "even")
    results["candidates"] = engine.forward_log_probs(rows, temperature=0.7, entropy=True, sum_pi_squared=True)
    return results


def copies(work: Path) -> dict[str, Any]:
    """Two updates of models that groups of two ranks have between them, and checkpoints of those and of others."""
    policy, paired = work / "qwen2", FsdpConfig(shard_size="2")
    results: dict[str, Any] = {
        "plain": two_updates(policy, fsdp=paired),
        "uneven": two_updates(policy, split="uneven", max_tokens=20, fsdp=paired),
        "no_rows_on_one_rank": two_updates(policy, split="all_on_first", max_tokens=20, fsdp=paired),
        "small_buckets": two_updates(policy, fsdp=paired, sync_bucket_mib=0.001),
        "value": two_updates(work / "llama", kind="value", fsdp=paired),
        "tied": two_updates(work / "qwen3-tied", fsdp=paired),
        "lora": two_updates(policy, model=LORA, fsdp=paired),
        "bfloat16": two_updates(policy, fsdp=FsdpConfig(shard_size="2", param_dtype="bfloat16")),
        "lora_bfloat16": two_updates(policy, model=LORA, fsdp=FsdpConfig(shard_size="2", param_dtype="bfloat16")),
    }
    with every_layer_a_group():
        results["layer_groups"] = two_updates(policy, max_tokens=20, fsdp=paired)
    learner = build_learner(policy, fsdp=paired)
    learner.update(my_rows(make_rows(seed=1), "even"), PolicyLoss())
    learner.save(work / "checkpoint-copies")
    for name, fsdp in (("loaded_again", paired), ("loaded_by_shards", FsdpConfig(shard_size="all"))):
        other = build_learner(policy, fsdp=fsdp)
        other.load(work / "checkpoint-copies")
        metrics = [other.update(my_rows(make_rows(seed=2), "even"), PolicyLoss())]
        results[name] = {"metrics": metrics, "weights": weights_of(other.engine)}
    placements = {tuple(map(str, p.placements)) for p in learner.engine.module.parameters() if isinstance(p, DTensor)}
    results["placements"] = placements
    return results


# How layers are gathered, and kept.
GATHERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "last_kept": {"num_kept_layers": "1"},
    "all_kept": {"num_kept_layers": "all"},
    "one_ahead": {"num_prefetched_layers": 1},
    "two_ahead": {"num_prefetched_layers": 2},
    "more_ahead_than_layers": {"num_prefetched_layers": 9},
    "kept_and_ahead": {"num_kept_layers": "2", "num_prefetched_layers": 2},
}


def gathers(work: Path) -> dict[Any, Any]:
    """Two updates of a model of four layers with each way of gathering, some of them in pairs of ranks and with
    adapters, and when an update gathers which layer.
    """
    deep = work / "deep"
    both, checkpointed = GATHERS["kept_and_ahead"], {"gradient_checkpointing": "true"}
    results = updates_by_gathers(deep, GATHERS)
    with every_layer_a_group():
        for kind, size, model in (("all", "all", {}), ("pairs", "2", {}), ("lora", "all", LORA)):
            on_host = {"cpu_offload": True}
            for name, options, more in (
                ("plain", {}, {}),
                ("both", both, {}),
                ("both_checkpointed", both, checkpointed),
                ("on_host", on_host, {}),
            ):
                if (kind, name) not in results:
                    fsdp = FsdpConfig(shard_size=size, **options)
                    results[kind, name] = two_updates(deep, max_tokens=20, fsdp=fsdp, model={**model, **more})
        with patch.object(loading, "_on_host", side_effect=loading._on_host) as moved:
            learner = build_learner(deep, fsdp=FsdpConfig(shard_size="all", cpu_offload=True))
        results["moved"] = moved.call_count
        results["policies"] = [type(group.offload_policy).__name__ for group in param_groups(learner.engine)]
        learner.update(my_rows(make_rows(seed=1), "even"), PolicyLoss())
        learner.save(work / "checkpoint-on-host")
        for name, on_host in (("loaded", False), ("loaded_on_host", True)):
            other = build_learner(deep, fsdp=FsdpConfig(shard_size="all", cpu_offload=on_host))
            other.load(work / "checkpoint-on-host")
            metrics = [other.update(my_rows(make_rows(seed=2), "even"), PolicyLoss())]
            results[name] = {"metrics": metrics, "weights": weights_of(other.engine)}
    return results


def kept_and_ahead(work: Path) -> dict[Any, Any]:
    """Two updates with the plain way of gathering and with one that keeps layers and gathers ahead."""
    return updates_by_gathers(work / "deep", {name: GATHERS[name] for name in ("plain", "kept_and_ahead")})


def updates_by_gathers(path: Path, ways: Mapping[str, dict[str, Any]]) -> dict[Any, Any]:
    """Return two updates and the order of gathers for each way of gathering."""
    results: dict[Any, Any] = {}
    with every_layer_a_group():
        for name, options in ways.items():
            fsdp = FsdpConfig(shard_size="all", **options)
            results["all", name] = two_updates(path, max_tokens=20, fsdp=fsdp)
            results["order", name] = order_of_gathers(build_learner(path, fsdp=fsdp))
    return results


def param_groups(engine: FsdpPolicy) -> list[Any]:
    """FSDP2's own, of the root and each layer."""
    modules = [module for module in engine.module.modules() if isinstance(module, FSDPModule)]
    return [group for module in modules for group in module._get_fsdp_state()._fsdp_param_groups]


def order_of_gathers(learner: FsdpLearner) -> str:
    """Return the layers' events in an update of one pass, as FSDP2 records them: ``+2`` gathers layer 2, ``2`` runs it,
    forward and then backward.
    """
    rows = my_rows(make_rows(seed=1), "even")
    learner.update(rows, PolicyLoss())
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        learner.update(rows, PolicyLoss())
    signs = {"FSDP::all_gather": "+", "FSDP::pre_forward": "", "FSDP::pre_backward": ""}
    found = [event for event in profiled.events() if "layers." in event.name and event.name.split()[0] in signs]
    found.sort(key=lambda event: event.time_range.start)
    return " ".join(signs[each.name.split()[0]] + each.name.partition("layers.")[2].strip(")") for each in found)


def lora(work: Path) -> dict[str, Any]:
    """Two updates of adapters in every setting that must not change them, what they leave alone, and what is saved."""
    policy, adapters = work / "qwen2", LORA
    results: dict[str, Any] = {
        "plain": two_updates(policy, model=adapters),
        "replicas": two_updates(policy, model=adapters, fsdp=WHOLE),
        "uneven": two_updates(policy, split="uneven", max_tokens=20, model=adapters),
        "no_rows_on_one_rank": two_updates(policy, split="all_on_first", max_tokens=20, model=adapters),
        "padded": two_updates(policy, max_tokens=40, model={**adapters, "remove_padding": False}),
        "checkpointed": two_updates(policy, model={**adapters, "gradient_checkpointing": "true"}),
        "value": two_updates(work / "llama", kind="value", model=adapters),
        "value_replicas": two_updates(work / "llama", kind="value", model=adapters, fsdp=WHOLE),
    }
    with every_layer_a_group():
        results["layer_groups"] = two_updates(policy, max_tokens=20, model=adapters)
    for name, fsdp in (("shards", None), ("whole", WHOLE)):
        folder = work / f"adapters-{name}-{dist.get_world_size()}"
        learner = build_learner(policy, model=adapters, fsdp=fsdp)
        rows, engine = my_rows(make_rows(), "even"), learner.engine

        def as_read(rows: DataProto = rows, engine: Any = engine) -> NDArray[np.float32]:
            found: dict[str, NDArray[np.float32]] = engine.forward_log_probs(
                rows, temperature=1.0, without_adapters=True
            )
            return found["log_probs"]

        first = as_read()  # before anything has learned, as in a run with a reference
        learner.update(my_rows(make_rows(seed=1), "even"), PolicyLoss())
        learner.save(folder / "checkpoint")
        engine.export(folder / "merged")
        engine.export_adapter(folder / "adapter")
        reader = build_engine(policy, model=adapters, fsdp=fsdp)
        reader.load(folder / "checkpoint")
        results[name] = {
            "as_read": [first, as_read()],
            "unadapted": build_engine(policy).forward_log_probs(rows, temperature=1.0)["log_probs"],
            "learned": engine.forward_log_probs(rows, temperature=1.0)["log_probs"],
            "layers": engine_layers(engine),
            "saved": weights_of(engine),
            "read": weights_of(reader),
        }
    for name, fsdp in (("goes_on", WHOLE), ("goes_on_by_shards", None)):
        learner = build_learner(policy, model=adapters, fsdp=fsdp)
        learner.load(work / f"adapters-shards-{dist.get_world_size()}" / "checkpoint")
        metrics = learner.update(my_rows(make_rows(seed=2), "even"), PolicyLoss())
        results[name] = {"metrics": [metrics], "weights": weights_of(learner.engine)}
    return results


def compiled(work: Path) -> dict[str, Any]:
    """Two updates with compiled layers, of ranks that share the tokens of their rows."""
    settings: dict[str, Any] = {"max_tokens": 20, "sequence_parallel_size": 2, "compile_layers": True}
    with every_layer_a_group():
        return two_updates(work / "qwen2", **settings)


def engine_layers(engine: FsdpPolicy) -> dict[str, Tensor]:
    """Return the current weights of the layers without adapters."""
    engine.layout.reshard()
    with engine.module.original_layers():
        state = get_model_state_dict(engine.module.backbone, options=StateDictOptions(full_state_dict=True))
    return {name: tensor for name, tensor in state.items() if "lora_" not in name}


def sums() -> dict[str, list[Tensor]]:
    """Of tensors whose elements say which rank's they are, by either way, a few elements at a time."""
    rank, cpu = dist.get_rank(), torch.device("cpu")
    found = {}
    for name, gather in (
        ("memory", gather_on(cpu, max_bytes=256)),
        ("collective", CollectiveGather(cpu, max_bytes=256)),
    ):
        assert isinstance(gather, CollectiveGather) == (name == "collective")
        own = [torch.arange(float(size)) * 10**rank for size in (5, 100, 0, 1, 64, 7)]
        gather.sum([own[0], own[1].view(10, 10), *own[2:]])
        found[name] = own
    return found


def gradients_of_some_ranks(path: Path) -> list[float | None]:
    """Return one gradient of each parameter after the sum: each rank has every third, and all except the first rank
    have the next one too.
    """
    learner = build_learner(path, fsdp=WHOLE)
    parameters = list(learner.engine.module.parameters())
    for index, parameter in enumerate(parameters):
        if index % 3 == 0 or (index % 3 == 1 and dist.get_rank() > 0):
            parameter.grad = torch.ones_like(parameter)
    learner.engine.layout.reduce_gradients()
    return [None if p.grad is None else p.grad.mean().item() for p in parameters]


@contextmanager
def every_layer_a_group() -> Iterator[None]:
    """Treat the tiny layers and gradients like large ones."""
    before = sharding.MIN_LAYER_BYTES, sharding.MAX_UNSHARDED_GRADIENT_BYTES
    sharding.MIN_LAYER_BYTES = sharding.MAX_UNSHARDED_GRADIENT_BYTES = 0
    try:
        yield
    finally:
        sharding.MIN_LAYER_BYTES, sharding.MAX_UNSHARDED_GRADIENT_BYTES = before


def save(work: Path) -> dict[str, Any]:
    """Save the weights after one update, and run one more update, which a resumed run must reproduce."""
    learner = build_learner(work / "qwen2")
    learner.update(my_rows(make_rows(seed=1), "even"), PolicyLoss())
    saved = weights_of(learner.engine)
    torch.manual_seed(99 + dist.get_rank())
    world_size = dist.get_world_size()
    learner.save(work / f"checkpoint-{world_size}")
    draw = torch.rand(3)
    metrics = learner.update(my_rows(make_rows(seed=2), "even"), PolicyLoss())
    return {"saved": saved, "metrics": metrics, "weights": weights_of(learner.engine), "draw": draw}


def copied(work: Path) -> dict[str, Any]:
    """Write checkpoints at once and from copies in parallel with the next update; continue from both."""
    results = {}
    settings: dict[str, dict[str, Any]] = {
        "shards": {},
        "replicas": {"fsdp": WHOLE},
        "lora": {"model": LORA},
        "lora_replicas": {"model": LORA, "fsdp": WHOLE},
        "copies": {"fsdp": FsdpConfig(shard_size="1")},
        "bfloat16": {"fsdp": BFLOAT16},
        "lora_bfloat16": {"model": LORA, "fsdp": BFLOAT16},
    }
    for name, setting in settings.items():
        learner = build_learner(work / "qwen2", **setting)
        for seed in (1, 2):  # the second pair of copies comes after the first
            learner.update(my_rows(make_rows(seed=seed), "even"), PolicyLoss())
            torch.manual_seed(99 + dist.get_rank())
            places = [work / f"{kind}-{name}-{dist.get_world_size()}-{seed}" for kind in ("whole", "copied")]
            learner.save(places[0])
            write = learner.begin_save(places[1])
            torch.rand(3)
            with ThreadPoolExecutor() as beside:
                if seed == 1:  # all has changed by now
                    metrics = learner.update(my_rows(make_rows(seed=3), "even"), PolicyLoss())
                    beside.submit(write).result(timeout=60)
                else:
                    writing = beside.submit(write)
                    metrics = learner.update(my_rows(make_rows(seed=3), "even"), PolicyLoss())
                    writing.result(timeout=60)
        went_on = {"metrics": metrics, "weights": weights_of(learner.engine)}
        other = build_learner(work / "qwen2", **setting)
        other.load(places[1])
        draw = torch.rand(3)
        metrics = other.update(my_rows(make_rows(seed=3), "even"), PolicyLoss())
        torch.manual_seed(99 + dist.get_rank())
        results[name] = {
            "went_on": went_on,
            "resumed": {"metrics": metrics, "weights": weights_of(other.engine)},
            "draws": [draw, torch.rand(3)],
        }
    return results


def load_own(work: Path) -> dict[str, Any]:
    return _load(work, dist.get_world_size())


def load_other(work: Path) -> dict[str, Any]:
    return _load(work, 3 - dist.get_world_size())


def _load(work: Path, saved_by: int) -> dict[str, Any]:
    learner = build_learner(work / "qwen2")
    learner.update(my_rows(make_rows(seed=5), "even"), PolicyLoss())  # a history that loading must wipe out
    learner.load(work / f"checkpoint-{saved_by}")
    draw = torch.rand(3)
    metrics = learner.update(my_rows(make_rows(seed=2), "even"), PolicyLoss())
    return {"metrics": metrics, "weights": weights_of(learner.engine), "draw": draw}


def load_weights(work: Path) -> dict[str, Any]:
    """Return what an engine without a learner reads from each learner's checkpoint."""
    results: dict[str, Any] = {}
    for saved_by in (1, 2):
        engine = build_engine(work / "qwen2")
        torch.manual_seed(5)
        engine.load(work / f"checkpoint-{saved_by}")
        results[f"draw-{saved_by}"] = torch.rand(3)
        results[f"weights-{saved_by}"] = weights_of(engine)
    return results


def export(work: Path) -> dict[str, Any]:
    """Return the exported folder, and the engine's log-probs of some rows."""
    learner = build_learner(work / "qwen3-tied")
    learner.update(my_rows(make_rows(seed=1), "even"), PolicyLoss())
    learner.engine.export(work / f"export-{dist.get_world_size()}")
    return {"weights": weights_of(learner.engine)}


def weights(work: Path) -> dict[Any, Any]:
    """Return the weights that each rank streams with both ways of gathering, and the number of gathers."""
    results = {}
    for name in ("qwen2", "qwen3-tied"):
        for bucket_mib in (0.001, 0.01, 64):
            engine = build_engine(work / name, sync_bucket_mib=bucket_mib)
            by_memory = weights_of(engine)
            assert isinstance(engine.gather, SharedGather)
            engine.gather = CollectiveGather(engine.device, max_bytes=2**20)
            by_collective = weights_of(engine)
            assert all(torch.equal(weight, by_memory[key]) for key, weight in by_collective.items())
            results[name, bucket_mib] = {"weights": by_memory, "tables": engine.gather.num_tables}
    return results


def families(work: Path) -> dict[str, Any]:
    """Return every parameter, unsharded, every buffer of models loaded in rows, and each rank's shards."""
    results: dict[str, Any] = {}
    for name in FAMILIES:
        engine = build_engine(work / name)
        whole = StateDictOptions(full_state_dict=True)
        state = get_model_state_dict(engine.module.backbone, options=whole)
        results[name] = {
            "state": state,
            "buffers": {key: buffer.clone() for key, buffer in engine.module.backbone.named_buffers()},
            "bytes": sum(local_shard(p).untyped_storage().nbytes() for p in engine.module.parameters()),
        }
    return results


def skips(work: Path) -> dict[bool, list[dict[str, Any]]]:
    """Run the same updates with rows without advantage computed, and with them left out."""
    return {skip: updates_by_advantage(work / "qwen2", skip_zero_advantages=skip) for skip in (False, True)}


SCENARIOS: dict[str, Callable[[Path], dict[str, Any]]] = {
    scenario.__name__: scenario
    for scenario in (
        updates,
        save,
        copied,
        load_own,
        load_other,
        load_weights,
        export,
        weights,
        families,
        skips,
        replicas,
        lora,
        copies,
        sequences,
        gathers,
        kept_and_ahead,
        compiled,
    )
}


# In addition to those of write_models: each has a property that makes loading rows difficult.
FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "gemma3": lambda: Gemma3ForCausalLM(  # tied, and the embedding's scale is a buffer that no file has
        Gemma3TextConfig(**_SHAPE, head_dim=8, sliding_window=16, query_pre_attn_scalar=8)
    ),
    "qwen3-moe": lambda: Qwen3MoeForCausalLM(  # files have a tensor for each expert, the model one for all
        Qwen3MoeConfig(**_SHAPE, head_dim=8, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16)
    ),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**_SHAPE, pad_token_id=0)),  # fused projections
    "tied": lambda: Qwen3ForCausalLM(Qwen3Config(**_SHAPE, head_dim=8, tie_word_embeddings=True)),
    "llama-rope": lambda: LlamaForCausalLM(  # frequencies that are computed
        LlamaConfig(
            **_SHAPE,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        )
    ),
}


def write_families(work: Path) -> Path:
    torch.manual_seed(11)
    for name, model in FAMILIES.items():
        model().save_pretrained(work / name)
    return work


def write_models(work: Path) -> Path:
    tiny_model("qwen2").save_pretrained(work / "qwen2")
    tiny_model("llama").save_pretrained(work / "llama")
    tiny_model("qwen3", tied=True).save_pretrained(work / "qwen3-tied")
    tiny_model("qwen2", num_key_value_heads=1).save_pretrained(work / "one-key-head")
    tiny_model("qwen2", num_hidden_layers=4).save_pretrained(work / "deep")
    return work


def run_ranks(scenarios: list[str], *, world_size: int, work: Path) -> list[dict[str, Any]]:
    """Run scenarios one after the other on new ranks and return each rank's results by the scenario's name."""
    return on_ranks(_results, scenarios, work, world_size=world_size)


def _results(scenarios: list[str], work: Path) -> dict[str, Any]:
    return {name: SCENARIOS[name](work) for name in scenarios}
