"""Compute a prompt once for all requests that begin it in the same step.

vLLM's prefix cache shares whole blocks, which have up to 128 tokens on CPU, and computes the rest for each request.
Here the model runs on one of the requests that have the same tokens, and its keys and values are written to the blocks
of all of them. Checked against vllm 0.32, gpu_model_runner.py, _model_forward, and cpu_attn.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.forward_context import ForwardContext, get_forward_context, override_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadata, CPUAttentionMetadataBuilder

from verl_like.ops.segments import ranges


@dataclass(frozen=True, slots=True)
class SharedRows:
    """The requests of a step, of which some have the same new tokens after the same past.

    Args:
        first: [R] for each request, the first one with the same tokens; itself if it is the first.
        kept: [S] the requests for which the model runs, ascending.
        starts: [R + 1] where the new tokens of each request start.
    """

    first: NDArray[np.int64]
    kept: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, first: NDArray[np.int64], starts: NDArray[np.int64]) -> SharedRows | None:
        """Return None if no request has the tokens of an earlier one."""
        kept = np.flatnonzero(first == np.arange(len(first)))
        return cls(first, kept, starts) if len(kept) < len(first) else None

    def kept_starts(self) -> NDArray[np.int64]:
        """Return [S + 1], where the new tokens of each kept request start among those of all of them."""
        return np.concatenate([[0], np.cumsum(np.diff(self.starts)[self.kept])])

    def kept_tokens(self) -> NDArray[np.int64]:
        """Return the positions of the kept requests' new tokens among those of all requests."""
        return ranges(self.starts[self.kept], np.diff(self.starts)[self.kept])

    def expansion(self) -> NDArray[np.int64]:
        """Return for each new token the position of its result among those of the kept requests."""
        of_first = np.searchsorted(self.kept, self.first)
        return ranges(self.kept_starts()[of_first], np.diff(self.starts))


