"""State common to all rollout engines: the version of the weights, the sleep state, and which weights a sync
delivered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from verl_like.backends.base import EngineUsage, OnRunning, Request, StaleWeightsError, VersionSpan

_MAX_NAMES_SHOWN = 8


class SyncedEngine(ABC):
    """The part of :class:`~verl_like.backends.base.RolloutEngine` that does not depend on the generator.

    The order of calls is ``begin_sync -> load -> finish_sync`` for new weights and ``sleep -> (a sync and wake, in
    either order)`` around training. Sleeping invalidates the weights on every device, so the same rules hold on CPU and
    on GPU.

    A sync raises if there are unfinished requests, unless its caller says what happens to them; ``sleep`` always does.
    Between ``begin_sync`` and ``finish_sync`` the engine does not step.

    Args:
        weight_shapes: Hugging Face name -> shape of every tensor that a sync must deliver.
        max_model_len: largest number of tokens of prompt plus response.
        vocab_size: prompt ids must be below it.
    """

    takes_features = False  # whether the engine reads Request.features
    version: int

    def __init__(self, *, weight_shapes: Mapping[str, tuple[int, ...]], max_model_len: int, vocab_size: int) -> None:
        self.version = -1
        self.usage = EngineUsage()
        self._weight_shapes = dict(weight_shapes)
        self._max_model_len = max_model_len
        self.vocab_size = vocab_size
        self._sync: _Sync | None = None
        self._versions: dict[str, list[_Sampled]] = {}  # of unfinished requests that have outlived a sync
        self._is_cache_awake = True
        self._are_weights_awake = True

    @abstractmethod
    def has_unfinished(self) -> bool: ...

    @abstractmethod
    def num_free_slots(self) -> int: ...

    @abstractmethod
    def _load_weights(self, weights: Iterator[tuple[str, Any]]) -> None: ...

    @abstractmethod
    def _drop_caches(self) -> None:
        """Drop everything computed from old weights; requests in flight recompute theirs in the next step."""

    @abstractmethod
    def _num_sampled(self) -> Mapping[str, int]:
        """Return the number of tokens sampled so far for each unfinished request, by its id."""

    @abstractmethod
    def _free_memory(self) -> None: ...

    @abstractmethod
    def _wake_weights(self) -> None: ...

    @abstractmethod
    def _wake_cache(self) -> None: ...

    def begin_sync(self, version: int, *, on_running: OnRunning = OnRunning.REFUSE) -> None:
        if version < 0:
            raise ValueError(f"Weight version {version} was announced, but versions start at 0.")
        if self._sync is not None:
            raise RuntimeError(
                f"A sync to version {version} was begun while the one to version {self._sync.version} is open. "
                "Call finish_sync first; after a failed load, build a new engine."
            )
        if on_running is OnRunning.REFUSE:
            self._refuse_unfinished("begin_sync")
        self._end_spans()
        # Until finish_sync the engine holds a mix of two versions.
        self.version = -1
        self._sync = _Sync(version, self._weight_shapes, on_running)
        if not self._are_weights_awake:
            self._wake_weights()
            self._are_weights_awake = True

    def load(self, bucket: Iterable[tuple[str, Any]]) -> None:
        if self._sync is None:
            raise RuntimeError("load was called outside of a sync. Call begin_sync(version) first.")
        if self._sync.is_loaded:
            raise RuntimeError("load was called twice in one sync. Hand over all weights as one lazy iterable.")
        self._sync.is_loaded = True
        self._load_weights(self._sync.accepted(bucket))

    def finish_sync(self) -> None:
        if self._sync is None:
            raise RuntimeError(
                "finish_sync was called outside of a sync. Call begin_sync(version) and load(weights) first."
            )
        sync, self._sync = self._sync, None
        sync.check()
        if sync.on_running is not OnRunning.KEEP or not self.has_unfinished():
            self._drop_caches()
        self.version = sync.version

    def _end_spans(self) -> None:
        """Record which tokens of unfinished requests the present weights have sampled."""
        for request_id, num_tokens in self._num_sampled().items():
            spans = self._versions.setdefault(request_id, [])
            start = spans[-1].end if spans else 0
            if num_tokens > start:
                spans.append(_Sampled(self.version, num_tokens))

    def _versions_of(self, request_id: str, num_tokens: int) -> tuple[VersionSpan, ...]:
        """Return the weights that sampled the tokens of a request, which ends."""
        ended = self._versions.pop(request_id, [])
        starts = [0, *(each.end for each in ended)]
        versions = [*(each.version for each in ended), self.version]
        return tuple(
            VersionSpan(start, version)
            for start, version in zip(starts, versions, strict=True)
            if start < num_tokens or start == 0
        )

    def sleep(self) -> None:
        if self._sync is not None:
            raise RuntimeError("sleep was called in the middle of a sync. Call finish_sync first.")
        self._refuse_unfinished("sleep")
        if self._is_cache_awake != self._are_weights_awake:
            waiting_for = "wake()" if self._are_weights_awake else "a sync"
            raise RuntimeError(
                f"sleep was called on a half-awake engine, which cannot free the other half. Call {waiting_for} first."
            )
        if self._is_cache_awake:
            self._free_memory()
        self.version = -1
        self._is_cache_awake = self._are_weights_awake = False

    def wake(self) -> None:
        if not self._is_cache_awake:
            self._wake_cache()
            self._is_cache_awake = True

    def _check_submit(self, requests: list[Request], *, in_use: Container[str]) -> None:
        """Raise before any request is queued, so that a refused call changes nothing."""
        self._check_ready()
        seen: set[str] = set()
        for request in requests:
            self._check_request(request)
            if request.request_id in in_use or request.request_id in seen:
                raise ValueError(
                    f"Request id {request.request_id} is already in use by an unfinished request. Make the ids unique."
                )
            seen.add(request.request_id)

    def _check_ready(self) -> None:
        if self._sync is not None:
            raise StaleWeightsError(
                f"submit was called during the sync to version {self._sync.version}. Call finish_sync first."
            )
        if not self._is_cache_awake:
            raise RuntimeError("submit was called on a sleeping engine. Sync its weights and call wake() first.")
        if self.version < 0:
            raise StaleWeightsError(
                "The engine holds no weights: it was never synced, or has slept since, or its last sync failed. "
                "Call begin_sync(version), load(weights) and finish_sync() first."
            )

    def _check_request(self, request: Request) -> None:
        name, num_prompt, max_tokens = request.request_id, len(request.prompt_ids), request.sampling.max_tokens
        if num_prompt == 0 or max_tokens < 1:
            raise ValueError(
                f"Request {name} has {num_prompt} prompt tokens and max_tokens={max_tokens}; both must be at least 1."
            )
        if num_prompt + max_tokens > self._max_model_len:
            raise ValueError(
                f"Request {name} has {num_prompt} prompt tokens and max_tokens={max_tokens}, but the engine was "
                f"built "
                f"for {self._max_model_len} in all. Raise data.max_prompt_length or data.max_response_length."
            )
        if request.features and not self.takes_features:
            raise ValueError(
                f"Request {name} has the features {sorted(request.features)}, but this engine reads only token ids. "
                "Use a rollout.backend that takes features, or prompts without them."
            )
        lowest, highest = min(request.prompt_ids), max(request.prompt_ids)
        if lowest < 0 or highest >= self.vocab_size:
            raise ValueError(
                f"Request {name} has token ids from {lowest} to {highest}, but the model knows 0 to "
                f"{self.vocab_size - 1}. Check that model.tokenizer_path is the model's own tokenizer."
            )

    def _check_step(self) -> None:
        if self._sync is not None:
            raise StaleWeightsError(
                f"step was called during the sync to version {self._sync.version}. Call finish_sync first."
            )
        if self.version < 0 and self.has_unfinished():
            raise StaleWeightsError(
                "step was called with unfinished requests on an engine that holds no weights, because a sync failed. "
                "Sync all weights again, or abort the requests."
            )

    def _refuse_unfinished(self, call: str) -> None:
        if self.has_unfinished():
            raise RuntimeError(
                f"{call} was called while requests are unfinished. Step until has_unfinished() is false, or abort them."
            )


class _Sampled(NamedTuple):
    """The tokens of a request up to ``end`` that one version of the weights has sampled."""

    version: int
    end: int


class _Sync:
    """One sync in progress: the names received so far, and the errors found in them."""

    def __init__(self, version: int, weight_shapes: Mapping[str, tuple[int, ...]], on_running: OnRunning) -> None:
        self.version, self.on_running = version, on_running
        self.is_loaded = False
        self._weight_shapes = weight_shapes
        self._seen: set[str] = set()
        self._faults: dict[str, list[str]] = {"unknown": [], "handed over twice": [], "of the wrong shape": []}

    def accepted(self, weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield valid tensors and record errors: raising here would leave an engine's layers half replaced."""
        for name, tensor in weights:
            shape = self._weight_shapes.get(name)
            if shape is None:
                self._faults["unknown"].append(name)
            elif name in self._seen:
                self._faults["handed over twice"].append(name)
            elif tuple(tensor.shape) != shape:
                self._faults["of the wrong shape"].append(f"{name} {tuple(tensor.shape)} instead of {shape}")
                self._seen.add(name)
            else:
                self._seen.add(name)
                yield name, tensor

    def check(self) -> None:
        faults = {"missing": [name for name in self._weight_shapes if name not in self._seen], **self._faults}
        found = "; ".join(f"{len(names)} {kind}: {_shown(names)}" for kind, names in faults.items() if names)
        if found:
            raise ValueError(
                f"The sync to version {self.version} delivered the wrong weights: {found}. Expected exactly the "
                f"{len(self._weight_shapes)} tensors of the Hugging Face model, tied weights under both names. "
                "The engine has no usable weights until a full sync."
            )


def _shown(names: list[str]) -> str:
    rest = len(names) - _MAX_NAMES_SHOWN
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
