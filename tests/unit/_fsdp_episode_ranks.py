"""Updates on rows of episodes, by engines on any number of ranks, and by plain transformers, one row at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.unit._episodes import Episode, facts_of, table_of
from tests.unit._fsdp_ranks import build_learner, my_rows, weights_of
from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.config.schema import ActorConfig, CorrectionConfig
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.protocol import DataProto, Ragged
from verl_like.workers.groups import count_columns

TEMPERATURE, LONGEST = 0.8, 16  # those of build_learner
CORRECTION = CorrectionConfig(level="token", upper=1.05, min_gap=0.0)
MODES = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    "prompt-mean",
)


def actor_config(mode: str) -> ActorConfig:
    return ActorConfig(loss_aggregation=mode, kl_loss_coef=0.3, kl_loss_type="k2", entropy_coef=0.05)


def tokens_of(model: Any, table: DataProto, row: int) -> tuple[Tensor, Tensor]:
    """Return the log-probs and entropies [T] of a row's response, from one plain forward pass."""
    prompt, response = (torch.from_numpy(table.ragged(name)[row]).long() for name in ("prompt_ids", "response_ids"))
    ids = torch.cat([prompt, response])
    logits = model(ids[None]).logits[0, len(prompt) - 1 : -1].float() / TEMPERATURE
    log_probs = logits.log_softmax(-1)
    return log_probs.gather(-1, response[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)


def update_rows(path: Path, episodes: list[Episode]) -> DataProto:
    """Return the rows of an update. Log-probs are those of the model, plus noise by position in the episode."""
    model = AutoModelForCausalLM.from_pretrained(path)
    table = table_of(episodes, columns=("advantages", "old", "engine", "reference"))
    with torch.no_grad():
        own = Ragged.from_rows([tokens_of(model, table, row)[0].numpy() for row in range(len(table))], "float32")
    noise = {name: table.columns.pop(name).values * np.float32(0.1) for name in ("old", "engine", "reference")}  # type: ignore[union-attr]
    columns = {
        "old_log_probs": own.values + noise["old"],
        "rollout_log_probs": own.values + noise["old"] + noise["engine"],
        "ref_log_probs": own.values + noise["reference"],
    }
    return DataProto(
        {
            **table.columns,
            **{name: Ragged(values, own.offsets) for name, values in columns.items()},
            **count_columns(RemoteBatch(facts_of(episodes, table))),
        }
    )


def updated(rows: DataProto, path: Path, mode: str, *, split: str = "even", **settings: Any) -> dict[str, Any]:
    """Return metrics of an update, and the weights after it."""
    learner = build_learner(path, **settings)
    loss = ActorLoss(actor_config(mode), CORRECTION, mean_weight=None)
    return {"metrics": learner.update(my_rows(rows, split), loss), "weights": weights_of(learner.engine)}


def reference(path: Path, rows: DataProto, mode: str) -> dict[str, float]:
    """Return the loss of unforked episodes and the norm of its gradient, term by term as the documentation has it."""
    model = AutoModelForCausalLM.from_pretrained(path)
    per_row: list[Tensor] = []
    for row in range(len(rows)):
        mask = torch.from_numpy(rows.ragged("response_mask")[row])
        log_probs, entropy = (values[mask] for values in tokens_of(model, rows, row))
        advantages, old, engine, ref = (
            torch.from_numpy(rows.ragged(name)[row])[mask]
            for name in ("advantages", "old_log_probs", "rollout_log_probs", "ref_log_probs")
        )
        ratio = (log_probs - old).exp()
        policy = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        weights = (old - engine).exp().clamp(max=CORRECTION.upper)
        per_row.append(policy * weights + 0.3 * 0.5 * (log_probs - ref).square() - 0.05 * entropy)
    sums, counts = torch.stack([each.sum() for each in per_row]), torch.tensor([len(each) for each in per_row])
    prompts = [tuple(prompt.tolist()) for prompt in rows.ragged("prompt_ids")]
    of_prompts = [torch.tensor([prompt == each for each in prompts]) for prompt in sorted(set(prompts))]
    assert len(of_prompts) > 1
    loss = {
        "token-mean": sums.sum() / counts.sum(),
        "token-sum": sums.sum(),
        "seq-mean-token-sum": sums.sum() / len(sums),
        "seq-mean-token-mean": (sums / counts).sum() / len(sums),
        "seq-mean-token-sum-norm": sums.sum() / len(sums) / LONGEST,
        "prompt-mean": torch.stack([sums[own].sum() / counts[own].sum() for own in of_prompts]).mean(),
    }[mode]
    loss.backward()
    norm = torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None]).norm()
    return {"actor/loss": float(loss.detach()), "grad_norm": float(norm)}


def two_rank_updates(path: Path, rows: DataProto) -> dict[str, Any]:
    """Update on these rows, shared out one by one, so that an episode's rows are on both ranks."""
    return {
        "shards": updated(rows, path, "seq-mean-token-mean", max_tokens=20),
        "prompts": updated(rows, path, "prompt-mean", max_tokens=20),
        "ulysses": updated(rows, path, "seq-mean-token-mean", sequence_parallel_size=2),
    }