class SharedPrompts:
    """Replaces the forward pass of a model runner on CPU.

    Args:
        runner: vLLM's, of a model for which :meth:`fit` holds.
    """

    def __init__(self, runner: Any) -> None:
        assert self.fit(runner), "a request of this model has more than tokens, and keys and values of them"
        self._runner, self._forward, self._groups = runner, runner._model_forward, attention_groups(runner)
        self._expansion: Tensor | None = None  # during a pass for some requests of a step
        runner._model_forward = self._shared_forward
        layers = runner.compilation_config.static_forward_context
        for layer in [layers[name] for group in self._groups for name in group.layer_names]:
            layer.impl.do_kv_cache_update = partial(self._write, layer.impl.do_kv_cache_update)

    @staticmethod
    def fit(runner: Any) -> bool:
        """Return whether keys and values of attention layers are all that a prompt leaves, and tokens all that it has:
        no state of other layers, no pictures, no adapters.
        """
        groups = attention_groups(runner)
        return (
            bool(groups)
            and all(isinstance(group.get_metadata_builder(0), CPUAttentionMetadataBuilder) for group in groups)
            and all(group.kernel_block_size is None for group in groups)
            and runner.lora_config is None
            and runner.speculative_config is None
            and not runner.model_config.is_encoder_decoder
            and not runner.supports_mm_inputs
            and not runner.uses_mrope
        )

    def _shared_forward(self, input_ids: Tensor, positions: Tensor, **more: Any) -> Any:
        if any(value is not None for value in more.values()):
            return self._forward(input_ids=input_ids, positions=positions, **more)
        return self.forward(input_ids, positions, self._rows(input_ids, get_forward_context()))

    def forward(self, input_ids: Tensor, positions: Tensor, rows: SharedRows | None) -> Any:
        """Run the model in the current forward context, whose requests may share their new tokens."""
        if rows is None:
            return self._forward(input_ids=input_ids, positions=positions)
        context = get_forward_context()
        tokens, self._expansion = torch.from_numpy(rows.kept_tokens()), torch.from_numpy(rows.expansion())
        try:
            with override_forward_context(self._narrowed(context, rows, tokens)):
                hidden = self._forward(input_ids=input_ids[tokens], positions=positions[tokens])
            return hidden[self._expansion]
        finally:
            self._expansion = None

    def _write(self, write: Callable[..., None], layer: Any, key: Tensor, value: Tensor, *cache_and_slots: Any) -> None:
        """Write keys and values to the slots of all requests of the step."""
        if self._expansion is not None:
            key, value = key[self._expansion], value[self._expansion]
        write(layer, key, value, *cache_and_slots)

    def _rows(self, input_ids: Tensor, context: ForwardContext) -> SharedRows | None:
        """Return which requests share their new tokens; None if none do."""
        batch = self._runner.input_batch
        computed = batch.num_computed_tokens_cpu[: batch.num_reqs]
        reading = np.flatnonzero(computed < batch.num_prompt_tokens[: batch.num_reqs])
        if len(reading) < 2:
            return None
        starts = _metadata(context, self._groups[0]).query_start_loc.numpy().astype(np.int64)
        tables = [(table.block_table.np, table.block_size) for table in batch.block_table.block_tables]
        return SharedRows.of(first_alike(input_ids.numpy(), starts, reading, computed, tables), starts)

    def _narrowed(self, context: ForwardContext, rows: SharedRows, tokens: Tensor) -> ForwardContext:
        """Return the context of a forward pass for the kept requests; it keeps the slots of all requests."""
        kept, starts = torch.from_numpy(rows.kept), torch.from_numpy(rows.kept_starts().astype(np.int32))
        metadata: dict[str, Any] = {}
        for group in self._groups:
            of_all = _metadata(context, group)
            of_kept = CommonAttentionMetadata(
                query_start_loc=starts,
                query_start_loc_cpu=starts,
                seq_lens=of_all.seq_lens[kept],
                num_reqs=len(kept),
                num_actual_tokens=len(tokens),
                max_query_len=of_all.max_query_len,
                max_seq_len=of_all.max_seq_len,
                block_table_tensor=of_all.block_table[kept],
                slot_mapping=of_all.slot_mapping[tokens],
                causal=of_all.causal,
            )
            metadata |= dict.fromkeys(group.layer_names, group.get_metadata_builder(0).build(0, of_kept))
        return replace(context, attn_metadata=metadata)


def first_alike(
    ids: NDArray[np.int32],
    starts: NDArray[np.int64],
    reading: NDArray[np.int64],
    computed: NDArray[np.int32],
    tables: Sequence[tuple[NDArray[np.int32], int]],
) -> NDArray[np.int64]:
    """Return for each request of a step the first one with the same new tokens after the same past, or itself.

    The past is the same if it is in the same blocks. Only whole blocks are shared: a request whose past ends inside a
    block is like no other.

    Args:
        ids: the new tokens of all requests.
        starts: [R + 1] where those of each request start.
        reading: the requests that read a prompt.
        computed: [R] number of tokens of the past.
        tables: the cache blocks of each request [R, blocks], and the tokens of a block, for each kind of layers.
    """
    first = np.arange(len(computed))
    found: dict[tuple[bytes, ...], int] = {}
    for row in reading.tolist():
        if any(computed[row] % block_size for _, block_size in tables):
            continue
        past = [blocks[row, : computed[row] // block_size].tobytes() for blocks, block_size in tables]
        first[row] = found.setdefault((ids[starts[row] : starts[row + 1]].tobytes(), *past), row)
    return first


def attention_groups(runner: Any) -> list[Any]:
    """Return vLLM's groups of attention layers that have the same metadata."""
    return [group for of_cache in runner.attn_groups for group in of_cache]


def _metadata(context: ForwardContext, group: Any) -> CPUAttentionMetadata:
    metadata = context.attn_metadata[group.layer_names[0]]
    assert isinstance(metadata, CPUAttentionMetadata), f"{type(metadata)} of {group.layer_names[0]}"
    return metadata
