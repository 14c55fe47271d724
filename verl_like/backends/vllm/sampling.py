"""Sampling on CPU with a draw per request and position, for a whole batch at once.

vLLM's own sampler keeps a generator for each request with a seed, calls it in every step, and moves log-probs through
tables and queues one request at a time: some 5 % of the rollout of 2.2 million parameters (benchmarks/rollout.py). Its
kernel takes a seed for each row. Here that seed is a hash of the request's seed and of the position, which needs no
state, and the log-prob of each sampled token is recorded right where it is computed. Checked against vllm 0.32,
sampler.py and topk_topp_sampler.py, forward_cpu.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from verl_like.backends.vllm.log_probs import TokenLogProbs, finite_ids

_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def row_seeds(seeds: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return [B] seeds of 63 bits, each a hash of one request's seed and position.

    The seed is hashed before the position is added; otherwise the stream of one request would be that of another,
    shifted. Source: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    mixed = _mixed(_mixed(seeds + _GOLDEN) + (positions + np.uint64(1)) * _GOLDEN)
    return (mixed >> np.uint64(1)).astype(np.int64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def drawn(logits: Tensor, seeds: list[int], positions: list[int]) -> tuple[Tensor, Tensor]:
    """Draw a token for each row of [B, V] float32 logits; also return its log-prob in nats, [B]."""
    of_rows = row_seeds(np.array(seeds, np.uint64), np.array(positions, np.uint64))
    token_ids = torch.ops._C.fused_gumbel_argmax(logits, torch.from_numpy(of_rows))
    return token_ids, logits.gather(1, token_ids.long().unsqueeze(1)).squeeze(1) - logits.logsumexp(1)


class CountedSampling(TokenLogProbs):
    """Replaces a runner's own sampling of rows that are not greedy.

    Args:
        runner: vLLM's model runner on CPU, which ends a step before it plans the next.
    """

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self._runner = runner
        self._seeds: dict[str, int] = {}  # of the requests that sample here and get their log-probs from here
        runner.sampler.topk_topp_sampler.forward = self._sample

    @staticmethod
    def is_available() -> bool:
        """Return whether this vLLM has the kernel."""
        return hasattr(torch.ops._C, "fused_gumbel_argmax")

    def begin(self, request_id: str, *, seed: int = 0, wants_candidates: bool = False) -> None:
        super().begin(request_id, seed=seed, wants_candidates=wants_candidates)
        self._seeds[request_id] = seed

    def taken(self, request_id: str, num_tokens: int) -> list[float]:
        del self._seeds[request_id]
        return super().taken(request_id, num_tokens)

    def _sample(
        self, logits: Tensor, generators: dict[int, torch.Generator], k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Sample [B] tokens from [B, V] logits at the temperature of each row; also return log-probs [B, V] if vLLM
        needs some.
        """
        logits = apply_top_k_top_p(logits, k, p).float()
        ids = self._runner.input_batch.req_ids[: len(logits)]
        num_sampled = [len(self._runner.requests[request_id].output_token_ids) for request_id in ids]
        # Greedy rows have no seed here, and vLLM uses its own choice for them.
        seeds = [self._seeds.get(request_id) for request_id in ids]
        sampled, found = drawn(logits, [seed or 0 for seed in seeds], num_sampled)
        for request_id, seed, log_prob in zip(ids, seeds, found.tolist(), strict=True):
            if seed is not None:
                self._of_request[request_id].append(log_prob)
        self._collect_candidates(ids, logits)
        return sampled, logits.log_softmax(1) if None in seeds else None

    def _collect_candidates(self, ids: list[str], logits: Tensor) -> None:
        """Collect the candidates, [B, V] logits above -inf, of the requests that want them."""
        rows = [row for row, request_id in enumerate(ids) if request_id in self._candidates]
        if rows:
            for row, found in zip(rows, finite_ids(logits if len(rows) == len(ids) else logits[rows]), strict=True):
                self._candidates[ids[row]].append(found)
