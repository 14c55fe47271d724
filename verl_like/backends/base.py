"""Protocols that backends implement: RolloutEngine (vLLM, hf), and for training (FSDP2) PolicyEngine and ValueEngine. A
Learner updates the model of a training engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from verl_like.algorithms.types import MicroBatchLoss
from verl_like.config.schema import FsdpConfig, ModelConfig, OptimConfig
from verl_like.protocol import DataProto


class StaleWeightsError(RuntimeError):
    """Raised when an engine is asked to generate from a weight version that it does not hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Sampling settings of one rollout request (training, validation and greedy baselines differ).

    Args:
        returns_candidates: whether the engine reports the candidates of each token.
        returns_experts: whether the engine reports the experts of each token.
    """

    max_tokens: int
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = -1
    ignore_eos: bool = False
    returns_candidates: bool = False
    returns_experts: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One sample of one prompt.

    Args:
        features: model inputs other than tokens, by name; an engine that supports none raises ValueError.
        salt: only requests with the same salt share cached keys and values: the weight version at the start of the
            episode. An empty one is a salt too.
    """

    request_id: str
    prompt_ids: list[int]
    seed: int
    sampling: Sampling
    features: Mapping[str, Any] | None = None
    salt: str = ""


class VersionSpan(NamedTuple):
    """Response tokens sampled by one version of the weights, up to the start of the next span."""

    start: int
    version: int


class OnRunning(Enum):
    """What a sync does with unfinished requests."""

    REFUSE = "they are an error"
    KEEP = "they continue with the keys and values of the old weights"
    RECOMPUTE = "their keys and values are computed anew from the new weights"


@dataclass(kw_only=True, slots=True)
class Finished:
    """One finished (or aborted) sample.

    ``log_probs`` are nats at the sampling temperature, after top-p and top-k, one per response token. ``candidates``
    has, if requested, the ids that top-p and top-k kept for each response token, int32 in any order. ``experts`` are,
    if requested, those of all tokens but the last, [P + T - 1, layers, experts per token] uint8 or int16.
    """

    request_id: str
    response_ids: list[int]
    log_probs: list[float]
    finish_reason: str  # "stop" (end token), "length" or "abort"
    versions: tuple[VersionSpan, ...]  # of the weights that sampled its tokens, at least one
    num_cached_tokens: int = 0  # of the prompt, found in the prefix cache
    candidates: Sequence[NDArray[np.int32]] = ()
    experts: NDArray[Any] | None = None

    def token_versions(self) -> NDArray[np.int32]:
        """Return the version of the weights that sampled each response token, [T]."""
        num_tokens = len(self.response_ids)
        ends = [*(span.start for span in self.versions[1:]), num_tokens]
        lengths = [end - span.start for span, end in zip(self.versions, ends, strict=True)]
        return np.repeat(np.array([span.version for span in self.versions], np.int32), lengths)


@dataclass(kw_only=True, slots=True)
class EngineUsage:
    """Usage counters of an engine; ``running`` and ``waiting`` are the largest numbers of requests at any one time."""

    running: int = 0
    waiting: int = 0
    starving: int = 0  # requests of which the newest step began none, although the engine may run more
    preemptions: int = 0  # requests put back into the queue and computed anew
    cached_prompt_tokens: int = 0  # prompt tokens of finished requests that were found in the prefix cache

    def record(self, *, running: int, waiting: int) -> None:
        """Record the current numbers of running and waiting requests."""
        self.running, self.waiting = max(self.running, running), max(self.waiting, waiting)

    @property
    def is_under_pressure(self) -> bool:
        """True if the requests need more KV cache than the engine has."""
        return bool(self.preemptions or self.starving)


