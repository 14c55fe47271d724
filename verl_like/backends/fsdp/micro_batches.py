"""Split an engine call's rows into forward passes, equally many on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.backends.fsdp.collectives import all_gather
from verl_like.backends.fsdp.row_pictures import RowPictures
from verl_like.context import current
from verl_like.ops.candidates import candidates_of
from verl_like.ops.device_copies import on_device
from verl_like.ops.matmul_libraries import MatmulLibraries
from verl_like.ops.packing import ModelInputs, input_lengths, input_numbers, pack_rows, valid_mask
from verl_like.ops.partition import attention_costs, micro_batches
from verl_like.ops.routers import OWN
from verl_like.ops.ulysses import SequenceRanks
from verl_like.protocol import CANDIDATES, EPISODE_ROW, EXPERTS, PAIR, PROMPTS, TEACHER, DataProto, Ragged
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger, waiting

# Two ranks on two cores. With 2 million parameters and 192 dimensions 2,048 are 4 to 13 % faster than 1,024; with 0.2
# million and 64 dimensions 9 to 14 %. With 28 million and 512 they are 5 % slower, and with 110 million 30 %.
CPU_TOKENS, MAX_CPU_TOKENS = 1024, 2048
CPU_STATES = 2**19  # tokens times dimensions
GPU_TOKENS, GPU_TOKENS_FORWARD = 16_384, 32_768
# Each row that shares a prompt reads its own copy of the prompt's keys, which attention keeps for its backward pass.
MAX_KEYS_PER_TOKEN = 8
NUMERIC = "fbiu"  # kinds of dtypes


def resolve_max_tokens(requested: str, device: torch.device, *, hidden_size: int, learns: bool) -> int:
    """Return the token budget of a pass; a longer row gets its own pass.

    Args:
        requested: "auto", or a number.
        learns: whether a backward pass follows.
    """
    if requested != "auto":
        return int(requested)
    if device.type == "cpu":
        return min(max(CPU_STATES // hidden_size, CPU_TOKENS), MAX_CPU_TOKENS)
    return GPU_TOKENS if learns else GPU_TOKENS_FORWARD


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """One forward pass.

    Args:
        inputs: the model's inputs.
        rows: [b] indices into the call's rows, in the order of the pass; empty for a pass that only keeps the
            collectives of all ranks aligned.
        valid: [b, T] bool, true at the rows' response tokens.
        teacher_inputs: the same responses after the teacher's prompts, if the rows have ``teacher_prompt_ids``;
            otherwise ``inputs``. Both have the same targets.
        teacher: number of the teacher from which all rows of the pass learn; 0 if there are not several.
    """

    inputs: ModelInputs
    rows: NDArray[np.int64]
    valid: Tensor
    teacher_inputs: ModelInputs
    teacher: int = 0


class MicroBatchPlan:
    """How this rank runs its rows.

    Rows without a response are left out, because they have nothing to compute. Rows that share their prompt go into one
    pass if they fit. With a column ``pair`` there are two rows for each of its numbers, all with a response, and both
    go into one pass even if they do not fit. With several teachers a pass has rows of one, and passes are in the order
    of teachers, so that all ranks run the same one at the same time.

    Args:
        rows: this rank's rows; an empty table may lack columns. Passes have candidates if the rows have.
        max_tokens: budget of one pass, which includes padding if there is any.
        share_prompts: whether the packed rows of a pass share equal prompts.
        balance_by: quantity that is balanced over the passes, "tokens" or "attention" (the sum of squares).
        sequence_ranks: ranks that share each pass, all with the same rows.
        num_teachers: number of teachers among which the column ``teacher`` chooses.
        pictures: of the rows, if the model reads pictures.
    """

    def __init__(
        self,
        rows: DataProto,
        *,
        max_tokens: int,
        remove_padding: bool,
        share_prompts: bool,
        balance_by: str,
        device: torch.device,
        sequence_ranks: SequenceRanks | None = None,
        num_teachers: int = 1,
        pictures: RowPictures | None = None,
    ) -> None:
        self._pictures = pictures
        self._remove_padding, self._sequence_ranks = remove_padding, sequence_ranks
        self._device = device
        empty = Ragged.from_rows([], "int32")
        self._prompts = rows.ragged("prompt_ids") if len(rows) else empty
        self._responses = rows.ragged("response_ids") if len(rows) else empty
        has_candidates = len(rows) and set(CANDIDATES) <= rows.columns.keys()
        self._candidates = [rows.ragged(name) for name in CANDIDATES] if has_candidates else None
        self._experts = rows.ragged(EXPERTS) if EXPERTS in rows.columns else None
        self._teacher_prompts = rows.ragged("teacher_prompt_ids") if "teacher_prompt_ids" in rows.columns else None
        lengths, prompt_lengths = input_lengths(self._prompts, self._responses), self._prompts.lengths
        if self._teacher_prompts is not None:  # the teacher's pass over the same rows must fit, too
            prompt_lengths = np.maximum(prompt_lengths, self._teacher_prompts.lengths)
            lengths = lengths + prompt_lengths - self._prompts.lengths
        answered = np.flatnonzero(self._responses.lengths > 0)
        self._same_prompt = same_rows(self._prompts) if share_prompts and remove_padding else None
        if self._same_prompt is not None and pictures is not None:
            _, self._same_prompt = np.unique([self._same_prompt, pictures.numbers], axis=1, return_inverse=True)
        self._same_teacher_prompt: NDArray[np.int64] | None = None
        if self._teacher_prompts is not None and self._same_prompt is not None:
            self._same_teacher_prompt = same_rows(self._teacher_prompts)
        chooses = num_teachers > 1 and TEACHER in rows.columns
        teachers = np.asarray(rows[TEACHER]) if chooses else np.zeros(len(rows), np.int64)
        if PAIR in rows.columns:
            units = pairs(np.asarray(rows[PAIR]))
        else:
            numbers = np.arange(len(lengths)) if self._same_prompt is None else self._same_prompt
            numbers = numbers * num_teachers + teachers
            units = sharing_units(lengths, prompt_lengths, numbers, answered, max_tokens=max_tokens)
        shares = self._same_prompt is not None
        tokens = _of_units(units, lengths, prompt_lengths if shares else np.zeros_like(lengths))
        costs = tokens
        if not remove_padding:
            costs = tokens = np.array([len(unit) for unit in units], np.int64) * lengths[answered].max(initial=0)
        if balance_by == "attention":
            costs = attention_costs(tokens)
            if remove_padding:
                prompts = attention_costs(prompt_lengths)
                costs = _of_units(units, attention_costs(lengths), prompts if shares else np.zeros_like(prompts))
        of_units = np.array([teachers[unit[0]] for unit in units], np.int64)
        self._parts: list[list[NDArray[np.int64]]] = []  # the rows of each pass, by teacher
        for teacher in range(num_teachers):
            own = np.flatnonzero(of_units == teacher)
            parts = micro_batches(tokens[own], max_tokens, count=0, costs=costs[own])
            rows_of = [np.concatenate([units[unit] for unit in own[part]]) for part in parts]
            self._parts.append([self._in_order(rows, lengths) for rows in rows_of])

    def _in_order(self, rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows with the longest first, so that neighbours have similar lengths; after them the rows that
        share a prompt, by the length of the prompt and then of what follows it.
        """
        prefixes = np.zeros(len(rows), np.int64)
        if self._same_prompt is not None:
            _, number, counts = np.unique(self._same_prompt[rows], return_inverse=True, return_counts=True)
            prefixes = np.where(counts[number] > 1, self._prompts.lengths[rows], 0)
        return rows[np.lexsort((prefixes - lengths[rows], np.frexp(prefixes)[1]))]

    @property
    def num_passes(self) -> list[int]:
        """Number of passes for which this rank has rows, for each teacher."""
        return [len(parts) for parts in self._parts]

    def passes(self, num_passes: Sequence[int] | None = None) -> Iterator[MicroBatch]:
        """Yield the passes; empty ones complete those of a teacher.

        Args:
            num_passes: number of passes for each teacher, at least as many as this rank has rows for; by default these.
        """
        for teacher, (parts, count) in enumerate(zip(self._parts, num_passes or self.num_passes, strict=True)):
            assert count >= len(parts), f"{len(parts)} micro-batches do not fit into {count} passes"
            for part in parts:
                yield self._pass_of(part, teacher)
            for _ in range(count - len(parts)):
                yield self._empty_pass(teacher)

    def _pass_of(self, rows: NDArray[np.int64], teacher: int) -> MicroBatch:
        current(Heartbeat).tick()
        responses = self._responses.take(rows)
        inputs = self._packed(self._prompts, rows, self._same_prompt)
        if self._pictures is not None:
            at = self._numbers(rows, inputs)
            inputs = self._pictures.added(inputs, rows, self._prompts.take(rows), responses, at)
        teacher_inputs = inputs
        if self._teacher_prompts is not None:
            teacher_inputs = self._packed(self._teacher_prompts, rows, self._same_teacher_prompt)
        if self._candidates is not None:
            ids, counts = (column.take(rows) for column in self._candidates)
            found = candidates_of(ids, counts, responses, size=len(inputs.targets), device=self._device)
            inputs = replace(inputs, candidates=found)
        current(Ledger).count(
            f"tokens/{current(Ledger).stage}",
            inputs.num_tokens / (self._sequence_ranks.size if self._sequence_ranks else 1),
        )
        if self._experts is not None:
            inputs = replace(inputs, experts=self._experts_of(self._experts.take(rows), rows, inputs))
        valid = valid_mask(responses.lengths, device=self._device)
        return MicroBatch(inputs=inputs, rows=rows, valid=valid, teacher_inputs=teacher_inputs, teacher=teacher)

    def _experts_of(self, experts: Ragged, rows: NDArray[np.int64], inputs: ModelInputs) -> Tensor:
        """Return the engine's experts of these inputs, [K, experts of a position] int64."""
        numbers = self._numbers(rows, inputs)
        num_positions = int(input_lengths(self._prompts.take(rows), self._responses.take(rows)).sum())
        of_position = experts.values.reshape(num_positions, -1).astype(np.int64)
        return on_device(np.where(numbers[:, None] < 0, OWN, of_position[numbers]), self._device)

    def _numbers(self, rows: NDArray[np.int64], inputs: ModelInputs) -> NDArray[np.int64]:
        """Return :func:`input_numbers` of a pass over these rows."""
        same_prompt = None if self._same_prompt is None else self._same_prompt[rows]
        return input_numbers(self._prompts.take(rows), self._responses.take(rows), inputs, same_prompt)

    def _packed(self, prompts: Ragged, rows: NDArray[np.int64], same_prompt: NDArray[np.int64] | None) -> ModelInputs:
        return pack_rows(
            prompts.take(rows),
            self._responses.take(rows),
            remove_padding=self._remove_padding,
            device=self._device,
            same_prompt=None if same_prompt is None else same_prompt[rows],
            round_up=self._device.type == "cpu" and bool(current(MatmulLibraries).onednn),
            sequence_ranks=self._sequence_ranks,
        )

    def _empty_pass(self, teacher: int) -> MicroBatch:
        """Return a pass of one token, which only takes part in collectives."""
        current(Heartbeat).tick()
        token = Ragged.from_rows([[0]], "int32")
        inputs = pack_rows(
            token, token, remove_padding=self._remove_padding, device=self._device, sequence_ranks=self._sequence_ranks
        )
        inputs = replace(inputs, num_targets=0)
        valid = torch.ones(1, 1, dtype=torch.bool, device=self._device)
        return MicroBatch(
            inputs=inputs, rows=np.empty(0, np.int64), valid=valid, teacher_inputs=inputs, teacher=teacher
        )

    def response_slots(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of these rows' response tokens among all rows' response tokens."""
        lengths = self._responses.lengths[rows]
        before = np.cumsum(lengths) - lengths
        slots: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(
            self._responses.offsets[rows] - before, lengths
        )
        return slots

    def response_bounds(self, rows: slice) -> tuple[int, int]:
        """Return the bounds of the response tokens of neighbouring rows among all rows' response tokens."""
        return int(self._responses.offsets[rows.start]), int(self._responses.offsets[rows.stop])

    @property
    def num_response_tokens(self) -> int:
        """K, over all of this rank's rows."""
        return len(self._responses.values)


def same_rows(column: Ragged) -> NDArray[np.int64]:
    """Return [B] a number for each row; equal rows have equal numbers."""
    numbers: dict[bytes, int] = {}
    content, bounds = column.values.tobytes(), (column.offsets * column.values.itemsize).tolist()
    return np.array([numbers.setdefault(content[a:b], len(numbers)) for a, b in pairwise(bounds)], np.int64)


def pairs(numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the indices of the two rows of each pair, ``numbers`` [B] are equal in a pair."""
    of_pairs = np.argsort(numbers, kind="stable").reshape(-1, 2)
    assert np.array_equal(numbers[of_pairs[:, 0]], numbers[of_pairs[:, 1]]), "a pair is not complete"
    return list(of_pairs)


def sharing_units(
    lengths: NDArray[np.int64],
    prompts: NDArray[np.int64],
    same_prompt: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    max_tokens: int,
) -> list[NDArray[np.int64]]:
    """Group these rows into units that go into a pass together: they share a prompt, and fit the budgets of tokens and
    keys.

    Args:
        lengths: [B] positions of each row, including its prompt.
        prompts: [B] prompt tokens of each row.
        same_prompt: [B] equal numbers for equal prompts.
        rows: indices of the rows that are run.
    """
    newest: dict[int, tuple[list[int], int, int]] = {}  # for each prompt: a unit's rows, its tokens and its keys
    units = []
    for row in rows[np.argsort(-lengths[rows], kind="stable")].tolist():
        number, length, prompt = int(same_prompt[row]), int(lengths[row]), int(prompts[row])
        members, tokens, keys = newest.get(number, ([], 0, 0))
        tokens, keys = tokens + length - prompt, keys + length
        if number not in newest or tokens > max_tokens or keys > MAX_KEYS_PER_TOKEN * tokens:
            members, tokens, keys = [], length, length
            units.append(members)
        members.append(row)
        newest[number] = members, tokens, keys
    return [np.array(unit, np.int64) for unit in units]


def _of_units(units: Sequence[NDArray[np.int64]], rows: NDArray[Any], prompts: NDArray[Any]) -> NDArray[np.int64]:
    """Sum a quantity [B] of whole rows over each unit, with the prompt of each unit counted once."""
    return np.array([int(rows[unit].sum() - prompts[unit[1:]].sum()) for unit in units], np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class AllRanks:
    """Counts over the rows of every rank, equal on all ranks."""

    num_passes: list[int]  # for each teacher, of the rank with the most
    num_tokens: float  # true entries of response_mask
    num_sequences: float  # rows with a true entry, or episodes
    num_prompts: float  # groups with a true entry; 0 if rows do not name their group's tokens
    ranks_with_rows: list[int]


def learned_counts(rows: DataProto) -> tuple[float, float, float]:
    """Return the true entries of ``response_mask``, the sequences (rows with a true entry, or episodes with one), and
    these rows' shares of prompts.

    Of an episode's rows, which may be on several ranks, the first counts. So may be those of a group: each counts by
    its share of the group's tokens, and the shares of a prompt sum to 1.
    """
    if not len(rows):
        return 0.0, 0.0, 0.0
    per_row = rows.ragged("response_mask").count_nonzero()
    is_sequence = per_row > 0
    if EPISODE_ROW in rows.columns:
        is_sequence &= np.asarray(rows[EPISODE_ROW]) == 0
    shares = 0.0
    if "group_tokens" in rows.columns:
        shares = float((per_row / np.maximum(np.asarray(rows["group_tokens"]), 1)).sum())
    return float(per_row.sum()), float(is_sequence.sum()), shares


def agree(
    plan: MicroBatchPlan, *, device: torch.device, counts: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> AllRanks:
    """Sum the counts of all ranks, and take the largest number of passes, in one small all-gather.

    Args:
        counts: :func:`learned_counts` of this rank's rows.
    """
    own = [*map(float, plan.num_passes), *counts]
    with waiting("peer", "all ranks, before the first micro-batch"):
        table = all_gather(torch.tensor(own, dtype=torch.float64, device=device)).cpu()
    passes, sums = table[:, : -len(counts)], table[:, -len(counts) :].sum(0).tolist()
    return AllRanks(
        num_passes=[int(count) for count in passes.amax(0).tolist()],
        num_tokens=sums[0],
        num_sequences=sums[1],
        num_prompts=float(round(sums[2])),
        ranks_with_rows=[rank for rank, count in enumerate(passes.sum(1).tolist()) if count > 0],
    )


def aligned_columns(rows: DataProto) -> dict[str, Ragged]:
    """Return the token columns with one entry per response token; others may have the same lengths by chance."""
    lengths, of_inputs = rows.ragged("response_ids").lengths, {*PROMPTS, *CANDIDATES, EXPERTS}
    return {
        name: column
        for name, column in rows.columns.items()
        if isinstance(column, Ragged) and name not in of_inputs and np.array_equal(column.lengths, lengths)
    }


def row_columns(rows: DataProto) -> dict[str, NDArray[Any]]:
    """Return the numeric columns with one entry per row."""
    return {
        name: column
        for name, column in rows.columns.items()
        if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in NUMERIC
    }


def padded_columns(columns: dict[str, Ragged], rows: NDArray[np.int64], *, device: torch.device) -> dict[str, Tensor]:
    """Return [b, T] of these rows: floats as float32, masks as bool, integers as int64."""
    padded = {}
    for name, column in columns.items():
        padded[name] = on_device(column.take(rows).to_padded().astype(_kind(column.dtype), copy=False), device)
    return padded


def taken_columns(
    columns: dict[str, NDArray[Any]], rows: NDArray[np.int64], *, device: torch.device
) -> dict[str, Tensor]:
    """Return [b] of these rows, in the dtypes of :func:`padded_columns`."""
    return {name: on_device(of[rows].astype(_kind(of.dtype), copy=False), device) for name, of in columns.items()}


def _kind(dtype: np.dtype[Any]) -> type[np.generic]:
    return {"f": np.float32, "b": np.bool_}.get(dtype.kind, np.int64)
