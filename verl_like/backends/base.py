"""The protocols that backends implement: RolloutEngine (vLLM, hf), and for training (FSDP2) PolicyEngine and
ValueEngine, with a Learner on top of what learns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from verl_like.algorithms.types import MicroBatchLoss
from verl_like.config.schema import FsdpConfig, ModelConfig, OptimConfig
from verl_like.protocol import DataProto


class StaleWeightsError(RuntimeError):
    """The engine was asked to generate from a weight version it does not hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How one rollout call samples; every call brings its own (training, validation, greedy baselines)."""

    max_tokens: int
    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = -1
    ignore_eos: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One sample of one prompt.

    Args:
        features: what the model reads besides tokens, by name; an engine that takes none raises ValueError.
    """

    request_id: str
    prompt_ids: list[int]
    seed: int
    sampling: Sampling
    features: Mapping[str, Any] | None = None


@dataclass(kw_only=True, slots=True)
class Finished:
    """One finished (or aborted) sample.

    ``log_probs`` are nats at the sampling temperature, after top-p and top-k, one per response token.
    """

    request_id: str
    response_ids: list[int]
    log_probs: list[float]
    finish_reason: str  # "stop" (end token), "length" or "abort"


@dataclass(kw_only=True, slots=True)
class EngineUsage:
    """What an engine had to do; the first two are the most requests at a time."""

    running: int = 0
    waiting: int = 0
    preemptions: int = 0  # requests put back into the queue, and computed anew
    cached_prompt_tokens: int = 0  # of finished requests, found in the prefix cache

    def see(self, *, running: int, waiting: int) -> None:
        """So many requests run, and so many wait."""
        self.running, self.waiting = max(self.running, running), max(self.waiting, waiting)


class RolloutEngine(Protocol):
    """A generation engine in this process. All ranks of a tensor-parallel group make the same calls."""

    version: int  # of the weights it holds; -1 before the first sync
    usage: EngineUsage  # whoever reads it sets a new one

    def submit(self, requests: list[Request]) -> None:
        """Queue requests; raises ValueError for a prompt that cannot fit."""

    def step(self) -> list[Finished]:
        """Advance by one decoding step and return what finished."""

    def has_unfinished(self) -> bool: ...

    def room(self) -> int:
        """How many more requests would begin with the next step; none where some wait already."""

    def abort(self, request_ids: Iterable[str]) -> list[Finished]:
        """Stop these requests and return what they had generated."""

    def begin_sync(self, version: int, *, keeps_requests: bool = False) -> None:
        """Announce new weights of this version (wakes the weights' memory where it sleeps).

        Args:
            keeps_requests: let unfinished requests go on after ``finish_sync``: they keep their tokens and log-probs,
                and compute everything else anew from the new weights. Without it they are refused.
        """

    def load(self, bucket: Iterable[tuple[str, Any]]) -> None:
        """Take (Hugging Face name, full tensor) pairs; called once with one lazy iterable per sync.

        The tensors may be the trainer's own, so what the engine keeps are copies.
        """

    def finish_sync(self) -> None:
        """Check that every weight came, drop caches that depend on old weights, adopt the version."""

    def sleep(self) -> None:
        """Free the accelerator's memory; weights must be synced before the next submit."""

    def wake(self) -> None:
        """Take the key-value cache's memory back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """How a training backend loads a model, cuts it over the ranks and runs it.

    Args:
        model: ``path`` names the folder or hub name of the weights; ``lora`` holds for models that learn.
        max_tokens_per_micro_batch: budget of one forward pass per rank, "auto" or a number.
        is_frozen: whether the weights are only ever read; they are then kept in the dtype of the forward pass, without
            float32 masters.
        temperature: at which updates take log-probs and entropy; that of the rollout.
        log_prob_chunk_mib: logits that exist at once.
        use_torch_compile: let :meth:`PolicyEngine.warm_up` compile the log-prob function.
        compile_layers: let :meth:`PolicyEngine.compile_layers` do what it is called.
        rollout_dtype, sync_bucket_mib: of :meth:`PolicyEngine.named_weights`.
        balance_by: what is spread evenly over forward passes, "tokens" or "attention".
        seed: of anything the model's loading draws at random.
        sequence_parallel_size: neighbouring ranks that share the tokens of their rows in every pass.
        timeout_s: of collectives among these.
    """

    model: ModelConfig
    fsdp: FsdpConfig
    device: torch.device
    max_tokens_per_micro_batch: str
    is_frozen: bool = False
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


class Learner(Protocol):
    """An engine's optimiser and learning-rate schedule. Every method is collective."""

    def update(self, rows: DataProto, loss: MicroBatchLoss) -> dict[str, float]:
        """Make one optimiser update on this rank's share of a mini-batch.

        The rows are cut into micro-batches of the token budget (equally many on all ranks, an empty one where a rank
        has fewer) and ``loss`` is called on each; its values add up over micro-batches and ranks to the loss and the
        metrics of the whole mini-batch, because it divides by global counts.

        Returns:
            The loss's metrics plus ``grad_norm`` (before clipping), ``lr`` and ``skipped_updates`` (1 where the
            gradient norm was not finite and the weights were left alone), equal on all ranks.
        """

    def save(self, path: Path) -> None:
        """Write weights, optimiser, schedule and random states below ``path``."""

    def begin_save(self, path: Path) -> Callable[[], None]:
        """Copy to host memory what :meth:`save` writes.

        Returns:
            What writes the copies: collective, to be called once, on any thread, and to have returned before the next
            ``begin_save``. Updates may go on beside it.
        """

    def load(self, path: Path) -> None:
        """Read what :meth:`save` wrote."""

    def offload(self) -> None:
        """Move weights and optimiser state to host memory, as configured."""

    def onload(self) -> None:
        """Undo :meth:`offload`."""