class RolloutEngine(Protocol):
    """A generation engine in this process. All ranks of a tensor-parallel group make the same calls."""

    version: int  # version of the weights it holds; -1 before the first sync
    usage: EngineUsage  # the caller that reads it sets a new one
    end_token_ids: frozenset[int]  # tokens that end a response
    vocab_size: int  # prompt ids are below it

    def submit(self, requests: list[Request]) -> None:
        """Queue requests; raise ValueError for a prompt that does not fit."""

    def step(self) -> list[Finished]:
        """Advance by one decoding step and return the samples that finished."""

    def has_unfinished(self) -> bool: ...

    def num_free_slots(self) -> int:
        """Return the number of requests that the next step would start if they were submitted now; 0 if some wait."""

    def abort(self, request_ids: Iterable[str]) -> list[Finished]:
        """Stop these requests and return the samples as generated so far."""

    def begin_sync(self, version: int, *, on_running: OnRunning = OnRunning.REFUSE) -> None:
        """Announce new weights of this version, and restore the weights' memory if the engine sleeps.

        Args:
            on_running: what happens to unfinished requests; those that continue after ``finish_sync`` have the tokens
                and log-probs that were sampled before.
        """

    def load(self, bucket: Iterable[tuple[str, Any]]) -> None:
        """Load (Hugging Face name, full tensor) pairs; called once per sync, with one lazy iterable.

        A tensor is read-only, and valid until the next one is taken: the engine copies what it keeps.
        """

    def finish_sync(self) -> None:
        """Check that every weight has arrived, drop caches that depend on old weights unless requests keep them, and
        adopt the version.
        """

    def sleep(self) -> None:
        """Free accelerator memory; weights must be synced before the next submit."""

    def wake(self) -> None:
        """Reallocate the memory of the key-value cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """How a training backend loads a model, shards it over the ranks and runs it.

    Args:
        model: ``path`` is the folder or hub name of the weights; ``lora`` applies to models that learn.
        max_tokens_per_micro_batch: token budget of one forward pass per rank, "auto" or a number.
        is_frozen: whether the weights are never updated; they are then kept in the dtype of the forward pass, without
            float32 masters.
        is_averaged: whether a frozen model is averaged with another one; its weights are then float32, because steps
            of an average are too small for bfloat16.
        temperature: sampling temperature of the rollout, at which updates compute log-probs and entropy.
        log_prob_chunk_mib: memory for logits that exist at the same time, in MiB.
        use_torch_compile: let :meth:`PolicyEngine.warm_up` compile the log-prob function.
        compile_layers: let :meth:`PolicyEngine.compile_layers` compile the decoder layers.
        rollout_dtype, sync_bucket_mib: settings of :meth:`PolicyEngine.named_weights`.
        balance_by: quantity that is balanced over forward passes, "tokens" or "attention".
        seed: seed of anything that loading the model draws at random.
        sequence_parallel_size: number of neighbouring ranks that share the tokens of their rows in every pass.
        timeout_s: timeout of collectives among these ranks.
        router_replay: whether passes use the experts in the rows' column ``routed_experts``.
        router_bias_rate: step by which an update moves the biases of routers that choose with them.
        freeze_router: whether the weights of routers do not learn.
        router_aux_loss_coef: coefficient of the imbalance of experts in updates.
    """

    model: ModelConfig
    fsdp: FsdpConfig
    device: torch.device
    max_tokens_per_micro_batch: str
    is_frozen: bool = False
    is_averaged: bool = False
    temperature: float = 1.0
    log_prob_chunk_mib: int = 512
    use_torch_compile: bool = False
    compile_layers: bool = False
    rollout_dtype: str = "auto"
    sync_bucket_mib: float = 64
    balance_by: str = "tokens"
    seed: int = 0
    sequence_parallel_size: int = 1
    timeout_s: float = 1800.0
    router_replay: bool = False
    router_bias_rate: float = 0.0
    freeze_router: bool = False
    router_aux_loss_coef: float = 0.0


class Learner(Protocol):
    """An engine's optimiser and learning-rate schedule. Every method is collective."""

    def update(self, rows: DataProto, loss: MicroBatchLoss) -> dict[str, float]:
        """Make one optimiser update on this rank's share of a mini-batch.

        The rows are split into micro-batches of the token budget, equally many on all ranks; a rank with fewer gets
        empty ones. ``loss`` is called on each micro-batch. It divides by global counts, so its values sum over
        micro-batches and ranks to the loss and the metrics of the whole mini-batch.

        Returns:
            The loss's metrics plus ``grad_norm`` (before clipping), ``lr`` and ``skipped_updates`` (1 if the gradient
            norm was not finite and the weights did not change), equal on all ranks.
        """

    def save(self, path: Path) -> None:
        """Write weights, optimiser, schedule and random states below ``path``."""

    def begin_save(self, path: Path) -> Callable[[], None]:
        """Copy to host memory what :meth:`save` writes.

        Returns:
            A collective function that writes the copies. Call it once, on any thread; it must return before the next
            ``begin_save``. Updates may run in parallel with it.
        """

    def load(self, path: Path) -> None:
        """Read what :meth:`save` wrote."""

    def offload(self) -> None:
        """Move weights and optimiser state to host memory, as configured."""

    def onload(self) -> None:
        """Undo :meth:`offload`."""


