"""FsdpPolicy: a causal language model that provides log-probs, and weights for the rollout engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from verl_like.algorithms.types import BatchTotals
from verl_like.backends.base import EngineSettings
from verl_like.backends.fsdp.compiled_layers import LayerSpec, compile_layers
from verl_like.backends.fsdp.engine import resolve_dtype
from verl_like.backends.fsdp.fused_layers import has_fused_layers
from verl_like.backends.fsdp.learner import LearningEngine
from verl_like.backends.fsdp.micro_batches import MicroBatch, resolve_max_tokens
from verl_like.backends.fsdp.models import PolicyModel, policy_skeleton
from verl_like.backends.fsdp.row_pictures import RowPictures, unused_picture
from verl_like.backends.fsdp.teacher import Teacher
from verl_like.backends.fsdp.weights import saved_buffers
from verl_like.backends.pictures import PictureReader, reads_pictures
from verl_like.ops.compilation import TileSpec, compiled_tile_functions, tile_functions_compile
from verl_like.ops.divergence import GeneralisedJsd
from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.ops.packing import ModelInputs, to_padded
from verl_like.ops.routers import Routers, Sequences, lacks_biases, routers_of
from verl_like.protocol import FEATURES, RESPONSE_FEATURES, DataProto


class FsdpPolicy(LearningEngine[PolicyModel]):
    """The PolicyEngine of :mod:`verl_like.backends.base`."""

    def __init__(self, settings: EngineSettings) -> None:
        self._token_stats = TokenStatsFunction(budget_mib=settings.log_prob_chunk_mib)
        self._teachers: list[Teacher] = []
        self._reader: PictureReader | None = None
        super().__init__(settings)
        if self._reader is not None and dist.get_world_size() > 1:
            self.module.unused_picture = unused_picture(self._reader, self.device)

    def _skeleton(self, *, kernel: str | None, dtype: torch.dtype) -> PolicyModel:
        model = self.settings.model
        found = policy_skeleton(model.path, model=model, kernel=kernel, dtype=dtype, token_stats=self._token_stats)
        found.freezes_routers, found.freezes_vision = self.settings.freeze_router, model.freeze_vision
        if reads_pictures(found.backbone.config):
            self._reader = PictureReader(model.path, model=model)
        if self.settings.router_replay or (routers_of(found.backbone) and not self.settings.is_frozen):
            found.routers = Routers(found.backbone, replays=self.settings.router_replay)
        if self.settings.router_bias_rate and (found.routers is None or not found.routers.has_biases()):
            raise ValueError(lacks_biases(self.settings.router_bias_rate, type(found.backbone).__name__))
        return found

    def _pictures_of(self, rows: DataProto) -> RowPictures | None:
        if self._reader is None or not {FEATURES, RESPONSE_FEATURES} & rows.columns.keys():
            return None
        return RowPictures(rows, self._reader, self.module.backbone.base_model)

    def rebalance(self, *, has_moved: bool) -> dict[str, float]:
        """Move the biases of routers by the loads of the last update; return metrics of the loads. Collective."""
        routers, rate = self.module.routers, self.settings.router_bias_rate
        if routers is None:
            return {}
        loads = routers.take_loads(self.device)
        dist.all_reduce(loads)
        if rate and has_moved:
            routers.move_biases(loads, rate)
        over_mean = loads.amax(1) / loads.mean(1).clamp(min=1e-9)
        found = {f"moe/max_load/{layer}": value for layer, value in enumerate(over_mean.tolist())}
        return {**found, "moe/max_load": float(over_mean.max()), "moe/unused_frac": float((loads == 0).double().mean())}

    def auxiliary_loss(self, totals: BatchTotals) -> Tensor | None:
        """Return the imbalance of experts by its coefficient: the mean over sequences and layers."""
        coefficient, routers = self.settings.router_aux_loss_coef, self.module.routers
        if not coefficient or routers is None:
            return None
        return routers.imbalance() * (coefficient / totals.num_sequences)

    @property
    def _needs_routers(self) -> bool:
        """True if an option reads the experts of each token. Compiled layers do not record them."""
        settings = self.settings
        return settings.router_replay or settings.router_bias_rate > 0 or settings.router_aux_loss_coef > 0

    def take_routing_difference(self) -> tuple[int, int]:
        """Implement ``PolicyEngine.take_routing_difference``."""
        return (0, 0) if self.module.routers is None else self.module.routers.take_difference()

    def distil_from(self, teachers: Sequence[object], *, beta: float, without_adapters: bool = False) -> None:
        """Implement ``PolicyEngine.distil_from``."""
        settings = self.settings
        kind = GeneralisedJsd(beta=beta, temperature=settings.temperature, budget_mib=settings.log_prob_chunk_mib)
        for teacher in teachers:
            assert isinstance(teacher, FsdpPolicy), f"a {type(teacher).__name__} cannot be a teacher of this engine"
            self._teachers.append(Teacher(teacher, kind, without_adapters=without_adapters))
        self.num_teachers = len(teachers)

    @property
    def makes_equal_passes(self) -> bool:
        return super().makes_equal_passes or any(teacher.is_sharded for teacher in self._teachers)

    def outputs(self, batch: MicroBatch, *, entropy: bool) -> dict[str, Tensor]:
        """Compute ``log_probs``; ``entropy`` if requested; and with a teacher the ``divergence`` from it."""
        if self.settings.router_aux_loss_coef and self.module.routers is not None:
            predictors = batch.inputs.predictors[: batch.inputs.num_targets]
            rows = batch.valid.nonzero()[: len(predictors), 0]
            self.module.routers.balance(Sequences(predictors, rows, len(batch.valid)))
        stats = self.module(
            batch.inputs,
            temperature=self.settings.temperature,
            entropy=entropy,
            compare=self._teachers[batch.teacher].comparison(batch.teacher_inputs) if self._teachers else None,
        )
        found = {name: getattr(stats, name) for name in ("log_probs", "entropy", "divergence")}
        return {name: to_padded(values, batch.valid) for name, values in found.items() if values is not None}

    def forward_log_probs(
        self,
        rows: DataProto,
        *,
        temperature: float,
        entropy: bool = False,
        sum_pi_squared: bool = False,
        without_adapters: bool = False,
    ) -> dict[str, NDArray[np.float32]]:
        """Implement ``PolicyEngine.forward_log_probs``."""
        assert not without_adapters or self.module.adapters is not None, "the model has no adapters to disable"

        def run(inputs: ModelInputs) -> Mapping[str, Tensor]:
            stats = self.module(inputs, temperature=temperature, entropy=entropy, sum_pi_squared=sum_pi_squared)
            return stats._asdict()

        names = ["log_probs"] + ["entropy"] * entropy + ["sum_pi_squared"] * sum_pi_squared
        with self.module.adapters.switched_off() if self.module.adapters and without_adapters else nullcontext():
            return self._forward(rows, names, run)

    def warm_up(self, deadline_s: float, *, entropy: bool = False) -> bool:
        """Implement ``PolicyEngine.warm_up``.

        Either all ranks use the compiled function or none does. Only the variant that ``entropy`` selects is compiled.
        """
        if not self.settings.use_torch_compile:
            return False
        spec = self._tile_spec(entropy)
        if not self.succeeds_on_nodes(lambda: tile_functions_compile(spec, deadline_s)):
            return False
        compiled = compiled_tile_functions(spec)
        if not self.holds_everywhere(compiled is not None) or compiled is None:
            return False
        self._token_stats.tile_functions = compiled
        return True

    def _tile_spec(self, entropy: bool) -> TileSpec:
        spec = TileSpec(device=str(self.device), with_entropy=entropy)
        if self.device.type == "cpu":
            return spec
        tokens = resolve_max_tokens(
            self.settings.max_tokens_per_micro_batch, self.device, hidden_size=self.module.hidden_size, learns=True
        )
        return replace(
            spec,
            rows=(tokens, tokens // 2 + 1),
            vocabulary=len(self.module.output_layer().weight),
            budget_mib=self.settings.log_prob_chunk_mib,
        )

    def compile_layers(self, deadline_s: float) -> bool:
        """Implement ``PolicyEngine.compile_layers``."""
        settings, model, kernel = self.settings, self.settings.model, self.module.kernel
        is_eager = has_fused_layers(self.module) or self._needs_routers or self._reader is not None
        is_eager |= settings.fsdp.expert_parallel  # layers that exchange tokens
        if not settings.compile_layers or is_eager:
            return False
        if self.module.routers is not None:  # compiled layers count no experts
            self.module.routers.remove()
            self.module.routers = None
        assert kernel is not None, "padded rows use an attention that would be compiled too"
        dtype = str(self._dtype).removeprefix("torch.")
        spec = LayerSpec(
            model=asdict(model),
            kernel=kernel,
            dtype=dtype,
            device=str(self.device),
            num_threads=torch.get_num_threads(),
        )
        return compile_layers(self, spec, deadline_s)

    @property
    def num_gathers(self) -> int:
        """Implement ``PolicyEngine.num_gathers``."""
        return self.gather.num_tables if self.gather is not None and self.layout.is_sharded else 0

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Implement ``PolicyEngine.named_weights``, in the rollout's dtype; buffers that files have keep their own."""
        self.layout.reshard()
        dtype = resolve_dtype(self.settings.rollout_dtype, self.device)
        yield from self.full_tensors(self.module.backbone, dtype)
        yield from saved_buffers(self.module.backbone)

    def named_adapter(self) -> Iterator[tuple[str, Tensor]]:
        """Implement ``PolicyEngine.named_adapter``, in the rollout's dtype."""
        yield from self._adapter_tensors(resolve_dtype(self.settings.rollout_dtype, self.device))
