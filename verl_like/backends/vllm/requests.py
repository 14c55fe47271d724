"""The unfinished requests of an engine.

vLLM's LLMEngine validates, copies and tracks each request anew: 16 of the 84 ms that 256 answers of three tokens took.
Here its input processor runs once for all requests that sample in the same way, and its output processor not at all:
the scheduler's requests have all tokens. Checked against vllm 0.32, llm_engine.py, add_request and step.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from vllm import SamplingParams
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.request import Request as EngineRequest

from verl_like.backends.base import Request, Sampling
from verl_like.backends.vllm import internals

if TYPE_CHECKING:
    from verl_like.backends.vllm.adapter import EngineAdapter


@dataclass(slots=True)
class OpenRequest:
    """A request to the engine.

    Args:
        request_id: our id; vLLM's id is unique even among requests that have ended.
        request: vLLM's object, which has the tokens so far.
        num_cached_tokens: of the prompt, found in the prefix cache; None before its first step.
        finish_reason: "stop" or "length"; empty until the request has ended.
    """

    request_id: str
    request: EngineRequest
    num_cached_tokens: int | None = None
    finish_reason: str = ""

    @property
    def vllm_id(self) -> str:
        return str(self.request.request_id)

    @property
    def token_ids(self) -> list[int]:
        """The tokens sampled so far."""
        return list(self.request.output_token_ids)


class OpenRequests:
    """Adds requests to an engine, and returns those that its steps have ended.

    Args:
        end_token_ids: end a response, unless the request ignores them.
        adapter: the adapter of all requests, if they have one.
    """

    def __init__(self, engine: LLMEngine, *, end_token_ids: Iterable[int], adapter: EngineAdapter | None) -> None:
        self._engine, self._lora_request = engine, None if adapter is None else adapter.request
        self._end_token_ids = sorted(end_token_ids)
        self._numbers = count()
        self._of_vllm_id: dict[str, OpenRequest] = {}
        self._by_id: dict[str, OpenRequest] = {}  # by our id
        self._processed: tuple[Sampling, EngineCoreRequest] | None = None  # the last result of vLLM's input processor

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._by_id

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, request: Request, *, is_counted: bool) -> OpenRequest:
        """Queue a request.

        Args:
            is_counted: whether the adapter samples it (:mod:`verl_like.backends.vllm.sampling`); otherwise vLLM samples
                it with its seed, and reports log-probs.
        """
        added = copy(self._template(request, is_counted=is_counted))
        added.request_id = f"{request.request_id}-{next(self._numbers)}"
        added.prompt_token_ids, added.cache_salt = request.prompt_ids, request.salt or None
        added.arrival_time = time.time()
        if not is_counted:
            added.sampling_params = copy(added.sampling_params)
            added.sampling_params.seed = request.seed
        opened = OpenRequest(request.request_id, internals.add_request(self._engine, added))
        self._of_vllm_id[added.request_id] = self._by_id[request.request_id] = opened
        return opened

    def step(self) -> list[OpenRequest]:
        """Advance the engine by one step and return the requests that have ended."""
        ended = []
        for output in self._engine.engine_core.get_output().outputs:
            opened = self._of_vllm_id.get(output.request_id)
            if opened is None:  # aborted while a step that was planned ahead sampled its token
                continue
            if opened.num_cached_tokens is None and output.prefill_stats is not None:
                opened.num_cached_tokens = output.prefill_stats.num_cached_tokens
            if output.finish_reason is not None:
                opened.finish_reason = str(output.finish_reason)
                self._forget(opened)
                ended.append(opened)
        return ended

    def abort(self, request_ids: Iterable[str]) -> list[OpenRequest]:
        """Stop the requests with these ids, without those that have ended, and return them with their tokens so far."""
        aborted = [self._by_id[request_id] for request_id in dict.fromkeys(request_ids) if request_id in self]
        for opened in aborted:
            self._forget(opened)
        self._engine.engine_core.abort_requests([opened.vllm_id for opened in aborted])
        return aborted

    def num_sampled(self) -> dict[str, int]:
        """Return the number of tokens so far, by our id."""
        return {request_id: opened.request.num_output_tokens for request_id, opened in self._by_id.items()}

    def _forget(self, opened: OpenRequest) -> None:
        del self._of_vllm_id[opened.vllm_id], self._by_id[opened.request_id]

    def _template(self, request: Request, *, is_counted: bool) -> EngineCoreRequest:
        """Return what vLLM's input processor makes of a request that samples in this way."""
        if self._processed is None or self._processed[0] != request.sampling:
            processed = self._engine.input_processor.process_inputs(
                request.request_id,
                tokens_input(request.prompt_ids),
                self._sampling_params(request, is_counted=is_counted),
                supported_tasks=self._engine.get_supported_tasks(),
                lora_request=self._lora_request,
            )
            self._processed = request.sampling, processed
        return self._processed[1]

    def _sampling_params(self, request: Request, *, is_counted: bool) -> SamplingParams:
        sampling = request.sampling
        return SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            # Greedy requests have a seed too: without one vLLM draws it from numpy's global generator.
            seed=None if is_counted else request.seed,
            # End tokens are set by us, so that every backend ends on the same ones.
            ignore_eos=True,
            stop_token_ids=[] if sampling.ignore_eos else self._end_token_ids,
            logprobs=None if is_counted else 0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )
