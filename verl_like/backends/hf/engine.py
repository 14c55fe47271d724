"""Generation with plain transformers behind the RolloutEngine protocol: slow, but easy to debug step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from verl_like.backends.base import Finished, Request, Sampling
from verl_like.backends.lifecycle import SyncedEngine
from verl_like.backends.model_folder import model_folder
from verl_like.config.schema import ModelConfig, RolloutConfig
from verl_like.ops.routers import Routers


@dataclass(kw_only=True, slots=True)
class _Row:
    request: Request
    generator: torch.Generator
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    candidates: list[NDArray[np.int32]] = field(default_factory=list)
    experts: list[NDArray[Any]] = field(default_factory=list)  # of the tokens of each forward pass


class HfEngine(SyncedEngine):
    """Decodes requests in waves of ``rollout.max_num_seqs``: left-padded prompts, one cache, and no new requests until
    the wave has finished.

    The arguments are those of :func:`verl_like.backends.rollout.rollout_engine`. ``abort`` leaves out ids that have
    already finished. Log-probs of greedy samples are those at temperature 1.
    """

    def __init__(
        self,
        *,
        model_path: str,
        tokenizer_path: str,
        model: ModelConfig,
        rollout: RolloutConfig,
        max_model_len: int,
        device: str,
        seed: int,
        run_id: str,
    ) -> None:
        del seed, run_id  # every request has its own seed, and nothing is shared
        if rollout.tensor_parallel_size != 1:
            raise ValueError(
                f"rollout.tensor_parallel_size is {rollout.tensor_parallel_size}, but rollout.backend=hf runs on one "
                f"rank. "
                "Set rollout.tensor_parallel_size=1, or use rollout.backend=vllm."
            )
        folder = model_folder(model_path=model_path, tokenizer_path=tokenizer_path, model=model)
        super().__init__(weight_shapes=folder.weight_shapes, max_model_len=max_model_len, vocab_size=folder.vocab_size)
        self._device = torch.device(device)
        self.end_token_ids = frozenset(folder.end_token_ids)
        self._max_num_seqs = rollout.num_seqs
        auto = torch.float32 if device == "cpu" else torch.bfloat16
        dtype = {"auto": auto, "float32": torch.float32, "bfloat16": torch.bfloat16}[rollout.dtype]
        with torch.random.fork_rng(devices=[]):
            built = AutoModelForCausalLM.from_config(
                folder.config, dtype=dtype, trust_remote_code=model.trust_remote_code
            )
        self._model = built.to(self._device).eval()
        self._routers = Routers(self._model) if rollout.router_replay else None
        if self._routers is not None:
            self._routers.begin_recording()
        self._waiting: deque[_Row] = deque()
        self._wave: list[_Row] = []
        self._cache = DynamicCache()
        self._mask = torch.zeros(0, 0)  # [rows, tokens so far], 0 where padded
        self._next_ids = torch.zeros(0, 0)  # [rows, tokens of the next forward pass]

    def submit(self, requests: list[Request]) -> None:
        self._check_submit(requests, in_use={row.request.request_id for row in (*self._waiting, *self._wave)})
        for request in requests:
            self._waiting.append(
                _Row(request=request, generator=torch.Generator(self._device).manual_seed(request.seed))
            )

    @torch.no_grad()
    def step(self) -> list[Finished]:
        self._check_step()
        if not self._wave and not self._waiting:
            return []
        if not self._wave:
            self._start_wave()
        self.usage.record(running=len(self._wave), waiting=len(self._waiting))
        positions = (self._mask.cumsum(-1) - 1).clamp(min=0)[:, -self._next_ids.shape[1] :]
        logits = (
            self._model(
                input_ids=self._next_ids,
                attention_mask=self._mask,
                position_ids=positions,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
            .logits[:, -1]
            .float()
        )
        if self._routers is not None:
            self._record_experts(self._routers)
        for row, row_logits in zip(self._wave, logits, strict=True):
            drawn = sampled(row_logits, row.request.sampling, row.generator)
            row.token_ids.append(drawn.token_id)
            row.log_probs.append(drawn.log_prob)
            if row.request.sampling.returns_candidates:
                row.candidates.append(drawn.candidates())
        self._next_ids = torch.tensor([[row.token_ids[-1]] for row in self._wave], device=self._device)
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._wave), 1)], dim=1)
        reasons = [self._finish_reason(row) for row in self._wave]
        finished = [self._finished(row, reason) for row, reason in zip(self._wave, reasons, strict=True) if reason]
        self._keep([index for index, reason in enumerate(reasons) if not reason])
        return finished

    def has_unfinished(self) -> bool:
        return bool(self._wave or self._waiting)

    def num_free_slots(self) -> int:
        return 0 if self._wave or self._waiting else self._max_num_seqs

    def abort(self, request_ids: Iterable[str]) -> list[Finished]:
        unwanted = set(request_ids)
        aborted = [
            self._finished(row, "abort") for row in (*self._wave, *self._waiting) if row.request.request_id in unwanted
        ]
        self._waiting = deque(row for row in self._waiting if row.request.request_id not in unwanted)
        self._keep([index for index, row in enumerate(self._wave) if row.request.request_id not in unwanted])
        return aborted

    def _finished(self, row: _Row, reason: str) -> Finished:
        request_id = row.request.request_id
        return Finished(
            request_id=request_id,
            response_ids=row.token_ids,
            log_probs=row.log_probs,
            finish_reason=reason,
            versions=self._versions_of(request_id, len(row.token_ids)),
            candidates=row.candidates,
            experts=np.concatenate(row.experts) if row.experts else None,
        )

    def _record_experts(self, routers: Routers) -> None:
        """Record the experts of the newest forward pass; prompts are padded on the left."""
        rows, width = self._next_ids.shape
        experts = routers.recorded().view(rows, width, routers.num_layers, routers.top_k)
        numbers = experts.to(torch.uint8 if routers.num_experts <= 256 else torch.int16).cpu().numpy()
        for row, of_row, mask in zip(self._wave, numbers, self._mask[:, -width:].bool().cpu().numpy(), strict=True):
            if row.request.sampling.returns_experts:
                row.experts.append(of_row[mask])

    def _num_sampled(self) -> dict[str, int]:
        return {row.request.request_id: len(row.token_ids) for row in (*self._wave, *self._waiting)}

    def _start_wave(self) -> None:
        self._wave = [self._waiting.popleft() for _ in range(min(self._max_num_seqs, len(self._waiting)))]
        self._prefill()

    def _prefill(self) -> None:
        """Make the next step run the wave's whole sequences, from an empty cache."""
        sequences = [row.request.prompt_ids + row.token_ids for row in self._wave]
        width = max(len(ids) for ids in sequences)
        for row in self._wave:
            row.experts.clear()
        self._next_ids = torch.tensor([[0] * (width - len(ids)) + ids for ids in sequences], device=self._device)
        self._mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in sequences], device=self._device)
        self._cache = DynamicCache(config=self._model.config)

    def _keep(self, indices: list[int]) -> None:
        """Drop all other rows from the wave."""
        if len(indices) == len(self._wave):
            return
        self._wave = [self._wave[index] for index in indices]
        chosen = torch.tensor(indices, dtype=torch.long, device=self._device)
        self._next_ids, self._mask = self._next_ids[chosen], self._mask[chosen]
        if indices:
            self._cache.batch_select_indices(chosen)
        else:
            self._cache = DynamicCache()

    def _finish_reason(self, row: _Row) -> str:
        if row.token_ids[-1] in self.end_token_ids and not row.request.sampling.ignore_eos:
            return "stop"
        return "length" if len(row.token_ids) == row.request.sampling.max_tokens else ""

    @torch.no_grad()
    def _load_weights(self, weights: Iterator[tuple[str, Any]]) -> None:
        own = self._model.state_dict()
        for name, tensor in weights:
            own[name].copy_(tensor)

    def _drop_caches(self) -> None:
        self._cache = DynamicCache()
        if self._wave:
            self._prefill()

    def _free_memory(self) -> None:
        self._model.to("cpu")

    def _wake_weights(self) -> None:
        self._model.to(self._device)

    def _wake_cache(self) -> None:
        """Do nothing: the cache is allocated as it grows."""