class ForwardEngine(Protocol):
    """A sharded model. Every method is collective: all ranks call it, each with its own rows.

    A call works on the rows in the given order; ragged results align with ``response_ids``.
    """

    def learner(self, optim: OptimConfig, *, total_updates: int, max_response_tokens: int) -> Learner:
        """Prepare this model for training and return its learner; call this once, before any pass.

        Args:
            total_updates: optimiser updates of the whole run, at which the schedule ends; 0 if unknown.
            max_response_tokens: data.max_response_length, passed to losses in :class:`BatchTotals`.
        """

    def load(self, path: Path) -> None:
        """Read only the weights of what :meth:`Learner.save` wrote."""

    def copy_weights(self, other: object, *, weight: float = 1.0) -> None:
        """Take the weights of another engine of the same model, in the dtype of this one, which is frozen.

        Args:
            weight: 1 for a copy; below it, the new weights are this share of the other's and the rest of the old ones.
        """

    def begin_save_weights(self, path: Path) -> Callable[[], None]:
        """Copy the weights of a frozen engine to host memory.

        Returns:
            A collective function that writes the copies below ``path``. Call it once, on any thread.
        """

    def load_saved_weights(self, path: Path) -> None:
        """Read what :meth:`begin_save_weights` wrote."""

    def export(self, path: Path) -> None:
        """Write a Hugging Face folder (rank 0 writes); LoRA adapters are merged into the weights."""

    def export_adapter(self, path: Path) -> None:
        """Write only the LoRA adapters, as a peft folder (rank 0 writes)."""

    def offload(self) -> None:
        """Move the weights to host memory, as configured."""

    def onload(self) -> None:
        """Undo :meth:`offload`."""


class PolicyEngine(ForwardEngine, Protocol):
    """A causal language model.

    For rows with the columns ``CANDIDATES`` of :mod:`verl_like.protocol`, log-probs, entropy and ``sum_pi_squared`` are
    over the candidates of each token, here and in updates.
    """

    @property
    def num_gathers(self) -> int:
        """Number of collectives that :meth:`named_weights` has made so far."""

    def take_routing_difference(self) -> tuple[int, int]:
        """Return for how many pairs of token and layer this rank's routers would have chosen other experts than the
        replayed ones, and the number of all replayed pairs, since the last call.
        """

    def forward_log_probs(
        self,
        rows: DataProto,
        *,
        temperature: float,
        entropy: bool = False,
        sum_pi_squared: bool = False,
        without_adapters: bool = False,
    ) -> dict[str, NDArray[np.float32]]:
        """Compute the log-probs of the response tokens, without gradients.

        Args:
            without_adapters: for a model with LoRA adapters, whether to disable the adapters.

        Returns:
            ``log_probs`` [K] float32 nats, the response tokens of all rows concatenated, and if requested ``entropy``
            [K] nats and ``sum_pi_squared`` [K], all at ``temperature``.
        """

    def distil_from(self, teachers: Sequence[object], *, beta: float, without_adapters: bool = False) -> None:
        """Let the passes of updates compute the generalised Jensen-Shannon divergence from the models of other engines,
        or from this one's own; losses read it as ``divergence``. A teacher sees the same tokens, or the same responses
        after ``teacher_prompt_ids`` if the rows have them.

        Args:
            teachers: the engines among which the column ``teacher`` [B] of the rows chooses; without it, all rows have
                the first.
            without_adapters: whether a teacher is its engine's model with its LoRA adapters disabled.
            beta: 0 is the forward KL, 1 the reverse (:class:`verl_like.ops.divergence.GeneralisedJsd`).
        """

    def warm_up(self, deadline_s: float, *, entropy: bool = False) -> bool:
        """Compile the log-prob function if configured; later calls do not compile it again.

        Args:
            deadline_s: longest time to wait for the compiler, in seconds; after it the function stays eager.
            entropy: whether updates will need the entropy.

        Returns:
            Whether updates will run the compiled function.
        """

    def compile_layers(self, deadline_s: float) -> bool:
        """Compile the decoder layers, as :meth:`warm_up` does the log-prob function."""

    def named_weights(self) -> Iterator[tuple[str, Any]]:
        """Yield (Hugging Face name, full tensor) in buckets; read-only, and valid until the next one is taken.

        LoRA adapters are merged into the weights.
        """

    def named_adapter(self) -> Iterator[tuple[str, Any]]:
        """Yield only the LoRA adapters, under peft's names."""


class ValueEngine(ForwardEngine, Protocol):
    """A language model with one number per position: a critic, or a classifier whose number is a score."""

    def forward_values(self, rows: DataProto) -> NDArray[np.float32]:
        """Return [K] float32: the value at each response token's position *before* that token is chosen."""
