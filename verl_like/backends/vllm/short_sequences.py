"""Generate sequences that fit into one block of vLLM's cache, without its scheduler.

With such sequences a scheduler has nothing to decide: a request needs one block, and never another. vLLM's scheduler
and model runner take 7 ms of Python per step of 256 requests, as long as a model of 0.2 million parameters. Here a step
is a few array operations around the model's forward pass. Checked against vllm 0.32, gpu_model_runner.py,
execute_model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.forward_context import set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from verl_like.backends.base import Request, Sampling
from verl_like.backends.vllm.log_probs import finite_ids
from verl_like.backends.vllm.sampling import drawn
from verl_like.backends.vllm.shared_prompts import SharedPrompts, SharedRows, attention_groups, first_alike
from verl_like.ops.segments import ranges


@dataclass(slots=True)
class ShortSequence:
    """A request, and its tokens so far.

    Args:
        block: of the cache; 0 while the request waits.
        num_computed: tokens whose keys and values are in the block.
    """

    request: Request
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    candidates: list[NDArray[np.int32]] = field(default_factory=list)
    experts: NDArray[Any] | None = None  # never: the engine does not run these sequences if they are wanted
    block: int = 0
    num_computed: int = 0
    finish_reason: str = ""
    num_cached_tokens: int = 0

    @property
    def request_id(self) -> str:
        return self.request.request_id

    def new_tokens(self) -> list[int]:
        """Return the tokens of the next step."""
        return self.token_ids[-1:] if self.num_computed else [*self.request.prompt_ids, *self.token_ids]


class ShortSequences:
    """The unfinished requests of an engine with short sequences.

    Args:
        runner: vLLM's model runner on CPU, for which :meth:`fit` holds.
        end_token_ids: end a response, unless the request ignores them.
    """

    def __init__(
        self,
        runner: Any,
        shared: SharedPrompts,
        *,
        end_token_ids: Iterable[int],
        max_num_seqs: int,
        max_num_batched_tokens: int,
    ) -> None:
        self._runner, self._shared, self._end_token_ids = runner, shared, frozenset(end_token_ids)
        self._max_num_seqs, self._max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self._group = runner.attn_groups[0][0]
        self._block_size = self._group.kv_cache_spec.block_size
        self._free = list(range(1, runner.kv_cache_config.num_blocks))  # block 0 is vLLM's null block
        self._by_id: dict[str, ShortSequence] = {}
        self._waiting: deque[ShortSequence] = deque()
        self._running: list[ShortSequence] = []

    @staticmethod
    def fit(runner: Any, max_model_len: int) -> bool:
        """Return whether every sequence of this runner fits into one block."""
        groups = attention_groups(runner)
        return len(groups) == 1 and max_model_len <= groups[0].kv_cache_spec.block_size and SharedPrompts.fit(runner)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._by_id

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def queues(self) -> tuple[int, int]:
        return len(self._running), len(self._waiting)

    def add(self, request: Request) -> None:
        added = self._by_id[request.request_id] = ShortSequence(request)
        self._waiting.append(added)

    @torch.inference_mode()
    def step(self) -> list[ShortSequence]:
        self._admit()
        if not self._running:
            return []
        ended = []
        for sequence, token_id in zip(self._running, self._next_tokens(self._running), strict=True):
            sequence.token_ids.append(token_id)
            sampling = sequence.request.sampling
            if token_id in self._end_token_ids and not sampling.ignore_eos:
                sequence.finish_reason = "stop"
            elif len(sequence.token_ids) == sampling.max_tokens:
                sequence.finish_reason = "length"
            else:
                continue
            ended.append(sequence)
        self._forget(ended)
        return ended

    def abort(self, request_ids: Iterable[str]) -> list[ShortSequence]:
        aborted = [self._by_id[request_id] for request_id in dict.fromkeys(request_ids) if request_id in self]
        self._forget(aborted)
        return aborted

    def num_sampled(self) -> dict[str, int]:
        return {request_id: len(sequence.token_ids) for request_id, sequence in self._by_id.items()}

    def drop_caches(self) -> None:
        # Sequences in progress return to the queue in their order, with the tokens that they have.
        for sequence in reversed(self._running):
            self._release(sequence)
            self._waiting.appendleft(sequence)
        self._running = []

    def _admit(self) -> None:
        """Give waiting sequences a block, as long as their tokens fit into the step."""
        num_tokens = len(self._running)
        while self._waiting and self._free and len(self._running) < self._max_num_seqs:
            num_tokens += len(self._waiting[0].new_tokens())
            if num_tokens > self._max_num_batched_tokens:
                return
            sequence = self._waiting.popleft()
            sequence.block = self._free.pop()
            self._running.append(sequence)

    def _release(self, sequence: ShortSequence) -> None:
        self._free.append(sequence.block)
        sequence.block = sequence.num_computed = 0

    def _forget(self, sequences: list[ShortSequence]) -> None:
        for sequence in sequences:
            del self._by_id[sequence.request_id]
            if sequence.block:
                self._release(sequence)
            else:
                self._waiting.remove(sequence)
        if sequences:
            self._running = [sequence for sequence in self._running if sequence.request_id in self._by_id]

    def _next_tokens(self, rows: list[ShortSequence]) -> list[int]:
        """Compute one step of these sequences, and sample the next token of each."""
        new = [sequence.new_tokens() for sequence in rows]
        starts = np.cumsum([0, *map(len, new)])
        computed = np.array([sequence.num_computed for sequence in rows])
        positions = ranges(computed, np.diff(starts))
        blocks = np.array([sequence.block for sequence in rows])
        ends = computed + np.diff(starts)
        metadata = CommonAttentionMetadata(
            query_start_loc=torch.from_numpy(starts.astype(np.int32)),
            query_start_loc_cpu=torch.from_numpy(starts.astype(np.int32)),
            seq_lens=torch.from_numpy(ends.astype(np.int32)),
            num_reqs=len(rows),
            num_actual_tokens=len(positions),
            max_query_len=int(np.diff(starts).max()),
            max_seq_len=int(ends.max()),
            block_table_tensor=torch.from_numpy(blocks.astype(np.int32)[:, None]),
            slot_mapping=torch.from_numpy(np.repeat(blocks * self._block_size, np.diff(starts)) + positions),
        )
        input_ids = torch.tensor(list(chain.from_iterable(new)), dtype=torch.int32)
        with set_forward_context(
            dict.fromkeys(self._group.layer_names, self._group.get_metadata_builder(0).build(0, metadata)),
            self._runner.vllm_config,
            num_tokens=len(positions),
            slot_mapping=dict.fromkeys(self._group.layer_names, metadata.slot_mapping),
        ):
            first = first_alike(input_ids.numpy(), starts, np.flatnonzero(computed == 0), computed, ())
            hidden = self._shared.forward(input_ids, torch.from_numpy(positions), SharedRows.of(first, starts))
        logits = self._runner.model.compute_logits(hidden[torch.from_numpy(starts[1:] - 1)])
        for sequence, end in zip(rows, ends.tolist(), strict=True):
            sequence.num_computed = end
        return self._sampled(rows, logits.float())

    def _sampled(self, rows: list[ShortSequence], logits: Tensor) -> list[int]:
        """Sample a token for each row of [B, V] logits."""
        alike: dict[Sampling, list[int]] = {}
        for row, sequence in enumerate(rows):
            alike.setdefault(sequence.request.sampling, []).append(row)
        token_ids = [0] * len(rows)
        for sampling, numbers in alike.items():
            sequences = [rows[row] for row in numbers]
            found, log_probs = self._of_sampling(sampling, sequences, logits if len(alike) == 1 else logits[numbers])
            for row, sequence, token_id, log_prob in zip(numbers, sequences, found, log_probs, strict=True):
                token_ids[row] = token_id
                sequence.log_probs.append(log_prob)
        return token_ids

    def _of_sampling(
        self, sampling: Sampling, sequences: list[ShortSequence], logits: Tensor
    ) -> tuple[list[int], list[float]]:
        """Sample a token for each row of [B, V] logits in the same way; return their log-probs too."""
        if sampling.temperature == 0:
            token_ids = logits.argmax(1)
            log_probs = logits.log_softmax(1).gather(1, token_ids[:, None]).squeeze(1)
        else:
            num_rows, num_ids = logits.shape
            k = torch.full((num_rows,), sampling.top_k) if 0 < sampling.top_k < num_ids else None
            p = torch.full((num_rows,), sampling.top_p) if sampling.top_p < 1 else None
            logits = apply_top_k_top_p(logits / torch.full((num_rows, 1), sampling.temperature), k, p)
            seeds = [sequence.request.seed for sequence in sequences]
            token_ids, log_probs = drawn(logits, seeds, [len(sequence.token_ids) for sequence in sequences])
        if sampling.returns_candidates:
            for sequence, found in zip(sequences, finite_ids(logits), strict=True):
                sequence.candidates.append(found)
        return token_ids.tolist(), log_probs.tolist()