class Drawn(NamedTuple):
    """A token drawn from ``log_probs`` [V] nats, -inf for tokens that are no candidates."""

    token_id: int
    log_probs: Tensor

    @property
    def log_prob(self) -> float:
        return float(self.log_probs[self.token_id])

    def candidates(self) -> NDArray[np.int32]:
        """Return the ids of the candidates, in increasing order."""
        return self.log_probs.isfinite().nonzero().squeeze(1).cpu().numpy().astype(np.int32)


def sampled(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Drawn:
    """Draw a token from ``logits`` [V] float32 at the temperature, after top-k and top-p; at temperature 0 return the
    most likely one, with log-probs at temperature 1.
    """
    if sampling.temperature == 0:
        return Drawn(int(logits.argmax()), logits.log_softmax(-1))
    logits = logits / sampling.temperature
    if sampling.top_k > 0:
        smallest_kept = logits.topk(min(sampling.top_k, len(logits))).values[-1]
        logits = logits.masked_fill(logits < smallest_kept, -torch.inf)
    if sampling.top_p < 1:
        ascending, order = logits.sort()
        # Keep the most likely tokens whose mass reaches top_p, and always the most likely one.
        is_cut = ascending.softmax(-1).cumsum(-1) <= 1 - sampling.top_p
        is_cut[-1] = False
        logits = logits.index_fill(0, order[is_cut], -torch.inf)
    log_probs = logits.log_softmax(-1)
    return Drawn(int(torch.multinomial(log_probs.exp(), 1, generator=generator)), log_probs)
