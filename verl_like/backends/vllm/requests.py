"""The unfinished requests of an engine.

vLLM's LLMEngine validates, copies and tracks each request anew: 16 of the 84 ms that 256 answers of three tokens took.
Here its input processor runs once for all requests that sample in the same way, and its output processor not at all:
the scheduler's requests have all tokens. Checked against vllm 0.32, llm_engine.py, add_request and step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from vllm import SamplingParams
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.request import Request as EngineRequest

from verl_like.backends.base import Request, Sampling
from verl_like.backends.vllm import internals
from verl_like.backends.vllm.log_probs import ReportedLogProbs, TokenLogProbs
from verl_like.backends.vllm.pictures import PicturePrompts
from verl_like.backends.vllm.routed_experts import RoutedExperts
from verl_like.backends.vllm.sampling import CountedSampling

if TYPE_CHECKING:
    from verl_like.backends.vllm.adapter import EngineAdapter


class OpenRequest(Protocol):
    """A request to an engine, with its results so far."""

    @property
    def request_id(self) -> str: ...

    @property
    def token_ids(self) -> list[int]:
        """The tokens sampled so far."""

    log_probs: list[float]  # of its tokens, once it has ended
    candidates: list[NDArray[np.int32]]  # of its tokens, if it wants them
    experts: NDArray[Any] | None  # of all its tokens but the last, if it wants them
    num_cached_tokens: int  # of the prompt, found in the prefix cache
    finish_reason: str  # "stop" or "length"; empty until it has ended


class OpenRequests(Protocol):
    """The unfinished requests of an engine, by id."""

    def __contains__(self, request_id: object) -> bool: ...

    def __bool__(self) -> bool: ...

    def add(self, request: Request) -> None:
        """Queue a request."""

    def step(self) -> Sequence[OpenRequest]:
        """Advance by one step and return the requests that have ended."""

    def abort(self, request_ids: Iterable[str]) -> Sequence[OpenRequest]:
        """Stop the requests with these ids, without those that have ended, and return them."""

    def num_sampled(self) -> dict[str, int]:
        """Return the number of tokens so far."""

    def queues(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting requests."""

    def drop_caches(self) -> None:
        """Drop all keys and values; requests in progress compute theirs anew in the next step."""


@dataclass(slots=True)
class ScheduledRequest:
    """A request in vLLM's scheduler.

    Args:
        request: vLLM's object, which has the tokens so far. Its id is unique even among requests that have ended.
        source: collects its log-probs.
        is_reading: whether no step has computed the prompt.
    """

    request_id: str
    request: EngineRequest
    source: TokenLogProbs
    is_reading: bool = True
    num_cached_tokens: int = 0
    finish_reason: str = ""
    log_probs: list[float] = field(default_factory=list)
    candidates: list[NDArray[np.int32]] = field(default_factory=list)
    experts: NDArray[Any] | None = None

    @property
    def engine_id(self) -> str:
        return str(self.request.request_id)

    @property
    def token_ids(self) -> list[int]:
        return list(self.request.output_token_ids)


class _Template(NamedTuple):
    """The parts of a request from which vLLM's input processor works; requests that agree in them share its result."""

    sampling: Sampling
    features: Mapping[str, Any] | None
    prompt_ids: list[int] | None  # of a prompt with features