class ForwardEngine(Protocol):
    """A sharded model. Every method is collective: all ranks call it, with their own rows.

    A call works on the rows in the order given; ragged results align with ``response_ids``.
    """

    def learner(self, optim: OptimConfig, *, total_updates: int, max_response_tokens: int) -> Learner:
        """Have this model learn; to be called once, before anything is run.

        Args:
            total_updates: optimiser updates of the whole run, where the schedule ends; 0 when unknown.
            max_response_tokens: data.max_response_length, handed to losses in :class:`BatchTotals`.
        """

    def load(self, path: Path) -> None:
        """Read the weights alone of what :meth:`Learner.save` wrote."""

    def export(self, path: Path) -> None:
        """Write a Hugging Face folder (rank 0 writes); LoRA adapters are added to the weights."""

    def export_adapter(self, path: Path) -> None:
        """Write LoRA adapters alone, as a folder of peft's (rank 0 writes)."""

    def offload(self) -> None:
        """Move the weights to host memory, as configured."""

    def onload(self) -> None:
        """Undo :meth:`offload`."""


class PolicyEngine(ForwardEngine, Protocol):
    """A causal language model."""

    @property
    def num_gathers(self) -> int:
        """Collectives that :meth:`named_weights` has made so far."""

    def forward_log_probs(
        self,
        rows: DataProto,
        *,
        temperature: float,
        entropy: bool = False,
        sum_pi_squared: bool = False,
        as_read: bool = False,
    ) -> dict[str, NDArray[np.float32]]:
        """Compute the log-probs of the response tokens, without gradients.

        Args:
            as_read: of a model with LoRA adapters, those of the model that it began as.

        Returns:
            ``log_probs`` [K] float32 nats, all rows' response tokens one after the other, and where asked
            ``entropy`` [K] nats and ``sum_pi_squared`` [K], all at ``temperature``.
        """

    def warm_up(self, deadline_s: float, *, entropy: bool = False) -> bool:
        """Compile the log-prob function where that is configured; later calls compile nothing of it.

        Args:
            deadline_s: longest time to wait for the compiler, in seconds; past it everything stays eager.
            entropy: whether updates will read entropy.

        Returns:
            Whether updates will run it compiled.
        """

    def compile_layers(self, deadline_s: float) -> bool:
        """Compile the decoder layers, as :meth:`warm_up` does the log-prob function."""

    def named_weights(self) -> Iterator[tuple[str, Any]]:
        """Stream (Hugging Face name, full tensor), in buckets; to be read only, and before the next update.

        LoRA adapters are added to the weights.
        """

    def named_adapter(self) -> Iterator[tuple[str, Any]]:
        """Stream LoRA adapters alone, under peft's names."""


class ValueEngine(ForwardEngine, Protocol):
    """A language model with one number per position: a critic, or a classifier whose number is a score."""

    def forward_values(self, rows: DataProto) -> NDArray[np.float32]:
        """Compute [K] float32: the value at each response token's position *before* that token is chosen."""
