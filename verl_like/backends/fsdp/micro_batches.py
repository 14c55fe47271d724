"""Cutting an engine call's rows into forward passes, equally many on every rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.backends.fsdp.collectives import all_gather
from verl_like.ops.packing import ModelInputs, input_lengths, pack_rows, valid_mask
from verl_like.ops.partition import attention_costs, micro_batches
from verl_like.protocol import DataProto, Ragged
from verl_like.telemetry.beacon import BEACON
from verl_like.telemetry.ledger import waiting

# Two ranks on two cores: with 2.2 million parameters 512 are 3 % faster and 2,048 are 3 % slower, and with 28 million
# both are 1 % slower.
CPU_TOKENS = 1024
GPU_TOKENS, GPU_TOKENS_FORWARD = 16_384, 32_768


def resolve_max_tokens(requested: str, device: torch.device, *, learns: bool) -> int:
    """The token budget of a pass; a row that is longer gets a pass of its own.

    Args:
        requested: "auto", or a number.
        learns: whether a backward pass follows.
    """
    if requested != "auto":
        return int(requested)
    if device.type == "cpu":
        return CPU_TOKENS
    return GPU_TOKENS if learns else GPU_TOKENS_FORWARD


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """One forward pass.

    Args:
        inputs: what the model takes.
        rows: [b] indices into the call's rows, in the order the pass holds them; empty for a pass that only keeps
            the collectives of all ranks in step.
        valid: [b, T] bool, where the rows have response tokens.
    """

    inputs: ModelInputs
    rows: NDArray[np.int64]
    valid: Tensor


class MicroBatchPlan:
    """How this rank runs its rows.

    Rows without a response are left out: they have nothing to compute.

    Args:
        rows: this rank's rows; with none at all it may lack columns.
        max_tokens: budget of one pass, counted with padding where there is padding.
        balance_by: what is spread evenly over the passes, "tokens" or "attention" (the sum of squares).
    """

    def __init__(
        self, rows: DataProto, *, max_tokens: int, remove_padding: bool, balance_by: str, device: torch.device
    ) -> None:
        self._remove_padding = remove_padding
        self._device = device
        empty = Ragged.from_rows([], "int32")
        self._prompts = rows.ragged("prompt_ids") if len(rows) else empty
        self._responses = rows.ragged("response_ids") if len(rows) else empty
        lengths = input_lengths(self._prompts, self._responses)
        answered = np.flatnonzero(self._responses.lengths > 0)
        tokens = lengths[answered] if remove_padding else np.full(len(answered), lengths[answered].max(initial=0))
        costs = attention_costs(tokens) if balance_by == "attention" else tokens
        # Longest rows first inside a pass, so that neighbours are of similar length.
        self._parts = [
            answered[part][np.argsort(-lengths[answered[part]], kind="stable")]
            for part in micro_batches(tokens, max_tokens, count=0, costs=costs)
        ]

    @property
    def num_micro_batches(self) -> int:
        """The passes that this rank has rows for; :meth:`passes` adds empty ones up to the number it is given."""
        return len(self._parts)

    def passes(self, count: int) -> Iterator[MicroBatch]:
        """``count`` passes, at least as many as this rank has rows for."""
        assert count >= len(self._parts), f"{len(self._parts)} micro-batches do not fit into {count} passes"
        for part in self._parts:
            BEACON.tick()
            responses = self._responses.take(part)
            inputs = pack_rows(
                self._prompts.take(part), responses, remove_padding=self._remove_padding, device=self._device
            )
            yield MicroBatch(inputs=inputs, rows=part, valid=valid_mask(responses.lengths, device=self._device))
        for _ in range(count - len(self._parts)):
            BEACON.tick()
            token = Ragged.from_rows([[0]], "int32")
            inputs = pack_rows(token, token, remove_padding=self._remove_padding, device=self._device)
            yield MicroBatch(
                inputs=inputs, rows=np.empty(0, np.int64), valid=torch.ones(1, 1, dtype=torch.bool, device=self._device)
            )

    def response_slots(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where these rows' response tokens sit among all rows' response tokens."""
        lengths = self._responses.lengths[rows]
        before = np.cumsum(lengths) - lengths
        slots: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(
            self._responses.offsets[rows] - before, lengths
        )
        return slots

    @property
    def num_response_tokens(self) -> int:
        """K, over all of this rank's rows."""
        return len(self._responses.values)


@dataclass(frozen=True, kw_only=True, slots=True)
class AllRanks:
    """Counts over the rows of every rank, equal on all ranks."""

    num_micro_batches: int  # of the rank that has most
    num_tokens: float  # true entries of response_mask
    num_sequences: float  # rows with a true entry
    ranks_with_rows: list[int]


def agree(plan: MicroBatchPlan, *, device: torch.device, response_mask: Ragged | None = None) -> AllRanks:
    """One small all-gather: counts are summed, and the number of passes is the largest."""
    mine = [float(plan.num_micro_batches), 0.0, 0.0]
    if response_mask is not None and len(response_mask):
        per_row = response_mask.count_nonzero()
        mine[1:] = [float(per_row.sum()), float((per_row > 0).sum())]
    with waiting("peer", "all ranks, before the first micro-batch"):
        table = all_gather(torch.tensor(mine, dtype=torch.float64, device=device)).cpu()
    return AllRanks(
        num_micro_batches=int(table[:, 0].max()),
        num_tokens=float(table[:, 1].sum()),
        num_sequences=float(table[:, 2].sum()),
        ranks_with_rows=[rank for rank, count in enumerate(table[:, 0].tolist()) if count > 0],
    )


def aligned_columns(rows: DataProto) -> dict[str, Ragged]:
    """The token columns with one entry per response token."""
    lengths = rows.ragged("response_ids").lengths
    return {
        name: column
        for name, column in rows.columns.items()
        if isinstance(column, Ragged) and name != "prompt_ids" and np.array_equal(column.lengths, lengths)
    }


def padded_columns(columns: dict[str, Ragged], rows: NDArray[np.int64], *, device: torch.device) -> dict[str, Tensor]:
    """[b, T] of these rows: floats as float32, masks as bool, integers as int64."""
    padded = {}
    for name, column in columns.items():
        kind = {"f": np.float32, "b": np.bool_}.get(column.dtype.kind, np.int64)
        padded[name] = torch.from_numpy(column.take(rows).to_padded().astype(kind, copy=False)).to(device)
    return padded
