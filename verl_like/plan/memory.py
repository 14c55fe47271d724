"""Memory of the passes of a sharded model in bytes, computed from its shape.

The terms follow the code that allocates them: ``backends/fsdp`` for models, ``ops/log_probs.py`` for logits. Quantities
without a formula are named constants, measured or assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import torch

from verl_like.ops.tiles import AT_WORK, FLOAT32, num_kept, num_tiles
from verl_like.plan.activations import Activations, Forward, Gradients, counted, counted_forward
from verl_like.plan.layers import PassKind
from verl_like.plan.one_pass import Pass, key_bytes_per_token, layer_bytes_per_token
from verl_like.plan.sharded import ShardedWeights

# Relative to the memory that a layer keeps for backward: additional memory of its backward pass, and peak of a pass
# without backward (measured).
TRANSIENT_SHARE, FORWARD_SHARE = 0.5, 0.5

Parts = dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharded(ShardedWeights):
    """A sharded model and the peaks of its passes."""

    def update(self, run: Pass) -> Parts:
        """Return the peak of an update's passes, without weights and optimiser."""
        moments = self._moments if self.is_cut else self._moments_of_replica
        return max(moments(run, self._activations(run)), key=lambda parts: sum(parts.values()))

    def _activations(self, run: Pass) -> Activations:
        """Return the activations of a pass with backward."""
        if self.shape.counted is not None:
            kind, keys = self._kind(run), run.shared_keys * key_bytes_per_token(self.shape, self.itemsize)
            return counted(
                self.shape.counted, kind, recomputed=run.recomputed, shared_keys=keys, gradients=self._gradient_use(run)
            )
        layer = self._layer(run, norms_learn=not self.has_adapters)
        states = run.tokens * self.shape.hidden_size * self.itemsize
        held = run.recomputed * states + (self.shape.num_layers - run.recomputed) * layer
        last = layer * (run.recomputed == self.shape.num_layers)  # backward recomputes the last layer's with all others
        working = layer * (1 + self._transient)
        return Activations(held=held, last=held + last + working - layer, reduced=held + last - layer, first=working)

    def _kind(self, run: Pass) -> PassKind:
        dtype = torch.float32 if self.itemsize == FLOAT32 else torch.bfloat16
        has_masters = self.is_averaged or not (self.is_frozen or self.has_adapters)
        return PassKind(
            tokens=run.tokens,
            response_tokens=run.response_tokens,
            pictures=run.pictures,
            picture_tokens=run.picture_tokens,
            dtype=dtype,
            is_fused=self.is_fused,
            is_on_gpu=self.is_gpu,
            learns=run.learns,
            has_adapters=self.has_adapters,
            freezes_vision=self.shape.has_frozen_vision,
            recomputed_vision=run.recomputed_vision,
            expert_ranks=self.ranks if self.own_experts else 1,
            expert_dtype=torch.float32 if has_masters else dtype,
        )

    def _gradient_use(self, run: Pass) -> Gradients:
        """Return how gradients are counted while backward runs, as the moments of a pass have it."""
        head = 0.0 if self.has_adapters or self._output else float(FLOAT32 * self.shape.num_head_parameters)
        is_first, is_reduced = run.count == 1, self.is_cut and not self.is_reduced_once
        is_whole = self.itemsize == FLOAT32 or not self.is_cut
        return Gradients(
            are_added=not is_first and not is_reduced and is_whole,
            count_last=self.is_cut and self.has_layer_groups,
            count_rest=self.is_cut,
            head=head * is_first,
        )

    @property
    def _transient(self) -> float:
        """Share of temporary memory in backward; lower with adapters, because no weight gradients are computed."""
        return TRANSIENT_SHARE / 2 if self.has_adapters else TRANSIENT_SHARE

    def _layer(self, run: Pass, *, norms_learn: bool) -> float:
        """Return the bytes that a layer keeps for its backward pass."""
        keys = run.shared_keys * key_bytes_per_token(self.shape, self.itemsize)
        of_token = layer_bytes_per_token(self.shape, self.itemsize, norms_learn=norms_learn, is_fused=self.is_fused)
        return run.tokens * of_token + keys

    def _moments_of_replica(self, run: Pass, found: Activations) -> Iterator[Parts]:
        """Yield the parts before and after the layers' forward, in the last layer's backward, and later."""
        whole = float(FLOAT32 * self.num_learning)
        before, lacking = (whole, 0.0) if run.count > 1 else (0.0, FLOAT32 * self._learning_of_layer)
        yield {"gradients": before, "activations": found.before}
        yield {"gradients": before, "activations": found.held, "logits": self.logits(run)}
        yield {"gradients": before, "activations": found.closing}
        yield {"gradients": before, "activations": found.last}
        yield {"gradients": whole - lacking, "activations": found.first}
        yield {"gradients": whole - lacking, "activations": found.after}

    def _moments(self, run: Pass, found: Activations) -> Iterator[Parts]:
        """Yield the parts at the moments of a pass that may be its peak.

        They are: after the layers' forward and before it, in the reduction of the output layer, in the last layer's
        backward, in its reduction, in the first layer's backward, after that, and in the reductions of the root and of
        the embedding.
        """
        shape = self.shape
        shards = self.gradients * (not self.is_on_host)
        before, after = self._gradients(run, shards)
        # If layers are reduced separately: a layer's gradients, and their float32 copy.
        are_added = shape.counted is not None and self._gradient_use(run).are_added
        is_apart = self.has_layer_groups and not are_added
        own = self.itemsize * self._learning_of_layer * is_apart
        reduced = own + FLOAT32 * self._learning_of_layer if self.has_layer_groups else 0
        root = self._learning_of_root if self.has_layer_groups else self.num_gathered_learning
        stays = self.is_reduced_once and run.count > 1  # gathered parameters stay until the last pass
        end = max(float(self.itemsize * self.num_gathered) * stays, self.gathered)
        buffer = self._buffer * (not stays)  # the first pass has it, in which there are no gradients yet
        new = self._new_of_experts * (not are_added)
        output, embedding = (number * (not self.has_adapters) for number in (self._output, self._embedding))
        yield {
            "gathered": self._between_layers + buffer + self._gathered_output,
            "gradients": before + self.itemsize * output,
            "activations": found.held,
            "logits": self.logits(run),
        }
        yield {"gathered": self._with_vision + buffer, "gradients": before, "activations": found.before}
        both = self.itemsize + FLOAT32  # a gradient, and its copy for the reduction
        yield {
            "gathered": self.gathered,
            "gradients": before + both * output,
            "activations": max(found.held, found.closing),
        }
        sent = FLOAT32 * output  # FSDP2 frees it when the next group is reduced
        yield {"gathered": self.gathered, "gradients": before + own + new + sent, "activations": found.last}
        yield {"gathered": self.gathered, "gradients": before + new + reduced, "activations": found.reduced}
        yield {"gathered": end, "gradients": after + own + new * (run.count > 1), "activations": found.first}
        yield {"gathered": max(end, self._with_vision), "gradients": after, "activations": found.after}
        yield {"gathered": self.root, "gradients": shards * self.has_layer_groups + both * max(root, embedding)}

    @property
    def step(self) -> Parts:
        """Parts of an optimiser step, without weights and moments."""
        return {} if self.is_on_host else {"gradients": self.gradients}

    def _gradients(self, run: Pass, shards: float) -> tuple[float, float]:
        """Return the bytes of gradients at the start and at the end of backward, for the pass with the highest use."""
        if not self.is_reduced_once:  # the root's gradients stay unsharded until the end of a pass
            found = shards + self.itemsize * self._learning_of_root
            return found, found
        whole = float(FLOAT32 * self.num_gathered_learning) + shards * self._share_of_own_experts
        if run.count > 1:  # in the last pass shards replace them, layer by layer
            return whole, whole
        of_layers = shards * (1 - self._learning_of_root / self.num_learning)
        return 0.0, of_layers if self.has_layer_groups else whole

    def forward(self, run: Pass) -> Parts:
        """Return the peak of a pass without backward, which is in a layer or after all layers."""
        found = self._forward(run.without_backward())
        logits = self.logits(run.without_backward())
        inside: Parts = {"gathered": self.gathered + self._buffer, "activations": found.most}
        gathered = self._between_layers + self._buffer + self._gathered_output
        behind: Parts = {"gathered": gathered, "activations": found.behind, "logits": logits}
        return max(inside, behind, key=lambda parts: sum(parts.values()))

    def _forward(self, run: Pass) -> Forward:
        """Return the activations of a pass without backward."""
        if self.shape.counted is not None:
            keys = run.shared_keys * key_bytes_per_token(self.shape, self.itemsize)
            return counted_forward(self.shape.counted, self._kind(run), shared_keys=keys)
        layer = self._layer(run, norms_learn=True) * FORWARD_SHARE
        if self.has_adapters:  # an adapter's output before it is added
            layer += float(self.itemsize * run.tokens * self.shape.intermediate_size)
        states = 2.0 * run.tokens * self.shape.hidden_size * self.itemsize
        return Forward(most=states + layer, behind=states)

    def logits(self, run: Pass) -> float:
        """Return the bytes of active logits tiles and of those kept for backward; 0 for a model without logits."""
        if not run.logits_budget:
            return 0.0
        rows, vocabulary = run.response_tokens, self.shape.vocab_size
        count = num_tiles(rows, vocabulary, budget=run.logits_budget, on_cpu=not self.is_gpu)
        tile = FLOAT32 * rows * ceil(vocabulary / count)
        kept = min(num_kept(tile, budget=run.logits_budget), count) if run.learns else 0
        return float(tile * (kept + AT_WORK - 1) + tile * self.itemsize / FLOAT32 * (self.itemsize < FLOAT32))
