"""FsdpEngine: a model sharded with FSDP2, its optimiser, and the forward and update passes over rows."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from verl_like.algorithms.types import BatchTotals, MicroBatchLoss
from verl_like.backends.fsdp.checkpoint import load_checkpoint, save_checkpoint
from verl_like.backends.fsdp.micro_batches import (
    AllRanks,
    MicroBatch,
    MicroBatchPlan,
    agree,
    aligned_columns,
    padded_columns,
)
from verl_like.backends.fsdp.models import (
    PolicyModel,
    ShardedModel,
    ValueModel,
    load_policy,
    load_score_model,
    load_value_model,
)
from verl_like.backends.fsdp.optim import build_optimizer, build_schedule, clip_grad_norm
from verl_like.backends.fsdp.sharding import Sharding, move_optimizer_state
from verl_like.backends.fsdp.weights import export_folder, named_weights
from verl_like.config.schema import FsdpConfig, ModelConfig, OptimConfig
from verl_like.ops.attention import resolve_kernel
from verl_like.ops.compilation import ChunkSpec, compile_chunk_stats
from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.ops.packing import to_padded
from verl_like.protocol import DataProto

log = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KINDS = ("policy", "value", "frozen", "score")
FROZEN_KINDS = ("frozen", "score")


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto`` is float32 on CPU and bfloat16 on GPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return _DTYPES[name]


class FsdpEngine:
    """The TrainEngine of :mod:`verl_like.backends.base` on FSDP2, over the default process group.

    Every method is collective. The caller has initialised the process group, with the timeout that all collectives here
    obey, and on GPU has chosen this process's device.

    Args:
        kind: ``policy`` (learns, gives log-probs), ``value`` (learns, gives values), ``frozen`` (gives log-probs) or
            ``score`` (frozen, gives values: those of a sequence classifier with one label, whose scores they are).
        model_path: folder or hub name of the weights; the other fields of ``model`` say how to load and run them.
        max_tokens_per_micro_batch: budget of one forward pass per rank.
        optim: the optimiser; None exactly for kinds that do not learn.
        total_updates: optimiser updates of the whole run, where the schedule ends; 0 when unknown.
        max_response_tokens: data.max_response_length, handed to losses in :class:`BatchTotals`.
        temperature: at which ``update`` takes log-probs and entropy; that of the rollout.
        log_prob_chunk_tokens: rows of logits that exist at once.
        use_torch_compile: let :meth:`warm_up` compile the log-prob function.
        balance_by: what is spread evenly over forward passes, "tokens" or "attention".
        rollout_dtype, sync_bucket_mib: of :meth:`named_weights`.
        seed: of anything the model's loading draws at random.

    Raises:
        ValueError: for a model that cannot be loaded or run as configured.
    """

    def __init__(
        self,
        *,
        kind: str,
        model_path: str,
        model: ModelConfig,
        fsdp: FsdpConfig,
        max_tokens_per_micro_batch: int,
        optim: OptimConfig | None,
        total_updates: int,
        max_response_tokens: int,
        device: torch.device,
        temperature: float = 1.0,
        log_prob_chunk_tokens: int = 4096,
        use_torch_compile: bool = False,
        rollout_dtype: str = "auto",
        sync_bucket_mib: float = 256,
        balance_by: str = "tokens",
        seed: int = 0,
    ) -> None:
        assert kind in KINDS, f"engine kind {kind!r} is not one of {KINDS}"
        is_frozen = kind in FROZEN_KINDS
        assert (optim is None) == is_frozen, f"a {kind} engine was given optim={optim}"
        self.device = device
        self._model_config, self._model_path = model, model_path
        self._max_tokens, self._max_response_tokens = max_tokens_per_micro_batch, max_response_tokens
        self._temperature, self._use_torch_compile, self._balance_by = temperature, use_torch_compile, balance_by
        self._dtype = resolve_dtype(fsdp.param_dtype, device)
        self._rollout_dtype, self._sync_bucket_mib = resolve_dtype(rollout_dtype, device), sync_bucket_mib
        self.token_stats = TokenStatsFunction(chunk_tokens=log_prob_chunk_tokens)
        # Frozen weights need no float32 master: they are read in the dtype they are used in.
        load_dtype = self._dtype if is_frozen else torch.float32
        kernel = resolve_kernel(model.attention, device) if model.remove_padding else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module: ShardedModel
            if kind == "value":
                self.module = load_value_model(model_path, model=model, kernel=kernel, dtype=load_dtype)
            elif kind == "score":
                self.module = load_score_model(model_path, model=model, kernel=kernel, dtype=load_dtype)
            else:
                self.module = load_policy(
                    model_path, model=model, kernel=kernel, dtype=load_dtype, token_stats=self.token_stats
                )
        self.module.requires_grad_(not is_frozen)
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        self._sharding = Sharding(
            self.module,
            mesh=mesh,
            fsdp=fsdp,
            param_dtype=self._dtype,
            gradient_checkpointing=model.gradient_checkpointing and not is_frozen,
        )
        self._fsdp = fsdp
        self._optim_config = optim
        self.optimizer = build_optimizer(self.module, optim) if optim is not None else None
        self.schedule = (
            build_schedule(self.optimizer, optim, total_updates)
            if self.optimizer is not None and optim is not None
            else None
        )

    # Forward passes

    @torch.no_grad()
    def forward_log_probs(
        self, rows: DataProto, *, temperature: float, entropy: bool = False, sum_pi_squared: bool = False
    ) -> dict[str, NDArray[np.float32]]:
        """As :meth:`verl_like.backends.base.TrainEngine.forward_log_probs`."""
        assert isinstance(self.module, PolicyModel), "a value engine has no log-probs"
        plan = self._plan(rows)
        names = ["log_probs"] + ["entropy"] * entropy + ["sum_pi_squared"] * sum_pi_squared
        results = {name: np.empty(plan.num_response_tokens, np.float32) for name in names}
        for batch in plan.passes(agree(plan, device=self.device).num_micro_batches):
            stats = self.module(batch.inputs, temperature=temperature, entropy=entropy, sum_pi_squared=sum_pi_squared)
            if len(batch.rows):
                slots = plan.response_slots(batch.rows)
                for name, values in stats._asdict().items():
                    if values is not None:
                        results[name][slots] = values.cpu().numpy()
        self._sharding.reshard()
        return results

    @torch.no_grad()
    def forward_values(self, rows: DataProto) -> NDArray[np.float32]:
        """As :meth:`verl_like.backends.base.TrainEngine.forward_values`."""
        assert isinstance(self.module, ValueModel), "a policy engine has no values"
        plan = self._plan(rows)
        results = np.empty(plan.num_response_tokens, np.float32)
        for batch in plan.passes(agree(plan, device=self.device).num_micro_batches):
            values = self.module(batch.inputs)
            if len(batch.rows):
                results[plan.response_slots(batch.rows)] = values.cpu().numpy()
        self._sharding.reshard()
        return results

    def _plan(self, rows: DataProto) -> MicroBatchPlan:
        return MicroBatchPlan(
            rows,
            max_tokens=self._max_tokens,
            remove_padding=self._model_config.remove_padding,
            balance_by=self._balance_by,
            device=self.device,
        )

    # Learning

    def update(self, rows: DataProto, loss: MicroBatchLoss) -> dict[str, float]:
        """As :meth:`verl_like.backends.base.TrainEngine.update`.

        A mini-batch without any token to learn from, on no rank, leaves the weights alone like a gradient that is not
        finite. The schedule counts the updates that took place.
        """
        assert self.optimizer is not None and self.schedule is not None and self._optim_config is not None, (
            "a frozen engine cannot learn"
        )
        response_mask = rows.ragged("response_mask") if len(rows) else None
        if len(rows):
            rows = rows.select_idxs(loss.moves_weights(rows))
        plan = self._plan(rows)
        facts = agree(plan, device=self.device, response_mask=response_mask)
        lr = float(self.schedule.get_last_lr()[0])
        if facts.num_tokens == 0:
            log.warning("no rank has a response token to learn from; this update is skipped")
            return {"grad_norm": 0.0, "lr": lr, "skipped_updates": 1.0}
        metrics = self._accumulate_gradients(rows, loss, plan=plan, facts=facts)
        grad_norm = clip_grad_norm(self.module.parameters(), self._optim_config.max_grad_norm)
        is_finite = bool(np.isfinite(grad_norm))
        if is_finite:
            self.optimizer.step()
            self.schedule.step()
        else:
            log.warning("the gradient norm is %s; the weights are left alone", grad_norm)
        self.optimizer.zero_grad(set_to_none=True)
        return {
            **self._summed(metrics, facts),
            "grad_norm": grad_norm,
            "lr": lr,
            "skipped_updates": float(not is_finite),
        }

    def _accumulate_gradients(
        self, rows: DataProto, loss: MicroBatchLoss, *, plan: MicroBatchPlan, facts: AllRanks
    ) -> dict[str, Tensor]:
        """Forward and backward over all passes; returns this rank's sums of the loss's metrics."""
        totals = BatchTotals(
            num_tokens=facts.num_tokens,
            num_sequences=facts.num_sequences,
            max_response_tokens=self._max_response_tokens,
        )
        columns = aligned_columns(rows) if len(rows) else {}
        metrics: dict[str, Tensor] = {}
        # Where no row moves the weights there is one empty pass: the optimiser still sees gradients, which are zero.
        num_passes = max(facts.num_micro_batches, 1)
        for index, batch in enumerate(plan.passes(num_passes)):
            self._sharding.expect_backward(is_last=index == num_passes - 1)
            outputs = self._outputs(batch, entropy=loss.needs_entropy)
            if not len(batch.rows):
                # Every parameter gets a gradient of zero, so that this rank takes part in every reduction.
                (torch.stack([output.sum() for output in outputs.values()]).sum() * 0.0).backward()
                continue
            share = loss(outputs, padded_columns(columns, batch.rows, device=self.device), totals)
            share.loss.backward()
            for name, value in share.metrics.items():
                metrics[name] = metrics.get(name, 0.0) + value.detach().double()
        return metrics

    def _outputs(self, batch: MicroBatch, *, entropy: bool) -> dict[str, Tensor]:
        """[b, T] with gradient."""
        if isinstance(self.module, ValueModel):
            return {"values": to_padded(self.module(batch.inputs), batch.valid)}
        stats = self.module(batch.inputs, temperature=self._temperature, entropy=entropy)
        outputs = {"log_probs": to_padded(stats.log_probs, batch.valid)}
        if stats.entropy is not None:
            outputs["entropy"] = to_padded(stats.entropy, batch.valid)
        return outputs

    def _summed(self, metrics: dict[str, Tensor], facts: AllRanks) -> dict[str, float]:
        """Sums over ranks. A rank that ran no rows does not know the names, and learns them from one that did."""
        if not facts.ranks_with_rows:
            return {}
        names = sorted(metrics)
        if len(facts.ranks_with_rows) < dist.get_world_size():
            shared: list[list[str] | None] = [names]
            dist.broadcast_object_list(shared, src=facts.ranks_with_rows[0], device=self.device)
            assert shared[0] is not None, "the names of the metrics did not arrive"
            names = shared[0] if not metrics else names
        # Names that differ between ranks would add up different metrics; their checksum rides along.
        checksum = float(zlib.crc32("\n".join(names).encode()))
        sums = torch.zeros(len(names) + 1, dtype=torch.float64, device=self.device)
        if metrics:
            sums[:-1] = torch.stack([metrics[name] for name in names]) if names else sums[:-1]
        sums[-1] = checksum
        dist.all_reduce(sums)
        values = sums.tolist()
        assert values.pop() == checksum * dist.get_world_size(), (
            f"ranks returned different metrics; this one has {names}"
        )
        return dict(zip(names, values, strict=True))

    def warm_up(self, deadline_s: float, *, entropy: bool = False) -> bool:
        """Compile the log-prob function where ``use_torch_compile`` asks for it; True when it will run compiled.

        All ranks use the compiled function, or none does. Nothing compiles after this call.

        Args:
            deadline_s: longest time to wait for the compiler.
            entropy: whether the loss reads entropy; the other variant stays uncompiled.
        """
        if not self._use_torch_compile or not isinstance(self.module, PolicyModel):
            return False
        layer = self.module.output_layer()
        vocab_size, hidden_size = layer.weight.shape
        dtype = "bfloat16" if self._dtype == torch.bfloat16 else "float32"
        spec = ChunkSpec(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            has_bias=layer.bias is not None,
            softcap=layer.softcap,
            dtype=dtype,
            device=str(self.device),
            with_entropy=entropy,
        )
        compiled = compile_chunk_stats(spec, deadline_s)
        everywhere = torch.tensor(float(compiled is not None), device=self.device)
        dist.all_reduce(everywhere, op=dist.ReduceOp.MIN)
        self.token_stats.use(compiled if everywhere.item() else None)
        return self.token_stats.is_compiled

    # Weights in and out

    def save(self, path: Path) -> None:
        """As :meth:`verl_like.backends.base.TrainEngine.save`."""
        save_checkpoint(path, module=self.module, optimizer=self.optimizer, schedule=self.schedule)

    def load(self, path: Path) -> None:
        """As :meth:`verl_like.backends.base.TrainEngine.load`; the number of ranks may be another."""
        load_checkpoint(path, module=self.module, optimizer=self.optimizer, schedule=self.schedule)

    def export(self, path: Path) -> None:
        """As :meth:`verl_like.backends.base.TrainEngine.export`, in the dtype the forward pass computes in."""
        export_folder(
            path,
            module=self.module,
            model=self._model_config,
            model_path=self._model_path,
            dtype=self._dtype,
            device=self.device,
            bucket_mib=self._sync_bucket_mib,
        )

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """As :meth:`verl_like.backends.base.TrainEngine.named_weights`, in the rollout's dtype."""
        self._sharding.reshard()
        yield from named_weights(
            self.module, dtype=self._rollout_dtype, device=self.device, bucket_mib=self._sync_bucket_mib
        )

    def offload(self) -> None:
        """As :meth:`verl_like.backends.base.TrainEngine.offload`; nothing on CPU."""
        self._move(torch.device("cpu"))

    def onload(self) -> None:
        """As :meth:`verl_like.backends.base.TrainEngine.onload`; nothing on CPU."""
        self._move(self.device)

    def _move(self, device: torch.device) -> None:
        if self.device.type == "cpu":
            return
        if self._fsdp.offload_params:
            self.module.to(device)
        if self.optimizer is not None and self._optim_config is not None and self._optim_config.offload:
            move_optimizer_state(self.optimizer, device)
        if device.type == "cpu":
            torch.cuda.empty_cache()
