"""Compute the divergence between two language models' distributions at each token, without whole logits.

Both output layers run tile by tile (``tiles.py``), in two passes over the vocabulary: one for the normalisers, one for
the divergence. Backward makes a third. Logits that fit into the budget are kept instead of computed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from verl_like.ops.tiles import LOWEST, LayerGradient, OutputLayer, Tiles


class States(NamedTuple):
    """The last hidden states [K, H] of a model at K tokens, and its output layer."""

    hidden: Tensor
    layer: OutputLayer


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneralisedJsd:
    """The divergence of a student from a teacher.

    With the student's distribution S, the teacher's T and M = (1 - beta) S + beta T it is beta KL(T, M) + (1 - beta)
    KL(S, M) (GKD, 2306.13649, with the direction of TRL). A beta of 0 is the forward KL(T, S), and 1 the reverse
    KL(S, T).

    Args:
        temperature: logits of both are divided by it.
        budget_mib: size of float32 logits of both that exist at the same time.
    """

    beta: float
    temperature: float
    budget_mib: int

    def __call__(self, student: States, teacher: States) -> Tensor:
        """Return [K] float32 nats, with gradients for the student.

        Ids must have equal meanings. If one vocabulary is larger, which padding of embeddings causes, only the ids that
        both have count.
        """
        size = min(len(student.layer.weight), len(teacher.layer.weight))
        layer = student.layer.first(size)
        teacher = States(teacher.hidden.detach(), teacher.layer.first(size).detached())
        found: Tensor = _Divergence.apply(student.hidden, layer.weight, layer.bias, layer, teacher, self)  # type: ignore[no-untyped-call]
        return found

    def tiles(self, states: States) -> Tiles:
        """Return one model's tiles, which have half of the budget."""
        budget = self.budget_mib * 2**20 // 2
        return Tiles(*states, scale=1.0 / self.temperature, budget=budget, has_scratch=False)


class _TilesOfBoth:
    """The tiles of both models, of the same tokens of the vocabulary at a time."""

    def __init__(self, student: Tiles, teacher: Tiles) -> None:
        assert student.spans == teacher.spans, "the models have other tiles"
        self.student, self._teacher = student, teacher
        self._kept: list[tuple[Tensor, Tensor]] = []  # of the first tiles

    def __iter__(self) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Yield (start, stop, student's logits, teacher's logits), [K, v] float32 each, not to be written."""
        for index, (start, stop) in enumerate(self.student.spans):
            if index < len(self._kept):
                yield start, stop, *self._kept[index]
                continue
            is_kept = index < self.student.num_kept
            student = self.student.logits(start, stop, in_new_memory=is_kept)
            teacher = self._teacher.logits(start, stop, in_new_memory=is_kept)
            if is_kept:
                self._kept.append((student, teacher))
            yield start, stop, student, teacher


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        layer: OutputLayer,
        teacher: States,
        kind: GeneralisedJsd,
    ) -> Tensor:
        tiles = _TilesOfBoth(kind.tiles(States(hidden, layer)), kind.tiles(teacher))
        of_student = of_teacher = hidden.new_full((len(hidden),), LOWEST, dtype=torch.float32)
        for _, _, student, other in tiles:
            of_student = torch.logaddexp(of_student, student.logsumexp(1))
            of_teacher = torch.logaddexp(of_teacher, other.logsumexp(1))
        found = mean_slope = torch.zeros_like(of_student)
        for _, _, student, other in tiles:
            value, slope = _sums(student - of_student[:, None], other - of_teacher[:, None], kind.beta)
            found, mean_slope = found + value, mean_slope + slope
        ctx.save_for_backward(hidden, weight, bias, of_student, of_teacher, mean_slope)
        ctx.tiles, ctx.beta, ctx.scale = tiles, kind.beta, 1.0 / kind.temperature
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, of_student, of_teacher, mean_slope = ctx.saved_tensors
        tiles: _TilesOfBoth = ctx.tiles
        of_value = gradients[0] * ctx.scale
        total = LayerGradient(hidden, weight, bias, needed=ctx.needs_input_grad[:3])
        for start, stop, logits, other in tiles:
            student, teacher = logits - of_student[:, None], other - of_teacher[:, None]
            if ctx.beta == 0:
                found = student.exp() - teacher.exp()
            else:
                found = student.exp() * (_slope(student, teacher, ctx.beta) - mean_slope[:, None])
            total.add(tiles.student, found * of_value[:, None], tiles.student.softcap_slope(logits, 0.0), start, stop)
        return (*total.found(), None, None, None)


def _sums(student: Tensor, teacher: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Return a tile's sums [K]: of the divergence, and for a beta above 0 of the student's probability times the slope.

    Args:
        student, teacher: [K, v] log-probs.
    """
    if beta == 0:
        forward = (teacher.exp() * (teacher - student)).sum(1)
        return forward, torch.zeros_like(forward)
    from_student = (student.exp() * _slope(student, teacher, beta)).sum(1)
    if beta == 1:
        return from_student, from_student
    from_teacher = (teacher.exp() * (teacher - _mixture(student, teacher, beta))).sum(1)
    return beta * from_teacher + from_student, from_student


def _slope(student: Tensor, teacher: Tensor, beta: float) -> Tensor:
    """Return [K, v] the derivative of the divergence by the student's probability, up to a constant; ``beta`` > 0."""
    return student - teacher if beta == 1 else (1 - beta) * (student - _mixture(student, teacher, beta))


def _mixture(student: Tensor, teacher: Tensor, beta: float) -> Tensor:
    return torch.logaddexp(student + math.log1p(-beta), teacher + math.log(beta))
