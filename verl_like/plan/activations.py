"""Activations of a pass at the moments that may be its peak.

Those of dense models follow from formulas of a layer's widths. Layers with experts, and models of pictures, are counted
on the meta device.
"""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.plan.layers import CountedModel, EndBytes, LayerBytes, PassKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Activations:
    """Bytes of activations, and of gradients of weights that the caller does not count.

    Args:
        held: after the layers' forward.
        last: most in the last layer's backward; ``reduced`` in the reduction that follows it.
        first: most in the first layer's backward.
        before: most before the layers' forward.
        closing: most around the last norm and the output layer, without logits.
        after: most after it, in the backward of what reads pictures and of the embedding.
    """

    held: float
    last: float
    reduced: float
    first: float
    before: float = 0.0
    closing: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Forward:
    """Bytes of activations of a pass without backward: the most in it, and those that are there with the logits."""

    most: float
    behind: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradients:
    """How gradients of weights take memory while backward runs.

    Args:
        are_added: whether each is added to that of an earlier pass.
        count_last, count_rest: whether the caller counts those of the last layer in its backward, and later all.
        head: bytes of the output layer's, which exist from the first moment of backward.
    """

    are_added: bool
    count_last: bool
    count_rest: bool
    head: float


def counted(
    model: CountedModel, kind: PassKind, *, recomputed: int, shared_keys: float, gradients: Gradients
) -> Activations:
    """Return the activations of an update's pass.

    Args:
        recomputed: layers that backward recomputes, the first ones.
        shared_keys: bytes of keys and values that each layer copies.
    """
    ends = model.ends(kind)
    layers = [model.layer(index, kind, is_recomputed=index < recomputed) for index in range(model.num_layers)]
    keys = [shared_keys * (index >= recomputed) for index in range(model.num_layers)]
    kept = sum(layer.kept for layer in layers) + sum(keys)
    first, last = layers[0], layers[-1]
    others = kept - last.kept - keys[-1]
    return Activations(
        before=ends.before,
        held=kept + ends.after,
        closing=kept + ends.closing + gradients.head,
        last=ends.returning
        + others
        + _backward(last, gradients, is_counted=gradients.count_last)
        + 2 * shared_keys
        + gradients.head,
        reduced=ends.returning + others,
        first=ends.returning + _backward(first, gradients, is_counted=gradients.count_rest) + 2 * shared_keys,
        after=_backward(ends, gradients, is_counted=gradients.count_rest),
    )


def _backward(part: LayerBytes | EndBytes, gradients: Gradients, *, is_counted: bool) -> float:
    if gradients.are_added:
        return part.added
    return max(part.backward - part.gradients * is_counted, 0.0)


def counted_forward(model: CountedModel, kind: PassKind, *, shared_keys: float) -> Forward:
    """Return the activations of a pass without backward."""
    ends = model.ends(kind)
    layers = [model.layer(index, kind, is_recomputed=False) for index in range(model.num_layers)]
    # From the second layer on, the input of the first one is still there.
    states = layers[0].kept * (len(layers) > 1)
    inside = ends.during + states + max(layer.forward for layer in layers) + shared_keys
    return Forward(most=max(ends.before, inside, ends.closing + states), behind=ends.after)