class ScheduledRequests:
    """The unfinished requests of vLLM's scheduler.

    Args:
        end_token_ids: end a response, unless the request ignores them.
        adapter: the adapter of all requests, if they have one.
        reported: collects log-probs from vLLM's sampler.
        counted: samples on CPU for requests that are not greedy, and collects their log-probs.
        experts: collects experts, if requests may want them.
        pictures: makes the inputs of prompts with pictures.
        forbidden_ids: tokens that no request samples.
    """

    def __init__(
        self,
        engine: LLMEngine,
        *,
        end_token_ids: Iterable[int],
        adapter: EngineAdapter | None,
        reported: ReportedLogProbs,
        counted: CountedSampling | None,
        experts: RoutedExperts | None = None,
        pictures: PicturePrompts | None = None,
        forbidden_ids: Sequence[int] = (),
    ) -> None:
        self._experts, self._pictures = experts, pictures
        self._logit_bias = dict.fromkeys(forbidden_ids, -math.inf) or None
        self._engine, self._lora_request = engine, None if adapter is None else adapter.request
        self._end_token_ids = sorted(end_token_ids)
        self._reported, self._counted = reported, counted
        self._numbers = count()
        self._of_engine_id: dict[str, ScheduledRequest] = {}
        self._by_id: dict[str, ScheduledRequest] = {}  # by our id
        self._processed: tuple[_Template, EngineCoreRequest] | None = None  # the last result of vLLM's input processor

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._by_id

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, request: Request) -> None:
        is_counted = self._counted is not None and request.sampling.temperature > 0
        added = copy(self._template(request, is_counted=is_counted))
        added.request_id = f"{request.request_id}-{next(self._numbers)}"
        added.cache_salt = request.salt or None
        if not request.features:
            added.prompt_token_ids = request.prompt_ids
        added.arrival_time = time.time()
        if not is_counted:
            added.sampling_params = copy(added.sampling_params)
            added.sampling_params.seed = request.seed
        source = self._counted if self._counted is not None and is_counted else self._reported
        source.begin(added.request_id, seed=request.seed, wants_candidates=request.sampling.returns_candidates)
        if self._experts is not None and request.sampling.returns_experts:
            self._experts.begin(added.request_id)
        opened = ScheduledRequest(request.request_id, internals.add_request(self._engine, added), source)
        self._of_engine_id[added.request_id] = self._by_id[request.request_id] = opened

    def step(self) -> list[ScheduledRequest]:
        ended = []
        for output in self._engine.engine_core.get_output().outputs:
            opened = self._of_engine_id.get(output.request_id)
            if opened is None:  # aborted while a step that was planned ahead sampled its token
                continue
            if opened.is_reading and output.prefill_stats is not None:
                opened.is_reading, opened.num_cached_tokens = False, output.prefill_stats.num_cached_tokens
            if output.finish_reason is not None:
                opened.finish_reason = str(output.finish_reason)
                self._close(opened)
                ended.append(opened)
        self._drain_if_idle()
        return ended

    def abort(self, request_ids: Iterable[str]) -> list[ScheduledRequest]:
        aborted = [self._by_id[request_id] for request_id in dict.fromkeys(request_ids) if request_id in self]
        for opened in aborted:
            self._close(opened)
        self._engine.engine_core.abort_requests([opened.engine_id for opened in aborted])
        self._drain_if_idle()
        return aborted

    def queues(self) -> tuple[int, int]:
        return internals.queues(self._engine)

    def drop_caches(self) -> None:
        if self._pictures is not None:
            self._pictures.forget()
        if not (self._engine.vllm_config.cache_config.enable_prefix_caching or self):
            return  # vLLM would walk through all blocks
        # Requests that a sync keeps return to the queue in their order, with the tokens that they have.
        is_dropped = self._engine.reset_prefix_cache(reset_running_requests=bool(self))
        assert is_dropped, "the prefix cache could not be dropped although no request is running"

    def num_sampled(self) -> dict[str, int]:
        return {request_id: opened.request.num_output_tokens for request_id, opened in self._by_id.items()}

    def _close(self, opened: ScheduledRequest) -> None:
        del self._of_engine_id[opened.engine_id], self._by_id[opened.request_id]
        num_tokens = opened.request.num_output_tokens
        opened.log_probs = opened.source.taken(opened.engine_id, num_tokens)
        opened.candidates = opened.source.taken_candidates(opened.engine_id, num_tokens)
        if self._experts is not None:
            num_computed = opened.request.num_prompt_tokens + num_tokens - 1
            opened.experts = self._experts.taken(opened.engine_id, num_computed)

    def _drain_if_idle(self) -> None:
        if not self:
            internals.drain(self._engine)

    def _template(self, request: Request, *, is_counted: bool) -> EngineCoreRequest:
        """Return what vLLM's input processor makes of a request that samples in this way, with the same pictures."""
        wanted = _Template(request.sampling, request.features or None, request.prompt_ids if request.features else None)
        if self._processed is None or self._processed[0] != wanted:
            if wanted.features is None:
                prompt = tokens_input(request.prompt_ids)
            else:
                assert self._pictures is not None, "an engine without pictures refuses requests with features"
                prompt = self._pictures.rendered(request)
            processed = self._engine.input_processor.process_inputs(
                request.request_id,
                prompt,
                self._sampling_params(request, is_counted=is_counted),
                supported_tasks=self._engine.get_supported_tasks(),
                lora_request=self._lora_request,
            )
            self._processed = wanted, processed
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
            logit_bias=self._logit_bias,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )
